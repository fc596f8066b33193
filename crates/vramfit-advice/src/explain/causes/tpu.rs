use super::Judgement;
use crate::explain::facts::Facts;
use crate::explain::message::Message;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    if let Some(event) = facts.log.first(|message| *message == Message::TpuOnChip) {
        return Some(Judgement::sure(
            "a kernel needs more memory inside of the TPU's core (VMEM or SMEM) than it may have, which is no part of its \
             HBM; vramfit models NVIDIA GPUs only",
            vec![facts.quote(event)],
        ));
    }
    let is_failure = |message: &Message| matches!(message, Message::Tpu { out_of_memory: true });
    let event = facts.log.first(is_failure)?;
    Some(Judgement::sure(
        "a TPU's memory (HBM) is too small for the program; vramfit models NVIDIA GPUs only, but a dry run \
         still shows which arrays take most",
        vec![facts.quote(event)],
    ))
}
