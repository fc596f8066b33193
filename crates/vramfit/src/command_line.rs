//! Command lines as they are shown.

use std::ffi::OsStr;

/// Returns words as one line that a shell splits into them again.
pub(crate) fn shell_line<'w>(words: impl IntoIterator<Item = &'w OsStr>) -> String {
    let words: Vec<_> = words.into_iter().map(OsStr::to_string_lossy).collect();
    let words = || words.iter().map(AsRef::as_ref);
    // No word of a command line has a NUL byte, which nothing can quote.
    shlex::try_join(words()).unwrap_or_else(|_| words().collect::<Vec<_>>().join(" "))
}
