//! The search for what to recompute: where functions are divided, which plans are recommended, what a
//! plan file says.

use std::path::Path;

use proptest::prelude::*;
use vramfit_analysis::Bytes;
use vramfit_analysis::planning::{
    BatchConstraint, Chunk, Donation, Equation, MappingTransform, Moves, Omission, OutputSharding,
    Plan, PlanSettings, PlanSource, ProgramEdit, RecordedSites, Row, Site, SiteKind,
    Strategy as Search, When, pareto_front, recommend, site_options,
};
use vramfit_model::allocator::AllocatorKind;
use vramfit_model::program::memory::Undonated;
use vramfit_model::settings::Options;

const MIB: u64 = 1 << 20;
const REMAT: Moves = Moves {
    chunk: false,
    remat: true,
    compiler: false,
    scheduler: false,
    preallocation: false,
    allocator: false,
    offload: When::Never,
    unroll: When::Never,
    larger_pool_bytes: None,
};

fn site(kind: SiteKind, equations: Vec<Equation>) -> Site {
    let last = equations.last().map_or(0, |equation| equation.outputs[0] as i64);
    Site {
        kind,
        definition: "/home/me/train.py:7 (loss)".to_owned(),
        inside: "/home/me/train.py:7 (loss)".to_owned(),
        depth: 0,
        call: 1,
        iterations: None,
        fingerprint: "0123456789abcdef".to_owned(),
        structure: "fedcba9876543210".to_owned(),
        input_bytes: vec![MIB],
        outputs: vec![last],
        equations,
    }
}

/// A chain of layers of four equations: a product, which widens to 4 MiB, two functions of it, and a
/// product that narrows to 1 MiB, which the next layer begins with.
fn layers(count: usize) -> Vec<Equation> {
    (0..4 * count)
        .map(|index| {
            let (name, bytes, flops) = match index % 4 {
                0 => ("dot_general", 4 * MIB, 4096 * MIB),
                3 => ("dot_general", MIB, 4096 * MIB),
                _ => ("sin", 4 * MIB, MIB),
            };
            Equation {
                name: name.to_owned(),
                inputs: vec![index],
                outputs: vec![index + 1],
                bytes: vec![bytes],
                shape: vec![format!("float32[{}]", bytes / 4)],
                flops,
                line: format!("/home/me/train.py:{} (layer)", index % 4),
                ..Equation::default()
            }
        })
        .collect()
}

#[test]
fn a_network_is_divided_between_its_layers() {
    let options = site_options(&site(SiteKind::Grad, layers(8)));
    // Without the segment of the last layer, whose values are all there when the backward pass begins.
    let between: Vec<(usize, usize)> = (0..7).map(|layer| (4 * layer, 4 * layer + 4)).collect();
    // Behind the option that divides nothing.
    let best = &options[1];
    assert_eq!(best.plan.segments, between);
    assert_eq!(best.plan.save.as_deref(), Some("nothing"));
    assert!((best.recomputed_share - 7.0 / 8.0).abs() < 1e-9);
}

#[test]
fn equal_layers_keep_the_same_values() {
    let options = site_options(&site(SiteKind::Grad, layers(8)));
    let mut selections = options.iter().filter(|option| !option.plan.saved.is_empty());
    let first = selections.next().expect("values are chosen");
    // The narrow product has the most operations for its bytes.
    assert!(first.plan.saved.iter().all(|index| index % 4 == 3), "{:?}", first.plan.saved);
    assert_eq!(first.plan.saved.len(), 7);
    assert_eq!(first.plan.kept_lines, ["/home/me/train.py:3 (layer)"]);
}

#[test]
fn a_loop_is_in_no_segment() {
    let mut equations = layers(6);
    equations[10].barrier = true;
    for option in site_options(&site(SiteKind::Grad, equations.clone())) {
        for (start, stop) in option.plan.segments {
            assert!(!(start..stop).contains(&10));
        }
    }
    // The body of a scan that is a loop itself has a site for that loop.
    assert!(site_options(&site(SiteKind::Scan, equations)).is_empty());
}

