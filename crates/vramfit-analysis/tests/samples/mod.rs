//! Made-up reports with every kind of picture, of any size, for tests, benchmarks and looking at.
//!
//! They have the shapes of real ones: a step whose activations pile up on the way forward and go on
//! the way back, small buffers above them, state below. The sums agree: tree, peak and pool.

#![allow(dead_code, reason = "each that uses it needs a part of it")]

mod program;

use std::collections::HashMap;

use vramfit_analysis::Bytes;
use vramfit_analysis::report::{
    Action, AddressMap, Alternative, AlternativeKind, Bar, BufferLifetime, BufferLifetimes,
    Content, Curve, Curves, Marker, Metric, Node, Outcome, OwnerBytes, Region, Report, Section,
    Segment, Series, Share, Stack, Table, Timeline, Tradeoff, Tree, Value,
};

use self::program::{at_peak, lifetimes};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a report with about `buffers` buffers.
pub(crate) fn sample(buffers: usize) -> Report {
    let lifetimes = lifetimes(buffers);
    let peak = lifetimes.live_bytes[lifetimes.peak_index as usize];
    let limit = peak + peak / 4;
    let tree = tree(&lifetimes);
    let sections = vec![
        section(
            "",
            Content::Bars(vec![Bar {
                part_bytes: peak,
                whole_bytes: limit,
                owners: owners(&lifetimes),
                uncertain_bytes: peak / 10,
                ..Bar::default()
            }]),
        ),
        section("", Content::Metrics(metrics(peak, limit))),
        section("memory by owner", Content::Tree(tree)),
        section(
            "buffer lifetimes in `jit_train_step`",
            Content::BufferLifetimes(lifetimes.clone()),
        ),
        section("memory over the run", Content::Timeline(timeline(&lifetimes, peak, limit))),
        section("memory map", Content::AddressMap(map(&lifetimes, limit))),
        section("largest buffers at the peak", Content::Table(largest(&lifetimes))),
        section("loss", Content::Curves(curves())),
        section("time breakdown", Content::Breakdown(shares())),
        section("alternatives", Content::Tradeoff(tradeoff())),
        section("both runs", Content::Stacks(stacks())),
        section(
            "ways to reduce memory",
            Content::List(vec![
            "rematerialize `attention` (`jax.checkpoint`): its activations are the largest part"
                .to_owned(),
            "donate `opt_state` to `jit_train_step`: it is allocated twice".to_owned(),
        ]),
        ),
        section(
            "not covered by these metrics",
            Content::List(vec![
                "cuBLAS, cuDNN, NCCL and CUDA graphs, which allocate outside the pool".to_owned(),
            ]),
        ),
    ];
    Report {
        title: "vramfit dryrun".to_owned(),
        outcome: Outcome::Success,
        headline: format!(
            "fits: peak {} of {} on h100-80g, {} to spare",
            Bytes(peak),
            Bytes(limit),
            Bytes(limit - peak)
        ),
        next_command: Some(Action {
            text: "find the largest batch that fits".to_owned(),
            command: "vramfit plan --gpu h100-80g --vary batch=32..512 -- python train.py --batch {batch}".into(),
        }),
        sections,
        metadata: vec![
            metric("command", Value::Text("python train.py --batch 32".into()), ""),
            metric("GPU", Value::Text("1 x h100-80g (NVIDIA H100 80GB HBM3)".into()), ""),
            metric("allocator", Value::Text("bfc, fraction 0.75, preallocated".into()), ""),
            metric("jax", Value::Text("0.10.2 (PJRT 0.112)".into()), ""),
        ],
        json: serde_json::json!({"schema": vramfit_base::JSON_SCHEMA, "fits": true}),
        ..Report::default()
    }
}

