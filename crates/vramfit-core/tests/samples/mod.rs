//! Made-up reports with every kind of picture, of any size, for tests, benchmarks and looking at.
//!
//! They have the shapes of real ones: a step whose activations pile up on the way forward and go on
//! the way back, small buffers above them, state below. The sums agree: tree, peak and pool.

#![allow(dead_code, reason = "each that uses it needs a part of it")]

mod program;

use std::collections::HashMap;

use vramfit_core::Bytes;
use vramfit_core::report::{
    AddressMap, Band, Bands, Bar, Body, Curve, Curves, Figure, Line, Mark, Node, Piece, Portion,
    Report, Section, Span, Table, Timeline, Tree, Value,
};

use self::program::{at_peak, bands};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a report with about `buffers` buffers.
pub(crate) fn sample(buffers: usize) -> Report {
    let bands = bands(buffers);
    let peak = bands.live_bytes[bands.peak_at as usize];
    let limit = peak + peak / 4;
    let tree = tree(&bands);
    let sections = vec![
        section(
            "",
            Body::Bars(vec![Bar {
                label: String::new(),
                part_bytes: peak,
                whole_bytes: limit,
            }]),
        ),
        section("", Body::Figures(figures(peak, limit))),
        section("who holds the peak", Body::Tree(tree)),
        section("memory over `jit_train_step`", Body::Bands(bands.clone())),
        section(
            "memory over the run",
            Body::Timeline(timeline(&bands, peak, limit)),
        ),
        section("what lies where in the pool", Body::Map(map(&bands, limit))),
        section("largest buffers at the peak", Body::Table(largest(&bands))),
        section("loss", Body::Curves(curves())),
        section("where the time went", Body::Split(portions())),
        section(
            "what to do",
            Body::Text(vec![
            "rematerialise `attention` (`jax.checkpoint`): its activations are the largest part"
                .to_owned(),
            "donate `opt_state` to `jit_train_step`: it is held twice".to_owned(),
        ]),
        ),
        section(
            "not covered by these figures",
            Body::Text(vec![
                "memory of cuBLAS, cuDNN, NCCL and CUDA graphs, which lies outside the pool"
                    .to_owned(),
            ]),
        ),
    ];
    Report {
        title: "vramfit dryrun".to_owned(),
        good: Some(true),
        answer: format!(
            "fits: peak {} of {} on h100-80g, {} to spare",
            Bytes(peak),
            Bytes(limit),
            Bytes(limit - peak)
        ),
        sections,
        facts: vec![
            figure(
                "command",
                Value::Text("python train.py --batch 32".into()),
                "",
            ),
            figure(
                "card",
                Value::Text("1 x h100-80g (NVIDIA H100 80GB HBM3)".into()),
                "",
            ),
            figure(
                "allocator",
                Value::Text("bfc, fraction 0.75, preallocated".into()),
                "",
            ),
            figure("jax", Value::Text("0.10.2 (PJRT 0.112)".into()), ""),
        ],
        record: serde_json::json!({"schema": 1, "fits": true}),
    }
}

