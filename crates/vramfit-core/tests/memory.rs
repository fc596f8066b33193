//! Where the memory of a program goes, against XLA's own figures and against its record of the heap.
//!
//! `fixtures/memory/` holds what XLA dumped of small programs, compiled by several releases of JAX,
//! and what their `memory_analysis()` said; `scripts/record_memory.py` recorded both. The live bytes
//! are found a second time here, by going through the record of the heap event by event with a set
//! of live values, without intervals.

#[path = "memory/damaged.rs"]
mod damaged;
#[path = "memory/known.rs"]
mod known;
#[path = "memory/live_ranges.rs"]
mod live_ranges;
#[path = "memory/owners.rs"]
mod owners;
#[path = "memory/recorded.rs"]
mod recorded;
#[path = "memory/totals.rs"]
mod totals;
