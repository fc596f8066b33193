//! A check's result as the places read it where people look.

mod annotations;
mod code_quality;
mod json;
mod junit;
mod markdown;
mod sarif;
mod text;

#[cfg(test)]
mod tests;
