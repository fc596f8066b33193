//! The sections of reports. Each function makes one from the summary of a run, or `None` where there is
//! nothing to show.

pub(super) mod address_map;
pub(super) mod advice;
pub(super) mod arrays;
pub(super) mod buffer_lifetimes;
pub(super) mod cause;
pub(super) mod caveats;
pub(super) mod collectives;
pub(super) mod compiler_warnings;
pub(super) mod conditions;
pub(super) mod devices;
pub(super) mod failure;
pub(super) mod headline;
pub(super) mod hosts;
pub(super) mod library_scratch;
pub(super) mod main_cause;
pub(super) mod measured_edits;
pub(super) mod next_command;
pub(super) mod overview;
pub(super) mod owners;
pub(super) mod phases;
pub(super) mod placeholders;
pub(super) mod processes;
pub(super) mod programs;
pub(super) mod settings;
pub(super) mod spare_memory;
pub(super) mod step_time;
pub(super) mod timeline;
