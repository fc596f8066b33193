//! `vramfit check`: does a change need more GPU memory than was accepted?
//!
//! Each entry is measured by dry runs ([`measure`]); `core::check` judges and writes the reports. What
//! grew is found by a run of the merge base ([`baseline`]).

mod baseline;
mod config_file;
mod environment;
mod git;
mod init;
mod measure;
mod row;
mod trace_store;
mod update;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_analysis::check::{
    CheckReport, LOCK_FILE, Lock, Outcome, Program, Workflow, render_badge,
};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::duration::parse_duration;
use vramfit_base::files::cannot_read;
use vramfit_runner::Context;
use vramfit_runner::dryrun::open_compilation_cache;
use vramfit_runner::files::cannot_write;
use vramfit_runner::interruption::{self, Interruption};
use vramfit_runner::program;
use vramfit_runner::scratch::TempDirectory;

use self::baseline::Baseline;
use self::config_file::ConfigFile;
use self::git::Repository;
use self::measure::Measuring;
use self::row::RowMeasurement;
use self::trace_store::TraceStore;
use super::results::{FullArgs, JsonArgs, JsonTarget, PageArgs, write_page};
use crate::files::{writable, write};
use crate::output::Output;
use crate::status::Status;

/// Accepted peaks of earlier commits that are shown.
const MAX_HISTORY: usize = 8;

/// Check that programs need no more GPU memory than was accepted, on a machine without a GPU
///
/// Measures the entries of `vramfit.toml` by dry runs and compares them, to the byte, with the figures in
/// `vramfit.lock`. Says which line needs more, and whether the code or the toolchain changed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit check --init
  vramfit check --update
  vramfit check
  vramfit check train --base origin/main --junit gpu-memory.xml
  vramfit check --html gpu-memory.html
  vramfit check --workflow github
  vramfit check --badge

Exit codes:
  0  nothing needs more than was accepted
  1  something does, exceeds a limit, or does not fit
  2  error, or the answer is unknown
")]
pub(crate) struct Args {
    /// Entries to check; all by default
    #[arg(value_name = "ENTRY")]
    entries: Vec<String>,
    /// File with the entries; by default `vramfit.toml` or `pyproject.toml` here or above
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write a `vramfit.toml` with the programs that are found here
    #[arg(long, conflicts_with_all = ["update", "workflow"])]
    init: bool,
    /// Accept what is measured: write it to `vramfit.lock`
    #[arg(long, conflicts_with_all = ["json", "html", "junit", "sarif", "code_quality", "markdown"])]
    update: bool,
    /// With --update: time after which a run to its end is ended, and only its first steps are known
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2m")]
    whole_run_timeout: Duration,
    /// With --update: remove lines of releases of JAX that were not measured
    #[arg(long, requires = "update")]
    prune: bool,
    /// Check limits only, and read no `vramfit.lock`
    #[arg(long, conflicts_with = "update")]
    no_lock: bool,
    /// Branch or commit whose merge base is compared with; found by itself in CI
    #[arg(long, value_name = "REF")]
    base: Option<String>,
    /// Dry runs at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Time after which what is not measured is unknown
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60m")]
    timeout: Duration,
    /// Compile everything anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
    /// Print a Markdown table of the accepted peaks, an entry a row and a GPU a column; nothing is measured
    #[arg(long, conflicts_with_all = ["init", "update", "workflow", "no_lock"])]
    badge: bool,
    /// Print a workflow that runs the check: `github`, `gitlab` or `pre-commit`
    #[arg(long, value_name = "NAME", conflicts_with = "update")]
    workflow: Option<Workflow>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    text: FullArgs,
    /// Write the results as JUnit XML to a file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results as SARIF to a file
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write the results as GitLab's code quality report to a file
    #[arg(long, value_name = "FILE")]
    code_quality: Option<PathBuf>,
    /// Write a summary in Markdown to a file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Returns the files that results are written to in other formats than JSON.
    fn result_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.junit.iter().chain(&self.sarif).chain(&self.code_quality).chain(&self.markdown)
    }
}

