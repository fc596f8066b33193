//! The formats of a [`Report`](super::Report). Nothing here computes anything.

pub(super) mod csv;
mod escape;
pub(super) mod html;
pub(super) mod svg;
pub(super) mod text;

pub(crate) use self::text::wrap::wrap;
