//! Search for changes that make a program fit: where to rematerialize, and what to keep.
//!
//! | file | subject |
//! | --- | --- |
//! | `site` | the functions that can be rematerialized, as the Python package records them |
//! | `segments` | where to divide a function, so that little is kept between its parts |
//! | `selection` | which values inside of the parts are worth keeping |
//! | `options` | what can be done at one site |
//! | `partial` | the same for only a part of a function |
//! | `offload` | what to keep in host memory |
//! | `unroll` | which loops to compile without a loop |
//! | `moves` | what a search may change |
//! | `strategy` | which plans to measure next |
//! | `largest` | the largest number in the command with which it fits |
//! | `chunk` | what of `jax.vmap` to compute for some elements at a time |
//! | `program_edit` | edits that are measured, and left to the author of the program |
//! | `settings` | settings of the process that a plan changes |
//! | `plan` | a plan, and the file that it is kept in |
//! | `edit` | what somebody would write in the program instead |
//! | `row` | measured plans: which are worth choosing |
//!
//! Nothing here decides by an estimate of memory: estimates only propose, and the bytes that a dry run
//! measures decide.

mod chunk;
mod edit;
mod largest;
mod moves;
mod offload;
mod options;
mod partial;
mod plan;
mod program_edit;
mod progression;
mod row;
mod segments;
mod selection;
mod settings;
mod site;
mod strategy;
mod unroll;

pub use chunk::{Chunk, MappedFunction, MappingTransform};
pub use largest::{LargestNumber, LargestSearch, Measured};
pub use moves::{Moves, When};
pub use options::{SiteOption, site_options};
pub use plan::{Plan, PlanSource, SitePlan};
pub use program_edit::{
    BatchConstraint, Donation, EditOutcome, JitForm, Omission, OutputSharding, ProgramEdit,
    SuggestedEdit,
};
pub use progression::Progression;
pub use row::{CostKind, Row, lowest_peak, pareto_front, recommend};
pub use settings::PlanSettings;
pub use site::{Equation, LeftAlone, LeftAloneReason, RecordedSites, Site, SiteKind};
pub use strategy::Strategy;
