//! The lock file: what each entry was accepted to need.
//!
//! A line for each entry, GPU and release of JAX, in order. A line changes only when its bytes or its
//! versions do, and lines are separated by empty ones, so that branches conflict only where both changed
//! the same figures. Each line ends with a checksum: a figure that was edited by hand is no accepted one.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::figures::{CHECKSUM_CHARS, Figures, short_digest};
use super::whole_run::WholeRun;
use crate::error::{Error, Result};
use crate::settings::Version;

/// The name of the file, beside the configuration.
pub const LOCK_FILE: &str = "vramfit.lock";

/// The version of the format.
const FORMAT: u32 = 1;

/// What the first line begins with.
const HEADER: &str = "# vramfit.lock ";

const COMMENT: &str = "\
# Accepted GPU memory in bytes, a line for each entry, GPU and release of JAX.
# Written by `vramfit check --update`; do not edit.
";
/// The last line, which never changes: so that a branch which changes the last entry can be merged with one that adds
/// an entry behind it.
const END: &str = "\n# End of the lock file.\n";

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockKey {
    /// Name of the entry.
    pub entry: String,
    /// The GPUs, as `NAME` or `NAMExN`.
    pub gpu: String,
    /// Release of JAX.
    pub jax: String,
}

/// The accepted figures of an entry on a GPU with a release of JAX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockLine {
    /// What it is about.
    pub key: LockKey,
    /// The accepted bytes.
    pub figures: Figures,
    /// Version of the CUDA plugin, with the compiler in it.
    pub plugin: String,
    /// Versions of the libraries through which the program uses JAX, by the name that they are imported by.
    pub libraries: BTreeMap<String, String>,
    /// Digest of names and sizes of the programs that were executed.
    pub programs: String,
    /// The run to its end, where the figures are those of its first steps.
    pub whole_run: Option<WholeRun>,
}

/// Joins names and versions to one word, as `flax:0.12.0,optax:0.2.9`.
fn join_versions(libraries: &BTreeMap<String, String>) -> String {
    let words = libraries.iter().map(|(name, version)| format!("{name}:{version}"));
    words.collect::<Vec<_>>().join(",")
}

fn split_versions(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = text.split(',').map(|word| word.split_once(':'));
    pairs.map(|pair| pair.map(|(name, version)| (name.to_owned(), version.to_owned()))).collect()
}

/// The accepted figures of all entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock(BTreeMap<LockKey, LockLine>);

impl LockLine {
    fn body(&self) -> String {
        let LockKey { entry, gpu, jax } = &self.key;
        let Figures { peak_bytes, steady_state_bytes, temp_bytes } = self.figures;
        let libraries = match self.libraries.is_empty() {
            true => String::new(),
            false => format!(" libraries={}", join_versions(&self.libraries)),
        };
        let whole_run =
            self.whole_run.map_or_else(String::new, |whole| format!(" whole_run={whole}"));
        format!(
            "{entry} {gpu} jax={jax} plugin={} peak={peak_bytes} steady_state={steady_state_bytes} \
             temporaries={temp_bytes} programs={}{libraries}{whole_run}",
            self.plugin, self.programs
        )
    }

    /// Returns `true` if the figures of both lines are of the same JAX and compiler.
    pub fn is_of_toolchain(&self, other: &LockLine) -> bool {
        self.key.jax == other.key.jax && self.plugin == other.plugin
    }

    /// Names the libraries of which both lines have a version, but not the same, as `optax 0.2.8 -> 0.2.9`.
    pub fn libraries_changed(&self, earlier: &LockLine) -> Vec<String> {
        let pairs = earlier.libraries.iter();
        let pairs =
            pairs.filter_map(|(name, before)| Some((name, before, self.libraries.get(name)?)));
        pairs
            .filter(|(_, before, now)| before != now)
            .map(|(name, before, now)| format!("{name} {before} -> {now}"))
            .collect()
    }

