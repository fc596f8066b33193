//! The report of a dry run.

use super::sections::{
    address_map, advice, arrays, buffer_lifetimes, cause, caveats, collectives, compiler_warnings,
    conditions, devices, failure, headline, hosts, library_scratch, main_cause, measured_edits,
    next_command, overview, owners, phases, processes, programs, settings, spare_memory, step_time,
    timeline,
};
use super::{Content, Report, Section, json};
use crate::analysis::{RunSummary, facts};

pub(super) fn report(summary: &RunSummary) -> Report {
    let caveats = caveats::of_dryrun(summary);
    let not_included = Section::new("not included", Content::List(caveats.clone()));
    let brief = [
        measured_edits::section(summary),
        overview::usage(summary),
        conditions::section(summary),
        hosts::section(summary),
        processes::section(summary),
        failure::likely_cause(summary),
        settings::late_section(summary),
        advice::section(summary),
        spare_memory::section(summary),
    ];
    let figures = [overview::metrics(summary), owners::by_kind(summary)];
    let charts = [
        owners::tree(summary),
        buffer_lifetimes::section(summary),
        timeline::section(summary),
        address_map::at_failure(summary).or_else(|| address_map::at_peak(summary)),
    ];
    let mut charts: Vec<Section> = charts.into_iter().flatten().collect();
    main_cause::sort_charts(summary, &mut charts);
    let other_charts = charts.split_off(1.min(charts.len()));
    let details = [
        overview::details(summary),
        step_time::section(summary),
        collectives::section(summary),
        library_scratch::section(summary),
        settings::section(summary),
        compiler_warnings::section(summary),
        leaks(summary),
        facts::array_holders::section(&summary.array_holders)
            .filter(|_| cause::shows_holders(summary)),
    ];
    let more_details = [
        arrays::section(summary),
        address_map::at_end(summary),
        owners::entries(summary),
        phases::section(summary),
        facts::compilations::section(&summary.compilations),
        devices::section(summary),
        programs::section(summary),
        summary
            .autotune_range
            .as_ref()
            .and_then(|range| facts::autotune_range::section(range, &summary.programs)),
        facts::unknown_reads::section(&summary.facts.unknown_reads),
        facts::callbacks::section(&summary.facts.callbacks),
        Some(not_included),
    ];
    let details = details.into_iter().flatten().chain(other_charts);
    let details = details.chain(more_details.into_iter().flatten()).map(Section::into_detail);
    let brief = brief.into_iter().flatten().chain(charts).chain(figures.into_iter().flatten());
    Report {
        title: "vramfit dryrun".to_owned(),
        outcome: summary.fits().into(),
        headline: headline::headline(summary),
        short_headline: Some(headline::short(summary)),
        cause: headline::further_causes(summary),
        next_command: next_command::next_command(summary),
        sections: brief.chain(details).collect(),
        metadata: overview::metadata(summary),
        json: json::dryrun(summary, &caveats),
    }
}

/// Memory that grows from step to step; a detail where that never matters.
fn leaks(summary: &RunSummary) -> Option<Section> {
    let section = facts::leaks::section(&summary.leaks, |device| summary.spare_bytes(device))?;
    Some(if summary.has_relevant_leak() { section } else { section.into_detail() })
}
