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
        let flags = split_flags(text)
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

    /// Returns the names of all flags that are set, without dashes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(|(name, _)| name.as_str())
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

/// Adds a flag to a text of flags, where XLA still reads it and behind all that it reads; every
/// character of the text stays. `None` where the text is the name of a file, to which nothing can be
/// added.
pub(super) fn with_flag(text: &str, flag: &str) -> Option<String> {
    let tokens = tokens(text);
    if tokens.first().is_some_and(|token| !token.text.starts_with("--")) {
        return None;
    }
    // Behind a stray word nothing is read, and inside an open quote nothing is a flag.
    let unread = |token: &&FlagToken| !token.text.starts_with("--") || !token.closed;
    let at = tokens.iter().find(unread).map_or(text.len(), |token| token.start);
    let (read, rest) = text.split_at(at);
    let gap = |wanted: bool| if wanted { " " } else { "" };
    let before = gap(!read.is_empty() && !read.ends_with(char::is_whitespace));
    Some(format!("{read}{before}{flag}{}{rest}", gap(!rest.is_empty())))
}

/// Splits at white space outside quotes, and takes the quotes off.
pub fn split_flags(text: &str) -> Vec<String> {
    tokens(text).into_iter().map(|token| token.text).collect()
}

/// A flag with its value, or whatever else stands between white space.
struct FlagToken {
    text: String,
    /// Where it begins in the text, in bytes.
    start: usize,
    /// Whether every quote in it is closed.
    closed: bool,
}

fn tokens(text: &str) -> Vec<FlagToken> {
    let mut tokens: Vec<FlagToken> = Vec::new();
    let mut token: Option<FlagToken> = None;
    let mut quote = None;
    for (start, c) in text.char_indices() {
        if quote.is_none() && c.is_whitespace() {
            tokens.extend(token.take().filter(|token| !token.text.is_empty()));
            continue;
        }
        let token = token.get_or_insert(FlagToken { text: String::new(), start, closed: true });
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            _ => token.text.push(c),
        }
        token.closed = quote.is_none();
    }
    tokens.extend(token.filter(|token| !token.text.is_empty()));
    tokens
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

    #[test]
    fn a_flag_is_added_where_it_is_read() {
        let added = |text| with_flag(text, "--n=1");
        for (text, with) in [
            ("", "--n=1"),
            ("--a=1", "--a=1 --n=1"),
            ("--a=1\t", "--a=1\t--n=1"),
            ("--a='x y'", "--a='x y' --n=1"),
            ("--a=1 stray --b=2", "--a=1 --n=1 stray --b=2"),
            ("--a=1 --b='open --c", "--a=1 --n=1 --b='open --c"),
        ] {
            assert_eq!(added(text).as_deref(), Some(with), "{text}");
            assert_eq!(XlaFlags::parse(with).value("n"), Some("1"), "{with}");
        }
        assert_eq!(added("flags.txt"), None);
    }
}
