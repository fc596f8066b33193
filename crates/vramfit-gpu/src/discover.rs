//! Finds the GPUs that a program started here will see, and what a pool can have of each.

use std::path::PathBuf;

use vramfit_model::gpu::{self, GpuSelection};
use vramfit_model::host::{Host, HostGpu, Process};
use vramfit_model::published;
use vramfit_model::run_config::{RunConfig, Sharing};
use vramfit_model::settings::{self, GpuBudgets, GpuMemoryBudget, NAME_GPU_HINT, outside_bytes};
use vramfit_model::shared_gpus::{self, Holding, SharedGpuUsage};
use vramfit_model::{Bytes, Error, Result};

/// What a user says about the GPUs, in place of what the driver reports.
#[derive(Clone, Debug, Default)]
pub struct GpuOverrides {
    /// The GPUs.
    pub selection: Option<GpuSelection>,
    /// Memory already used on each GPU.
    pub occupied: Option<Bytes>,
    /// Memory that each process needs outside its pool.
    pub headroom: Option<Bytes>,
    /// Number of processes of the same split. Those that run already do not count as other processes.
    pub processes: Option<u32>,
}

/// The variable by which the processes of one split recognize each other.
pub const PROCESSES_VARIABLE: &str = "VRAMFIT_PROCESSES";

