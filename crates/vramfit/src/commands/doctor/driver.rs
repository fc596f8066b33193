//! NVIDIA's driver, asked with a limit: one that hangs must not hang us.

use std::sync::mpsc;
use std::time::Duration;

use vramfit_core::doctor::Driver;
use vramfit_core::host::Host;
use vramfit_core::{Error, ErrorKind};
use vramfit_gpu::{DriverUnavailable, Sampler};

/// Asks the driver.
pub(super) fn ask(limit: Duration) -> Driver {
    let (sender, receiver) = mpsc::channel();
    // A thread that hangs in the driver cannot be ended; it is left behind, and ends with us.
    std::thread::spawn(move || {
        let answer = Sampler::open().map(|mut sampler| sampler.scan());
        // Whoever does not wait any longer does not want it.
        let _ = sender.send(answer);
    });
    match receiver.recv_timeout(limit) {
        Ok(Ok(machine)) => Driver::Machine(machine),
        Ok(Err(DriverUnavailable::LibraryMissing { library, cause })) => Driver::NotInstalled {
            cause: format!("`{library}`: {cause}"),
        },
        Ok(Err(absence)) => broken(&Error::from(absence)),
        Err(mpsc::RecvTimeoutError::Timeout) => Driver::Silent(limit.as_secs()),
        Err(mpsc::RecvTimeoutError::Disconnected) => broken(
            &Error::new(ErrorKind::NoDriver, "NVIDIA's driver cannot be asked")
                .hint("`nvidia-smi` asks the same driver: make that work first"),
        ),
    }
}

/// Asks for the machine once more; `None` where the driver does not answer this time.
pub(super) fn ask_again(limit: Duration) -> Option<Host> {
    match ask(limit) {
        Driver::Machine(machine) => Some(machine),
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
