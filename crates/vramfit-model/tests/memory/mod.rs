//! Where the memory of a program goes, against XLA's own figures and against its record of the heap.
//!
//! `fixtures/memory/` holds what XLA dumped of small programs, compiled by several releases of JAX,
//! and what their `memory_analysis()` said; `scripts/record/memory.py` recorded both. The live bytes
//! are found a second time here, by going through the record of the heap event by event with a set
//! of live values, without intervals.

mod damaged;
mod known;
mod live_ranges;
mod owners;
mod recorded;
mod totals;
