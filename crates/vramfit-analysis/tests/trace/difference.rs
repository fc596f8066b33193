//! What makes one run need more than another: which parts are the same, and that all changes add up.

use proptest::prelude::*;
use vramfit_analysis::analysis::{Attribution, AttributionEntry, EntryKind, RunSummary};
use vramfit_analysis::diff::{EntryDelta, TotalKind, diff_runs};
use vramfit_model::program::memory::Owner;
use vramfit_model::trace::{Header, Purpose};

use crate::recorder::{self, MIB, Recorder, header};

const ACTIVATIONS: EntryKind = EntryKind::Program(Owner::Activations);
const PARAMETERS: EntryKind = EntryKind::Program(Owner::Parameters);
const TEMPORARIES: EntryKind = EntryKind::Program(Owner::Temporaries);
const PADDING: EntryKind = EntryKind::Program(Owner::Padding);

/// Returns the summary of a run that holds one array.
fn plain(header: &Header) -> RunSummary {
    let mut run = Recorder::new(header);
    run.upload(MIB);
    recorder::summarize_run(run)
}

/// Returns the summary of a run that holds these parts at its peak.
fn summary_of(parts: Vec<AttributionEntry>) -> RunSummary {
    RunSummary {
        attribution: Some(Attribution {
            total_bytes: parts.iter().map(|part| part.bytes).sum(),
            parts,
            ..Attribution::default()
        }),
        ..plain(&header())
    }
}

fn argument(path: &str, site: &str, shape: &str, bytes: u64) -> AttributionEntry {
    AttributionEntry {
        kind: PARAMETERS,
        path: path.into(),
        site: site.into(),
        shape: shape.into(),
        count: 1,
        bytes,
        ..AttributionEntry::default()
    }
}

fn buffer(kind: EntryKind, site: &str, made_by: &str, shape: &str, bytes: u64) -> AttributionEntry {
    AttributionEntry {
        kind,
        site: site.into(),
        made_by: made_by.into(),
        shape: shape.into(),
        count: 1,
        bytes,
        ..AttributionEntry::default()
    }
}

/// Compares two lists of parts: what changed, each as the site or path in A, that in B, and bytes.
fn changed(a: &[AttributionEntry], b: &[AttributionEntry]) -> Vec<(String, String, i128)> {
    let name = |part: &AttributionEntry| match part.path.is_empty() {
        true => part.site.clone(),
        false => part.path.clone(),
    };
    let side = |group: &Option<vramfit_analysis::diff::EntryGroup>| {
        let part = group.as_ref().map(|group| name(&group.largest));
        part.unwrap_or_else(|| "nothing".into())
    };
    let difference = diff_runs(&summary_of(a.to_vec()), &summary_of(b.to_vec()));
    let changes = difference.changes.iter();
    changes.map(|change| (side(&change.a), side(&change.b), change.bytes())).collect()
}

fn expected(changes: &[(&str, &str, i128)]) -> Vec<(String, String, i128)> {
    let owned = |change: &(&str, &str, i128)| (change.0.into(), change.1.into(), change.2);
    changes.iter().map(owned).collect()
}

#[test]
fn a_larger_batch_is_reported_line_by_line() {
    let run = |batch: u64| {
        vec![
            argument("params['w']", "t.py:5 (init)", "f32[64,64]", 16_384),
            buffer(
                ACTIVATIONS,
                "t.py:20 (loss)",
                "jit(step)/jvp()/dot_general",
                &format!("f32[{batch},64]"),
                256 * batch,
            ),
            buffer(
                TEMPORARIES,
                "t.py:21 (loss)",
                "jit(step)/reduce_sum",
                &format!("f32[{batch}]"),
                4 * batch,
            ),
        ]
    };
    let (a, b) = (summary_of(run(8)), summary_of(run(16)));
    let difference = diff_runs(&a, &b);
    assert_eq!(difference.gap_bytes(), 8 * 260);
    assert_eq!(difference.explained_bytes(), (8 * 260, 8 * 260));
    let owners: Vec<_> =
        difference.owners.iter().map(|owner| (owner.kind, owner.a_bytes, owner.b_bytes)).collect();
    assert_eq!(
        owners,
        [(ACTIVATIONS, 2048, 4096), (TEMPORARIES, 32, 64), (PARAMETERS, 16_384, 16_384),]
    );
    let shapes: Vec<_> = difference
        .changes
        .iter()
        .map(|change| {
            let shape = |side: &Option<vramfit_analysis::diff::EntryGroup>| {
                side.as_ref().unwrap().largest.shape.clone()
            };
            (shape(&change.a), shape(&change.b))
        })
        .collect();
    let expected = [("f32[8,64]", "f32[16,64]"), ("f32[8]", "f32[16]")];
    assert_eq!(shapes, expected.map(|(a, b)| (a.into(), b.into())));
}

