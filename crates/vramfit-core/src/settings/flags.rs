//! The flags inside `XLA_FLAGS`, read as XLA reads them.

/// The flags of one text, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XlaFlags {
    flags: Vec<(String, Option<String>)>,
}

impl XlaFlags {
    /// Splits a text into flags.
    ///
    /// White space separates; single or double quotes keep it inside a value. The first word that
    /// does not begin with two dashes ends the reading: XLA ignores what follows it without a word
    /// (measured on 0.10.2). A text that begins with such a word is the name of a file to XLA; it is
    /// not opened here, and has no flags.
    pub fn parse(text: &str) -> XlaFlags {
        let flags = split(text)
            .into_iter()
            .map_while(|word| {
                let flag = word.strip_prefix("--")?;
                Some(match flag.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (flag.to_owned(), None),
                })
            })
            .collect();
        XlaFlags { flags }
    }

    /// Returns the value of a flag, empty where it stands without one; the last of several counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        Some(self.find(name)?.unwrap_or_default())
    }

    /// Returns the truth value of a flag; standing alone it is on. `None` when it is not set, or has a
    /// value at which XLA would end the process.
    pub fn bool(&self, name: &str) -> Option<bool> {
        let Some(value) = self.find(name)? else {
            return Some(true);
        };
        match value.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }

    fn find(&self, name: &str) -> Option<Option<&str>> {
        let (_, value) = self.flags.iter().rev().find(|(flag, _)| flag == name)?;
        Some(value.as_deref())
    }
}

/// Splits at white space outside quotes, and takes the quotes off.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            None => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_the_last_counts() {
        let flags = XlaFlags::parse(
            " --xla_gpu_autotune_level=4  --xla_dump_to='/tmp/a b'\t--xla_gpu_autotune_level=0 ",
        );
        assert_eq!(flags.value("xla_gpu_autotune_level"), Some("0"));
        assert_eq!(flags.value("xla_dump_to"), Some("/tmp/a b"));
        assert_eq!(flags.value("xla_dump"), None);
    }

    #[test]
    fn a_stray_word_ends_the_reading() {
        let flags = XlaFlags::parse("--a=1 b=2 --c=3");
        assert_eq!((flags.value("a"), flags.value("c")), (Some("1"), None));
        assert_eq!(XlaFlags::parse("flags.txt --a=1"), XlaFlags::default());
    }

    #[test]
    fn truth_has_a_bare_form() {
        let flags = XlaFlags::parse("--a --b=False --c=0 --d=maybe --e=");
        let read = |name| flags.bool(name);
        assert_eq!(read("a"), Some(true));
        assert_eq!((read("b"), read("c")), (Some(false), Some(false)));
        assert_eq!((read("d"), read("e"), read("missing")), (None, None, None));
    }
}
