//! The two dry runs of one command, each with another Python.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vramfit_analysis::{Error, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_runner::Context;
use vramfit_runner::dryrun::{self, DryrunSpec, with_output_tail};
use vramfit_runner::interruption::Interruption;
use vramfit_runner::python;
use vramfit_runner::scratch::TempDirectory;

use crate::output::Output;

/// What is run to be compared.
#[derive(clap::Args, Debug)]
pub(super) struct DryRunArgs {
    /// Python of an environment that has JAX and vramfit; twice: COMMAND is run with each, and the runs are compared
    #[arg(long, value_name = "PYTHON", requires = "gpu", requires = "command")]
    #[arg(conflicts_with_all = ["a", "b"])]
    python: Vec<PathBuf>,
    /// With `--python`: the GPU of the dry runs; see `vramfit gpus`
    #[arg(long, value_name = "NAME[xN]", requires = "python")]
    gpu: Option<String>,
    /// With `--python`: stop after N executions of the training step
    #[arg(long, value_name = "N|steady", requires = "python")]
    steps: Option<StepLimit>,
    /// With `--python`: the program and its arguments, `python train.py` or `train.py`
    #[arg(value_name = "COMMAND", last = true, requires = "python")]
    command: Vec<OsString>,
}

/// The traces of two dry runs, which are removed when this is dropped.
pub(super) struct DryRuns {
    _folder: TempDirectory,
    pub(super) traces: [PathBuf; 2],
}

impl DryRunArgs {
    /// Makes both dry runs.
    ///
    /// # Errors
    /// Those of a dry run; `invalid-argument` when there are not two interpreters, or the command names another program.
    pub(super) fn run(&self, context: &Context, output: &mut Output) -> Result<DryRuns> {
        let [a, b] = &self.python[..] else {
            let count = self.python.len();
            return Err(Error::invalid_argument(format!("`--python` was given {count} times"))
                .hint("give it twice: that of the baseline first"));
        };
        let commands = [with_interpreter(&self.command, a)?, with_interpreter(&self.command, b)?];
        let gpus: GpuSelection = self.gpu.as_deref().unwrap_or_default().parse()?;
        let _interruption = Interruption::watch()?;
        let folder = TempDirectory::create()?;
        let run = |name: &str, command: Vec<OsString>, output: &mut Output| -> Result<PathBuf> {
            let interpreter = PathBuf::from(&command[0]);
            output.info(&format!("{name}: a dry run with `{}`", interpreter.display()));
            let trace = folder.path().join(format!("{name}.trace"));
            let log = folder.path().join(format!("{name}.log"));
            let spec = DryrunSpec {
                trace: Some(trace.clone()),
                log: Some(log.clone()),
                ..DryrunSpec::new(
                    RunConfig { steps: self.steps, ..RunConfig::new(gpus.clone()) },
                    command,
                )
            };
            dryrun::record(&spec, context, output).map_err(|error| {
                with_output_tail(error, &log).context(format_args!("`{}`", interpreter.display()))
            })?;
            Ok(trace)
        };
        let [a, b] = commands;
        let traces = [run("A", a, output)?, run("B", b, output)?];
        Ok(DryRuns { _folder: folder, traces })
    }
}

/// Returns a command with another Python.
///
/// # Errors
/// `invalid-argument` when the command starts something else.
fn with_interpreter(command: &[OsString], interpreter: &Path) -> Result<Vec<OsString>> {
    let python = interpreter.as_os_str().to_owned();
    let first = command.first().map(Path::new).unwrap_or_else(|| Path::new(""));
    if first.extension() == Some(OsStr::new("py")) {
        return Ok(std::iter::once(python).chain(command.iter().cloned()).collect());
    }
    if python::is_python(first) {
        return Ok(std::iter::once(python).chain(command[1..].iter().cloned()).collect());
    }
    Err(Error::invalid_argument(format!(
        "`{}` is not Python, whose interpreter `--python` names",
        first.display()
    ))
    .hint("use `python train.py`, or make two dry runs with `--trace`, and compare the traces"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_python_are_run_with_another() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let other = |text: &str| with_interpreter(&words(text), Path::new("/b/python"));
        assert_eq!(other("python -m train --x 1").unwrap(), words("/b/python -m train --x 1"));
        assert_eq!(other("/a/bin/python3.12 t.py").unwrap(), words("/b/python t.py"));
        assert_eq!(other("t.py --x 1").unwrap(), words("/b/python t.py --x 1"));
        assert!(other("torchrun t.py").is_err());
    }
}
