//! Do bytes arrive as they went, and how fast?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::trial::Outcome;
use super::{fell_back, is_virtual, unfinished, uses_gpu};
use crate::Bytes;

pub(super) const ID: &str = "transfers";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let told = match facts.trial.transfers() {
        Outcome::Done(told) => told,
        other => return vec![unfinished(ID, facts, other).because_of(facts.trial.log.last())],
    };
    if fell_back(facts) {
        return vec![Check::skip(ID, "JAX is not on the GPU; see `backend`")];
    }
    if !told.right {
        return vec![Check::fail(
            ID,
            format!("{} came back changed", Bytes(told.bytes)),
            "run `nvidia-smi -q -d ECC,PCIE`, and do not trust this GPU until it is clean",
        )];
    }
    if is_virtual(facts) {
        return vec![
            Check::skip(
                ID,
                "a virtual GPU moves nothing over a bus, so there is no speed to tell",
            )
            .because(format!("{} came back as they went", Bytes(told.bytes))),
        ];
    }
    if !uses_gpu(facts) {
        return vec![
            Check::skip(ID, "the CPU's memory is the device's: nothing is moved")
                .because(format!("{} came back as they went", Bytes(told.bytes))),
        ];
    }
    let speed = |seconds: f64| {
        let per_second = told.bytes as f64 / seconds.max(f64::MIN_POSITIVE);
        format!("{:.1} GB/s", per_second / 1e9)
    };
    vec![
        Check::pass(
            ID,
            format!(
                "{} to the device, {} back; all bytes as they went",
                speed(told.to_device_seconds),
                speed(told.to_host_seconds)
            ),
        )
        .because(format!(
            "{} of ordinary host memory, the best of {} times",
            Bytes(told.bytes),
            told.times
        )),
    ]
}
