//! What the later answers of an allocator depend on, so that two moments of it can be compared.

/// The state of one allocator at one moment, as words.
///
/// Two states of the same allocator that are [`StateKey::is_same`] answer every later request alike. What
/// only counts ([`super::Stats::num_allocs`]) and what only shows in log lines (labels, numbers of slots)
/// is not in it.
#[derive(Clone, Debug, Default)]
pub struct StateKey {
    words: Vec<u64>,
    is_unknown: bool,
}

impl StateKey {
    /// Adds one word. Whoever adds a list adds its length first, so that different states have
    /// different words.
    pub fn add(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Adds several words.
    pub fn add_all(&mut self, words: impl IntoIterator<Item = u64>) {
        self.words.extend(words);
    }

    /// Says that the state depends on something that cannot be told; it then equals no other.
    pub fn set_unknown(&mut self) {
        self.is_unknown = true;
    }

    /// Says whether both are the same, and known to be.
    pub fn is_same(&self, other: &StateKey) -> bool {
        !self.is_unknown && !other.is_unknown && self.words == other.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_states_are_the_same() {
        let mut one = StateKey::default();
        one.add_all([1, 2]);
        let mut other = StateKey::default();
        other.add(1);
        assert!(!one.is_same(&other));
        other.add(2);
        assert!(one.is_same(&other));
        other.set_unknown();
        assert!(!one.is_same(&other));
        assert!(!other.is_same(&other));
    }
}
