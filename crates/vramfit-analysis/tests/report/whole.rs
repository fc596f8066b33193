//! Whole reports, compared with the files in `tests/report/`.
//!
//! `TRYCMD=overwrite cargo test -p vramfit-analysis --test main report` accepts new texts; look at the difference then.

use serde_json::{Value, json};
use vramfit_analysis::report::{self, Content, Outcome};
use vramfit_model::program::ProgramSizes;
use vramfit_model::program::cost::{OperationTime, ProgramTime};
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{Event, Header, Note, Purpose, TextId};

use crate::recorder::{MIB, Recorder, header, summarize_trace, toy_gpus, two_regions};

/// Compares a text with its file, and checks what holds for every text.
fn check(name: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{name}: {line}");
        assert_eq!(line, line.trim_end(), "{name}");
        assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
    }
    let path = format!("{}/tests/report/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TRYCMD").is_some_and(|value| value == "overwrite") {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected.trim_end(), "{path}:\n{text}\n");
}

fn step_sizes() -> ProgramSizes {
    ProgramSizes {
        argument_bytes: 320 * MIB,
        output_bytes: 300 * MIB + 256,
        alias_bytes: 300 * MIB,
        temp_bytes: 250 * MIB,
        constant_bytes: 0,
        code_bytes: 48_000,
    }
}

/// Three steps that donate 300 MiB of state, on each device.
fn training(header: &Header) -> Recorder {
    let mut run = Recorder::new(header);
    let devices = 0..header.devices;
    let init = ProgramSizes { output_bytes: 300 * MIB, ..ProgramSizes::default() };
    run.program(1, "jit_init", init);
    run.begin(1);
    for device in devices.clone() {
        run.allocate(device, 300 * MIB, Purpose::Output).unwrap();
    }
    run.end();
    run.program(2, "jit_train_step", step_sizes());
    for _ in 0..3 {
        let mut blocks = Vec::new();
        for device in devices.clone() {
            blocks.push(run.allocate(device, 20 * MIB, Purpose::Upload).unwrap());
        }
        run.begin(2);
        for device in devices.clone() {
            blocks.push(run.allocate(device, 250 * MIB, Purpose::Temporary).unwrap());
            blocks.push(run.allocate(device, 4, Purpose::Output).unwrap());
        }
        run.end();
        blocks.into_iter().for_each(|block| run.free(block));
    }
    run
}

#[test]
fn a_run_that_fits() {
    let header = Header { run: RunConfig { context_bytes: 100 * MIB, ..header().run }, ..header() };
    check("fits", &report::text(&summarize_trace(&training(&header).finish())));
}

/// A training step whose time is estimated; most of it is a matrix product.
fn timed() -> Vec<u8> {
    let mut run = training(&header());
    let note =
        Note::Program { program: 2, backward: true, named: false, returned_bytes: 300 * MIB };
    run.writer.add_note(&note).unwrap();
    let operation = |site: &str, operation: &str, model_us, known| OperationTime {
        site: site.to_owned(),
        operation: operation.to_owned(),
        model_us,
        known,
    };
    let time = ProgramTime {
        low_us: 61_200.0,
        model_us: 84_000.0,
        xla_us: 80_000.0,
        unknown_us: 3_360.0,
        operations: vec![
            operation("/home/me/train.py:12 (loss)", "dot_general", 70_000.0, true),
            operation("", "sort", 3_360.0, false),
        ],
        ..ProgramTime::default()
    };
    run.writer.program_time(2, &time).unwrap();
    run.finish()
}

#[test]
fn a_run_with_an_estimated_time() {
    check("step-time", &report::text(&summarize_trace(&timed())));
}

/// A step that needs more than is left.
fn too_large() -> Vec<u8> {
    let mut run = Recorder::new(&header());
    let _state = run.upload(360 * MIB);
    run.program(2, "jit_train_step", step_sizes());
    run.begin(2);
    assert!(run.allocate(0, 500 * MIB, Purpose::Temporary).is_none());
    run.end();
    run.finish()
}

#[test]
fn a_run_that_does_not_fit() {
    check("does-not-fit", &report::text(&summarize_trace(&too_large())));
}

