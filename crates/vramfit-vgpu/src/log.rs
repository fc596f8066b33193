//! What the plugin has to say outside of errors: one line on standard error, marked as ours.

use std::io::Write;

/// Writes one line. A closed standard error is nobody's business here.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "vramfit: {text}");
}
