//! `vramfit top`: monitor GPUs and the pools of JAX processes.
//!
//! | file | subject |
//! | --- | --- |
//! | `collector`, `stats_files` | sampling the driver and the statistics that JAX processes publish |
//! | `sample`, `recording` | one sample; recordings |
//! | `snapshot`, `device_mapping` | driver and published statistics combined: GPUs and processes |
//! | `state`, `keys` | what the user has selected |
//! | `view`, `gpu_lines`, `table`, `details`, `live` | the screen |
//! | `plain`, `prometheus`, `server` | table, CSV, metrics, and the HTTP server |

mod collector;
mod details;
mod device_mapping;
mod gpu_lines;
mod keys;
mod live;
mod order;
mod plain;
mod prometheus;
mod recording;
mod sample;
mod server;
mod snapshot;
mod state;
mod stats_files;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ratatui::crossterm;
use vramfit_analysis::{Error, Result};
use vramfit_base::duration::parse_duration;

use crate::commands::results::{JsonFileArgs, JsonLines};
use crate::output::Output;
use crate::status::Status;
use collector::{Collector, LiveHost, Source};
use recording::Recorder;
use sample::Sample;
use server::Server;
use snapshot::Snapshot;
use state::State;

/// Monitor GPUs and the memory pools of JAX processes
///
/// Processes started with `vramfit run` publish the statistics of their pools; for all others only what the
/// driver reports is shown. Monitoring changes nothing.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit top
  vramfit top --once
  vramfit top --json memory.jsonl --interval 5
  vramfit top --prometheus 9178
  vramfit top --record run.jsonl
  vramfit top --replay run.jsonl
")]
pub(crate) struct Args {
    /// Print one table (or one JSON object, or CSV) and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    pub(crate) results: JsonFileArgs,
    /// Print one line of CSV per process and sample
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Sampling interval, such as `2`, `0.5` or `200ms`
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics; 0 selects a free port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["once", "json", "csv"])]
    prometheus: Option<u16>,
    /// Address to listen on; other machines can only connect if it is not the loopback
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1", requires = "prometheus")]
    listen: IpAddr,
    /// Record every sample to a file, for `--replay`
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a recording instead of this machine (requires no GPU)
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// An event for the main thread.
enum Event {
    Sample(Box<Sample>),
    /// The recording has ended.
    End,
    /// A sample could not be recorded.
    Failed(Error),
    /// A key press, or a resize.
    Terminal(crossterm::event::Event),
}

/// Width of a table that is not printed to a terminal.
const PLAIN_COLUMNS: usize = 100;
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Runs `vramfit top`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let mut source = match &args.replay {
        Some(path) => Source::Recording(recording::read(path)?.into_iter()),
        None => Source::Host(Box::new(LiveHost::open())),
    };
    let mut recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    let mut json = args.results.lines()?;
    let is_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let streams = match &json {
        JsonLines::None => args.csv || args.prometheus.is_some(),
        JsonLines::Stdout => true,
        JsonLines::File { .. } => args.csv || !is_screen,
    };
    if args.once || !(streams || is_screen) {
        let sample = source.last().unwrap_or_default();
        if let Some(recorder) = &mut recorder {
            recorder.write(&sample)?;
        }
        return print_once(args, &Snapshot::of(&sample), &mut json, output);
    }
    let (sender, events) = channel();
    let collector = Collector::start(source, recorder, args.interval, sender.clone());
    let result = if streams {
        drop(sender);
        stream(args, &events, &mut json, output)
    } else {
        live::run(new_state(args, output.colors_screen()), &events, sender, &mut json, output)
    };
    drop(events);
    drop(collector);
    result.map(|()| Status::Yes)
}

fn new_state(args: &Args, color: bool) -> State {
    let source = args.replay.as_ref().map(|path| format!("replaying {}", path.display()));
    State::new(source, format!("{:?}", args.interval), color)
}

fn print_once(
    args: &Args,
    snapshot: &Snapshot,
    json: &mut JsonLines,
    output: &mut Output,
) -> Result<Status> {
    json.write(snapshot, output)?;
    if json.is_stdout() {
        // That is all.
    } else if args.csv {
        output.data(&format!("{}{}", plain::CSV_HEADER, plain::csv(snapshot)))?;
    } else {
        let mut state = new_state(args, output.colors_screen());
        state.update(snapshot.clone());
        state.has_ended = true;
        output.table(&plain::table(&state, columns()))?;
    }
    Ok(Status::Yes)
}

/// Returns the width of a table: `COLUMNS`, else that of the terminal, else a hundred.
fn columns() -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || {
        let size = std::io::stdout().is_terminal().then(crossterm::terminal::size);
        size.and_then(std::io::Result::ok).map(|(columns, _)| usize::from(columns))
    };
    set.or_else(terminal).unwrap_or(PLAIN_COLUMNS).clamp(20, 400)
}

/// Prints or serves every sample until the recording ends.
fn stream(
    args: &Args,
    events: &Receiver<Event>,
    json: &mut JsonLines,
    output: &mut Output,
) -> Result<()> {
    let server = args.prometheus.map(|port| Server::start(args.listen, port)).transpose()?;
    if let Some(server) = &server {
        output.info(&format!("serving metrics at http://{}/metrics", server.address));
    }
    if args.csv {
        output.data(plain::CSV_HEADER)?;
    }
    for event in events {
        match event {
            Event::Sample(sample) => {
                let snapshot = Snapshot::of(&sample);
                match &server {
                    Some(server) => server.update(&snapshot),
                    None if args.csv => output.data(&plain::csv(&snapshot))?,
                    None => json.write(&snapshot, output)?,
                }
            }
            Event::Failed(error) => return Err(error),
            Event::End | Event::Terminal(_) => break,
        }
    }
    Ok(())
}

/// Parses the sampling interval.
///
/// # Errors
/// `invalid-argument` for what is not a duration, or out of range.
fn parse_interval(text: &str) -> Result<Duration> {
    let interval = parse_duration(text)?;
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        return Ok(interval);
    }
    Err(Error::invalid_argument(format!("sampling interval `{text}` is out of range"))
        .hint(format!("use {MIN_INTERVAL:?} to 1h")))
}