#[test]
fn lines_that_moved_are_the_same_lines() {
    // Two lines came in above; without their order, line 12 of A would be taken for line 12 of B.
    let run = |shift: u64, batch: u64| {
        let line = |line: u64, what: &str, bytes: u64| {
            let site = format!("/src/t.py:{} (loss)", line + shift);
            buffer(ACTIVATIONS, &site, what, "f32[8]", bytes)
        };
        vec![
            line(10, "jit(step)/dot_general", 1000 * batch),
            line(11, "jit(step)/tanh", 10 * batch),
            line(12, "jit(step)/dot_general", 100 * batch),
            line(13, "jit(step)/exp", batch),
        ]
    };
    assert_eq!(
        changed(&run(0, 1), &run(2, 2)),
        expected(&[
            ("/src/t.py:10 (loss)", "/src/t.py:12 (loss)", 1000),
            ("/src/t.py:12 (loss)", "/src/t.py:14 (loss)", 100),
            ("/src/t.py:11 (loss)", "/src/t.py:13 (loss)", 10),
            ("/src/t.py:13 (loss)", "/src/t.py:15 (loss)", 1),
        ])
    );
}

#[test]
fn in_a_function_too_long_to_weigh_equal_numbers_are_the_same_line() {
    let run = |more: u64| -> Vec<AttributionEntry> {
        let line = |line: u64| {
            let site = format!("t.py:{line} (unrolled)");
            buffer(ACTIVATIONS, &site, "jit(f)/mul", "f32[8]", line + more)
        };
        (1..=2100).map(line).collect()
    };
    let changes = changed(&run(0), &run(1));
    assert_eq!(changes.len(), 2100);
    assert!(changes.iter().all(|(a, b, bytes)| a == b && *bytes == 1));
}

#[test]
fn a_checkout_in_another_folder_is_the_same_program() {
    let at = |folder: &str, bytes| {
        let site = format!("{folder}/t.py:10 (loss)");
        vec![buffer(ACTIVATIONS, &site, "jit(step)/mul", "f32[8]", bytes)]
    };
    assert_eq!(
        changed(&at("/main", 5), &at("/branch", 7)),
        expected(&[("/main/t.py:10 (loss)", "/branch/t.py:10 (loss)", 2)])
    );
    // Files of one name in two folders are two files where both runs have both.
    let both = |x, y| [at("/x", x), at("/y", y)].concat();
    assert_eq!(
        changed(&both(1, 10), &both(3, 40)),
        expected(&[
            ("/y/t.py:10 (loss)", "/y/t.py:10 (loss)", 30),
            ("/x/t.py:10 (loss)", "/x/t.py:10 (loss)", 2)
        ])
    );
}

#[test]
fn what_has_no_partner_is_in_one_run_only() {
    let a = [
        argument("params['a']", "t.py:5 (init)", "f32[4]", 16),
        argument("params['gone']", "t.py:6 (init)", "f32[9]", 36),
    ];
    let b = [
        argument("params['a']", "t.py:5 (init)", "f32[4]", 16),
        argument("params['new']", "t.py:7 (init)", "f32[100]", 400),
    ];
    assert_eq!(
        changed(&a, &b),
        expected(&[("nothing", "params['new']", 400), ("params['gone']", "nothing", -36),])
    );
}

