use crate::explain::cause::{Cause, CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::message::{DriverCall, Message};

use super::is_driver_call;

pub(super) fn find(facts: &Facts<'_>) -> Option<Cause> {
    let limit = |message: &Message| matches!(message, Message::AddressSpace { limit_named: true });
    let limited = facts.log.all(limit).next();
    let is_failure = |message: &Message| {
        let of_the_driver = is_driver_call(message, &[DriverCall::Context, DriverCall::Unknown]);
        matches!(message, Message::AddressSpace { limit_named: false })
            || (limited.is_some() && of_the_driver)
    };
    let first = facts.log.all(is_failure).next()?;
    let named = matches!(first.message, Message::AddressSpace { .. });
    let (confidence, why) = match (named, limited) {
        (true, Some(_)) => (
            Confidence::Sure,
            "reserving addresses failed under a limit (`ulimit -v`)",
        ),
        (true, None) => (Confidence::Likely, "reserving addresses failed"),
        (false, _) => (
            Confidence::Likely,
            "CUDA failed to start under a limit of the address space (`ulimit -v`)",
        ),
    };
    let summary = format!(
        "{why}: CUDA and pools of virtual memory reserve about twice the GPU's memory in addresses, whatever \
         is free"
    );
    let evidence = facts.quote_all([Some(first), limited].into_iter().flatten());
    Some(facts.cause(CauseId::AddressSpace, confidence, summary, evidence))
}
