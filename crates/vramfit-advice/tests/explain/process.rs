//! A process that failed knows its settings and its pool, which a log may leave out.

use std::collections::BTreeMap;

use vramfit_advice::explain::{ExplainOptions, Explanation, LogScanner, ProcessState, explain};
use vramfit_model::published::{DeviceSample, StatsStatus};
use vramfit_model::trace::ArrayHolder;

const GIB: u64 = 1 << 30;

fn sample(in_use: u64, peak: u64, limit: u64) -> DeviceSample {
    DeviceSample {
        status: StatsStatus::Available,
        in_use_bytes: Some(in_use),
        peak_bytes: Some(peak),
        limit_bytes: Some(limit),
        ..DeviceSample::default()
    }
}

fn explained(log: &str, environment: &[(&str, &str)], pool: Option<DeviceSample>) -> Explanation {
    let mut scanner = LogScanner::new("");
    scanner.push(log.as_bytes());
    let environment: BTreeMap<String, String> =
        environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let options = ExplainOptions {
        gpus: Some("t4".parse().expect("a GPU of the catalog")),
        process: Some(ProcessState { environment, pool, ..ProcessState::default() }),
        ..ExplainOptions::default()
    };
    explain(&scanner.finish(), &options)
}

fn refused(bytes: u64) -> String {
    format!("RESOURCE_EXHAUSTED: Out of memory while trying to allocate {bytes} bytes.\n")
}

fn text_of<'e>(explanation: &'e Explanation, id: &str) -> &'e str {
    let found = explanation.remedies.iter().find(|remedy| remedy.id == id);
    found.map_or("", |remedy| &remedy.text)
}

#[test]
fn what_is_needed_is_bounded_by_the_peak() {
    let figures =
        explained(&refused(3 * GIB), &[], Some(sample(4 * GIB, 7 * GIB, 8 * GIB))).figures;
    assert_eq!(figures.in_use_bytes, Some(4 * GIB));
    assert!(figures.in_use_is_at_end);
    assert_eq!(figures.needed_bytes, Some(10 * GIB));
    assert!(figures.needed_is_most && !figures.needed_is_least);
}

#[test]
fn a_fraction_is_not_offered_that_is_certainly_too_small() {
    let has_fraction = |in_use, peak| {
        let pool = sample(in_use, peak, 8 * GIB);
        !text_of(&explained(&refused(7 * GIB), &[], Some(pool)), "raise-fraction").is_empty()
    };
    // 0.92 of a T4 is 13.4 GiB.
    assert!(has_fraction(6 * GIB, 6 * GIB), "13 GiB");
    assert!(has_fraction(6 * GIB, 8 * GIB), "between 13 and 15 GiB");
    assert!(!has_fraction(7 * GIB, 7 * GIB), "14 GiB");
}

#[test]
fn the_environment_counts_and_not_what_the_log_shows_of_another() {
    let other = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95\n";
    let log = format!("{other}{}", refused(3 * GIB));
    let by_default = explained(&log, &[], None);
    assert!(text_of(&by_default, "raise-fraction").contains("13.4 GiB instead of 10.9 GiB"));
    let lowered = explained(&log, &[("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")], None);
    assert!(text_of(&lowered, "raise-fraction").contains("13.4 GiB instead of 7.3 GiB"));
    let raised = explained(&refused(3 * GIB), &[("XLA_CLIENT_MEM_FRACTION", "0.95")], None);
    assert_eq!(text_of(&raised, "raise-fraction"), "");
}

#[test]
fn figures_of_the_log_are_those_of_the_failure() {
    let log = format!(
        "bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to \
         1073741824)requested by op\nbfc_allocator.cc:1100] Stats: \nLimit: {limit}\nInUse: {in_use}\n\
         MaxInUse: {in_use}\nNumAllocs: 7\nLargestFreeBlock: 0\n\n",
        limit = 8 * GIB,
        in_use = 8 * GIB - 256,
    );
    let figures = explained(&log, &[], Some(sample(GIB, 8 * GIB, 8 * GIB))).figures;
    assert_eq!((figures.in_use_bytes, figures.in_use_is_at_end), (Some(8 * GIB - 256), false));
    assert_eq!((figures.needed_bytes, figures.needed_is_most), (Some(9 * GIB - 256), false));
}

#[test]
fn the_fullest_pool_counts_and_none_without_figures() {
    let samples = [sample(GIB, GIB, GIB), sample(2 * GIB, 2 * GIB, GIB), DeviceSample::default()];
    let fullest = ProcessState::fullest_pool(&samples).and_then(|pool| pool.in_use_bytes);
    assert_eq!(fullest, Some(2 * GIB));
    assert_eq!(ProcessState::fullest_pool(&samples[2..]), None);
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("process.json");
    assert_eq!(ProcessState::read(&path), None);
    let state = ProcessState {
        array_holders: vec![ArrayHolder {
            name: "`x` of train.py".to_owned(),
            arrays: 1,
            bytes: 7,
        }],
        environment: BTreeMap::from([("XLA_FLAGS".to_owned(), "--a=\"b\"".to_owned())]),
        pool: Some(sample(1, 2, 3)),
    };
    state.write(&path).expect("written");
    assert_eq!(ProcessState::read(&path), Some(state));
}
