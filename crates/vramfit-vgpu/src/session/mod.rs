//! What is recorded while the program runs, and how its run ends.
//!
//! | file | subject |
//! | --- | --- |
//! | `machine_session` | the locked machine: allocations, frees and the trace |
//! | `run_settings` | the settings of the run, for the trace |
//! | `call_site` | from a Python stack to the user's line |
//! | `log` | lines on standard error |
//! | `trace_failure` | reporting that the trace cannot be written |
//! | `shutdown` | stopping the other threads when the run is over |

pub(crate) mod call_site;
pub(crate) mod log;
pub(crate) mod machine_session;
pub(crate) mod run_settings;
pub(crate) mod shutdown;
pub(crate) mod trace_failure;