#[test]
fn paths_come_before_lines_and_new_names_are_found_by_line_and_shape() {
    let a = [
        argument("params['w']", "t.py:5 (init)", "f32[4]", 16),
        argument("params['old']", "t.py:5 (init)", "f32[7]", 28),
    ];
    let b = [
        argument("params['w']", "u.py:9 (make)", "bf16[4]", 8),
        argument("params['new']", "t.py:5 (init)", "f32[7]", 28),
    ];
    assert_eq!(changed(&a, &b), expected(&[("params['w']", "params['w']", -8)]));
}

#[test]
fn several_of_one_line_are_reported_one_by_one_where_it_is_plain_which_is_which() {
    let made_by = "jit(step)/while/body/dynamic_update_slice";
    let one = |shape: &str, bytes| buffer(ACTIVATIONS, "t.py:9 (net)", made_by, shape, bytes);
    let a = [one("f32[2,8,512]", 32), one("f32[2,8,128]", 8), one("bf16[2,8]", 2)];
    let b = [one("f32[2,16,512]", 64), one("f32[2,16,128]", 16), one("bf16[2,16]", 4)];
    let place = "t.py:9 (net)";
    assert_eq!(
        changed(&a, &b),
        expected(&[(place, place, 32), (place, place, 8), (place, place, 2)])
    );
    // One more than before: which of them is new cannot be told.
    assert_eq!(
        changed(&a, &[&b[..], &[one("f32[2,16,9]", 1)]].concat()),
        expected(&[(place, place, 43)])
    );
}

#[test]
fn what_changed_hands_is_one_thing_with_two_owners() {
    let made_by = "jit(step)/dot_general";
    let a = [buffer(ACTIVATIONS, "t.py:9 (net)", made_by, "f32[8]", 32)];
    let b = [buffer(TEMPORARIES, "t.py:9 (net)", made_by, "f32[8]", 32)];
    assert!(changed(&a, &b).is_empty());
    let difference = diff_runs(&summary_of(a.to_vec()), &summary_of(b.to_vec()));
    let owners: Vec<_> =
        difference.owners.iter().map(|owner| (owner.kind, owner.bytes())).collect();
    assert_eq!(owners, [(ACTIVATIONS, -32), (TEMPORARIES, 32)]);
}

#[test]
fn bytes_without_path_and_line_do_not_count_as_explained() {
    let run = |padding: u64, activations: u64| {
        vec![
            buffer(PADDING, "", "", "", padding),
            buffer(ACTIVATIONS, "t.py:9 (net)", "jit(f)/mul", "f32[8]", activations),
        ]
    };
    let difference = diff_runs(&summary_of(run(100, 1000)), &summary_of(run(40, 1300)));
    assert_eq!(difference.gap_bytes(), 240);
    assert_eq!(difference.explained_bytes(), (360, 300));
}

#[test]
fn what_else_differs_is_reported_and_nothing_else() {
    let a = plain(&header());
    let mut other = header();
    other.jax = "0.10.1".into();
    other.memory_fraction = 0.9;
    other.command = vec!["python".into(), "other.py".into()];
    let b = plain(&other);
    let other_differences = diff_runs(&a, &b).other_differences;
    let shown: Vec<_> =
        other_differences.iter().map(|one| (one.what, one.a.as_str(), one.b.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("command", "python train.py", "python other.py"),
            ("pool limit", "768.0 MiB", "921.6 MiB"),
            ("JAX", "0.10.2", "0.10.1"),
            ("memory fraction", "0.75", "0.9"),
        ]
    );
    assert!(diff_runs(&a, &a).other_differences.is_empty());
}

/// A run that asks for more than the pool has, once it holds `held`.
fn refused(held: u64) -> RunSummary {
    let mut run = Recorder::new(&header());
    run.upload(held);
    assert!(run.allocate(0, 1000 * MIB, Purpose::Upload).is_none());
    recorder::summarize_run(run)
}