/// Runs `vramfit check`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if let Some(workflow) = args.workflow {
        output.info(&format!("# {}", workflow.path()));
        output.data(workflow.text())?;
        return Ok(Status::Yes);
    }
    if args.init {
        return init::run(args.config.as_deref(), args.force, output);
    }
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;
    for path in args.result_files() {
        writable(path, args.force)?;
    }
    let config = ConfigFile::find(args.config.as_deref())?;
    let entries = config.select(&args.entries)?;
    let lock_path = config.directory.join(LOCK_FILE);
    let lock = match args.no_lock {
        true => Lock::default(),
        false => read_lock(&lock_path, args.update, output)?,
    };
    if args.badge {
        output.data(&render_badge(&entries, &lock))?;
        return Ok(Status::Yes);
    }
    let repository = Repository::find(&config.directory);
    let base = match &repository {
        Some(repository) => repository.base(args.base.as_deref())?,
        None if args.base.is_some() => {
            return Err(Error::invalid_argument(
                "`--base` is given, but this is no git repository",
            )
            .hint("omit `--base`; the lock file alone is compared with"));
        }
        None => None,
    };

    let scratch = TempDirectory::create()?;
    let _interruption = Interruption::watch()?;
    let programs = entries.iter().filter_map(|entry| match &entry.program {
        Program::Command { words, .. } => words.first().map(OsStr::new),
        Program::Function { .. } => None,
    });
    let context = &program::with_own_python(programs, context, output);
    let measuring = Measuring::new(
        &config.directory,
        scratch.path(),
        open_compilation_cache(!args.no_cache, &scratch),
        args.timeout,
        args.update.then_some(args.whole_run_timeout),
        context,
    );
    let store = (!args.no_cache).then(TraceStore::open).flatten();
    let measured = measuring.measure_all(&entries, &lock, args.jobs as usize, output);
    if let Err(error) = interruption::ensure_none() {
        for row in &measured {
            if let Some(measured) = row.measured() {
                let peak = Bytes(measured.run.peak_bytes);
                output.info(&format!("{} on {}: peak {peak}", row.entry.name, row.gpu));
            }
        }
        return Err(error.hint("nothing was compared; run the check again"));
    }
    let notes = measuring.notes();
    if args.update {
        let update = update::Update {
            config: &config,
            path: &lock_path,
            prune: args.prune,
            is_partial: !args.entries.is_empty(),
        };
        return update.run(lock, &measured, store.as_ref(), output);
    }

    let mut report = CheckReport {
        base: base.as_ref().map_or_else(String::new, |base| base.to_string()),
        root: repository.as_ref().map_or_else(String::new, |it| format!("{}/", it.root.display())),
        config_file: config.relative_path(repository.as_ref()),
        notes,
        ..CheckReport::default()
    };
    let baseline = Baseline {
        measuring: &measuring,
        config: &config,
        repository: repository.as_ref(),
        base: base.as_ref(),
        store: store.as_ref(),
    };
    let locks = repository.as_ref().map_or_else(Vec::new, |it| it.locks(&lock_path));
    let base_lock = baseline.lock(&lock_path);
    for row in &measured {
        let mut shown = row.to_report_row(&lock, args.no_lock);
        shown.base = base_lock
            .as_ref()
            .and_then(|lock| lock.find(&shown.entry, &shown.gpu, row.jax()).cloned());
        shown.history = history(&locks, &lock, row);
        let is_other = shown.is_of_other_versions() && shown.outcome != Outcome::Unchanged;
        if let Some(accepted) = shown.accepted.clone() {
            if shown.outcome.passes() == Some(false) || is_other {
                shown.growth = baseline.find_growth(row, &accepted, output);
                shown.fail_for_code();
            } else if shown.outcome == Outcome::Unchanged
                && let Some(store) = &store
            {
                store.keep(&accepted, &row.trace);
            }
        }
        report.rows.push(shown);
    }
    print_report(args, &report, &json, output)?;
    write_page(&report.to_page(), html.as_deref(), args.force, output)?;
    Ok(Status::from_answer(report.passes()))
}

/// Reads the lock file. One that is about to be replaced may be missing, or have lines that cannot be used.
fn read_lock(path: &Path, update: bool, output: &mut Output) -> Result<Lock> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && update => {
            return Ok(Lock::default());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::io(format!(
                "there is no `{}`, so there is nothing to compare with",
                shown_path(path).display()
            ))
            .hint(
                "run `vramfit check --update` and commit the file, or check limits only: \
                 `vramfit check --no-lock`",
            ));
        }
        Err(error) => return Err(cannot_read(shown_path(path), error)),
    };
    if !update {
        return Lock::parse(&text);
    }
    let (lock, problems) = Lock::parse_lines(&text)?;
    for problem in problems {
        output.info(&format!("replaced: {}", problem.message()));
    }
    Ok(lock)
}

/// Returns a path relative to the current directory, if it lies there.
fn shown_path(path: &Path) -> &Path {
    let current = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(current).unwrap_or(path)
}

/// Returns the peaks that were accepted for a row, the oldest first; each only once in a row.
fn history(locks: &[Lock], current: &Lock, row: &RowMeasurement<'_>) -> Vec<u64> {
    let mut peaks: Vec<u64> = Vec::new();
    for lock in locks.iter().chain([current]) {
        let found = lock.find(&row.entry.name, &row.gpu, row.jax());
        let peak = found.map(|line| line.figures.peak_bytes);
        peaks.extend(peak.filter(|peak| peaks.last() != Some(peak)));
    }
    peaks.split_off(peaks.len().saturating_sub(MAX_HISTORY))
}

/// Prints the results, and writes the files.
fn print_report(
    args: &Args,
    report: &CheckReport,
    json: &JsonTarget,
    output: &mut Output,
) -> Result<()> {
    json.write(&report.to_json(), output)?;
    if !json.is_stdout() {
        output.answer(report.passes(), &report.to_text(args.text.full))?;
    }
    let is_set = |name: &str| std::env::var(name).is_ok_and(|value| value == "true");
    if is_set("GITHUB_ACTIONS") {
        output.info(report.to_github_annotations().trim_end());
        if let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY") {
            append(&PathBuf::from(path), &report.to_markdown())?;
        }
    }
    let files = [
        (args.junit.as_ref(), report.to_junit()),
        (args.sarif.as_ref(), format!("{:#}", report.to_sarif())),
        (args.code_quality.as_ref(), format!("{:#}", report.to_code_quality())),
        (args.markdown.as_ref(), report.to_markdown()),
    ];
    for (path, text) in files {
        if let Some(path) = path {
            write(path, &text, args.force)?;
            output.verbose(&format!("{} written", path.display()));
        }
    }
    Ok(())
}

/// Adds to a file that others write to, too.
fn append(path: &Path, text: &str) -> Result<()> {
    let file = std::fs::File::options().append(true).create(true).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|error| cannot_write(path, error))
}