#[test]
fn a_run_that_fails_for_fragmentation_and_continues() {
    let mut run = Recorder::new(&Header {
        run: RunConfig { occupied_bytes: 200 * MIB, ..header().run },
        preallocate: false,
        ..header()
    });
    let first = run.upload(200 * MIB);
    let _wall = run.upload(120 * MIB);
    run.free(first);
    for _ in 0..2 {
        assert!(run.allocate(0, 500 * MIB, Purpose::Upload).is_none());
    }
    run.program(1, "jit_step", ProgramSizes::default());
    run.begin(1);
    run.end();
    check("fragmented", &report::text(&summarize_trace(&run.finish())));
}

#[test]
fn devices_that_are_alike_and_devices_that_are_not() {
    let four = Header { devices: 4, ..header() };
    check("devices-alike", &report::text(&summarize_trace(&training(&four).finish())));
    let mut run = training(&four);
    run.allocate(2, 400 * MIB, Purpose::Upload).unwrap();
    check("devices-differ", &report::text(&summarize_trace(&run.finish())));
}

#[test]
fn a_run_without_a_pool() {
    let header = Header { allocator: "platform".into(), ..header() };
    check("platform", &report::text(&summarize_trace(&training(&header).finish())));
}

#[test]
fn a_run_that_was_killed_and_read_placeholder_values() {
    let mut run = training(&Header {
        run: RunConfig { gpus: toy_gpus("h100-80g", 1024 * MIB, 1), ..header().run },
        ..header()
    });
    let (loss, other) = (run.writer.text("train.py:88 (main)"), run.writer.text("eval.py:3 (f)"));
    for site in [loss, loss, other, TextId(0)] {
        run.event(Event::UnknownRead { site, bytes: 4 });
    }
    for line in 0..9 {
        let site = run.writer.text(&format!("metrics.py:{line} (log)"));
        run.event(Event::UnknownRead { site, bytes: 4 });
    }
    let (name, compile_attempt) =
        (run.writer.text("jit_attention"), run.writer.text("no-triton-gemm"));
    run.event(Event::Program {
        program: 3,
        name,
        sizes: ProgramSizes { temp_bytes: MIB, ..ProgramSizes::default() },
        devices: 1,
        loaded: true,
        compile_attempt,
        site: TextId(0),
    });
    for number in 4..20 {
        run.program(number, &format!("jit_small_{number}"), ProgramSizes::default());
        run.begin(number);
        run.end();
    }
    check("killed", &report::text(&summarize_trace(&run.kill())));
}

#[test]
fn an_allocator_that_would_abort() {
    check("aborts", &report::text(&summarize_trace(&two_regions(&header(), false))));
}

#[test]
fn an_allocator_that_would_never_return() {
    check("hangs", &report::text(&summarize_trace(&two_regions(&header(), true))));
}

#[test]
fn a_run_that_allocated_nothing() {
    check("nothing", &report::text(&summarize_trace(&Recorder::new(&header()).finish())));
}

#[test]
fn a_run_with_placeholder_shapes() {
    let mut run = training(&header());
    let (mask, loss) =
        (run.writer.text("data.py:7 (select)"), run.writer.text("train.py:88 (main)"));
    for _ in 0..3 {
        run.event(Event::UnknownRead { site: loss, bytes: 4 });
        run.event(Event::ShapeRead { site: mask, bytes: 4 });
    }
    check("placeholder-shapes", &report::text(&summarize_trace(&run.finish())));
}

#[test]
fn names_can_do_nothing_to_the_terminal() {
    let hostile = "jit_\x1b]0;owned\x07\u{202e}\nsecond line\u{9b}31m".repeat(9);
    let mut run = Recorder::new(&Header {
        run: RunConfig { gpus: toy_gpus(&hostile, 1024 * MIB, 1), ..header().run },
        command: vec![hostile.clone()],
        ..header()
    });
    run.program(1, &hostile, step_sizes());
    run.begin(1);
    run.allocate(0, MIB, Purpose::Output).unwrap();
    assert!(run.allocate(0, 999 * MIB, Purpose::Temporary).is_none());
    run.end();
    let site = run.writer.text(&hostile);
    run.event(Event::UnknownRead { site, bytes: 4 });
    let summary = summarize_trace(&run.finish());
    let text = report::text(&summary);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
    // JSON keeps the name and escapes it.
    let json = report::json(&summary);
    assert!(!json.chars().any(|c| c < ' '));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["programs"][0]["name"], hostile);
}

