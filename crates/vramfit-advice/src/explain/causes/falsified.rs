//! What would show that something is not the cause, where the log shows it already.

use super::outside_pool::leaves_half;
use crate::allocator::AllocatorKind;
use crate::bytes::Bytes;
use crate::explain::cause::{CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::message::{Message, StatName};

/// Returns what of the log speaks against a cause.
pub(super) fn against(facts: &Facts<'_>, id: CauseId) -> Option<String> {
    let settings = &facts.settings;
    match id {
        CauseId::OutsidePool => {
            let fraction = settings.fraction.filter(|_| leaves_half(facts))?;
            Some(format!(
                "with the fraction of {fraction} that {} names, the pool leaves {:.0} % of the GPU to what is \
                 outside of it",
                settings.source(),
                (1.0 - fraction) * 100.0
            ))
        }
        CauseId::Fragmentation => {
            let is_set = settings.allocator == Some(AllocatorKind::CudaAsync);
            is_set.then(|| {
                let source = settings.source();
                format!("it fails with `cuda_async`, which {source} names, and which needs no contiguous memory")
            })
        }
        CauseId::PoolNotObtained => {
            let printed = |name| facts.log.stat(name).map(|series| series.max);
            let pool = printed(StatName::PoolBytes).filter(|bytes| *bytes > 0)?;
            let is_whole = printed(StatName::BytesLimit) == Some(pool);
            is_whole
                .then(|| format!("`pool_bytes` is the whole limit, {}, by the log", Bytes(pool)))
        }
        CauseId::Leak => {
            let series = facts.log.stat(StatName::BytesInUse)?;
            let is_constant = series.count > 2 && series.rises == 0;
            is_constant.then(|| "memory in use does not rise in the log".to_owned())
        }
        CauseId::Autotuning => {
            let is_off = |message: &Message| matches!(message, Message::AutotuningOff);
            facts.log.has(is_off).then(|| "the log names `--xla_gpu_autotune_level=0`".to_owned())
        }
        CauseId::PoolTooSmall => {
            let fits = |message: &Message| matches!(message, Message::Dryrun { fits: true, .. });
            facts.log.has(fits).then(|| "a dry run in the log fits".to_owned())
        }
        _ => None,
    }
}

/// Returns how certain a cause is that something speaks against.
pub(super) fn lower(confidence: Confidence) -> Confidence {
    match confidence {
        Confidence::Sure => Confidence::Likely,
        Confidence::Likely | Confidence::Possible => Confidence::Possible,
    }
}
