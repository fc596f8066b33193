//! Samples the driver and the published statistics, or replays a recording.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use vramfit_analysis::{Error, Result};
use vramfit_gpu::{DriverUnavailable, Sampler};

use super::recording::Recorder;
use super::sample::{NoDriver, SCHEMA, Sample};
use super::{Event, stats_files};

/// A source of samples.
pub(super) enum Source {
    /// This machine.
    Host(Box<LiveHost>),
    Recording(std::vec::IntoIter<Sample>),
}

/// The driver of this machine, if it is available.
pub(super) struct LiveHost {
    driver: std::result::Result<Box<Sampler>, NoDriver>,
}

impl LiveHost {
    pub(super) fn open() -> Self {
        let to_no_driver = |unavailable: DriverUnavailable| {
            let error = Error::from(unavailable);
            NoDriver {
                message: error.message().to_owned(),
                hint: error.hint_text().map(str::to_owned),
            }
        };
        LiveHost { driver: Sampler::open().map(Box::new).map_err(to_no_driver) }
    }

    fn poll(&mut self) -> Sample {
        let sampler = self.driver.as_mut().ok();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Sample {
            schema: SCHEMA,
            at_unix_ms: since_1970.map_or(0, |time| time.as_millis() as u64),
            host: sampler.map(|driver| driver.sample(Instant::now())),
            no_driver: self.driver.as_ref().err().cloned(),
            published: stats_files::read(),
        }
    }
}

impl Source {
    /// Returns the next sample; `None` at the end of a recording.
    pub(super) fn poll(&mut self) -> Option<Sample> {
        match self {
            Source::Host(host) => Some(host.poll()),
            Source::Recording(samples) => samples.next(),
        }
    }

    /// Returns a single sample: the last one of a recording.
    pub(super) fn last(&mut self) -> Option<Sample> {
        match self {
            Source::Host(host) => Some(host.poll()),
            Source::Recording(samples) => samples.last(),
        }
    }
}

/// A thread that sends samples at an interval.
pub(super) struct Collector {
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(super) fn start(
        mut source: Source,
        mut recorder: Option<Recorder>,
        interval: Duration,
        events: Sender<Event>,
    ) -> Self {
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            let mut next = Instant::now();
            loop {
                let Some(sample) = source.poll() else {
                    let _ = events.send(Event::End);
                    return;
                };
                let written: Result<()> = recorder.as_mut().map_or(Ok(()), |to| to.write(&sample));
                let sent = events.send(match written {
                    Ok(()) => Event::Sample(Box::new(sample)),
                    Err(error) => Event::Failed(error),
                });
                next = (next + interval).max(Instant::now());
                let rest = next.saturating_duration_since(Instant::now());
                if sent.is_err() || stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Collector { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
