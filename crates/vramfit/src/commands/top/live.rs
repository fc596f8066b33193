//! The live screen: one thread looks, one waits for keys, this one draws.

use std::io::{Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use vramfit_analysis::{Error, ErrorKind, Result};

use super::snapshot::Snapshot;
use super::state::State;
use super::{Event, keys, view};
use crate::ascii::in_ascii_columns;
use crate::commands::results::JsonLines;
use crate::output::Output;

/// How long to wait for an event before looking whether a signal has come.
const EVENT_TIMEOUT: Duration = Duration::from_millis(100);

/// The terminal while the screen is ours. Dropped, it is as before.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether the terminal shows no more than that.
    ascii: bool,
}

impl Screen {
    fn take(ascii: bool) -> Result<Self> {
        let cannot = |error: std::io::Error| {
            Error::io("cannot draw on this terminal")
                .cause(error)
                .hint("`vramfit top --once` prints a table")
        };
        restore_before_panics();
        enable_raw_mode().map_err(cannot)?;
        // From here on there is something to restore.
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(|error| {
            restore();
            cannot(error)
        })?;
        let screen = Screen { terminal, ascii };
        execute!(stdout(), EnterAlternateScreen).map_err(cannot)?;
        Ok(screen)
    }

    fn draw(&mut self, state: &State) -> Result<()> {
        let ascii = self.ascii;
        let drawn = self.terminal.draw(|frame| {
            view::draw(frame, state);
            if ascii {
                for cell in &mut frame.buffer_mut().content {
                    let symbol = in_ascii_columns(cell.symbol());
                    cell.set_symbol(&symbol);
                }
            }
        });
        let cannot = |error| Error::io("cannot draw on this terminal").cause(error);
        drawn.map(|_| ()).map_err(cannot)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back before a panic is told, in whichever thread: its words would be lost with
/// the screen that they were written on.
fn restore_before_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        tell(panic);
    }));
}

/// Gives the terminal back. What fails here cannot be told anywhere.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Shows the screen until the person quits or a signal comes.
///
/// # Errors
/// `io` when the terminal cannot be used or the recording cannot be written.
pub(super) fn run(
    mut state: State,
    events: &Receiver<Event>,
    sender: Sender<Event>,
    json: &mut JsonLines,
    output: &mut Output,
) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&ended));
        registered.map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot handle signals").cause(error)
        })?;
    }
    let mut screen = Screen::take(output.is_ascii())?;
    let quit = Arc::new(AtomicBool::new(false));
    let keys = wait_for_keys(sender, Arc::clone(&quit));
    let result = until_quit(&mut screen, &mut state, events, &ended, &mut |sample| {
        json.write(sample, output)
    });
    quit.store(true, Ordering::Relaxed);
    drop(screen);
    let _ = keys.join();
    result
}

fn until_quit(
    screen: &mut Screen,
    state: &mut State,
    events: &Receiver<Event>,
    ended: &AtomicBool,
    on_snapshot: &mut dyn FnMut(&Snapshot) -> Result<()>,
) -> Result<()> {
    screen.draw(state)?;
    while !ended.load(Ordering::Relaxed) {
        match events.recv_timeout(EVENT_TIMEOUT) {
            Ok(Event::Sample(sample)) => {
                let snapshot = Snapshot::of(&sample);
                on_snapshot(&snapshot)?;
                state.update(snapshot);
            }
            Ok(Event::End) => state.has_ended = true,
            Ok(Event::Failed(error)) => return Err(error),
            Ok(Event::Terminal(event::Event::Key(key))) => {
                let action = keys::action(&key, state.is_editing);
                if action.is_some_and(|action| state.act(action)) {
                    return Ok(());
                }
            }
            Ok(Event::Terminal(_)) => {} // resized: drawn anew
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        screen.draw(state)?;
    }
    Ok(())
}

fn wait_for_keys(events: Sender<Event>, quit: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while !quit.load(Ordering::Relaxed) {
            let sent = match event::poll(EVENT_TIMEOUT) {
                Ok(false) => continue,
                Ok(true) => event::read().map(|event| events.send(Event::Terminal(event))),
                Err(error) => Err(error),
            };
            // The terminal is gone, or nobody listens any more.
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    })
}
