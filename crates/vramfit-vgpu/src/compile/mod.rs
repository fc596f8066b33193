//! Programs: compiled by the real compiler, loaded, inspected and serialized.
//!
//! | file | subject |
//! | --- | --- |
//! | `compiler` | compile attempts on a topology |
//! | `compilation_cache` | results of the compiler, kept in a folder |
//! | `user_flags` | XLA flags that the user has set |
//! | `memory_kinds` | memory kinds for plugins that do not read them |
//! | `stderr_capture` | the compiler's log, read from standard error |
//! | `dump` | XLA's dump: what occupies the memory of a program |
//! | `analysis` | where the memory of a program goes, and how long it takes |
//! | `compiled` | a compiled program and what is derived from it once |
//! | `host_program` | a program, or a part of it, as it is evaluated on the CPU |
//! | `serialized` | a compiled program as bytes |
//! | `executable` | `PJRT_Executable_*`: what JAX asks about a compiled program |
//! | `loaded_executable` | `PJRT_LoadedExecutable_*`: compiling, loading and unloading |

mod analysis;
mod compilation_cache;
pub(crate) mod compiled;
mod compiler;
mod dump;
pub(crate) mod executable;
pub(crate) mod host_program;
pub(crate) mod loaded_executable;
mod memory_kinds;
mod serialized;
pub(crate) mod stderr_capture;
pub(crate) mod user_flags;