/// Returns a report whose pictures and tables have nothing in them.
pub(crate) fn nothing() -> Report {
    let table =
        Table { columns: vec!["a".into(), "b".into()], rows: Vec::new(), note: String::new() };
    let contents = [
        Content::Bars(Vec::new()),
        Content::Metrics(Vec::new()),
        Content::Tree(Tree::default()),
        Content::BufferLifetimes(BufferLifetimes::default()),
        Content::Timeline(Timeline::default()),
        Content::AddressMap(AddressMap::default()),
        Content::Table(table),
        Content::Curves(Curves::default()),
        Content::Breakdown(Vec::new()),
        Content::Tradeoff(Tradeoff::default()),
        Content::Stacks(Vec::new()),
        Content::List(Vec::new()),
    ];
    let mut report = sample(20);
    report.sections = contents.into_iter().map(|content| section("nothing", content)).collect();
    report
}

/// A name that tries everything a name can try.
pub(crate) const HOSTILE: &str = concat!(
    "</script><script>document.title='owned'</script>",
    "<!--<img src=x onerror=alert(1)>`&\"'\u{202e}\x1b[31m\n=1+1"
);

/// Returns a report in which everything that has a name has a hostile one.
pub(crate) fn hostile() -> Report {
    let mut report = sample(60);
    report.sections.push(Section {
        title: String::new(),
        content: Content::Actions(Vec::new()),
        text: None,
        detail: false,
    });
    report.title = HOSTILE.to_owned();
    report.headline = format!("fits: {HOSTILE}");
    report.metadata[0].value = Value::Text(HOSTILE.to_owned());
    for section in &mut report.sections {
        section.title = HOSTILE.to_owned();
        match &mut section.content {
            Content::List(points) => points.push(HOSTILE.to_owned()),
            Content::Actions(actions) => {
                actions.push(Action { text: HOSTILE.to_owned(), command: HOSTILE.to_owned() });
            }
            Content::Metrics(metrics) => metrics[0].note = HOSTILE.to_owned(),
            Content::Table(table) => {
                HOSTILE.clone_into(&mut table.note);
                HOSTILE.clone_into(&mut table.columns[0]);
                table.rows[0][0] = Value::Text(HOSTILE.to_owned());
            }
            Content::Bars(bars) => HOSTILE.clone_into(&mut bars[0].label),
            Content::Tree(tree) => tree.nodes.iter_mut().for_each(|node| {
                HOSTILE.clone_into(&mut node.label);
                HOSTILE.clone_into(&mut node.note);
            }),
            Content::Timeline(timeline) => {
                HOSTILE.clone_into(&mut timeline.series[0].label);
                timeline.markers[0].label = format!("peak {HOSTILE}");
                HOSTILE.clone_into(&mut timeline.markers[1].label);
            }
            Content::BufferLifetimes(lifetimes) => {
                HOSTILE.clone_into(&mut lifetimes.program);
                lifetimes.instructions.iter_mut().for_each(|name| HOSTILE.clone_into(name));
                lifetimes.buffers.iter_mut().for_each(|buffer| {
                    HOSTILE.clone_into(&mut buffer.label);
                    HOSTILE.clone_into(&mut buffer.note);
                    HOSTILE.clone_into(&mut buffer.stack);
                });
            }
            Content::Curves(curves) => HOSTILE.clone_into(&mut curves.curves[0].label),
            Content::Tradeoff(tradeoff) => {
                HOSTILE.clone_into(&mut tradeoff.alternatives[0].label);
            }
            Content::Stacks(stacks) => HOSTILE.clone_into(&mut stacks[0].label),
            Content::Breakdown(shares) => HOSTILE.clone_into(&mut shares[0].label),
            Content::AddressMap(map) => {
                HOSTILE.clone_into(&mut map.caption);
                map.regions[0]
                    .segments
                    .iter_mut()
                    .for_each(|piece| HOSTILE.clone_into(&mut piece.label));
            }
        }
    }
    report
}

