//! A headline in few words, for the page.

/// A headline has at most this many words.
pub(super) const MAX_WORDS: usize = 25;

/// A headline in at most 25 words, and what did not fit into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortHeadline {
    /// The result, the cause first.
    pub text: String,
    /// What belongs to it and did not fit, in sentences.
    pub below: Vec<String>,
    /// The sentence about the cause that it makes superfluous.
    pub cause_sentence: Option<String>,
}

impl ShortHeadline {
    /// Makes a headline of a text, which is cut at the end of a clause if it is too long, and is then below as a whole.
    pub(super) fn new(text: &str) -> ShortHeadline {
        if count_words(text) <= MAX_WORDS {
            return ShortHeadline { text: text.to_owned(), ..ShortHeadline::default() };
        }
        // What follows the first clause may be one sentence, so it stays together.
        if let Some((first, rest)) = text.split_once("; ")
            && count_words(first) <= MAX_WORDS
        {
            let (text, below) = (first.to_owned(), vec![rest.to_owned()]);
            return ShortHeadline { text, below, cause_sentence: None };
        }
        let words: Vec<&str> = text.split_whitespace().take(MAX_WORDS - 1).collect();
        let end = words.iter().rposition(|word| word.ends_with(',')).unwrap_or(words.len() - 1);
        let shown = words[..=end].join(" ");
        let shown = format!("{} …", shown.trim_end_matches(','));
        ShortHeadline { text: shown, below: vec![text.to_owned()], cause_sentence: None }
    }

    /// Adds a clause after a separator, or below where it has too many words.
    pub(super) fn with(mut self, separator: &str, clause: &str) -> ShortHeadline {
        let clause = clause.trim_start_matches("; ").trim();
        if clause.is_empty() {
            return self;
        }
        if count_words(&self.text) + count_words(clause) <= MAX_WORDS {
            self.text += separator;
            self.text += clause;
            self
        } else {
            self.and_below(clause)
        }
    }

    /// Adds a sentence below.
    pub(super) fn and_below(mut self, sentence: impl Into<String>) -> ShortHeadline {
        self.below.push(sentence.into());
        self
    }
}

pub(super) fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_ends_with_a_clause_and_is_below() {
        let short = "fits: peak 1.0 GiB of 2.0 GiB; one more";
        assert_eq!(ShortHeadline::new(short).text, short);
        let clause = "word ".repeat(14);
        let long = format!("{clause}a; {clause}b; c");
        let headline = ShortHeadline::new(&long);
        assert_eq!(
            (headline.text, headline.below),
            (format!("{clause}a"), vec![format!("{clause}b; c")])
        );
        let endless = "one two, ".repeat(20);
        let headline = ShortHeadline::new(endless.trim());
        assert_eq!(headline.text, format!("{}one two …", "one two, ".repeat(11)));
        assert_eq!(headline.below, [endless.trim()]);
    }

    #[test]
    fn a_clause_that_does_not_fit_goes_below() {
        let headline =
            ShortHeadline::new("word ".repeat(20).trim()).with("; ", "; four words are room");
        assert!(headline.text.ends_with("; four words are room") && headline.below.is_empty());
        let headline = headline.with(" ", "and two more").with(", ", "last");
        assert_eq!(headline.below, ["and two more"]);
        assert!(headline.text.ends_with("room, last"));
    }
}
