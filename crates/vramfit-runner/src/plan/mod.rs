//! Searches of what makes a program fit: every result is a dry run of the program, nothing is estimated about its memory.
//!
//! [`find_plans`] finds plans: `measuring` measures those that a strategy proposes, each in a `trial`. [`find_largest`] finds
//! the largest value of a number in the command. [`measure_gains`] says what plans bring.

mod defaults;
mod gains;
mod largest;
mod measuring;
mod run_search;
mod search;
mod trial;
mod varied;

pub use defaults::{DEFAULT_JOBS, DEFAULT_MAX_TRIALS, all_moves, default_search, default_trial};
pub use gains::{Gain, PlanGains, measure_gains};
pub use largest::{FoundLargest, LargestSpec, find_largest};
pub use run_search::find_plans;
pub use search::{EditTrial, FoundPlans, FoundRow, SearchSpec};
pub use trial::{Measurement, StepTime, XlaRemat, measure_plan};
pub use varied::{NumberRange, VariedCommand, substitute};
