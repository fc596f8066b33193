//! The thinking half of vramfit: no `unsafe`, no clock, no threads, and no I/O beyond what it is
//! handed. Everything here can be tested in seconds on any machine.
//!
//! | room | question it answers |
//! | --- | --- |
//! | [`allocator`] | where does JAX's allocator place each request, and when does it fail? |
//! | [`gpu`] | which cards are there, and what would XLA be told about them? |
//! | [`machine`] | what does the driver say of the cards here, and who holds them? |
//! | [`program`] | what does one compiled program need, and what does it alias? |
//! | [`settings`] | which variables and flags does this JAX read, and what do they mean? |
//! | [`shared_card`] | who holds what of a virtual card that several processes share? |
//! | [`trace`] | what happened in a run, in which order? |
//! | [`report`] | how is the answer told? |

pub mod allocator;
pub mod bytes;
pub mod error;
pub mod gpu;
pub mod machine;
pub mod program;
pub mod report;
pub mod settings;
pub mod shared_card;
pub mod trace;

pub use bytes::Bytes;
pub use error::{Error, ErrorKind, Result};
