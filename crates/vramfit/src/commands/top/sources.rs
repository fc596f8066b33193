//! Where the figures come from: the driver and the pages, or a recording.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use vramfit_core::{Error, Result};
use vramfit_gpu::{DriverUnavailable, Sampler};

use super::moment::{Moment, NoDriver, SCHEMA};
use super::record::Recorder;
use super::{Event, pages};

/// What is looked at.
pub(super) enum Source {
    /// This machine.
    Machine(Box<Machine>),
    /// What was recorded, and which of it comes next.
    Recording(std::vec::IntoIter<Moment>),
}

/// The driver of this machine, if there is one.
pub(super) struct Machine {
    driver: std::result::Result<Box<Sampler>, NoDriver>,
}

impl Machine {
    pub(super) fn open() -> Self {
        let explained = |absence: DriverUnavailable| {
            let error = Error::from(absence);
            NoDriver {
                message: error.message().to_owned(),
                hint: error.hint_text().map(str::to_owned),
            }
        };
        Machine {
            driver: Sampler::open().map(Box::new).map_err(explained),
        }
    }

    fn look(&mut self) -> Moment {
        let machine = self.driver.as_mut().ok();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Moment {
            schema: SCHEMA,
            at_unix_ms: since_1970.map_or(0, |time| time.as_millis() as u64),
            machine: machine.map(|driver| driver.sample(Instant::now())),
            no_driver: self.driver.as_ref().err().cloned(),
            pages: pages::read(),
        }
    }
}

impl Source {
    /// Looks once; `None` at the end of a recording.
    pub(super) fn look(&mut self) -> Option<Moment> {
        match self {
            Source::Machine(machine) => Some(machine.look()),
            Source::Recording(moments) => moments.next(),
        }
    }

    /// Looks once and for all: at a recording, how it ended.
    pub(super) fn last(&mut self) -> Option<Moment> {
        match self {
            Source::Machine(machine) => Some(machine.look()),
            Source::Recording(moments) => moments.last(),
        }
    }
}

/// A thread that looks every so often and sends what it sees.
pub(super) struct Collector {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(super) fn start(
        mut source: Source,
        mut recorder: Option<Recorder>,
        interval: Duration,
        events: Sender<Event>,
    ) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut next = Instant::now();
            loop {
                let Some(moment) = source.look() else {
                    let _ = events.send(Event::End);
                    return;
                };
                let written: Result<()> = recorder.as_mut().map_or(Ok(()), |to| to.write(&moment));
                let sent = events.send(match written {
                    Ok(()) => Event::Moment(Box::new(moment)),
                    Err(error) => Event::Failed(error),
                });
                next = (next + interval).max(Instant::now());
                let rest = next.saturating_duration_since(Instant::now());
                let (stop, changed) = &*told;
                let stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(stop, rest, |stop| !*stop);
                if sent.is_err() || waited.map_or(true, |(stop, _)| *stop) {
                    return;
                }
            }
        });
        Collector {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let (stop, changed) = &*self.stop;
        *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