/// Divides what is live at the peak among two owners.
fn owners(lifetimes: &BufferLifetimes) -> Vec<OwnerBytes> {
    let of = |wanted: bool| {
        let buffers = at_peak(lifetimes).filter(|buffer| (buffer.kind == "activations") == wanted);
        buffers.map(|buffer| buffer.bytes).sum()
    };
    vec![("activations", "saved activations", of(true)), ("parameters", "parameters", of(false))]
}

fn stacks() -> Vec<Stack> {
    let stack = |label: &str, bytes: u64| Stack {
        label: label.to_owned(),
        parts: vec![("parameters", "parameters", GIB), ("activations", "saved activations", bytes)],
    };
    vec![stack("A", GIB), stack("B", 3 * GIB)]
}

fn tradeoff() -> Tradeoff {
    let kinds = [
        AlternativeKind::Unchanged,
        AlternativeKind::ParetoOptimal,
        AlternativeKind::Dominated,
        AlternativeKind::Recommended,
    ];
    let alternatives = kinds.into_iter().zip(1..).map(|(kind, at)| Alternative {
        label: format!("plan {at}"),
        bytes: (12 - 2 * at) * GIB,
        cost: 80.0 + 7.5 * at as f64,
        kind,
    });
    Tradeoff {
        cost: "time of a step in ms, estimated",
        alternatives: alternatives.collect(),
        limit_bytes: Some(5 * GIB),
    }
}

fn section(title: &str, content: Content) -> Section {
    Section { title: title.to_owned(), content, text: None, detail: false }
}

fn metric(label: &str, value: Value, note: &str) -> Metric {
    Metric { label: label.to_owned(), value, note: note.to_owned() }
}

fn metrics(peak: u64, limit: u64) -> Vec<Metric> {
    vec![
        metric("limit", Value::Bytes(limit), "75.0 % of the GPU's 79.1 GiB"),
        metric("pool", Value::Bytes(limit), "reserved at the first allocation"),
        metric(
            "peak in use",
            Value::Bytes(peak),
            "temporaries of `jit_train_step`, call 1, at train.py:88 (main)",
        ),
        metric(
            "free at peak",
            Value::Bytes(limit - peak),
            "largest block 91.2 MiB, 0.0 % fragmented",
        ),
        metric("collective memory", Value::Missing("none"), "one GPU needs none"),
    ]
}

/// Divides what is live at the peak by kind, by the first part of the name, by the buffer.
fn tree(lifetimes: &BufferLifetimes) -> Tree {
    let mut nodes = vec![Node { label: "in use at the peak".into(), ..Node::default() }];
    let mut known = HashMap::new();
    for buffer in at_peak(lifetimes) {
        let group = match buffer.label.split_once('/') {
            Some((_, rest)) => rest.split('/').next().unwrap_or(rest),
            None => buffer.note.split(", ").last().unwrap_or(""),
        };
        let leaf = buffer.label.rsplit_once('/').map_or(&buffer.label[..], |(path, _)| path);
        let mut parent = 0;
        nodes[0].bytes += buffer.bytes;
        for label in [buffer.kind, group, leaf] {
            let node = *known.entry((parent, label)).or_insert_with(|| {
                nodes.push(Node {
                    parent: Some(parent),
                    label: label.to_owned(),
                    kind: buffer.kind,
                    ..Node::default()
                });
                nodes.len() as u32 - 1
            });
            nodes[node as usize].bytes += buffer.bytes;
            parent = node;
        }
        nodes[parent as usize].note.clone_from(&buffer.note);
    }
    Tree { nodes }
}

