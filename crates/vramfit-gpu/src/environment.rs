//! The environment of this process: container, device files, limit on host memory.

use std::path::Path;

use vramfit_base::meminfo::available_bytes;
use vramfit_model::host::HostEnvironment;

use crate::{cgroup, cgroup_memory};

/// The number that Linux gives the first pid namespace, which is the host's.
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Describes the environment of this process. Takes well under a millisecond and needs no driver.
pub fn host_environment() -> HostEnvironment {
    let own_groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
    HostEnvironment {
        container: container(Path::new("/"), &own_groups, var),
        own_pid_namespace: namespace.map(|link| link != Path::new(HOST_PID_NAMESPACE)),
        wsl: is_wsl(&kernel),
        device_files: device_files(Path::new("/dev")),
        nvidia_visible_devices: var("NVIDIA_VISIBLE_DEVICES"),
        cuda_visible_devices: var("CUDA_VISIBLE_DEVICES"),
        host_memory: cgroup_memory::find_limit(Path::new("/sys/fs/cgroup"), &own_groups),
        kernel_available_bytes: std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| available_bytes(&text)),
    }
}

fn var(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Names the container around us: by our control group, else by what runtimes leave inside.
fn container(
    root: &Path,
    own_groups: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let group = cgroup::container(own_groups);
    group.or_else(|| {
        if variable("KUBERNETES_SERVICE_HOST").is_some() {
            return Some("kubernetes".to_owned());
        }
        if variable("APPTAINER_CONTAINER").is_some() || variable("SINGULARITY_CONTAINER").is_some()
        {
            return Some("apptainer".to_owned());
        }
        // systemd, podman, lxc and systemd-nspawn set this variable.
        if let Some(kind) = variable("container").filter(|kind| !kind.is_empty()) {
            return Some(kind);
        }
        let left_behind = [("run/.containerenv", "podman"), (".dockerenv", "docker")];
        left_behind
            .iter()
            .find(|(file, _)| root.join(file).exists())
            .map(|(_, runtime)| (*runtime).to_owned())
    })
}

/// Returns `true` if the kernel is one of Windows Subsystem for Linux, by the name it carries.
fn is_wsl(kernel: &str) -> bool {
    let kernel = kernel.to_ascii_lowercase();
    kernel.contains("microsoft") || kernel.contains("wsl")
}

/// Lists the files through which programs reach the driver; under WSL it is one, `dxg`.
fn device_files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("nvidia") || name == "dxg")
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_recognized_from_inside() {
        let root = tempfile::tempdir().unwrap();
        let named = |groups: &str, set: &str| {
            let variable = |name: &str| (name == set).then(|| "10.0.0.1".to_owned());
            container(root.path(), groups, variable)
        };
        assert_eq!(named("0::/\n", ""), None);
        std::fs::write(root.path().join(".dockerenv"), "").unwrap();
        for (groups, set, expected) in [
            ("0::/\n", "", "docker"),
            ("0::/\n", "KUBERNETES_SERVICE_HOST", "kubernetes"),
            ("0::/\n", "APPTAINER_CONTAINER", "apptainer"),
            // The job is the better answer where both are known.
            ("1:memory:/slurm/uid_0/job_7\n", "APPTAINER_CONTAINER", "slurm job 7"),
        ] {
            assert_eq!(named(groups, set).as_deref(), Some(expected));
        }
    }

    #[test]
    fn wherever_this_runs_something_is_known() {
        let here = host_environment();
        assert!(here.own_pid_namespace.is_some(), "{here:?}");
    }

    #[test]
    fn kernels_of_windows_are_recognized() {
        assert!(is_wsl("5.15.153.1-microsoft-standard-WSL2\n"));
        assert!(!is_wsl("6.8.0-45-generic\n"));
    }

    #[test]
    fn device_files_are_those_of_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidiactl", "nvidia0", "null", "dxg"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(device_files(folder.path()), ["dxg", "nvidia0", "nvidiactl"]);
    }
}
