//! The file that describes a training run: `vramfit train CONFIG.toml`.
//!
//! One table ([`keys`]) says which keys there are; what is read, what is refused, the file that
//! `--init` writes and the page `docs/reference/training-config.md` are all made from it. Nothing here opens a
//! file: [`Config::read`] is handed the text.

mod batch;
mod config;
mod journal;
mod key;
mod keys;
mod page;
mod place;
mod read;
mod rules;
mod setting;
mod size;

pub use batch::{Largest, Tried, largest_batch};
pub use config::{Checkpoint, Config, Data, Model, Optimizer, Training};
pub use journal::{End, EpochLine, Journal, Point};
pub use key::{Form, Key, Unless};
pub use keys::{SECTIONS, Section, keys};
pub use page::{markdown, starting_file};
pub use size::{optimizer_bytes, parameter_bytes, parameters};
