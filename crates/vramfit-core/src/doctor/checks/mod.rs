//! The checks, one file each. The order here is the order in which they are told.

mod backend;
mod computation;
mod container;
mod cuda;
mod driver;
mod dry_run;
mod gpu;
mod host_memory;
mod jax;
mod jit;
mod library_path;
mod outside;
mod pool;
mod python;
mod readiness;
mod required;
mod settings;
mod transfers;
mod wheels;

use super::check::Check;
use super::facts::Facts;
use super::trial::{Ended, Failure, Outcome};

type Examine = fn(&Facts) -> Vec<Check>;

const OF_THE_MACHINE: [Examine; 4] = [
    driver::check,
    gpu::check,
    container::check,
    host_memory::check,
];

const OF_THE_ENVIRONMENT: [Examine; 7] = [
    python::check,
    jax::check,
    cuda::check,
    wheels::check,
    library_path::check,
    settings::check,
    dry_run::check,
];

const OF_JAX: [Examine; 6] = [
    backend::check,
    pool::check,
    computation::check,
    jit::check,
    transfers::check,
    outside::check,
];

/// Of training: backend, computation, transfers, compiling; readiness follows.
const OF_TRAINING: [Examine; 4] = [
    backend::check,
    computation::check,
    transfers::check,
    jit::check,
];

/// Examines everything.
pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let every = OF_THE_MACHINE
        .iter()
        .chain(&OF_THE_ENVIRONMENT)
        .chain(&OF_JAX);
    let mut checks: Vec<Check> = every.flat_map(|examine| examine(facts)).collect();
    checks.extend(required::check(facts, &checks));
    checks
}

/// Examines what training needs: five checks, the last of which judges the others.
pub(super) fn training(facts: &Facts) -> Vec<Check> {
    let mut checks: Vec<Check> = OF_TRAINING
        .iter()
        .flat_map(|examine| examine(facts))
        .collect();
    let required = required::check(facts, &checks);
    let lacking = required.filter(|check| check.status == super::Status::Fail);
    // There are five checks, whatever is required: what lacks is told in the last.
    let readiness = match lacking {
        Some(lacking) => Check {
            id: "readiness",
            sentence: format!("not ready to train: {}", lacking.sentence),
            ..lacking
        },
        None => readiness::check(facts, &checks),
    };
    checks.push(readiness);
    checks
}

/// Says that JAX has a GPU, a real or a virtual one.
fn uses_gpu(facts: &Facts) -> bool {
    matches!(facts.trial.backend(), Outcome::Done(told)
        if matches!(told.platform.as_str(), "gpu" | "cuda"))
}

/// Says that JAX's GPU is the virtual one.
fn is_virtual(facts: &Facts) -> bool {
    uses_gpu(facts) && matches!(facts.trial.backend(), Outcome::Done(told) if told.is_virtual)
}

/// Says that there is a GPU, and JAX does not use it: what it computes then proves nothing.
fn fell_back(facts: &Facts) -> bool {
    !facts.gpus().is_empty() && !uses_gpu(facts)
}

/// Tells a step of the trial that did not come to its end.
fn unfinished<T>(id: &'static str, facts: &Facts, outcome: Outcome<T>) -> Check {
    match outcome {
        Outcome::Failed(Failure { error, logged }) => Check::fail(
            id,
            format!("JAX raised {error}"),
            "read the lines above, which are JAX's own; docs/guides/debugging.md sorts those about memory",
        )
        .because_of(logged),
        Outcome::Stopped(how) => {
            let fix = match facts.trial.ended {
                Ended::Hung(_) => {
                    "start it again with `--timeout 300`; if it hangs again, see whether \
                     `nvidia-smi` does, too"
                }
                _ => {
                    "see the log with `--verbose`; most often a driver or a library of CUDA does \
                     not fit: the checks `cuda` and `cuda-packages`"
                }
            };
            Check::fail(id, format!("the trial {how}"), fix)
        }
        Outcome::NotReached | Outcome::Done(_) => Check::skip(id, not_reached(facts)),
    }
}

fn not_reached(facts: &Facts) -> String {
    match (facts.trial.last_step(), &facts.trial.ended) {
        (_, Ended::NotStarted) => "JAX was not tried; see `jax`".to_owned(),
        (Some(step), _) => format!("the trial did not come so far: it ended in {}", told(step)),
        (None, _) => "the trial did not come so far".to_owned(),
    }
}

/// Returns the check under which a step is told.
fn told(step: super::trial::Step) -> &'static str {
    use super::trial::Step;
    match step {
        Step::Import | Step::Backend => "`backend`",
        Step::Pool => "`pool`",
        Step::Computation => "`computation`",
        Step::Jit => "`jit`",
        Step::Transfers => "`transfers`",
        Step::Hold => "`outside-pool`",
        Step::Training => "`readiness`",
    }
}
