//! Finds the user's line in a Python stack: the innermost one outside libraries.

use std::cell::RefCell;
use std::ffi::CStr;

use rustc_hash::FxHashMap;
use vramfit_model::program::memory::{is_library, is_notebook_cell};
use vramfit_model::trace::TextId;

use crate::hooks;

thread_local! {
    /// The text of each stack seen. A loop passes the same stack every time.
    static CACHE: RefCell<FxHashMap<Vec<u8>, TextId>> = RefCell::default();
}

/// The cache is cleared when it has more stacks than this, which few programs have.
const MAX_STACKS: usize = 4096;

/// Returns the text of the user's line in a stack as JAX passes it (innermost frame first).
pub(crate) fn from_stack(stack: &CStr, mut intern: impl FnMut(&str) -> TextId) -> TextId {
    CACHE.with_borrow_mut(|cache| {
        if let Some(&id) = cache.get(stack.to_bytes()) {
            return id;
        }
        let text = stack.to_string_lossy();
        let line = user_line(&text).unwrap_or("");
        let id = match name_notebook_cell(line) {
            Some(name) => intern(&name),
            None => intern(line),
        };
        if cache.len() >= MAX_STACKS {
            cache.clear();
        }
        cache.insert(stack.to_bytes().to_vec(), id);
        id
    })
}

/// Returns the innermost line outside libraries.
fn user_line(stack: &str) -> Option<&str> {
    stack.lines().map(str::trim).filter(|line| !line.is_empty()).find(|line| !is_library(line))
}

/// Returns a line of a notebook, `file:line (function)`, with the number of its cell as the file.
/// `None` for other files.
pub(crate) fn name_notebook_cell(site: &str) -> Option<String> {
    if !is_notebook_cell(site) {
        return None;
    }
    let (file, line) = site.split_once(':')?;
    let name = hooks::get()?.display_name(file)?;
    Some(format!("{name}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_line_outside_libraries_is_picked() {
        let stack = "/x/lib/python3.11/site-packages/jax/_src/api.py:1 (call)\n\
                     /home/me/model.py:88 (attention)\n/home/me/train.py:3 (<module>)\n";
        assert_eq!(user_line(stack), Some("/home/me/model.py:88 (attention)"));
        assert_eq!(user_line("/usr/lib/python3/x.py:1 (f)"), None);
    }
}