#[test]
fn amounts_of_any_size_keep_to_the_columns() {
    let mut run = Recorder::new(&header());
    // Shown as `1023.9 TiB`, as wide as an amount gets.
    let bytes = (1 << 50) - (1 << 46) / 640;
    let sizes = ProgramSizes {
        argument_bytes: bytes,
        output_bytes: bytes,
        alias_bytes: bytes,
        temp_bytes: bytes,
        constant_bytes: bytes,
        code_bytes: u64::MAX,
    };
    run.program(1, "jit_a_step_with_a_rather_long_name", sizes);
    run.event(Event::OutsidePool { device: 0, bytes: u64::MAX });
    run.event(Event::OutsidePool { device: 0, bytes: u64::MAX });
    let text = report::text(&summarize_trace(&run.finish()));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn json_has_the_documented_values() {
    let fits: Value =
        serde_json::from_str(&report::json(&summarize_trace(&training(&header()).finish())))
            .unwrap();
    assert_eq!(fits["schema"], 2);
    assert_eq!(fits["jax"], "0.10.2");
    assert_eq!(fits["gpu"]["name"], "toy-1g");
    assert_eq!(fits["gpu"]["total_memory_bytes"], 1024 * MIB);
    assert_eq!(fits["fits"], true);
    assert_eq!(fits["limit_bytes"], 768 * MIB);
    assert_eq!(fits["pool_bytes"], 768 * MIB);
    assert_eq!(fits["peak_bytes"], 570 * MIB + 256);
    assert_eq!(fits["steady_state_bytes"], 300 * MIB);
    assert_eq!(fits["largest_free_block_bytes"], 198 * MIB - 256);
    assert_eq!(fits["oom"], Value::Null);
    assert_eq!(fits["devices"][0]["peak_bytes"], 570 * MIB + 256);
    let step = &fits["programs"][0];
    for (key, value) in [
        ("name", json!("jit_train_step")),
        ("calls", json!(3)),
        ("argument_bytes", json!(320 * MIB)),
        ("output_bytes", json!(300 * MIB + 256)),
        ("alias_bytes", json!(300 * MIB)),
        ("temp_bytes", json!(250 * MIB)),
        ("constant_bytes", json!(0)),
        ("code_bytes", json!(48_000)),
    ] {
        assert_eq!(step[key], value, "{key}");
    }

    let failed: Value =
        serde_json::from_str(&report::json(&summarize_trace(&too_large()))).unwrap();
    assert_eq!(failed["fits"], false);
    assert_eq!(failed["oom"]["requested_bytes"], 500 * MIB);
    assert_eq!(failed["oom"]["program"], "jit_train_step");
    assert_eq!(failed["oom"]["message"], "Out of memory while trying to allocate 500.00MiB.");
    assert_eq!(failed["oom"]["short_bytes"], 92 * MIB);
    assert_eq!(failed["oom"]["fragmented"], false);
}

/// Collects every key of an object and of the objects inside it.
fn keys(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                into.push(key.clone());
                keys(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_json_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/dryrun-output.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut all = Vec::new();
    for trace in [
        training(&header()).finish(),
        training(&Header { run: RunConfig { autotune_range: true, ..header().run }, ..header() })
            .finish(),
        timed(),
        too_large(),
        two_regions(&header(), false),
    ] {
        let text = report::json(&summarize_trace(&trace));
        keys(&serde_json::from_str(&text).unwrap(), &mut all);
    }
    assert!(all.len() > 100, "{}", all.len());
    let missing: Vec<_> = all
        .iter()
        .filter(|key| {
            !page.contains(&format!("`{key}`")) && !page.contains(&format!("`oom.{key}`"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_report_is_data() {
    let report = report::Report::from_dryrun(&summarize_trace(&too_large()));
    assert_eq!(report.outcome, Outcome::Failure);
    assert!(report.to_text().starts_with(&report.headline));
    assert_eq!(report.json["oom"]["short_bytes"], 92 * MIB);
    let Content::Bars(bars) = &report.sections[0].content else {
        panic!("a bar comes first");
    };
    assert_eq!(bars[0].whole_bytes, 768 * MIB);
}