    /// Returns by how many bytes the peak exceeds that of an earlier line.
    pub fn peak_change(&self, earlier: &LockLine) -> i128 {
        i128::from(self.figures.peak_bytes) - i128::from(earlier.figures.peak_bytes)
    }

    /// Returns the checksum that the line ends with.
    pub fn checksum(&self) -> String {
        short_digest(&self.body())
    }

    /// Reads a line.
    fn parse(line: &str) -> std::result::Result<LockLine, LineError> {
        let (body, sum) = line.rsplit_once(" sum=").ok_or(LineError::Damaged)?;
        let mut words = body.split(' ');
        let mut word = || words.next().ok_or(LineError::Damaged);
        let (entry, gpu) = (word()?, word()?);
        let mut field = |name: &str| {
            let value = words.next().and_then(|word| word.strip_prefix(name));
            value.and_then(|value| value.strip_prefix('=')).ok_or(LineError::Damaged)
        };
        let (jax, plugin) = (field("jax")?, field("plugin")?);
        let bytes = |text: &str| text.parse().map_err(|_| LineError::Damaged);
        let mut parsed = LockLine {
            key: LockKey { entry: entry.to_owned(), gpu: gpu.to_owned(), jax: jax.to_owned() },
            plugin: plugin.to_owned(),
            figures: Figures {
                peak_bytes: bytes(field("peak")?)?,
                steady_state_bytes: bytes(field("steady_state")?)?,
                temp_bytes: bytes(field("temporaries")?)?,
            },
            programs: field("programs")?.to_owned(),
            libraries: BTreeMap::new(),
            whole_run: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("libraries", text)) => {
                    parsed.libraries = split_versions(text).ok_or(LineError::Damaged)?;
                }
                Some(("whole_run", text)) => {
                    parsed.whole_run = Some(WholeRun::parse(text).ok_or(LineError::Damaged)?);
                }
                _ => return Err(LineError::Damaged),
            }
        }
        match parsed.body() == body {
            false => Err(LineError::Damaged),
            true if sum.len() < CHECKSUM_CHARS => Err(LineError::Damaged),
            true if parsed.checksum() != sum => Err(LineError::Edited),
            true => Ok(parsed),
        }
    }
}

/// Why a line cannot be used.
enum LineError {
    /// It is not complete, or not a line of a lock file.
    Damaged,
    /// Its checksum is that of other figures.
    Edited,
}

