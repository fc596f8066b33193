//! What to keep in pinned host memory instead of the GPU's.

use super::options::SiteOption;
use super::row::Row;

/// Returns variants of the measured options of one site: the lowest peak with the inputs of its segments
/// offloaded, and the fastest that keeps chosen values with those offloaded instead.
///
/// Values worth keeping take long to compute again for their bytes, so they are what is worth a transfer.
pub(super) fn offload_variants(options: &[SiteOption], rows: &[Row]) -> Vec<SiteOption> {
    let measured: Vec<(&SiteOption, &Row)> = options
        .iter()
        .filter(|option| !option.plan.segments.is_empty() && !option.plan.is_offloading())
        .filter_map(|option| {
            let mut own = rows.iter();
            let row = own.find(|row| {
                row.plan.settings.is_default() && row.plan.sites == [option.plan.clone()]
            })?;
            Some((option, row))
        })
        .collect();
    let lowest = measured
        .iter()
        .filter(|(option, _)| option.plan.save.as_deref() == Some("nothing"))
        .min_by(|(_, a), (_, b)| {
            let bytes = a.peak_bytes.cmp(&b.peak_bytes);
            bytes.then(a.cost.total_cmp(&b.cost))
        });
    let fastest = measured
        .iter()
        .filter(|(option, _)| !option.plan.saved.is_empty())
        .min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
    let variants = lowest.into_iter().chain(fastest);
    variants
        .map(|(option, _)| {
            let mut variant = (*option).clone();
            variant.plan.offload_inputs = true;
            variant.plan.offloaded = std::mem::take(&mut variant.plan.saved);
            variant
        })
        .collect()
}
