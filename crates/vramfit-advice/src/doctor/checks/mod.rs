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
mod outside_pool;
mod pool;
mod python;
mod readiness;
mod required_gpu;
mod settings;
mod transfers;
mod wheels;

use super::check::{Check, Status};
use super::probe::{ProbeExit, StepFailure, StepOutcome};
use super::system_info::SystemInfo;

type CheckFn = fn(&SystemInfo) -> Vec<Check>;

const HOST_CHECKS: [CheckFn; 4] = [
    |info| vec![driver::check(info)],
    gpu::check,
    |info| vec![container::check(info)],
    host_memory::check,
];

const ENVIRONMENT_CHECKS: [CheckFn; 7] = [
    |info| vec![python::check(info)],
    jax::check,
    cuda::check,
    |info| vec![wheels::check(info)],
    |info| vec![library_path::check(info)],
    settings::check,
    |info| vec![dry_run::check(info)],
];

const JAX_CHECKS: [CheckFn; 6] = [
    |info| vec![backend::check(info)],
    pool::check,
    |info| vec![computation::check(info)],
    |info| vec![jit::check(info)],
    |info| vec![transfers::check(info)],
    |info| vec![outside_pool::check(info)],
];

/// Of training: backend, computation, transfers, compiling; readiness follows.
const TRAINING_CHECKS: [CheckFn; 4] = [
    |info| vec![backend::check(info)],
    |info| vec![computation::check(info)],
    |info| vec![transfers::check(info)],
    |info| vec![jit::check(info)],
];

/// Those that say nothing without JAX, and are skipped where it is not to be started.
const NEED_JAX: [&str; 10] = [
    "jax",
    "cuda",
    "cuda-packages",
    "dry-run",
    backend::ID,
    "pool",
    computation::ID,
    "jit",
    "transfers",
    "outside-pool",
];

/// Those whose failure may be why JAX has no device.
const CAUSES_OF_NO_DEVICE: [&str; 7] =
    ["driver", "gpu", "container", "jax", "cuda", "cuda-packages", "settings"];

/// Examines everything.
pub(super) fn all(info: &SystemInfo) -> Vec<Check> {
    let of = |groups: &[CheckFn]| -> Vec<Check> {
        groups.iter().flat_map(|examine| examine(info)).collect()
    };
    let mut checks = of(&HOST_CHECKS);
    checks.extend(of(&ENVIRONMENT_CHECKS));
    if info.skips_jax {
        checks.retain(|check| !NEED_JAX.contains(&check.id));
        let skipped = |id| Check::skip(id, "needs JAX, which is not started with `--no-jax`");
        checks.extend(NEED_JAX.map(skipped));
    } else {
        let mut of_jax = of(&JAX_CHECKS);
        refer_to_cause(&mut of_jax, &checks);
        checks.extend(of_jax);
    }
    checks.extend(required_gpu::check(info, &checks));
    checks
}

/// Examines what training needs: five checks, the last of which judges the others.
pub(super) fn training(info: &SystemInfo) -> Vec<Check> {
    let mut checks: Vec<Check> = TRAINING_CHECKS.iter().flat_map(|examine| examine(info)).collect();
    let required = required_gpu::check(info, &checks);
    let lacking = required.filter(|check| check.status == Status::Fail);
    // There are five checks, whatever is required: what lacks is told in the last.
    let readiness = match lacking {
        Some(lacking) => Check {
            id: "readiness",
            message: format!("not ready to train: {}", lacking.message),
            ..lacking
        },
        None => readiness::check(info, &checks),
    };
    checks.push(readiness);
    checks
}

/// Makes a failed backend check refer to the failure above that may be its cause, which has the fix.
fn refer_to_cause(of_jax: &mut [Check], earlier: &[Check]) {
    let is_cause =
        |check: &&Check| check.status == Status::Fail && CAUSES_OF_NO_DEVICE.contains(&check.id);
    let Some(cause) = earlier.iter().find(is_cause) else {
        return;
    };
    let is_failure = |check: &&mut Check| check.id == backend::ID && check.status == Status::Fail;
    if let Some(backend) = of_jax.iter_mut().find(is_failure) {
        let id = cause.id;
        backend.message = format!("see `{id}`, which fails above: {}", backend.message);
        backend.fix = Some(format!("fix `{id}` first"));
    }
}

/// Says that JAX has a GPU, a real or a virtual one.
fn uses_gpu(info: &SystemInfo) -> bool {
    matches!(info.probe.backend(), StepOutcome::Done(result)
        if matches!(result.platform.as_str(), "gpu" | "cuda"))
}

/// Says that JAX's GPU is the virtual one.
fn is_virtual(info: &SystemInfo) -> bool {
    uses_gpu(info) && matches!(info.probe.backend(), StepOutcome::Done(result) if result.is_virtual)
}

/// Says that there is a GPU, and JAX does not use it: what it computes then proves nothing.
fn cpu_fallback(info: &SystemInfo) -> bool {
    !info.gpus().is_empty() && !uses_gpu(info)
}

/// Says that some of what was computed is not on a GPU.
fn is_off_gpu(platforms: &[String]) -> bool {
    platforms.iter().any(|name| name != "gpu" && name != "cuda")
}

/// Tells a step of the trial that did not come to its end.
fn incomplete<T>(id: &'static str, info: &SystemInfo, outcome: StepOutcome<T>) -> Check {
    match outcome {
        StepOutcome::Failed(StepFailure { error, logged }) => Check::fail(
            id,
            format!("JAX raised {error}"),
            "see the lines above from JAX; docs/guides/oom-causes.md explains those about memory",
        )
        .evidence_lines(logged),
        StepOutcome::Stopped(how) => {
            let fix = match info.probe.exit {
                ProbeExit::Hung(_) => {
                    "retry with `--timeout 300`; if it hangs again, check whether `nvidia-smi` \
                     does, too"
                }
                _ => {
                    "see the log with `--verbose`; the usual cause is an incompatible driver or \
                     CUDA library: see the checks `cuda` and `cuda-packages`"
                }
            };
            Check::fail(id, format!("the probe {how}"), fix)
        }
        StepOutcome::NotReached | StepOutcome::Done(_) => Check::skip(id, not_reached(info)),
    }
}

fn not_reached(info: &SystemInfo) -> String {
    match (info.probe.last_step(), &info.probe.exit) {
        (_, ProbeExit::NotStarted) => "JAX was not probed; see `jax`".to_owned(),
        (Some(step), _) => format!("not reached: the probe ended in {}", result(step)),
        (None, _) => "not reached by the probe".to_owned(),
    }
}

/// Returns the check under which a step is told.
fn result(step: super::probe::ProbeStep) -> &'static str {
    use super::probe::ProbeStep;
    match step {
        ProbeStep::Import | ProbeStep::Backend => "`backend`",
        ProbeStep::Pool => "`pool`",
        ProbeStep::Computation => "`computation`",
        ProbeStep::Jit => "`jit`",
        ProbeStep::Transfers => "`transfers`",
        ProbeStep::Hold => "`outside-pool`",
        ProbeStep::Training => "`readiness`",
    }
}
