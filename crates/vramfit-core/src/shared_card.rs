//! The books of a virtual card that several processes share: a small text file.
//!
//! The first line names the card; then comes a line for each process and card, with the bytes it holds.
//! The virtual GPU keeps them (`vramfit-vgpu`), and whoever divides such a card reads them.

use std::path::{Path, PathBuf};

/// One process's part of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Number of the process.
    pub process: u32,
    /// Its start in clock ticks since the system's, because process numbers are used again.
    pub started: u64,
    /// Number of the card.
    pub device: u32,
    /// What it holds, its CUDA context included.
    pub bytes: u64,
}

impl Holding {
    /// Reads a line; `None` for what is none.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        Some(Holding {
            process: u32::try_from(next()?).ok()?,
            started: next()?,
            device: u32::try_from(next()?).ok()?,
            bytes: next()?,
        })
    }

    /// Writes it as a line.
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {}\n",
            self.process, self.started, self.device, self.bytes
        )
    }
}

/// Returns the file of a shared card: in the user's own runtime directory where there is one, else in
/// a folder of theirs among the temporary files.
pub fn file(runtime: Option<&Path>, temporary: &Path, user: u32, name: &str) -> PathBuf {
    folder(runtime, temporary, user).join(name)
}

/// Returns the folder of all shared cards.
pub fn folder(runtime: Option<&Path>, temporary: &Path, user: u32) -> PathBuf {
    match runtime {
        Some(directory) => directory.join("vramfit"),
        None => temporary.join(format!("vramfit-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_being_written_and_read() {
        let holding = Holding {
            process: 7,
            started: 12_345,
            device: 3,
            bytes: 1 << 40,
        };
        assert_eq!(Holding::parse(holding.line().trim_end()), Some(holding));
        assert_eq!(Holding::parse("nonsense"), None);
        assert_eq!(Holding::parse("t4 1 15642329088"), None);
    }
}
