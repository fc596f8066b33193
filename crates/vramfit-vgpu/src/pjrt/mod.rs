//! The PJRT C API: the table that JAX calls through, and the real CUDA plugin behind it.
//!
//! | file | subject |
//! | --- | --- |
//! | `abi` | the structs of the C API |
//! | `names` | the functions of the API in the order of its table |
//! | `dispatch` | which function is handled here, forwarded to the CUDA plugin, or missing |
//! | `table` | the table itself: one trampoline per function; argument structs of any version |
//! | `extensions` | the chain of extensions behind the table |
//! | `layouts`, `shardings` | the two extensions that are replaced |
//! | `cuda_plugin` | the real CUDA plugin: loading it and calling it |
//! | `pointers` | handles, lists and texts |
//! | `error`, `event`, `status` | error objects, events, and what a function can fail with |

pub(crate) mod abi;
pub(crate) mod args;
pub(crate) mod cuda_plugin;
mod dispatch;
pub(crate) mod error;
pub(crate) mod event;
mod extensions;
pub(crate) mod layouts;
pub(crate) mod names;
pub(crate) mod pointers;
mod shardings;
pub(crate) mod status;
pub(crate) mod table;
