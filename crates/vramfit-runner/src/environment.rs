//! The environment of this process, as text. What is not Unicode is no setting of JAX.

/// Returns the value of a variable.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns all variables.
pub fn unicode_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
