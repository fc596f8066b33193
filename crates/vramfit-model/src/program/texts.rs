//! Texts by number: each different text once. Number 0 is the empty text.

use rustc_hash::FxHashMap;

/// Gives numbers to texts.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    numbers: FxHashMap<String, u32>,
    texts: Vec<String>,
}

impl TextTable {
    /// Returns the number of a text, the same for the same text.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.texts.push(text.to_owned());
        let number = self.texts.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the texts in the order of their numbers, from 1.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}

/// Looks texts up by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextReader<'a>(&'a [String]);

impl<'a> TextReader<'a> {
    pub(crate) fn new(texts: &'a [String]) -> Self {
        TextReader(texts)
    }

    /// Returns the text of a number, `None` for a number that was never given.
    pub(crate) fn get(self, number: u32) -> Option<&'a str> {
        match number.checked_sub(1) {
            None => Some(""),
            Some(at) => self.0.get(at as usize).map(String::as_str),
        }
    }
}
