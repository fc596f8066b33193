//! What JAX did when it was tried, step by step, as a child process told it.
//!
//! The child tells each step when it begins and when it ends, one line of JSON each, so that what was
//! learnt before a crash counts, and the step that it died in is known.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A step of the trial, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeStep {
    /// `import jax`.
    Import,
    /// The first use of a backend: which devices are there.
    Backend,
    /// The first allocation on each device, after which the pool is there.
    Pool,
    /// A computation whose result is known.
    Computation,
    /// A function that is compiled, and called twice.
    Jit,
    /// Bytes to the device and back.
    Transfers,
    /// Nothing: the child waits while its memory is looked at from outside.
    Hold,
    /// A few training steps.
    Training,
}

impl ProbeStep {
    /// Returns what is done in it, for "while it …".
    fn words(self) -> &'static str {
        match self {
            ProbeStep::Import => "imported JAX",
            ProbeStep::Backend => "looked for devices",
            ProbeStep::Pool => "created its first array",
            ProbeStep::Computation => "ran the computation",
            ProbeStep::Jit => "compiled a function",
            ProbeStep::Transfers => "transferred data",
            ProbeStep::Hold => "waited for the memory measurement",
            ProbeStep::Training => "trained",
        }
    }
}

/// How the child ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProbeExit {
    /// There was no trial, for this reason.
    #[default]
    NotStarted,
    /// It did all that it was asked to.
    Finished,
    /// It told nothing for this many seconds and was killed.
    Hung(u64),
    /// It died: `was killed by SIGSEGV`, `ended with exit code 3`.
    Died(String),
}

/// What the child told.
#[derive(Clone, Debug, Default)]
pub struct JaxProbe {
    began: Option<ProbeStep>,
    done: BTreeMap<ProbeStep, Value>,
    failed: BTreeMap<ProbeStep, StepFailure>,
    /// How the child ended.
    pub exit: ProbeExit,
    /// Its standard error, the last lines of it.
    pub log: Vec<String>,
}

/// An exception of Python that ended a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StepFailure {
    /// Class and text, such as `RuntimeError: Unable to initialize backend`.
    pub error: String,
    /// What JAX logged meanwhile, one line an entry.
    pub logged: Vec<String>,
}

/// What is known of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome<T> {
    /// It came to its end.
    Done(T),
    /// Python raised an exception in it.
    Failed(StepFailure),
    /// The child ended in it; how, in words that fit after "the trial".
    Stopped(String),
    /// The child had ended before.
    NotReached,
}

#[derive(Deserialize)]
struct Line {
    step: ProbeStep,
    state: State,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Begin,
    Done,
    Failed,
}

impl JaxProbe {
    /// Records one line that the child told. Returns the step it has begun, if it has.
    pub fn on_line(&mut self, line: &str) -> Option<ProbeStep> {
        let line: Line = serde_json::from_str(line).ok()?;
        match line.state {
            State::Begin => {
                self.began = Some(line.step);
                return self.began;
            }
            State::Done => {
                self.done.insert(line.step, line.rest);
            }
            State::Failed => {
                let failure = serde_json::from_value(line.rest).unwrap_or_default();
                self.failed.insert(line.step, failure);
            }
        }
        None
    }

    fn outcome<T: DeserializeOwned>(&self, step: ProbeStep) -> StepOutcome<T> {
        if let Some(result) = self.done.get(&step) {
            return match serde_json::from_value(result.clone()) {
                Ok(result) => StepOutcome::Done(result),
                Err(error) => StepOutcome::Failed(StepFailure {
                    error: format!("invalid message from the probe: {error}"),
                    logged: Vec::new(),
                }),
            };
        }
        if let Some(failure) = self.failed.get(&step) {
            return StepOutcome::Failed(failure.clone());
        }
        if self.began != Some(step) {
            return StepOutcome::NotReached;
        }
        match &self.exit {
            ProbeExit::Hung(seconds) => StepOutcome::Stopped(format!(
                "hung while it {}: no progress for {seconds} s, so it was killed",
                step.words()
            )),
            ProbeExit::Died(how) => {
                StepOutcome::Stopped(format!("{how} while it {}", step.words()))
            }
            ProbeExit::Finished => {
                StepOutcome::Stopped(format!("exited unexpectedly while it {}", step.words()))
            }
            ProbeExit::NotStarted => StepOutcome::NotReached,
        }
    }

    /// Returns the step that the child did not survive, or that failed: nothing after it was done.
    pub(super) fn last_step(&self) -> Option<ProbeStep> {
        let failed = self.failed.keys().next().copied();
        failed.or(self.began.filter(|step| !self.done.contains_key(step)))
    }

    /// Returns what came of `import jax`.
    pub fn import(&self) -> StepOutcome<ImportResult> {
        self.outcome(ProbeStep::Import)
    }

    /// Returns what came of looking for devices.
    pub fn backend(&self) -> StepOutcome<BackendResult> {
        self.outcome(ProbeStep::Backend)
    }

    /// Returns what came of the first arrays.
    pub fn pool(&self) -> StepOutcome<PoolResult> {
        self.outcome(ProbeStep::Pool)
    }

    /// Returns what came of the computation.
    pub fn computation(&self) -> StepOutcome<ComputeResult> {
        self.outcome(ProbeStep::Computation)
    }

    /// Returns what came of compiling.
    pub fn jit(&self) -> StepOutcome<JitResult> {
        self.outcome(ProbeStep::Jit)
    }

    /// Returns what came of the transfers.
    pub fn transfers(&self) -> StepOutcome<TransferResult> {
        self.outcome(ProbeStep::Transfers)
    }

