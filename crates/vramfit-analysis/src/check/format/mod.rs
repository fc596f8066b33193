//! A check's result as the places read it where people look.

mod annotations;
mod badge;
mod code_quality;
mod json;
mod junit;
mod markdown;
mod page;
mod sarif;
mod text;

pub use badge::render_badge;

#[cfg(test)]
mod tests;