#[test]
fn a_record_has_sites_and_functions_that_are_left_alone() {
    let site =
        r#"{"kind": "shard_map", "definition": "a.py:1 (f)", "inside": "a.py:1 (f)", "depth": 0, "call": 2,
        "fingerprint": "a", "structure": "b", "input_bytes": [4], "outputs": [0], "equations": []}"#
            .replace('\n', "");
    let left =
        r#"{"left_alone": "/x/a.py:9 (g)", "reason": "value_read", "line": "/x/a.py:12 (g)"}"#;
    let recorded = RecordedSites::parse(&format!("{site}\n{left}\n")).expect("both");
    assert_eq!(recorded.sites[0].kind, SiteKind::ShardMap);
    assert_eq!(recorded.sites[0].call, 2);
    let text = recorded.left_alone[0].describe();
    assert!(text.starts_with("a.py:9 (g) is left alone: it reads a value (a.py:12 (g))"), "{text}");
    let read = left.replace("/x/a.py:9 (g)", "a.py:1 (f)");
    let none = RecordedSites::parse(&format!("{site}\n{read}\n")).expect("both").sites;
    assert!(none.is_empty(), "another call of it reads a value");
    let kept = read.replace("value_read", "value_kept");
    assert_eq!(RecordedSites::parse(&format!("{site}\n{kept}\n")).expect("both").sites.len(), 1);
    assert!(RecordedSites::parse("{}\n").is_err());
    let none = RecordedSites::parse("").expect("no sites");
    assert_eq!(none, RecordedSites::default());
}

