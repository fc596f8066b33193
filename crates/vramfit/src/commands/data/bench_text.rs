//! A measurement of ways to read a file, as text: a table, and what it depends on.

use vramfit_core::Bytes;

use super::bench::{Measured, Request, Way};
use super::numbers::{grouped, shown};

/// Tells what was measured.
pub(super) fn told(request: &Request, measured: &Measured) -> String {
    let mut text = format!(
        "{}: {}; {} rows of {}, {} in a batch, shuffled, mixed in {}\n",
        shown(&request.file),
        shown(&request.datasets.join(", ")),
        grouped(request.rows),
        Bytes(request.row_bytes),
        grouped(request.batch_size),
        Bytes(request.memory)
    );
    text.push_str(&machine(measured));
    let (installed, missing): (Vec<&Way>, Vec<&Way>) =
        (measured.ways.iter()).partition(|way| way.not_installed.is_empty());
    let width = installed.iter().map(|way| way.title.len()).max();
    let width = width.unwrap_or(0);
    text.push_str(&format!(
        "\n{:width$}  {:>9}  {:>17}  {:>11}  {:>9}  {:>9}\n",
        "", "MB/s", "slowest, fastest", "first batch", "ours is", "a core"
    ));
    for way in installed {
        text.push_str(&format!("{:width$}  {}\n", way.title, line(way)));
    }
    text.push_str(&format!(
        "\nMedians of {} runs of {} s or more, all ways in turn, from before the file is opened: the first batch is \
         part\nof it. MB are those of the numbers as the file has them. `a core` compares processor time instead \
         of the clock.\n",
        request.runs, request.seconds
    ));
    let mut told: Vec<&[String]> = Vec::new();
    for way in &missing {
        if told.contains(&way.not_installed.as_slice()) {
            continue;
        }
        told.push(&way.not_installed);
        let titles: Vec<_> = (missing.iter())
            .filter(|other| other.not_installed == way.not_installed)
            .map(|other| shown(&other.title))
            .collect();
        text.push_str(&format!(
            "Not installed: {}. It is measured, too, after: {} -m pip install {}\n",
            titles.join("; "),
            shown(&measured.python),
            shown(&way.not_installed.join(" "))
        ));
    }
    if measured.load_before > measured.cores as f64 / 2.0 {
        text.push_str("The machine was busy with other work: ratios below 2 mean little.\n");
    }
    text
}

fn machine(measured: &Measured) -> String {
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "an unknown share".to_owned(),
    };
    let cores = match measured.cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let cache = match measured.was_warmed {
        true => "read once beforehand",
        false => "not read beforehand, since it takes more than half of the memory",
    };
    format!(
        "{cores}, load {:.1} before and {:.1} after; the file was {cache}, and {} of it in memory then, {} \
         at the end\n",
        measured.load_before,
        measured.load_after,
        percent(measured.cached_before),
        percent(measured.cached_after)
    )
}

fn line(way: &Way) -> String {
    if let Some(absent) = &way.absent {
        return shown(absent);
    }
    let first = way.first_batch_seconds.map(|seconds| seconds * 1e3);
    let speed = |speed: Option<f64>| match speed {
        Some(speed) if speed >= 10.0 => format!("{speed:.0}"),
        Some(speed) => format!("{speed:.2}"),
        None => "?".to_owned(),
    };
    let ratio = |ratio: Option<f64>| match ratio {
        // Ours beside itself says nothing.
        _ if way.id == "vramfit" => String::new(),
        Some(ratio) if ratio >= 10.0 => format!("{ratio:.0}x"),
        Some(ratio) => format!("{ratio:.1}x"),
        None => "?".to_owned(),
    };
    format!(
        "{:>9}  {:>17}  {:>11}  {:>9}  {:>9}",
        speed(way.megabytes_per_second),
        format!("{}, {}", speed(way.slowest), speed(way.fastest)),
        first.map_or_else(|| "?".to_owned(), |ms| format!("{ms:.0} ms")),
        ratio(way.ours_is_faster),
        ratio(way.ours_is_cheaper)
    )
    .trim_end()
    .to_owned()
}
