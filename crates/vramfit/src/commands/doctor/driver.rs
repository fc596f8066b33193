//! Queries the NVIDIA driver with a timeout, since it may hang.

use std::sync::mpsc;
use std::time::Duration;

use vramfit_advice::doctor::Driver;
use vramfit_analysis::{Error, ErrorKind};
use vramfit_gpu::{DriverUnavailable, Sampler};
use vramfit_model::host::Host;

pub(super) fn query(timeout: Duration) -> Driver {
    let (sender, receiver) = mpsc::channel();
    // A thread that hangs in the driver cannot be stopped; it ends with the process.
    std::thread::spawn(move || {
        let host = Sampler::open().map(|mut sampler| sampler.scan());
        // The receiver may have timed out.
        let _ = sender.send(host);
    });
    match receiver.recv_timeout(timeout) {
        Ok(Ok(host)) => Driver::Available(host),
        Ok(Err(DriverUnavailable::LibraryMissing { library, cause })) => {
            Driver::NotInstalled { cause: format!("`{library}`: {cause}") }
        }
        Ok(Err(unavailable)) => broken(&Error::from(unavailable)),
        Err(mpsc::RecvTimeoutError::Timeout) => Driver::TimedOut(timeout.as_secs()),
        Err(mpsc::RecvTimeoutError::Disconnected) => broken(
            &Error::new(ErrorKind::NoDriver, "the NVIDIA driver query failed")
                .hint("check `nvidia-smi`, which uses the same driver, first"),
        ),
    }
}

/// Queries the driver once more; `None` if it does not respond this time.
pub(super) fn query_again(timeout: Duration) -> Option<Host> {
    match query(timeout) {
        Driver::Available(host) => Some(host),
        _ => None,
    }
}

fn broken(error: &Error) -> Driver {
    Driver::Broken {
        message: error.message().to_owned(),
        cause: error.cause_text().map(str::to_owned),
        fix: error.hint_text().unwrap_or_default().to_owned(),
    }
}
