//! Starts the user's programs and measures them: no command line, and no terminal.
//!
//! | module | subject |
//! | --- | --- |
//! | [`dryrun`] | a program that runs on virtual GPUs, and what it came to |
//! | [`plan`] | searches of what makes a program fit |
//! | [`child`], [`process_tree`], [`signals`] | a program that is started, waited for and ended, with all that it starts |
//! | [`interruption`] | signals that end a command with all of its dry runs |
//! | [`program`], [`python`], [`python_child`] | which program a command names, what its Python has installed, and Python as a helper |
//! | [`parallel`], [`scratch`], [`files`], [`environment`] | several dry runs at a time, temporary folders, errors of files, variables |
//!
//! What goes on is said through [`Messages`]; results are returned.

pub mod child;
pub mod dryrun;
pub mod environment;
pub mod files;
pub mod interruption;
pub mod parallel;
pub mod plan;
pub mod process_tree;
pub mod program;
pub mod python;
pub mod python_child;
pub mod scratch;
pub mod signals;

mod context;
mod messages;

pub use context::Context;
pub use messages::{ErrorsOnly, Messages, Progress};