impl Lock {
    /// Reads the text of a lock file.
    ///
    /// # Errors
    /// `invalid-file` for what is no lock file, one of a newer format, and a line that is damaged, edited
    /// by hand, or in conflict with another one.
    pub fn parse(text: &str) -> Result<Lock> {
        let (lock, problems) = Lock::parse_lines(text)?;
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(lock),
        }
    }

    /// Reads the text of a lock file that is about to be replaced: lines that cannot be used are left out,
    /// and returned as the second value.
    ///
    /// # Errors
    /// `invalid-file` for what is no lock file, or one of a newer format.
    pub fn parse_lines(text: &str) -> Result<(Lock, Vec<Error>)> {
        check_header(text)?;
        let mut lock = Lock::default();
        let mut problems = Vec::new();
        let mut numbers: BTreeMap<LockKey, usize> = BTreeMap::new();
        let update = "`vramfit check --update` measures again and writes the line";
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if ["<<<<<<<", "=======", ">>>>>>>", "|||||||"]
                .iter()
                .any(|marker| line.starts_with(marker))
            {
                let message = format!(
                    "`{LOCK_FILE}:{number}` is a conflict marker of a merge of two branches"
                );
                problems.push(Error::invalid_file(message).hint(update));
                continue;
            }
            match LockLine::parse(line) {
                Ok(line) => {
                    let key = line.key.clone();
                    let earlier = numbers.insert(key.clone(), number);
                    let Some(earlier) = earlier.filter(|_| lock.0.get(&key) != Some(&line)) else {
                        lock.0.insert(key, line);
                        continue;
                    };
                    let LockKey { entry, gpu, jax } = &key;
                    let message = format!(
                        "`{LOCK_FILE}:{number}` and line {earlier} are both for entry `{entry}` on {gpu} \
                         with JAX {jax}: two branches have accepted different bytes"
                    );
                    problems.push(Error::invalid_file(message).hint(update));
                    lock.0.remove(&key);
                }
                Err(LineError::Damaged) => problems.push(
                    Error::invalid_file(format!("`{LOCK_FILE}:{number}` is damaged or truncated"))
                        .hint(update),
                ),
                Err(LineError::Edited) => problems.push(
                    Error::invalid_file(format!(
                        "`{LOCK_FILE}:{number}` was edited by hand: its checksum is that of other figures"
                    ))
                    .hint(update),
                ),
            }
        }
        Ok((lock, problems))
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}{FORMAT}\n{COMMENT}");
        for line in self.0.values() {
            let _ = writeln!(text, "\n{} sum={}", line.body(), line.checksum());
        }
        text + END
    }

    /// Returns the line of an entry on a GPU: of this release of JAX, else of the newest.
    pub fn find(&self, entry: &str, gpu: &str, jax: &str) -> Option<&LockLine> {
        let lines = self.0.values().filter(|line| line.key.entry == entry && line.key.gpu == gpu);
        let version = |line: &&LockLine| line.key.jax.parse::<Version>().ok();
        lines.clone().find(|line| line.key.jax == jax).or_else(|| lines.max_by_key(version))
    }

    /// Accepts figures. A line whose figures and versions are the same stays as it is: what else changed
    /// about the program needs no new line. Returns the line that was replaced.
    pub fn accept(&mut self, line: LockLine) -> Option<LockLine> {
        let is_same = |old: &LockLine| {
            // A run that took too long this time is known from before.
            let tells_no_more = match (old.whole_run, line.whole_run) {
                (Some(WholeRun::Peak(_)), Some(WholeRun::Steady(_))) => true,
                (Some(_), None | Some(WholeRun::TimeLimit(_) | WholeRun::Failed)) => true,
                (old, new) => old == new,
            };
            let versions = (&line.plugin, &line.libraries);
            tells_no_more
                && old.figures == line.figures
                && (&old.plugin, &old.libraries) == versions
        };
        match self.0.get(&line.key) {
            Some(old) if is_same(old) => Some(old.clone()),
            _ => self.0.insert(line.key.clone(), line),
        }
    }

    /// Returns all lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = &LockLine> {
        self.0.values()
    }

    /// Removes the lines for which `keep` is false, and returns them.
    pub fn remove_unless(&mut self, keep: impl Fn(&LockLine) -> bool) -> Vec<LockLine> {
        let (kept, removed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, line)| keep(line));
        self.0 = kept;
        removed.into_values().collect()
    }
}

fn check_header(text: &str) -> Result<()> {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let number = first.strip_prefix(HEADER.trim_end());
    match number.map(|number| number.trim().parse::<u32>()) {
        Some(Ok(FORMAT)) => Ok(()),
        Some(Ok(newer)) if newer > FORMAT => Err(Error::invalid_file(format!(
            "`{LOCK_FILE}` was written by a newer vramfit (format {newer}; this one reads {FORMAT})"
        ))
        .hint("install a newer vramfit")),
        _ if first.starts_with("<<<<<<<") => Err(Error::invalid_file(format!(
            "`{LOCK_FILE}:1` is a conflict marker of a merge of two branches"
        ))
        .hint(
            "restore its first line from one of the branches, then run `vramfit check --update`",
        )),
        _ => Err(Error::invalid_file(format!(
            "`{LOCK_FILE}` is not a lock file of vramfit: its first line is not `{HEADER}{FORMAT}`"
        ))
        .hint("remove it if it is not needed, then run `vramfit check --update`")),
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