/// Returns a report whose pictures and tables have nothing in them.
pub(crate) fn nothing() -> Report {
    let table = Table {
        columns: vec!["a".into(), "b".into()],
        rows: Vec::new(),
        note: String::new(),
    };
    let bodies = [
        Body::Bars(Vec::new()),
        Body::Figures(Vec::new()),
        Body::Tree(Tree::default()),
        Body::Bands(Bands::default()),
        Body::Timeline(Timeline::default()),
        Body::Map(AddressMap::default()),
        Body::Table(table),
        Body::Curves(Curves::default()),
        Body::Split(Vec::new()),
        Body::Text(Vec::new()),
    ];
    let mut report = sample(20);
    report.sections = bodies
        .into_iter()
        .map(|body| section("nothing", body))
        .collect();
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
    report.title = HOSTILE.to_owned();
    report.answer = format!("fits: {HOSTILE}");
    report.facts[0].value = Value::Text(HOSTILE.to_owned());
    for section in &mut report.sections {
        section.title = HOSTILE.to_owned();
        match &mut section.body {
            Body::Text(points) => points.push(HOSTILE.to_owned()),
            Body::Figures(figures) => figures[0].note = HOSTILE.to_owned(),
            Body::Table(table) => {
                HOSTILE.clone_into(&mut table.note);
                HOSTILE.clone_into(&mut table.columns[0]);
                table.rows[0][0] = Value::Text(HOSTILE.to_owned());
            }
            Body::Bars(bars) => HOSTILE.clone_into(&mut bars[0].label),
            Body::Tree(tree) => tree.nodes.iter_mut().for_each(|node| {
                HOSTILE.clone_into(&mut node.label);
                HOSTILE.clone_into(&mut node.note);
            }),
            Body::Timeline(timeline) => {
                HOSTILE.clone_into(&mut timeline.lines[0].label);
                timeline.marks[0].label = format!("peak {HOSTILE}");
                HOSTILE.clone_into(&mut timeline.marks[1].label);
            }
            Body::Bands(bands) => {
                HOSTILE.clone_into(&mut bands.label);
                bands
                    .moments
                    .iter_mut()
                    .for_each(|name| HOSTILE.clone_into(name));
                bands.bands.iter_mut().for_each(|band| {
                    HOSTILE.clone_into(&mut band.label);
                    HOSTILE.clone_into(&mut band.note);
                });
            }
            Body::Curves(curves) => HOSTILE.clone_into(&mut curves.lines[0].label),
            Body::Split(portions) => HOSTILE.clone_into(&mut portions[0].label),
            Body::Map(map) => {
                HOSTILE.clone_into(&mut map.moment);
                map.spans[0]
                    .pieces
                    .iter_mut()
                    .for_each(|piece| HOSTILE.clone_into(&mut piece.label));
            }
        }
    }
    report
}

fn section(title: &str, body: Body) -> Section {
    Section {
        title: title.to_owned(),
        body,
        detail: false,
    }
}

fn figure(label: &str, value: Value, note: &str) -> Figure {
    Figure {
        label: label.to_owned(),
        value,
        note: note.to_owned(),
    }
}

fn figures(peak: u64, limit: u64) -> Vec<Figure> {
    vec![
        figure(
            "limit",
            Value::Bytes(limit),
            "75.0 % of the card's 79.1 GiB",
        ),
        figure("pool", Value::Bytes(limit), "taken at the first allocation"),
        figure(
            "peak in use",
            Value::Bytes(peak),
            "temporaries of `jit_train_step`, call 1, at train.py:88 (main)",
        ),
        figure(
            "largest free block",
            Value::Bytes(limit - peak),
            "of all that is free at the peak, 0.0 % fragmented",
        ),
        figure(
            "collective memory",
            Value::Missing("none"),
            "one card needs none",
        ),
    ]
}

/// Divides what is live at the peak by kind, by the first part of the name, by the buffer.
fn tree(bands: &Bands) -> Tree {
    let mut nodes = vec![Node {
        label: "in use at the peak".into(),
        ..Node::default()
    }];
    let mut known = HashMap::new();
    for band in at_peak(bands) {
        let group = match band.label.split_once('/') {
            Some((_, rest)) => rest.split('/').next().unwrap_or(rest),
            None => band.note.split(", ").last().unwrap_or(""),
        };
        let leaf = band
            .label
            .rsplit_once('/')
            .map_or(&band.label[..], |(path, _)| path);
        let mut parent = 0;
        nodes[0].bytes += band.bytes;
        for label in [band.kind, group, leaf] {
            let node = *known.entry((parent, label)).or_insert_with(|| {
                nodes.push(Node {
                    parent: Some(parent),
                    label: label.to_owned(),
                    kind: band.kind,
                    ..Node::default()
                });
                nodes.len() as u32 - 1
            });
            nodes[node as usize].bytes += band.bytes;
            parent = node;
        }
        nodes[parent as usize].note.clone_from(&band.note);
    }
    Tree { nodes }
}

