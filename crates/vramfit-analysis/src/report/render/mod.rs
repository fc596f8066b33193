//! The formats of a [`Report`](super::Report). Nothing here computes anything.

mod escape;
pub(super) mod html;
pub(super) mod text;
