use crate::explain::cause::{Cause, CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::message::Message;

pub(super) fn find(facts: &Facts<'_>) -> Option<Cause> {
    let is_failure = |message: &Message| {
        matches!(
            message,
            Message::Tpu {
                out_of_memory: true
            }
        )
    };
    let evidence = facts.quote_first(is_failure);
    let failed = !evidence.is_empty();
    failed.then(|| {
        facts.cause(
            CauseId::Tpu,
            Confidence::Sure,
            "a TPU's memory (HBM) is too small for the program; vramfit models NVIDIA GPUs only, but a dry \
             run still shows which arrays take most",
            evidence,
        )
    })
}