impl GpuOverrides {
    /// Returns a budget for each GPU that a program started here will see; at least one.
    ///
    /// GPUs that the user names take precedence over those of a dry run around us, and these over those
    /// of the machine.
    ///
    /// # Errors
    /// [`vramfit_model::ErrorKind::UnknownGpu`] for an unknown virtual GPU, [`vramfit_model::ErrorKind::NoDriver`] and
    /// [`vramfit_model::ErrorKind::InvalidArgument`] where no GPU is visible.
    pub fn budgets(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<GpuMemoryBudget>> {
        let run = RunConfig::from_environment(&variable)?;
        let mut budgets = match (&self.selection, run) {
            (Some(selection), _) => {
                let budget = GpuMemoryBudget::from_catalog(&selection.gpu, 0, selection.count);
                vec![budget]
            }
            (None, Some(run)) => virtual_budgets(&run, self.processes, variable)?,
            (None, None) => host_budgets(self.processes, variable)?,
        };
        for budget in &mut budgets {
            if let Some(occupied) = self.occupied {
                budget.occupied_bytes = occupied.0;
            }
            if let Some(headroom) = self.headroom {
                budget.outside_bytes = headroom.0;
            }
        }
        Ok(budgets)
    }

    /// Returns the GPUs themselves, each with the total memory that it has here.
    ///
    /// # Errors
    /// Those of [`GpuOverrides::budgets`], and [`ErrorKind::InvalidArgument`] for GPUs of several models.
    pub fn gpus(&self, variable: impl Fn(&str) -> Option<String>) -> Result<GpuSelection> {
        let run = RunConfig::from_environment(&variable)?;
        let (name, budgets) = match (&self.selection, run) {
            (Some(selection), _) => return Ok(selection.clone()),
            (None, Some(run)) => {
                let count = virtual_budgets(&run, self.processes, variable)?.len();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                return Ok(GpuSelection { count, ..run.gpus });
            }
            (None, None) => {
                let mut names: Vec<String> =
                    visible_host_gpus(&variable)?.into_iter().map(|gpu| gpu.name).collect();
                names.sort();
                names.dedup();
                let [name] = &names[..] else {
                    let message = format!("the GPUs are of several models: {}", names.join(", "));
                    let hint = "select GPUs of one model with `CUDA_VISIBLE_DEVICES`";
                    return Err(Error::invalid_argument(message).hint(hint));
                };
                (name.clone(), self.budgets(variable)?)
            }
        };
        let known = gpu::find(&name)?;
        let total = budgets.iter().map(|budget| budget.total_bytes).min();
        // A total that the catalog does not know of leaves what it says.
        let gpu = total.and_then(|total| known.with_total(total).ok());
        let mut selection: GpuSelection = format!("{}x{}", known.name, budgets.len()).parse()?;
        selection.gpu = gpu.unwrap_or(known);
        Ok(selection)
    }

    /// Returns the same for [`vramfit_model::settings::Target`].
    ///
    /// # Errors
    /// Those of [`GpuOverrides::budgets`].
    pub fn gpu_budgets(&self, variable: impl Fn(&str) -> Option<String>) -> Result<GpuBudgets> {
        self.budgets(variable).map(GpuBudgets::Known)
    }

    /// Returns what the driver says of this machine, without the processes of the same split; nothing inside a dry
    /// run, without a driver, and where the user says something else of the GPUs.
    pub fn host(&self, variable: impl Fn(&str) -> Option<String>) -> Host {
        let is_overridden =
            self.selection.is_some() || self.occupied.is_some() || self.headroom.is_some();
        if is_overridden || is_virtual(variable) {
            return Host::default();
        }
        let mut host = crate::query_host().unwrap_or_default();
        remove_siblings(&mut host.gpus, self.processes);
        host
    }
}

/// Returns `true` inside a dry run.
fn is_virtual(variable: impl Fn(&str) -> Option<String>) -> bool {
    !matches!(RunConfig::from_environment(&variable), Ok(None))
}

/// What others use is not worth a word if it is less than one in this many of the GPU, such as a desktop.
const MIN_OTHER_USE_FRACTION: u64 = 20;

/// Returns who else holds memory of the GPUs that this process can use, one clause for each GPU: `other processes use
/// 20.1 GiB of GPU 0: …`. Nothing inside a dry run, or where the driver does not tell.
///
/// The process `own` counts as nobody else; where the driver does not list that one with its bytes, it cannot be told
/// apart from others, and nothing is said.
pub fn describe_other_use(
    own: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    if is_virtual(&variable) {
        return Vec::new();
    }
    let mut gpus = visible_host_gpus(&variable).unwrap_or_default();
    let is_own = |process: &Process| Some(process.pid) == own;
    let is_known = |process: &Process| is_own(process) && process.used_bytes.is_some();
    gpus.retain(|gpu| own.is_none() || gpu.processes.iter().any(is_known));
    gpus.iter_mut()
        .filter_map(|gpu| {
            gpu.remove_processes(is_own);
            let memory = gpu.memory?;
            let listed =
                gpu.processes.iter().map(|process| process.used_bytes).sum::<Option<u64>>();
            let used = listed.unwrap_or(memory.used_bytes);
            let matters = used >= memory.total_bytes / MIN_OTHER_USE_FRACTION;
            (!gpu.processes.is_empty() && matters).then(|| {
                format!(
                    "other processes use {} of GPU {} now: {}",
                    Bytes(used),
                    gpu.index,
                    gpu.describe_processes()
                )
            })
        })
        .collect()
}

/// Returns the budgets of the virtual GPUs of the dry run that we are in.
fn virtual_budgets(
    run: &RunConfig,
    processes: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<GpuMemoryBudget>> {
    let count = run.gpus.count.max(1);
    let list = variable("CUDA_VISIBLE_DEVICES");
    let mut usage = shared_usage(run, variable);
    let visible = usage.visible_gpus(count, list.as_deref());
    let Ok(visible_count @ 1..) = u32::try_from(visible.len()) else {
        return Err(no_visible_gpu(&list.unwrap_or_default())
            .hint(format!("name GPUs that exist: 0 to {}", count - 1)));
    };
    let used_by_others = |gpu| {
        let others = usage.holdings.iter().filter(|holding: &&Holding| {
            holding.gpu == gpu && !is_sibling(holding.process, processes)
        });
        others.map(|holding| holding.bytes).sum::<u64>()
    };
    let budgets = visible.into_iter().map(|number| GpuMemoryBudget {
        total_bytes: run.gpus.gpu.total_memory_bytes,
        occupied_bytes: run.occupied_bytes.saturating_add(used_by_others(number)),
        outside_bytes: outside_bytes(run.context_bytes, visible_count),
    });
    Ok(budgets.collect())
}

fn no_visible_gpu(list: &str) -> Error {
    Error::invalid_argument(format!(
        "`CUDA_VISIBLE_DEVICES={list}` hides every GPU from the program"
    ))
}

/// Returns what the running processes use of the virtual GPUs; nothing where those are not shared, or
/// nobody uses them yet.
fn shared_usage(run: &RunConfig, variable: impl Fn(&str) -> Option<String>) -> SharedGpuUsage {
    let file = match &run.sharing {
        Sharing::Named(name) => {
            let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
            // SAFETY: it only returns a number, and always succeeds.
            let user = unsafe { libc::geteuid() };
            shared_gpus::file(runtime.as_deref(), &std::env::temp_dir(), user, name)
        }
        Sharing::Run => run.shared_gpu_file(),
        Sharing::Private => return SharedGpuUsage::default(),
    };
    let mut usage = SharedGpuUsage::parse(&std::fs::read_to_string(file).unwrap_or_default());
    usage.holdings.retain(|holding| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", holding.process));
        stat.is_ok_and(|stat| published::started_ticks(&stat) == Some(holding.started))
    });
    usage
}

/// Returns the budgets of the GPUs of this machine.
fn host_budgets(
    processes: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<GpuMemoryBudget>> {
    let mut visible = visible_host_gpus(&variable)?;
    remove_siblings(&mut visible, processes);
    let count = u32::try_from(visible.len()).unwrap_or(u32::MAX);
    let budgets = visible.iter().map(|gpu| {
        GpuMemoryBudget::from_driver(gpu, count).ok_or_else(|| {
            let message = format!("the driver does not report the memory of GPU {}", gpu.index);
            Error::invalid_argument(message).hint(NAME_GPU_HINT)
        })
    });
    budgets.collect()
}

/// Returns the GPUs of this machine that a program sees.
fn visible_host_gpus(variable: &impl Fn(&str) -> Option<String>) -> Result<Vec<HostGpu>> {
    let host = crate::query_host().map_err(|error| {
        let message = format!("the GPU that the program will use is unknown: {error}");
        Error::new(error.kind(), message).hint(NAME_GPU_HINT)
    })?;
    let list = variable("CUDA_VISIBLE_DEVICES");
    let order = variable("CUDA_DEVICE_ORDER");
    let visible = settings::visible(&host.gpus, list.as_deref(), order.as_deref());
    if visible.is_empty() {
        let error = match list {
            Some(list) => no_visible_gpu(&list),
            None => Error::invalid_argument("the driver reports no GPU that a program can use"),
        };
        return Err(error.hint(NAME_GPU_HINT));
    }
    Ok(visible.into_iter().cloned().collect())
}

/// Takes the running processes of the same split off the GPUs: they are no others.
fn remove_siblings(gpus: &mut [HostGpu], processes: Option<u32>) {
    for gpu in gpus {
        gpu.remove_processes(|process| is_sibling(process.pid, processes));
    }
}

/// Returns `true` if a process was started as one of that many of a split.
fn is_sibling(process: u32, processes: Option<u32>) -> bool {
    let Some(processes) = processes else {
        return false;
    };
    // The environment of another user's process cannot be read, and then it is no sibling.
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let wanted = format!("{PROCESSES_VARIABLE}={processes}");
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use vramfit_model::run_config::RUN_CONFIG_VARIABLE;

    use super::*;

    fn config(gpus: &str) -> RunConfig {
        RunConfig { sharing: Sharing::Private, ..RunConfig::new(gpus.parse().expect("known")) }
    }

    /// Returns the budget of the first GPU inside of a dry run.
    fn budget(overrides: &GpuOverrides, run: &RunConfig) -> GpuMemoryBudget {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("run.json");
        run.write(&path).expect("written");
        let path = path.to_str().expect("UTF-8").to_owned();
        let budgets = overrides.budgets(|name| (name == RUN_CONFIG_VARIABLE).then(|| path.clone()));
        budgets.expect("a GPU")[0]
    }

    #[test]
    fn a_named_gpu_takes_precedence_over_the_virtual_one() {
        let t4 = gpu::find("t4").expect("known");
        let run = RunConfig { occupied_bytes: 1 << 30, ..config("t4") };
        let found = budget(&GpuOverrides::default(), &run);
        assert_eq!((found.total_bytes, found.occupied_bytes), (t4.total_memory_bytes, 1 << 30));
        let overrides = GpuOverrides {
            selection: Some("h100-80g".parse().expect("known")),
            occupied: Some(Bytes(7)),
            headroom: Some(Bytes(9)),
            processes: None,
        };
        let found = budget(&overrides, &run);
        assert_eq!((found.occupied_bytes, found.outside_bytes), (7, 9));
        assert!(found.total_bytes > t4.total_memory_bytes);
    }

    #[test]
    fn several_gpus_need_memory_for_collectives() {
        let [one, two] = ["t4", "t4x2"].map(|gpus| budget(&GpuOverrides::default(), &config(gpus)));
        assert!(two.outside_bytes > one.outside_bytes);
    }

    #[test]
    fn processes_of_another_split_are_no_siblings() {
        // The variable is not set in the environment of the tests.
        let this = std::process::id();
        assert!(!is_sibling(this, None));
        assert!(!is_sibling(this, Some(1023)));
        assert!(!is_sibling(u32::MAX, Some(2)));
    }
}