fn timeline(bands: &Bands, peak: u64, limit: u64) -> Timeline {
    let held = bands.live_bytes.first().copied().unwrap_or(0);
    let (mut at, mut used, mut pool, mut marks) = (vec![], vec![], vec![], vec![]);
    let step = (bands.live_bytes.len() / 4000).max(1);
    for call in 0..3 {
        marks.push(Mark {
            at: at.len() as u64,
            label: format!("jit_train_step, call {}", call + 1),
        });
        for (moment, bytes) in bands.live_bytes.iter().enumerate() {
            if moment % step == 0 || moment as u32 == bands.peak_at {
                at.push(at.len() as u64);
                used.push(*bytes);
            }
        }
        at.push(at.len() as u64);
        used.push(held);
    }
    pool.resize(at.len(), limit - limit / 16);
    let peak_at = used.iter().position(|bytes| *bytes == peak).unwrap_or(0) as u64;
    marks.insert(
        0,
        Mark {
            at: peak_at,
            label: format!("peak {}", Bytes(peak)),
        },
    );
    Timeline {
        unit: "events",
        at,
        lines: vec![
            Line {
                label: "in use".into(),
                bytes: used,
            },
            Line {
                label: "taken from the card".into(),
                bytes: pool,
            },
        ],
        marks,
        limit_bytes: Some(limit),
    }
}

fn map(bands: &Bands, limit: u64) -> AddressMap {
    let mut pieces: Vec<Piece> = at_peak(bands)
        .take(400)
        .map(|band| Piece {
            bytes: band.bytes,
            kind: band.kind,
            label: band.label.clone(),
        })
        .collect();
    for at in (5..pieces.len()).step_by(9) {
        pieces[at].kind = "free";
        pieces[at].label.clear();
    }
    let used: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    pieces.push(Piece {
        bytes: limit - used,
        kind: "free",
        label: String::new(),
    });
    let second = vec![
        Piece {
            bytes: 96 * MIB,
            kind: "inputs",
            label: "batch".into(),
        },
        Piece {
            bytes: 160 * MIB,
            kind: "free",
            label: String::new(),
        },
    ];
    AddressMap {
        moment: "at the peak, in `jit_train_step`, call 1".into(),
        spans: vec![
            Span {
                address: 0x7f20_0000_0000,
                bytes: limit,
                pieces,
            },
            Span {
                address: 0x7f20_0000_0000 + 64 * GIB,
                bytes: 256 * MIB,
                pieces: second,
            },
        ],
    }
}

/// A loss that falls by three powers of ten, read every ten steps, and at the end of each epoch.
fn curves() -> Curves {
    let loss = |step: u64| 2.0 / (1.0 + step as f64 / 5.0).powi(2);
    let curve = |label: &str, every: usize| Curve {
        label: label.to_owned(),
        points: (10..=1000)
            .step_by(every)
            .map(|step| (step, loss(step)))
            .collect(),
    };
    Curves {
        unit: "step",
        lines: vec![curve("train", 10), curve("validation", 90)],
    }
}

fn portions() -> Vec<Portion> {
    let parts = [
        ("steps", 0.75),
        ("waiting for data", 0.2),
        ("checkpoints", 0.05),
    ];
    let portion = |(label, share): (&str, f64)| Portion {
        label: label.to_owned(),
        share,
        amount: format!("{:.1} s", share * 40.0),
    };
    parts.map(portion).into()
}

fn largest(bands: &Bands) -> Table {
    let mut rows: Vec<&Band> = at_peak(bands).collect();
    rows.sort_by_key(|band| std::cmp::Reverse(band.bytes));
    let count = rows.len();
    rows.truncate(2000);
    let columns = [
        "buffer",
        "kind",
        "bytes",
        "of the peak",
        "instructions",
        "what it is",
    ];
    let peak = bands.live_bytes[bands.peak_at as usize] as f64;
    let row = |band: &&Band| {
        vec![
            Value::Text(band.label.clone()),
            Value::Text(band.kind.to_owned()),
            Value::Bytes(band.bytes),
            Value::Share(band.bytes as f64 / peak),
            Value::Count((band.end - band.start + 1).into()),
            Value::Text(band.note.clone()),
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
