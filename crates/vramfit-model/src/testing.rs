//! Shared by tests.

/// Checks that a page of `docs/reference` is the generated text; with `UPDATE_DOCS=1`, writes it.
pub(crate) fn check_generated(page: &str, text: &str) {
    let path = format!("{}/../../docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "docs/reference/{page} is out of date; write it with UPDATE_DOCS=1");
}