#[test]
fn a_refused_request_counts_and_leaves_open_what_would_have_come_after_it() {
    let (fits, refused) = (plain(&header()), refused(MIB));
    let forth = diff_runs(&fits, &refused);
    assert_eq!((forth.a.total_kind, forth.b.total_kind), (TotalKind::Peak, TotalKind::Refused));
    assert_eq!(forth.gap_bytes(), i128::from(1000 * MIB));
    // B needs that much more at least.
    assert_eq!(forth.grows_by_more_than(10 * MIB), Some(true));
    assert_eq!(forth.grows_by_more_than(2000 * MIB), None);
    // And A less than nobody knows how much.
    let back = diff_runs(&refused, &fits);
    assert_eq!(back.grows_by_more_than(0), Some(false));
    let known = diff_runs(&fits, &fits);
    assert_eq!(known.grows_by_more_than(0), Some(false));
    assert_eq!(diff_runs(&refused, &refused).grows_by_more_than(0), None);
}

#[test]
fn the_totals_are_those_of_the_summaries() {
    let summary = plain(&header());
    let held = summary.attribution.as_ref().unwrap().total_bytes;
    let run = diff_runs(&summary, &summary).a;
    assert_eq!((run.total_bytes, summary.devices[0].peak_bytes), (held, held));
}

/// Any parts at all: few names, so that many of them meet.
fn parts() -> impl Strategy<Value = Vec<AttributionEntry>> {
    let kinds = vec![ACTIVATIONS, PARAMETERS, TEMPORARIES, PADDING, EntryKind::Rounding];
    let texts = |texts: &'static [&'static str]| proptest::sample::select(texts);
    let part = (
        proptest::sample::select(kinds),
        texts(&["", "", "p['a']", "p['b']"]),
        texts(&["", "t.py:1 (f)", "t.py:2 (f)", "t.py:4 (f)", "/u/t.py:3 (g)", "no line"]),
        texts(&["", "f32[8]", "f32[8,4]", "bf16[16]"]),
        texts(&["", "jit(f)/mul", "jit(g)/mul", "fusion.1", "fusion.22"]),
        1..1000_u64,
    );
    let part = part.prop_map(|(kind, path, site, shape, made_by, bytes)| AttributionEntry {
        kind,
        path: path.into(),
        site: site.into(),
        shape: shape.into(),
        made_by: made_by.into(),
        count: 1,
        bytes,
        ..AttributionEntry::default()
    });
    proptest::collection::vec(part, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn all_changes_add_up_to_the_gap(a in parts(), b in parts()) {
        let (a, b) = (summary_of(a), summary_of(b));
        let difference = diff_runs(&a, &b);
        let held = |summary: &RunSummary| i128::from(summary.attribution.as_ref().unwrap().total_bytes);
        prop_assert_eq!(difference.gap_bytes(), held(&b) - held(&a));
        let changes: i128 = difference.changes.iter().map(EntryDelta::bytes).sum();
        prop_assert_eq!(changes, difference.gap_bytes());
        let owners: i128 = difference.owners.iter().map(|owner| owner.bytes()).sum();
        prop_assert_eq!(owners, difference.gap_bytes());
        let sizes = difference.changes.iter().map(|change| change.bytes().unsigned_abs());
        prop_assert!(sizes.clone().zip(sizes.skip(1)).all(|(before, after)| before >= after));
    }

    #[test]
    fn a_run_does_not_differ_from_itself(parts in parts()) {
        let run = summary_of(parts);
        let difference = diff_runs(&run, &run);
        prop_assert_eq!(difference.gap_bytes(), 0);
        prop_assert_eq!(difference.changes, vec![]);
        prop_assert_eq!(difference.other_differences, vec![]);
    }

    #[test]
    fn the_other_way_round_everything_has_the_other_sign(a in parts(), b in parts()) {
        let (a, b) = (summary_of(a), summary_of(b));
        let content = |change: &EntryDelta| {
            let side = |group: &Option<vramfit_analysis::diff::EntryGroup>| {
                group.as_ref().map(|group| (group.bytes, group.parts, format!("{:?}", group.largest)))
            };
            (side(&change.a), side(&change.b))
        };
        let mut forth: Vec<_> = diff_runs(&a, &b).changes.iter().map(content).collect();
        let mut back: Vec<_> = diff_runs(&b, &a)
            .changes
            .iter()
            .map(|change| {
                let (b, a) = content(change);
                (a, b)
            })
            .collect();
        forth.sort();
        back.sort();
        prop_assert_eq!(forth, back);
    }
}
