//! A gate for continuous integration: what programs were accepted to need, and what they need now.
//!
//! Nothing in the figures is measured on hardware, so that they can be compared to the byte.
//!
//! | file | content |
//! | --- | --- |
//! | `config.rs` | the entries of `vramfit.toml` |
//! | `amount.rs` | an amount of memory in bytes or percent |
//! | `lock.rs` | the accepted figures, `vramfit.lock` |
//! | `whole_run.rs` | what is known of a run beyond the steps that each check measures |
//! | `outcome.rs` | figures against limits and accepted figures |
//! | `growth.rs` | which lines need more, and whether the program, the toolchain or a library does |
//! | `report.rs` | what a check found, for the output formats in `format/` |
//! | `workflow.rs` | the check as a workflow of a CI service |

mod amount;
mod config;
mod figures;
mod format;
mod growth;
mod lock;
mod outcome;
mod report;
mod whole_run;
mod workflow;

pub use amount::Amount;
pub use config::{CheckConfig, Entry, Program, find_table};
pub use figures::Figures;
pub use format::render_badge;
pub use growth::{ChangedLine, Growth};
pub use lock::{LOCK_FILE, Lock, LockKey, LockLine};
pub use outcome::{Limits, Outcome, combine_answers, determine_outcome};
pub use report::{CheckReport, Row};
pub use whole_run::WholeRun;
pub use workflow::Workflow;