#[test]
fn a_plan_has_only_segments_that_its_function_can_have() {
    let text = |segments: &str, saved: &str| {
        format!(
            "schema = 2\n[source]\nvramfit = ''\njax = ''\ngpu = ''\ncommand = []\npeak_bytes = 0\n[[site]]\n\
             kind = 'grad'\ndefinition = 'a.py:1 (f)'\ninside = 'a.py:1 (f)'\ncall = 1\nfingerprint = 'a'\n\
             structure = 'b'\nequations = 20\nsegments = {segments}\nsaved = {saved}\n"
        )
    };
    let parse = |segments: &str, saved: &str| {
        let read = Plan::parse(&text(segments, saved), Path::new("plan.toml"));
        read.map_err(|error| error.to_string())
    };
    assert!(parse("[[0, 10], [10, 20]]", "[0, 9, 19]").is_ok());
    for (segments, saved, reason) in [
        ("[[0, 999999]]", "[]", "ends at 999999, and there are 20 equations"),
        ("[[5, 8], [7, 9]]", "[]", "the segment [7, 9] is out of order"),
        ("[[4, 4]]", "[]", "the segment [4, 4] is out of order"),
        ("[[8, 2]]", "[]", "the segment [8, 2] is out of order"),
        ("[[0, 10]]", "[10]", "the equation 10 is in no segment"),
    ] {
        let error = parse(segments, saved).expect_err(segments);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn all_functions_are_tried_together_where_one_alone_saves_nothing() {
    let mut other = site(SiteKind::Grad, layers(6));
    other.inside = "/home/me/train.py:30 (other)".to_owned();
    other.fingerprint = "1123456789abcdef".to_owned();
    let mut inner = other.clone();
    inner.inside = "/home/me/train.py:60 (inner)".to_owned();
    inner.depth = 1;
    let sites = [site(SiteKind::Grad, layers(8)), other, inner];
    let mut search = Search::new(&sites, &[], REMAT);
    let mut rows = vec![row(Plan::default(), 1000, 0.0)];
    let first = search.next_round(&rows);
    let is_of = |plan: &&Plan, insides: [usize; 2]| {
        let wanted = insides.map(|at| &sites[at].inside);
        plan.sites.iter().map(|site| &site.inside).eq(wanted)
    };
    let joint: Vec<&Plan> = first.iter().filter(|plan| plan.sites.len() > 1).collect();
    assert_eq!(joint.len(), 2);
    assert!(joint.iter().all(|plan| is_of(plan, [0, 1])));
    let lowest = joint[0].clone();
    for plan in first {
        let bytes = if plan == lowest { 400 } else { 1000 };
        rows.push(row(plan, bytes, 1.0));
    }
    // Each of the two with less of it.
    let second = search.next_round(&rows);
    for kept in [0, 1] {
        let keeps = |plan: &&Plan| plan.sites.contains(&lowest.sites[kept]);
        assert!(second.iter().filter(keeps).count() > 2);
    }
}

#[test]
fn the_best_of_two_sites_are_joined() {
    let mut scan = site(SiteKind::Scan, layers(3));
    scan.definition = "/home/me/train.py:3 (body)".to_owned();
    let mut search = Search::new(&[site(SiteKind::Grad, layers(8)), scan], &[], REMAT);
    let mut rows = vec![row(Plan::default(), 1000, 0.0)];
    let first = search.next_round(&rows);
    assert!(first.iter().all(|plan| plan.sites.len() == 1));
    for (index, plan) in first.into_iter().enumerate() {
        rows.push(row(plan, 900 - index as u64, 1.0 + index as f64));
    }
    let partial = search.next_round(&rows);
    assert!(partial.iter().all(|plan| plan.sites.len() == 1));
    rows.extend(partial.into_iter().map(|plan| row(plan, 950, 9.5)));
    let joined = search.next_round(&rows);
    assert!(!joined.is_empty());
    for plan in &joined {
        let kinds: Vec<SiteKind> = plan.sites.iter().map(|site| site.kind).collect();
        assert_eq!(kinds, [SiteKind::Grad, SiteKind::Scan]);
    }
    rows.extend(joined.into_iter().map(|plan| row(plan, 500, 9.0)));
    assert_eq!(search.next_round(&rows), []);
}

#[test]
fn the_first_layers_alone_are_rematerialized_next() {
    let mut search = Search::new(&[site(SiteKind::Grad, layers(10))], &[], REMAT);
    let mut rows = vec![row(Plan::default(), 1000, 0.0)];
    let first = search.next_round(&rows);
    let is_best = |plan: &Plan| plan == &first[1];
    let whole = first[1].sites[0].clone();
    assert_eq!(whole.segments.len(), 9);
    for plan in &first {
        let (peak_bytes, cost) = if is_best(plan) { (500, 5.0) } else { (990, 9.0) };
        rows.push(row(plan.clone(), peak_bytes, cost));
    }
    let partial = search.next_round(&rows);
    let segments: Vec<_> = partial.iter().map(|plan| &plan.sites[0].segments).collect();
    let expected = [8, 6, 3].map(|count| &whole.segments[..count]);
    assert_eq!(segments, expected);
    let shares = partial.iter().map(|plan| search.recomputed_share(plan));
    let shares: Vec<f64> = shares.map(|share| (share * 10.0).round()).collect();
    assert_eq!(shares, [8.0, 6.0, 3.0]);
}

#[test]
fn what_the_policy_of_the_program_keeps_is_not_recomputed() {
    let share = |kind, kept: fn(usize) -> bool| {
        let mut equations = layers(4);
        for (index, equation) in equations.iter_mut().enumerate() {
            equation.kept = kept(index);
        }
        let search = Search::new(&[site(kind, equations)], &[], REMAT);
        search.recomputed_share(&Plan::default())
    };
    assert_eq!(share(SiteKind::Checkpoint, |_| false), 1.0);
    assert_eq!(share(SiteKind::Checkpoint, |_| true), 0.0);
    let half = share(SiteKind::Checkpoint, |index| index < 4);
    assert!(half > 0.0 && half < 1.0, "{half}");
    assert_eq!(share(SiteKind::Grad, |_| false), 0.0);
}

#[test]
fn a_function_is_divided_in_other_ways_where_nothing_fits() {
    let sites = [site(SiteKind::Grad, layers(16))];
    let is_new = |plan: &Plan, first: &[Plan]| {
        let segments = &plan.sites[0].segments;
        let mut known = first.iter().map(|plan| &plan.sites[0].segments);
        !known.any(|known| known.starts_with(segments))
    };
    let other_divisions = |fits: bool| {
        let mut search = Search::new(&sites, &[], REMAT);
        let mut rows = vec![row(Plan::default(), 1000, 0.0)];
        let first = search.next_round(&rows);
        for (index, plan) in first.iter().enumerate() {
            rows.push(row(plan.clone(), 900 - index as u64, 1.0 + index as f64));
        }
        rows.iter_mut().for_each(|row| row.fits = vec![Some(fits)]);
        let second = search.next_round(&rows);
        second.iter().filter(|plan| is_new(plan, &first)).count()
    };
    assert_eq!(other_divisions(true), 0);
    // The best with its last segment, and three that are new.
    assert_eq!(other_divisions(false), 4);
}

#[test]
fn convolutions_are_among_the_products_that_a_policy_keeps() {
    let policies = |equations: Vec<Equation>| -> Vec<String> {
        let options = site_options(&site(SiteKind::Grad, equations));
        options.into_iter().filter_map(|option| option.plan.save).collect()
    };
    let dots = "dots".to_owned();
    // Where no product has batch dimensions, the two policies are the same.
    assert!(!policies(layers(8)).contains(&dots));
    let mut convolutions = layers(8);
    convolutions[0].name = "conv_general_dilated".to_owned();
    assert!(policies(convolutions).contains(&dots));
}

#[test]
fn the_scheduler_is_turned_off_where_nothing_fits() {
    let moves = Moves { remat: false, scheduler: true, ..REMAT };
    let plans = |peak_bytes| {
        let mut search = Search::new(&[], &[], moves);
        search.next_round(&[row(Plan::default(), peak_bytes, 1.0)])
    };
    assert_eq!(plans(900), []);
    let off = plans(1100);
    let changes: Vec<_> = off.iter().flat_map(Plan::moves).collect();
    assert_eq!(changes, ["turn XLA's latency-hiding scheduler off"]);
    let applied = off[0].settings.add_to(&Options::default());
    assert_eq!(applied.latency_hiding, Some(false));
}

#[test]
fn values_are_offloaded_where_nothing_fits() {
    let moves = |offload| Moves { offload, ..REMAT };
    let sites = [site(SiteKind::Grad, layers(8))];
    let second_round = |offload, fits: bool| {
        let mut search = Search::new(&sites, &[], moves(offload));
        let mut rows = vec![row(Plan::default(), 1000, 0.0)];
        for (index, plan) in search.next_round(&rows).into_iter().enumerate() {
            rows.push(row(plan, 900 - index as u64, 1.0 + index as f64));
        }
        rows.iter_mut().for_each(|row| row.fits = vec![Some(fits)]);
        let mut plans = search.next_round(&rows);
        plans.retain(|plan| plan.sites[0].is_offloading());
        plans
    };
    assert_eq!(second_round(When::Never, false), []);
    assert_eq!(second_round(When::NothingFits, true), []);
    let plans = second_round(When::NothingFits, false);
    assert_eq!(second_round(When::Always, true), plans);
    assert_eq!(plans.len(), 2);
    assert!(plans.iter().all(|plan| plan.sites[0].offload_inputs));
    assert_eq!(plans[0].sites[0].offloaded, [] as [usize; 0]);
    // The values that the fastest plan keeps.
    let chosen = &plans[1].sites[0];
    assert!(chosen.saved.is_empty() && !chosen.offloaded.is_empty());
    assert!(chosen.describe().contains("offload the values of train.py:3 (layer)"));
    assert!(plans[0].edits()[0].contains("save_and_offload_only_these_names"));
    let text = plans[1].to_toml(&PlanSource::default()).expect("TOML");
    let (read, _) = Plan::parse(&text, Path::new("plan.toml")).expect("a plan");
    assert_eq!(read, plans[1]);
}

#[test]
fn short_loops_are_unrolled_where_nothing_fits() {
    let rounds = |unroll, iterations, fits: bool, unrolled_bytes: u64| {
        let body = Site { iterations, ..site(SiteKind::Scan, layers(1)) };
        let mut search = Search::new(&[body], &[], Moves { unroll, ..REMAT });
        let mut rows = vec![row(Plan::default(), 1000, 0.0)];
        let mut unrolled: Vec<Vec<Plan>> = Vec::new();
        for _ in 0..3 {
            let mut plans = search.next_round(&rows);
            for (index, plan) in plans.iter().enumerate() {
                let is_unrolled = plan.sites[0].unroll.is_some();
                let bytes = if is_unrolled { unrolled_bytes } else { 900 - index as u64 };
                rows.push(row(plan.clone(), bytes, 1.0 + index as f64));
            }
            rows.iter_mut().for_each(|row| row.fits = vec![Some(fits)]);
            plans.retain(|plan| plan.sites[0].unroll.is_some());
            unrolled.push(plans);
        }
        unrolled
    };
    let [first, second, third] = &rounds(When::NothingFits, Some(4), false, 950)[..] else {
        panic!("three rounds");
    };
    assert_eq!(*first, []);
    let [alone] = &second[..] else { panic!("{second:?}") };
    assert_eq!(alone.moves(), ["train.py:7 (loss): unroll the loop of 4 iterations"]);
    assert_eq!(alone.edits(), ["train.py:7 (loss): pass `unroll=True` to its `jax.lax.scan`"]);
    // Of what was measured without, that with the lowest peak and the fastest.
    assert_eq!(third.len(), 2);
    let lowest = &third[0];
    assert_eq!(lowest.sites[0].unroll, Some(4));
    assert!(!lowest.sites[0].segments.is_empty());
    assert!(lowest.moves()[0].starts_with("train.py:7 (loss): unroll the loop of 4 iterations, "));
    assert!(
        lowest.edits()[0].contains("and `unroll=True` to `jax.lax.scan`"),
        "{:?}",
        lowest.edits()
    );
    let text = lowest.to_toml(&PlanSource::default()).expect("TOML");
    let (read, _) = Plan::parse(&text, Path::new("plan.toml")).expect("a plan");
    assert_eq!(read, *lowest);
    for wrong in ["unroll = 1", "unroll = 0"] {
        let text = text.replace("unroll = 4", wrong);
        assert!(Plan::parse(&text, Path::new("plan.toml")).is_err(), "{wrong}");
    }

    let proposed = |unroll, iterations, fits, bytes| {
        rounds(unroll, iterations, fits, bytes).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(proposed(When::Always, Some(4), true, 950), [0, 1, 2]);
    assert_eq!(proposed(When::NothingFits, Some(4), true, 950), [0, 0, 0]);
    assert_eq!(proposed(When::Never, Some(4), false, 950), [0, 0, 0]);
    // Alone it must save something.
    assert_eq!(proposed(When::NothingFits, Some(4), false, 1000), [0, 1, 0]);
    for iterations in [None, Some(0), Some(1), Some(17)] {
        assert_eq!(proposed(When::Always, iterations, false, 950), [0, 0, 0], "{iterations:?}");
    }
}

#[test]
fn a_fragmented_pool_is_preallocated_and_then_replaced() {
    let changes = |moves, rows: &[Row]| -> Vec<String> {
        let plans = Search::new(&[], &[], moves).next_round(rows);
        plans.iter().flat_map(Plan::moves).collect()
    };
    let fragmented = |settings: PlanSettings| Row {
        fits: vec![Some(false)],
        is_fragmented: true,
        ..row(Plan { settings, ..Plan::default() }, 900, 1.0)
    };
    let growing = Moves { preallocation: true, allocator: true, ..REMAT };
    let preallocated = PlanSettings { preallocate: Some(true), ..PlanSettings::default() };
    let as_it_is = fragmented(PlanSettings::default());
    let whole = "let JAX preallocate its pool";
    let other = "use the allocator `cuda_async`";
    assert_eq!(changes(growing, std::slice::from_ref(&as_it_is)), [whole]);
    let measured = [as_it_is, fragmented(preallocated)];
    assert_eq!(changes(growing, &measured), [whole, other]);
    // A pool that is preallocated already.
    let fixed = Moves { preallocation: false, ..growing };
    assert_eq!(changes(fixed, &measured[..1]), [other]);
    // Neither where something fits, nor where bytes are missing.
    let met = [measured[0].clone(), row(Plan::default(), 900, 2.0)];
    assert_eq!(changes(growing, &met), [] as [&str; 0]);
    let short = [row(Plan::default(), 1100, 1.0)];
    assert_eq!(changes(growing, &short), [] as [&str; 0]);
}

#[test]
fn settings_are_changed_where_they_can_help() {
    let moves = Moves { remat: false, compiler: true, larger_pool_bytes: Some(1200), ..REMAT };
    let baseline = Row { xla_remat: true, ..row(Plan::default(), 1100, 5.0) };
    let mut search = Search::new(&[site(SiteKind::Grad, layers(8))], &[], moves);
    let plans = search.next_round(std::slice::from_ref(&baseline));
    let changes: Vec<_> = plans.iter().flat_map(Plan::moves).collect();
    assert_eq!(
        changes,
        ["raise JAX's memory fraction to 0.92", "turn XLA's rematerialization pass off"]
    );
    // Not for what exceeds the larger pool, nor where something fits.
    for other in [row(Plan::default(), 1300, 5.0), row(Plan::default(), 900, 5.0)] {
        assert_eq!(Search::new(&[], &[], moves).next_round(&[other]), []);
    }
}

#[test]
fn options_of_the_user_take_precedence_over_a_plan() {
    let settings = PlanSettings {
        memory_fraction: Some(0.92),
        preallocate: Some(true),
        allocator: Some(AllocatorKind::CudaAsync),
        xla_remat: Some(false),
        latency_hiding: Some(false),
    };
    let options = settings.add_to(&Options::default());
    assert_eq!((options.fraction, options.remat), (Some(0.92), Some(false)));
    assert_eq!(options.preallocate, Some(true));
    assert_eq!(options.allocator, Some(AllocatorKind::CudaAsync));
    let users = Options {
        limit: Some(Bytes(5 << 30)),
        preallocate: Some(false),
        allocator: Some(AllocatorKind::Bfc),
        remat: Some(true),
        latency_hiding: Some(true),
        ..Options::default()
    };
    assert_eq!(settings.add_to(&users), users);
}

#[test]
fn what_a_program_returns_updated_can_be_donated() {
    let undonated = |argument: &str, output: &str| Undonated {
        argument: argument.to_owned(),
        output: output.to_owned(),
        bytes: 8,
        parameter: None,
    };
    let all = [
        undonated("ws[1]", "result[0][1]"),
        undonated("ws[0]", "result[0][0]"),
        undonated("state.mu", "result[1].mu"),
        undonated("batch", ""),
    ];
    let found = Donation::find("jit_step", &all).expect("two arguments");
    assert_eq!(found.option(), r#"donate_argnames=["ws", "state"]"#);
    assert_eq!(Donation::find("jit_step", &all[3..]), None);
    assert_eq!(Donation::find("pmap_step", &all), None);
}

#[test]
fn a_plan_file_says_what_the_plan_says() {
    let options = site_options(&site(SiteKind::Grad, layers(4)));
    let source = PlanSource {
        vramfit: "0.1.0".to_owned(),
        jax: "0.10.2".to_owned(),
        gpu: "t4".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        peak_bytes: 5 * MIB,
    };
    for option in options {
        let plan = Plan {
            sites: vec![option.plan],
            chunks: vec![Chunk {
                function: "train.py:3 (energy)".to_owned(),
                elements: 256,
                batch_size: 92,
                transform: MappingTransform::Jacfwd,
            }],
            edits: vec![
                ProgramEdit::Donate(Donation {
                    function: "step".to_owned(),
                    arguments: vec!["state".to_owned()],
                }),
                ProgramEdit::Omit(Omission {
                    function: "step".to_owned(),
                    outputs: vec!["result[1]['logits']".to_owned()],
                }),
                ProgramEdit::ShardOutputs(OutputSharding { function: "init".to_owned() }),
                ProgramEdit::ConstrainBatch(BatchConstraint {
                    function: "step".to_owned(),
                    rows: 128,
                }),
                ProgramEdit::CudnnAttention,
            ],
            settings: PlanSettings {
                memory_fraction: Some(0.92),
                preallocate: Some(true),
                allocator: Some(AllocatorKind::CudaAsync),
                xla_remat: None,
                latency_hiding: Some(false),
            },
        };
        let text = plan.to_toml(&source).expect("TOML");
        let read = Plan::parse(&text, Path::new("plan.toml")).expect("it was just written");
        assert_eq!(read, (plan, source.clone()));
    }
    for (wrong, message) in [
        ("schema = 7", "schema 7"),
        ("", "is not a plan"),
        ("schema = 1", "schema 1"),
        ("schema = 2\n[[site]]\nkind = 'grad'", "cannot be read"),
        (CHUNK_OF_NOTHING, "cannot be read"),
    ] {
        let error = Plan::parse(wrong, Path::new("plan.toml")).expect_err(wrong);
        assert!(error.message().contains(message), "{error}");
    }
}

const CHUNK_OF_NOTHING: &str = r#"
schema = 2
[source]
vramfit = "0.1.0"
jax = "0.10.2"
gpu = "t4"
command = []
peak_bytes = 0
[[chunk]]
function = "a.py:1 (f)"
elements = 4
batch_size = 0
"#;

fn row(plan: Plan, peak_bytes: u64, cost: f64) -> Row {
    Row {
        host_memory_bytes: 0,
        plan,
        peak_bytes,
        cost,
        fits: vec![Some(peak_bytes <= 1000)],
        is_fragmented: false,
        xla_remat: false,
    }
}

proptest! {
    #[test]
    fn a_lower_budget_never_recommends_a_higher_peak(
        rows in prop::collection::vec((1..2000_u64, 0..20_u32), 1..40),
        mut budgets in prop::collection::vec(1..2500_u64, 50),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(peak, cost)| row(Plan::default(), peak, f64::from(cost)))
            .collect();
        budgets.sort_unstable();
        let lowest = rows.iter().map(|row| row.peak_bytes).min().expect("there is a row");
        let (mut peak, mut cost) = (0, f64::INFINITY);
        for budget in budgets {
            let chosen = &rows[recommend(&rows, |row| row.peak_bytes <= budget).expect("a row")];
            if lowest > budget {
                prop_assert_eq!(chosen.peak_bytes, lowest);
                continue;
            }
            prop_assert!(chosen.peak_bytes <= budget);
            // Equal costs: the smaller peak, at every budget.
            prop_assert!(chosen.cost < cost || chosen.peak_bytes == peak || cost.is_infinite());
            (peak, cost) = (chosen.peak_bytes, chosen.cost);
        }
    }

    #[test]
    fn no_row_of_the_front_is_beaten(
        rows in prop::collection::vec((1..50_u64, 0..10_u32), 1..40),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(peak, cost)| row(Plan::default(), peak, f64::from(cost)))
            .collect();
        let front = pareto_front(&rows);
        for one in &rows {
            let is_covered = front.iter().any(|&index| {
                rows[index].peak_bytes <= one.peak_bytes && rows[index].cost <= one.cost
            });
            prop_assert!(is_covered);
        }
        for pair in front.windows(2) {
            prop_assert!(rows[pair[0]].peak_bytes < rows[pair[1]].peak_bytes);
            prop_assert!(rows[pair[0]].cost > rows[pair[1]].cost);
        }
    }
}

#[test]
fn a_plan_says_what_to_write_instead() {
    let edits = |kind, save: Option<&str>, lines: &[&str]| {
        let mut site = site_options(&site(kind, layers(2))).remove(0).plan;
        site.segments = vec![(0, 4), (4, 8)];
        site.save = save.map(str::to_owned);
        site.kept_lines = lines.iter().map(|line| (*line).to_owned()).collect();
        site.saved = (0..lines.len()).collect();
        let plan = Plan { sites: vec![site], ..Plan::default() };
        plan.edits().remove(0)
    };
    assert_eq!(
        edits(SiteKind::Scan, Some("dots"), &[]),
        "train.py:7 (loss): pass `jax.checkpoint(body, prevent_cse=False, \
         policy=jax.checkpoint_policies.dots_saveable)` to `jax.lax.scan`"
    );
    assert_eq!(
        edits(SiteKind::Scan, Some("nothing"), &[]),
        "train.py:7 (loss): pass `jax.checkpoint(body, prevent_cse=False)` to `jax.lax.scan`"
    );
    assert_eq!(
        edits(SiteKind::Checkpoint, Some("everything"), &[]),
        "train.py:7 (loss): give its `jax.checkpoint` \
         `policy=jax.checkpoint_policies.everything_saveable`"
    );
    assert_eq!(
        edits(SiteKind::Grad, None, &["/home/me/train.py:3 (layer)"]),
        "train.py:7 (loss): call its layers, in 2 groups, through `jax.checkpoint(layer, \
         policy=jax.checkpoint_policies.save_only_these_names(...))`, with names from \
         `jax.ad_checkpoint.checkpoint_name` for the values at train.py:3 (layer)"
    );
}
