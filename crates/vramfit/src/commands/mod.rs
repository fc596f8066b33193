//! One file per command: its arguments, and what it does with them.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod dryrun;
pub(crate) mod env;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod gpus;
pub(crate) mod hold;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod predict;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod top;
pub(crate) mod train;
