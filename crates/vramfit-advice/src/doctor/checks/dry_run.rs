//! Can a dry run be made with this Python?

use super::super::check::Check;
use super::super::system_info::{MissingReason, SystemInfo};

const ID: &str = "dry-run";

pub(super) fn check(info: &SystemInfo) -> Check {
    match &info.dry_run {
        _ if info.virtual_gpu.is_some() => Check::pass(ID, "this is a dry run"),
        None => Check::skip(ID, "the packages of this Python cannot be determined"),
        Some(Ok(())) => Check::pass(
            ID,
            "possible: `vramfit dryrun --gpu h100-80g -- python train.py` needs no GPU",
        ),
        Some(Err(MissingReason { message, fix })) => {
            Check::skip(ID, format!("not possible: {message}")).evidence_line(format!("fix: {fix}"))
        }
    }
}