fn timeline(lifetimes: &BufferLifetimes, peak: u64, limit: u64) -> Timeline {
    let held = lifetimes.live_bytes.first().copied().unwrap_or(0);
    let (mut positions, mut used, mut pool, mut markers) = (vec![], vec![], vec![], vec![]);
    let step = (lifetimes.live_bytes.len() / 4000).max(1);
    let mut calls = vec![];
    for call in 0..3 {
        calls.push(positions.len() as u64);
        markers.push(Marker {
            position: positions.len() as u64,
            label: format!("jit_train_step, call {}", call + 1),
        });
        for (moment, bytes) in lifetimes.live_bytes.iter().enumerate() {
            if moment % step == 0 || moment as u32 == lifetimes.peak_index {
                positions.push(positions.len() as u64);
                used.push(*bytes);
            }
        }
        positions.push(positions.len() as u64);
        used.push(held);
    }
    pool.resize(positions.len(), limit - limit / 16);
    let peak_position = used.iter().position(|bytes| *bytes == peak).unwrap_or(0) as u64;
    markers.insert(0, Marker { position: peak_position, label: format!("peak {}", Bytes(peak)) });
    Timeline {
        unit: "events",
        positions,
        series: vec![
            Series { label: "in use".into(), bytes: used },
            Series { label: "pool".into(), bytes: pool },
        ],
        steps: (1..).zip(calls).collect(),
        markers,
        limit_bytes: Some(limit),
        failed_request: None,
    }
}

fn map(lifetimes: &BufferLifetimes, limit: u64) -> AddressMap {
    let mut segments: Vec<Segment> = at_peak(lifetimes)
        .take(400)
        .map(|buffer| Segment {
            bytes: buffer.bytes,
            kind: buffer.kind,
            label: buffer.label.clone(),
        })
        .collect();
    for at in (5..segments.len()).step_by(9) {
        segments[at].kind = "free";
        segments[at].label.clear();
    }
    let used: u64 = segments.iter().map(|piece| piece.bytes).sum();
    segments.push(Segment { bytes: limit - used, kind: "free", label: String::new() });
    let second = vec![
        Segment { bytes: 96 * MIB, kind: "batch", label: "batch".into() },
        Segment { bytes: 160 * MIB, kind: "free", label: String::new() },
    ];
    AddressMap {
        caption: "at the peak, in `jit_train_step`, call 1".into(),
        regions: vec![
            Region { address: 0x7f20_0000_0000, bytes: limit, segments },
            Region { address: 0x7f20_0000_0000 + 64 * GIB, bytes: 256 * MIB, segments: second },
        ],
        failed_request_bytes: Some(limit / 2),
    }
}

/// A loss that falls by three powers of ten, read every ten steps, and at the end of each epoch.
fn curves() -> Curves {
    let loss = |step: u64| 2.0 / (1.0 + step as f64 / 5.0).powi(2);
    let curve = |label: &str, every: usize| Curve {
        label: label.to_owned(),
        points: (10..=1000).step_by(every).map(|step| (step, loss(step))).collect(),
    };
    Curves { unit: "step", curves: vec![curve("train", 10), curve("validation", 90)] }
}

fn shares() -> Vec<Share> {
    let parts = [("steps", 0.75), ("waiting for data", 0.2), ("checkpoints", 0.05)];
    let share = |(label, fraction): (&str, f64)| Share {
        label: label.to_owned(),
        fraction,
        amount: format!("{:.1} s", fraction * 40.0),
    };
    parts.map(share).into()
}

fn largest(lifetimes: &BufferLifetimes) -> Table {
    let mut rows: Vec<&BufferLifetime> = at_peak(lifetimes).collect();
    rows.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
    let count = rows.len();
    rows.truncate(2000);
    let columns = ["buffer", "kind", "bytes", "of the peak", "instructions", "details"];
    let peak = lifetimes.live_bytes[lifetimes.peak_index as usize] as f64;
    let row = |buffer: &&BufferLifetime| {
        vec![
            Value::Text(buffer.label.clone()),
            Value::Text(buffer.kind.to_owned()),
            Value::Bytes(buffer.bytes),
            Value::Fraction(buffer.bytes as f64 / peak),
            Value::Count((buffer.end - buffer.start + 1).into()),
            Value::Text(buffer.note.clone()),
        ]
    };
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.iter().map(row).collect(),
        note: match count.saturating_sub(rows.len()) {
            0 => String::new(),
            more => format!("{more} more that are smaller"),
        },
    }
}