    /// Returns what the child said of itself before it waited.
    pub fn hold(&self) -> StepOutcome<ProbeProcess> {
        self.outcome(ProbeStep::Hold)
    }

    /// Returns what came of the training steps.
    pub fn training(&self) -> StepOutcome<TrainingResult> {
        self.outcome(ProbeStep::Training)
    }
}

/// What `import jax` brought.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ImportResult {
    /// `jax.__version__`.
    pub version: String,
    /// The file that was imported.
    pub file: String,
    /// How long it took.
    pub seconds: f64,
}

/// Which devices JAX has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BackendResult {
    /// `jax.default_backend()`: `gpu`, `cpu`, `tpu`, `METAL`.
    pub platform: String,
    /// The local devices.
    pub devices: Vec<Device>,
    /// What the client says of itself, such as `cuda 13000`.
    pub platform_version: String,
    /// Whether the GPU is vramfit's virtual one.
    pub is_virtual: bool,
    /// How long the first use took.
    pub seconds: f64,
    /// Warnings and errors that JAX logged, one line an entry: why a platform was passed over.
    pub logged: Vec<String>,
}

/// A device of JAX.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Device {
    /// As JAX prints it, such as `cuda:0`.
    pub name: String,
    /// What it is sold as.
    pub kind: String,
}

/// JAX's pools after the first array on each device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PoolResult {
    /// The options that JAX makes of the environment for its client; those it does not set are XLA's
    /// defaults. `None` where this JAX does not tell.
    pub options: Option<PoolOptions>,
    /// One for each local device.
    pub pools: Vec<Pool>,
}

/// What JAX's client was asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PoolOptions {
    /// The share of the GPU.
    pub memory_fraction: Option<f64>,
    /// The share as a text, which since 0.12 may be one that grows: `0.75-0.85`.
    pub memory_fraction_policy: Option<String>,
    /// Whether the pool is to take its limit at once.
    pub preallocate: Option<bool>,
    /// The allocator.
    pub allocator: Option<String>,
}

/// The pool on one device, in bytes; `None` where the allocator does not tell.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// The device.
    pub device: String,
    /// The most it may take: what was wanted, not what was had.
    pub bytes_limit: Option<u64>,
    /// What it has taken of the GPU.
    pub pool_bytes: Option<u64>,
    /// What arrays use of it.
    pub bytes_in_use: Option<u64>,
}

/// A computation with a known result.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ComputeResult {
    /// Whether every number was right.
    pub right: bool,
    /// How many numbers were compared.
    pub compared: u64,
    /// The platforms on which the result lay.
    pub platforms: Vec<String>,
    /// The devices on which it lay.
    pub devices: Vec<String>,
}

/// What jit did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JitResult {
    /// Whether `JAX_DISABLE_JIT` is in force.
    pub disabled: bool,
    /// How often Python ran the function in the first call, and in the second.
    pub traced: [u64; 2],
    /// How often something was compiled in the first call, and in the second.
    pub compiled: [u64; 2],
    /// How long each call took.
    pub seconds: [f64; 2],
}

/// Bytes to the device and back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TransferResult {
    /// Size of the array.
    pub bytes: u64,
    /// The shortest of several times to the device.
    pub to_device_seconds: f64,
    /// The shortest of several times back.
    pub to_host_seconds: f64,
    /// How often each was done.
    pub times: u64,
    /// Whether all bytes came back as they went.
    pub right: bool,
}

/// The child, while it waits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProbeProcess {
    /// Its number.
    pub pid: u32,
}

/// A few training steps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TrainingResult {
    /// How many.
    pub steps: u64,
    /// The loss before the first; `None` where it is not a number.
    pub first_loss: Option<f64>,
    /// The loss after the last.
    pub last_loss: Option<f64>,
    /// The platforms on which the parameters lay afterwards.
    pub platforms: Vec<String>,
    /// Time of a step, the first left out.
    pub step_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_before_a_crash_counts() {
        let mut probe = JaxProbe::default();
        assert_eq!(probe.on_line(r#"{"step":"import","state":"begin"}"#), Some(ProbeStep::Import));
        let result = r#"{"step":"import","state":"done","version":"0.10.2","seconds":0.5}"#;
        assert_eq!(probe.on_line(result), None);
        probe.on_line("not ours");
        probe.on_line(r#"{"step":"backend","state":"begin"}"#);
        probe.exit = ProbeExit::Died("was killed by SIGSEGV".to_owned());
        let StepOutcome::Done(imported) = probe.import() else {
            panic!("{:?}", probe.import());
        };
        assert_eq!((&*imported.version, imported.seconds), ("0.10.2", 0.5));
        assert_eq!(
            probe.backend(),
            StepOutcome::Stopped("was killed by SIGSEGV while it looked for devices".to_owned())
        );
        assert_eq!(probe.pool(), StepOutcome::NotReached);
        assert_eq!(probe.last_step(), Some(ProbeStep::Backend));
    }

    #[test]
    fn a_hanging_child_and_a_failing_step_are_distinguished() {
        let mut probe = JaxProbe::default();
        probe.on_line(r#"{"step":"jit","state":"begin"}"#);
        probe.exit = ProbeExit::Hung(60);
        let StepOutcome::Stopped(how) = probe.jit() else {
            panic!("{:?}", probe.jit());
        };
        assert!(how.starts_with("hung while it compiled"), "{how}");
        probe.on_line(r#"{"step":"jit","state":"failed","error":"ValueError: no","logged":["a"]}"#);
        let failure =
            StepFailure { error: "ValueError: no".to_owned(), logged: vec!["a".to_owned()] };
        assert_eq!(probe.jit(), StepOutcome::Failed(failure));
    }
}
