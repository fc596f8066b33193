//! What is explained: logs, recorded runs, binary maps of pools, directories that XLA has dumped into.

use std::fs::{self, File};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use vramfit_advice::explain::{Log, LogScanner};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_base::files::cannot_read;

use crate::files::is_standard_output;
use crate::output::Output;
use crate::trace_progress::load_until;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// A file that is not text is read whole, up to this size.
const MAX_BINARY_BYTES: u64 = 256 << 20;
/// The end of the names of programs in a directory of `--xla_dump_to`.
const PROGRAM_SUFFIX: &str = "after_optimizations.hlo.pb";

/// What was read, and the recorded run among it, if there is one.
pub(super) struct Input {
    pub(super) log: Log,
    pub(super) trace: Option<PathBuf>,
}

/// Reads all inputs, in order, as one. Without any it is standard input.
pub(super) fn read(paths: &[PathBuf], output: &Output) -> Result<Input> {
    let mut input = Input { log: Log::default(), trace: None };
    if paths.is_empty() {
        input.log = read_standard_input()?;
        return Ok(input);
    }
    let mut logs = Vec::new();
    for path in paths {
        // One file needs no name in the evidence.
        let name = match paths.len() {
            1 => String::new(),
            _ => path.display().to_string(),
        };
        match Kind::of(path)? {
            Kind::StandardInput => {
                logs.push(scan(std::io::stdin().lock(), name, "standard input")?);
            }
            Kind::Trace => {
                let summary = load_until(path, u64::MAX, output)?;
                logs.push(Log::from_run(&summary.recorded_run(), name));
                input.trace.get_or_insert_with(|| path.clone());
            }
            Kind::Directory => logs.extend(read_dump_directory(path)?),
            Kind::Binary => logs.push(read_binary(path, name)?),
            Kind::Text => logs.push(scan(open(path)?, name, &path.display().to_string())?),
        }
    }
    let mut logs = logs.into_iter();
    input.log = logs.next().unwrap_or_default();
    for log in logs {
        input.log.append(log);
    }
    Ok(input)
}

/// What an argument names.
enum Kind {
    StandardInput,
    Directory,
    Trace,
    /// A file that is not text, and so perhaps the binary map of a pool.
    Binary,
    Text,
}

impl Kind {
    fn of(path: &Path) -> Result<Kind> {
        const TRACE_MAGIC: &[u8] = b"vramfit trace ";
        const COMPRESSED: [&[u8]; 3] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"BZh"];
        if is_standard_output(Some(path)) {
            return Ok(Kind::StandardInput);
        }
        let metadata = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
        if metadata.is_dir() {
            return Ok(Kind::Directory);
        }
        // What is not a file, such as a pipe, can be opened and read only once.
        if !metadata.is_file() {
            return Ok(Kind::Text);
        }
        let mut beginning = Vec::new();
        open(path)?
            .take(4096)
            .read_to_end(&mut beginning)
            .map_err(|error| cannot_read(path, error))?;
        if beginning.starts_with(TRACE_MAGIC) {
            return Ok(Kind::Trace);
        }
        if COMPRESSED.iter().any(|magic| beginning.starts_with(magic)) {
            let shown = path.display();
            let message = format!("`{shown}` is compressed");
            return Err(Error::invalid_file(message)
                .hint("decompress it into this command: `zcat FILE | vramfit explain`"));
        }
        // The map begins with the name of the allocator: field 1 and its length.
        let begins_with_name = beginning.first() == Some(&0x0a)
            && beginning.get(1).is_some_and(|length| {
                let name = beginning.get(2..2 + usize::from(*length)).unwrap_or_default();
                name.ends_with(b"_bfc")
            });
        Ok(match begins_with_name {
            true => Kind::Binary,
            false => Kind::Text,
        })
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| cannot_read(path, error))
}

fn read_standard_input() -> Result<Log> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Error::invalid_argument("no log to explain")
            .hint("name a file, or pipe the output of the program into this command"));
    }
    scan(input.lock(), String::new(), "standard input")
}

fn scan(mut input: impl Read, name: String, shown: &str) -> Result<Log> {
    let mut scanner = LogScanner::new(name);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = input
            .read(&mut chunk)
            .map_err(|error| Error::io(format!("cannot read `{shown}`")).cause(error))?;
        if read == 0 {
            return Ok(scanner.finish());
        }
        scanner.push(&chunk[..read]);
    }
}

fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?
        .take(MAX_BINARY_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, error))?;
    Ok(bytes)
}

fn read_binary(path: &Path, name: String) -> Result<Log> {
    let bytes = read_whole(path)?;
    match Log::from_memory_dump(&bytes, name.clone()) {
        Some(log) => Ok(log),
        None => scan(&bytes[..], name, &path.display().to_string()),
    }
}

/// Reads the programs that XLA has dumped, the largest first: that is the one of interest.
fn read_dump_directory(path: &Path) -> Result<Vec<Log>> {
    let entries = fs::read_dir(path).map_err(|error| cannot_read(path, error))?;
    let names = entries.flatten().map(|entry| entry.path());
    let mut programs: Vec<PathBuf> =
        names.filter(|file| file.to_string_lossy().ends_with(PROGRAM_SUFFIX)).collect();
    programs.sort();
    let mut logs = Vec::new();
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Log::from_program_dump(&read_whole(&program)?, name) {
            Ok(log) => logs.push(log),
            Err(error) if error.kind() == ErrorKind::InvalidFile => {}
            Err(error) => return Err(error),
        }
    }
    if logs.is_empty() {
        let message = format!("`{}` has no program that XLA has dumped", path.display());
        return Err(Error::invalid_file(message)
            .hint("dump them with `XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'`"));
    }
    logs.sort_by_key(|log| std::cmp::Reverse(log.program_bytes()));
    Ok(logs)
}
