//! The result of a benchmark as text: a table, and its conditions.

use vramfit_core::Bytes;

use super::bench::{BenchBackend, BenchOptions, BenchResult};
use super::numbers::{grouped, shown};

pub(super) fn render_result(options: &BenchOptions, result: &BenchResult) -> String {
    let mut text = format!(
        "{}: {}; {} rows of {}, batch size {}, shuffle buffer {}\n",
        shown(&options.file),
        shown(&options.datasets.join(", ")),
        grouped(options.rows),
        Bytes(options.row_bytes),
        grouped(options.batch_size),
        Bytes(options.memory)
    );
    text.push_str(&render_conditions(result));
    let (installed, missing): (Vec<&BenchBackend>, Vec<&BenchBackend>) =
        (result.backends.iter()).partition(|backend| backend.not_installed.is_empty());
    let width = installed.iter().map(|backend| backend.title.len()).max();
    let width = width.unwrap_or(0);
    text.push_str(&format!(
        "\n{:width$}  {:>9}  {:>17}  {:>11}  {:>9}  {:>9}\n",
        "", "MB/s", "min, max", "first batch", "speedup", "CPU"
    ));
    for backend in installed {
        text.push_str(&format!("{:width$}  {}\n", backend.title, render_line(backend)));
    }
    text.push_str(&format!(
        "\nMedians of {} runs of at least {} s, backends in turn, including opening the file and the first batch.\n\
         MB are uncompressed data. `speedup` and `CPU` are vramfit's speed over the backend's, by wall-clock and CPU \
         time.\n",
        options.runs, options.seconds
    ));
    let mut reported: Vec<&[String]> = Vec::new();
    for backend in &missing {
        if reported.contains(&backend.not_installed.as_slice()) {
            continue;
        }
        reported.push(&backend.not_installed);
        let titles: Vec<_> = (missing.iter())
            .filter(|other| other.not_installed == backend.not_installed)
            .map(|other| shown(&other.title))
            .collect();
        text.push_str(&format!(
            "Not installed: {}. To include it: {} -m pip install {}\n",
            titles.join("; "),
            shown(&result.python),
            shown(&backend.not_installed.join(" "))
        ));
    }
    if result.load_before > result.cores as f64 / 2.0 {
        text.push_str(
            "The machine was busy with other work: ratios below 2 are not significant.\n",
        );
    }
    text
}

fn render_conditions(result: &BenchResult) -> String {
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "an unknown part".to_owned(),
    };
    let cores = match result.cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let cache = if result.was_warmed {
        "read once beforehand"
    } else {
        "not read beforehand, because it exceeds half of the available memory"
    };
    format!(
        "{cores}, load {:.1} before and {:.1} after; the file was {cache}; {} of it in the page cache before, {} \
         after\n",
        result.load_before,
        result.load_after,
        percent(result.cached_before),
        percent(result.cached_after)
    )
}

fn render_line(backend: &BenchBackend) -> String {
    if let Some(reason) = &backend.skipped {
        return shown(reason);
    }
    let first = backend.first_batch_seconds.map(|seconds| seconds * 1e3);
    let speed = |speed: Option<f64>| match speed {
        Some(speed) if speed >= 10.0 => format!("{speed:.0}"),
        Some(speed) => format!("{speed:.2}"),
        None => "?".to_owned(),
    };
    let ratio = |ratio: Option<f64>| match ratio {
        // It is compared with itself.
        _ if backend.id == "vramfit" => String::new(),
        Some(ratio) if ratio >= 10.0 => format!("{ratio:.0}x"),
        Some(ratio) => format!("{ratio:.1}x"),
        None => "?".to_owned(),
    };
    format!(
        "{:>9}  {:>17}  {:>11}  {:>9}  {:>9}",
        speed(backend.megabytes_per_second),
        format!("{}, {}", speed(backend.slowest), speed(backend.fastest)),
        first.map_or_else(|| "?".to_owned(), |ms| format!("{ms:.0} ms")),
        ratio(backend.speedup),
        ratio(backend.cpu_speedup)
    )
    .trim_end()
    .to_owned()
}
