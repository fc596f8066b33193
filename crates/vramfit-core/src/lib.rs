//! The thinking half of vramfit: no `unsafe`, no clock, no threads, and no I/O beyond what it is
//! handed. Everything here can be tested in seconds on any machine.
//!
//! | room | question it answers |
//! | --- | --- |
//! | [`allocator`] | where does JAX's allocator place each request, and when does it fail? |
//! | [`gpu`] | which cards are there, and what would XLA be told about them? |
//! | [`machine`] | what does the driver say of the cards here, and who holds them? |
//! | [`published`] | what does a JAX process say of its own pool while it runs? |
//! | [`program`] | what does one compiled program need, and what does it alias? |
//! | [`lint`] | what is wrong with the settings of a program, and what mends it? |
//! | [`settings`] | which variables and flags does this JAX read, and what do they mean? |
//! | [`trace`] | what happened in a run, in which order? |
//! | [`report`] | how is the answer told? |

pub mod allocator;
pub mod bytes;
pub mod error;
pub mod gpu;
pub mod lint;
pub mod machine;
mod nearest;
pub mod program;
pub mod published;
pub mod report;
pub mod settings;
pub mod trace;

pub use bytes::Bytes;
pub use error::{Error, ErrorKind, Result};
