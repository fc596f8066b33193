use std::collections::BTreeMap;

use super::super::amount::Amount;
use super::super::figures::Figures;
use super::super::growth::ChangedLine;
use super::super::lock::LockKey;
use super::*;

const GIB: u64 = 1 << 30;

fn line(entry: &str, jax: &str, peak_bytes: u64) -> LockLine {
    LockLine {
        key: LockKey { entry: entry.to_owned(), gpu: "l4".to_owned(), jax: jax.to_owned() },
        figures: Figures { peak_bytes, steady_state_bytes: GIB, temp_bytes: 5 * GIB },
        plugin: format!("cuda13-{jax}"),
        programs: "0123abcd".to_owned(),
        libraries: BTreeMap::new(),
        whole_run: None,
    }
}

fn row(entry: &str, outcome: Outcome, peak_bytes: u64) -> Row {
    Row {
        entry: entry.to_owned(),
        gpu: "l4".to_owned(),
        outcome,
        measured: Some(line(entry, "0.10.2", peak_bytes)),
        limit_bytes: 16 * GIB,
        limits: Limits::default(),
        accepted: Some(line(entry, "0.10.2", 8 * GIB)),
        base: None,
        growth: None,
        history: Vec::new(),
        conditions: Vec::new(),
    }
}

/// A check in which an entry grew by a change of a line and of the toolchain.
pub(in crate::check) fn grown() -> CheckReport {
    let lines = [
        (
            "activations",
            "/repo/model/attention.py:214 (attention)",
            "",
            "bf16[8,12,1024,1024]",
            2 * GIB,
        ),
        ("parameters", "/repo/train.py:9 (<module>)", "params['w']", "", 4096),
    ];
    let lines = lines.map(|(owner, site, path, shape, bytes)| ChangedLine {
        owner,
        site: site.to_owned(),
        path: path.to_owned(),
        shape: shape.to_owned(),
        bytes: i128::from(bytes),
    });
    let growth = Growth {
        code_bytes: Some(i128::from(2 * GIB)),
        toolchain_bytes: Some(0),
        compared_with: "commit 1a2b3c4".to_owned(),
        program: "jit_step".to_owned(),
        lines: lines.into(),
        ..Growth::default()
    };
    CheckReport {
        rows: vec![
            Row {
                accepted: Some(line("train", "0.9.2", 8 * GIB)),
                base: Some(line("train", "0.9.2", 8 * GIB)),
                growth: Some(growth),
                history: vec![7 * GIB, 8 * GIB],
                ..row("train", Outcome::Larger, 10 * GIB)
            },
            Row {
                base: Some(line("eval", "0.10.2", 8 * GIB)),
                ..row("eval", Outcome::Unchanged, 8 * GIB)
            },
        ],
        base: "origin/main".to_owned(),
        root: "/repo/".to_owned(),
        config_file: "vramfit.toml".to_owned(),
        notes: vec!["`XLA_FLAGS` of the shell is not used".to_owned()],
    }
}

/// A check with a row of every outcome, and names that every format has to escape.
pub(in crate::check) fn of_every_kind() -> CheckReport {
    let reason = "a \"quote\" <b> & 100%,\na line: |x|".to_owned();
    let none = |row: Row| Row { accepted: None, ..row };
    let rows = vec![
        row("same", Outcome::Unchanged, 8 * GIB),
        row("smaller", Outcome::Smaller, 7 * GIB),
        Row {
            limits: Limits { tolerance: Amount::Percent(2.0), ..Limits::default() },
            ..row("within", Outcome::WithinTolerance, 8 * GIB + 1)
        },
        none(row("new", Outcome::NotAccepted, GIB)),
        row("larger", Outcome::Larger, 9 * GIB),
        row(
            "over",
            Outcome::OverLimit {
                reason: "the peak of 8.0 GiB exceeds `max` by 1.0 GiB".to_owned(),
            },
            8 * GIB,
        ),
        row("refused", Outcome::DoesNotFit, 20 * GIB),
        row(
            "varies",
            Outcome::NotReproducible { reason: "peak 8.0 GiB, then 8.1 GiB".to_owned() },
            8 * GIB,
        ),
        Row { measured: None, ..row("broken", Outcome::Failed { reason }, 0) },
        Row {
            base: Some(line("accepted", "0.10.2", 7 * GIB)),
            ..row("accepted", Outcome::Unchanged, 8 * GIB)
        },
    ];
    CheckReport {
        rows,
        base: "origin/main".to_owned(),
        config_file: "vramfit.toml".to_owned(),
        ..CheckReport::default()
    }
}
