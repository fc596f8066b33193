//! `vramfit top`: what is inside the pools now.
//!
//! | file | subject |
//! | --- | --- |
//! | `sources`, `pages` | looking: at the driver, at what JAX processes publish |
//! | `moment`, `record` | what was seen at one moment; recordings of it |
//! | `board`, `place` | the two put together: GPUs, processes, three memories side by side |
//! | `state`, `keys` | what the person has chosen |
//! | `view`, `gpu`, `table`, `details`, `live` | the screen |
//! | `plain`, `prometheus`, `server` | a table, CSV, metrics, and who gets them |

mod board;
mod details;
mod gpu;
mod keys;
mod live;
mod moment;
mod pages;
mod place;
mod plain;
mod prometheus;
mod record;
mod server;
mod sources;
mod state;
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
use vramfit_core::{Error, Result};

use crate::output::Output;
use crate::status::Status;
use board::Board;
use moment::Moment;
use record::Recorder;
use server::Server;
use sources::{Collector, Machine, Source};
use state::State;

/// Watch every GPU, and what is inside the pools of JAX processes
///
/// A process that was started with `vramfit run` publishes what its pool holds; of all others only what
/// the driver says is shown. Nothing is changed: top only looks.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit top
  vramfit top --once
  vramfit top --json --interval 5 > memory.jsonl
  vramfit top --prometheus 9178
  vramfit top --record run.jsonl
  vramfit top --replay run.jsonl
")]
pub(crate) struct Args {
    /// Print one table (or one JSON object, or CSV) and end
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for every look
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a line of CSV for every process and look
    #[arg(long)]
    csv: bool,
    /// Time between two looks, such as `2`, `0.5` or `200ms`
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Serve metrics at http://ADDR:PORT/metrics instead of drawing; 0 chooses a free port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["once", "json", "csv"])]
    prometheus: Option<u16>,
    /// The address to serve at; other machines reach it only if it is not the loopback
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1",
        requires = "prometheus"
    )]
    listen: IpAddr,
    /// Write every look to a file, for `--replay`
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a recording instead of this machine; no GPU is needed
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        self.json
    }
}

/// What the main thread waits for.
enum Event {
    /// Somebody looked.
    Moment(Box<Moment>),
    /// The recording is over.
    End,
    /// A look could not be recorded.
    Failed(Error),
    /// A key, or another size.
    Terminal(crossterm::event::Event),
}

/// Columns of a table that goes to no terminal.
const PLAIN_COLUMNS: usize = 100;
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Runs `vramfit top`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let mut source = match &args.replay {
        Some(path) => Source::Recording(record::read(path)?.into_iter()),
        None => Source::Machine(Box::new(Machine::open())),
    };
    let mut recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    let is_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let streams = args.json || args.csv || args.prometheus.is_some();
    if args.once || !(streams || is_screen) {
        let moment = source.last().unwrap_or_default();
        if let Some(recorder) = &mut recorder {
            recorder.write(&moment)?;
        }
        return print_once(args, &Board::of(&moment), output);
    }
    let (sender, events) = channel();
    let collector = Collector::start(source, recorder, args.interval, sender.clone());
    let result = if streams {
        drop(sender);
        stream(args, &events, output)
    } else {
        live::run(
            new_state(args, output.colors_screen()),
            output.is_ascii(),
            &events,
            sender,
        )
    };
    drop(events);
    drop(collector);
    result.map(|()| Status::Yes)
}

fn new_state(args: &Args, color: bool) -> State {
    let source = args
        .replay
        .as_ref()
        .map(|path| format!("replaying {}", path.display()));
    State::new(source, format!("{:?}", args.interval), color)
}

fn print_once(args: &Args, board: &Board, output: &mut Output) -> Result<Status> {
    if args.json {
        output.json(board)?;
    } else if args.csv {
        output.data(&format!("{}{}", plain::CSV_HEADER, plain::csv(board)))?;
    } else {
        let mut state = new_state(args, output.colors_screen());
        state.update(board.clone());
        state.has_ended = true;
        output.table(&plain::table(&state, columns()))?;
    }
    Ok(Status::Yes)
}

/// Returns how wide a table may be: `COLUMNS`, else the terminal, else a hundred.
fn columns() -> usize {
    let set = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let terminal = || {
        let size = std::io::stdout()
            .is_terminal()
            .then(crossterm::terminal::size);
        size.and_then(std::io::Result::ok)
            .map(|(columns, _)| usize::from(columns))
    };
    set.or_else(terminal)
        .unwrap_or(PLAIN_COLUMNS)
        .clamp(20, 400)
}

/// Says what is seen, look by look, until the recording or the process ends.
fn stream(args: &Args, events: &Receiver<Event>, output: &mut Output) -> Result<()> {
    let server = args
        .prometheus
        .map(|port| Server::start(args.listen, port))
        .transpose()?;
    if let Some(server) = &server {
        output.info(&format!(
            "serving metrics at http://{}/metrics",
            server.address
        ));
    }
    if args.csv {
        output.data(plain::CSV_HEADER)?;
    }
    for event in events {
        match event {
            Event::Moment(moment) => {
                let board = Board::of(&moment);
                match &server {
                    Some(server) => server.update(&board),
                    None if args.csv => output.data(&plain::csv(&board))?,
                    None => output.json(&board)?,
                }
            }
            Event::Failed(error) => return Err(error),
            Event::End | Event::Terminal(_) => break,
        }
    }
    Ok(())
}

/// Reads a time: seconds, or a number with `ms` or `s`.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is no time; write `2`, `0.5` or `200ms`"))?;
    let time = Duration::try_from_secs_f64(seconds * scale).map_err(|error| error.to_string())?;
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&time) {
        Ok(time)
    } else {
        Err(format!(
            "`{text}` is not between {MIN_INTERVAL:?} and an hour"
        ))
    }
}
