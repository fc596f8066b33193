use super::{Judgement, is_driver_call};
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::{DriverCall, Message};

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let limit = |message: &Message| matches!(message, Message::AddressSpace { limit_named: true });
    let limited = facts.log.first(limit);
    let is_failure = |message: &Message| {
        let of_the_driver = is_driver_call(message, &[DriverCall::Context, DriverCall::Unknown]);
        matches!(message, Message::AddressSpace { limit_named: false })
            || (limited.is_some() && of_the_driver)
    };
    let first = facts.log.first(is_failure)?;
    let named = matches!(first.message, Message::AddressSpace { .. });
    let (confidence, why) = match (named, limited) {
        (true, Some(_)) => {
            (Confidence::Sure, "reserving addresses failed under a limit (`ulimit -v`)")
        }
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
    let evidence = facts.quote_all(std::iter::once(first).chain(limited));
    Some(Judgement::new(confidence, summary, evidence))
}
