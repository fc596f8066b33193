//! Can a dry run be made with this Python?

use super::super::check::Check;
use super::super::facts::{Facts, Missing};

const ID: &str = "dry-run";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    vec![match &facts.dry_run {
        _ if facts.virtual_gpu.is_some() => Check::pass(ID, "this is one"),
        None => Check::skip(ID, "this Python does not tell what it has installed"),
        Some(Ok(())) => Check::pass(
            ID,
            "possible here: `vramfit dryrun --gpu h100-80g -- python train.py` needs no GPU",
        ),
        Some(Err(Missing { message, fix })) => {
            Check::skip(ID, format!("not possible here: {message}")).because(format!("cure: {fix}"))
        }
    }]
}
