//! Searches where the user says no more than the program and the GPUs.

use std::ffi::OsString;
use std::time::Duration;

use vramfit_analysis::planning::{Moves, When};
use vramfit_base::Bytes;
use vramfit_model::gpu::{Gpu, GpuSelection};
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_model::settings::{MAX_FRACTION, Options};

use super::search::SearchSpec;
use super::varied::VariedCommand;
use crate::dryrun::{DryrunSpec, SettingsSpec, open_compilation_cache};
use crate::scratch::TempDirectory;

/// Dry runs at most.
pub const DEFAULT_MAX_TRIALS: usize = 32;
/// Dry runs at the same time.
pub const DEFAULT_JOBS: usize = 2;
/// How long a dry run may take.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Returns everything that may be changed on a GPU. Who gives the size of the pool wants no other.
pub fn all_moves(gpu: &Gpu, options: &Options) -> Moves {
    let larger = (gpu.total_memory_bytes as f64 * MAX_FRACTION) as u64;
    Moves {
        remat: true,
        chunk: true,
        // Where both are the same memory, nothing is gained.
        offload: match gpu.shares_host_memory {
            true => When::Never,
            false => When::NothingFits,
        },
        unroll: When::NothingFits,
        compiler: options.remat.is_none(),
        scheduler: options.latency_hiding.is_none(),
        preallocation: options.preallocate.is_none(),
        allocator: options.allocator.is_none(),
        larger_pool_bytes: Some(larger).filter(|_| !options.sets_pool_size()),
    }
}

/// Returns the dry run of a command that others of a search begin from, where the user says no more.
pub fn default_trial(
    gpus: GpuSelection,
    occupied: Option<Bytes>,
    options: Options,
    command: &[OsString],
    scratch: &TempDirectory,
) -> DryrunSpec {
    let settings = SettingsSpec::new(options, &gpus.gpu);
    let run = RunConfig {
        occupied_bytes: occupied.unwrap_or_default().0,
        steps: Some(StepLimit::Steady),
        compilation_cache: Some(open_compilation_cache(true, scratch)),
        ..RunConfig::new(gpus)
    };
    DryrunSpec {
        settings: SettingsSpec { repair: true, ..settings },
        time_limit: Some(DEFAULT_TIME_LIMIT),
        ..DryrunSpec::new(run, command.to_vec())
    }
}

/// Returns the search of a plan with which a command fits.
pub fn default_search(moves: Moves, trial: DryrunSpec) -> SearchSpec {
    SearchSpec {
        moves,
        others: Vec::new(),
        commands: vec![VariedCommand { values: Vec::new(), words: trial.command.clone() }],
        trial,
        budget: None,
        host_budget: None,
        wants_fastest: false,
        max_trials: DEFAULT_MAX_TRIALS,
        jobs: DEFAULT_JOBS,
    }
}
