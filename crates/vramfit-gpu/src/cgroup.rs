//! The container or job of a process, by the names of its control groups.
//!
//! The names are not guaranteed, but stable in practice. A process in a container with its own cgroup
//! namespace sees `/`, which reveals nothing.

/// Reads the text of `/proc/PID/cgroup`, of version 1 or 2, and names the container or job, such as
/// `docker 3f4e5a6b7c8d`. Of containers in containers the innermost is named.
pub(crate) fn container(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // The group of the job is an ancestor of the groups of its steps.
        slurm_job(&parts).or_else(|| {
            while let Some(part) = parts.pop() {
                if let Some(name) = container_name(part, &parts) {
                    return Some(name);
                }
            }
            None
        })
    })
}

/// Reads `…/slurm/uid_1000/job_4711/step_0/…`, or `…/slurmstepd.scope/job_4711/…` of version 2.
fn slurm_job(parts: &[&str]) -> Option<String> {
    let at = parts.iter().position(|part| *part == "slurm" || part.starts_with("slurmstepd"))?;
    let id = parts[at..].iter().find_map(|part| part.strip_prefix("job_"))?;
    Some(format!("slurm job {id}"))
}

/// Names the container of one group; `above` are its ancestors.
fn container_name(part: &str, above: &[&str]) -> Option<String> {
    // systemd writes `docker-<id>.scope`, plain groups `docker/<id>`.
    let unit = part.strip_suffix(".scope").unwrap_or(part);
    let parent = above.last().copied().unwrap_or_default();
    let in_kubernetes = above.iter().any(|folder| folder.starts_with("kubepods"));
    const SCOPES: &[(&str, &str)] = &[
        ("docker-", "docker"),
        ("libpod-conmon-", "podman"),
        ("libpod-", "podman"),
        ("cri-containerd-", "containerd"),
        ("crio-conmon-", "cri-o"),
        ("crio-", "cri-o"),
        ("nerdctl-", "containerd"),
    ];
    for (prefix, runtime) in SCOPES {
        if let Some(id) = unit.strip_prefix(prefix).filter(|id| is_container_id(id)) {
            let runtime = if in_kubernetes { "kubernetes" } else { runtime };
            return Some(format!("{runtime} {}", short_id(id)));
        }
    }
    if is_container_id(part) {
        let runtime = match parent {
            _ if in_kubernetes => "kubernetes",
            "docker" => "docker",
            "libpod_parent" => "podman",
            "default" | "moby" | "k8s.io" => "containerd",
            _ => "container",
        };
        return Some(format!("{runtime} {}", short_id(part)));
    }
    if let Some(name) =
        unit.strip_prefix("lxc.payload.").or_else(|| (parent == "lxc").then_some(unit))
    {
        return Some(format!("lxc {name}"));
    }
    if let Some(id) = unit
        .strip_prefix("apptainer-")
        .or_else(|| unit.strip_prefix("singularity-"))
        .or_else(|| matches!(parent, "apptainer" | "singularity").then_some(unit))
    {
        return Some(format!("apptainer {id}"));
    }
    let machine = unit.strip_prefix("machine-");
    machine.map(|name| format!("machine {}", name.replace("\\x2d", "-")))
}

/// Returns whether this is the ID of a container: 64 hexadecimal digits.
fn is_container_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The twelve digits that `docker ps` and `crictl ps` show.
fn short_id(id: &str) -> &str {
    &id[..12]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081";

    #[test]
    fn containers_are_named_in_both_versions() {
        let cases = [
            // Version 1, with its hierarchies; docker with cgroupfs and with systemd.
            ("12:pids:/docker/ID\n11:memory:/docker/ID\n0::/\n", "docker 3f4e5a6b7c8d"),
            ("0::/system.slice/docker-ID.scope\n", "docker 3f4e5a6b7c8d"),
            ("0::/machine.slice/libpod-ID.scope/container\n", "podman 3f4e5a6b7c8d"),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/\
                     libpod-ID.scope\n",
                "podman 3f4e5a6b7c8d",
            ),
            (
                "11:memory:/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666/ID\n",
                "kubernetes 3f4e5a6b7c8d",
            ),
            (
                "0::/kubepods.slice/kubepods-burstable.slice/\
                     kubepods-burstable-pod0a1b2c3d_1111.slice/cri-containerd-ID.scope\n",
                "kubernetes 3f4e5a6b7c8d",
            ),
            ("0::/default/ID\n", "containerd 3f4e5a6b7c8d"),
            ("0::/lxc.payload.web/init.scope\n", "lxc web"),
            ("4:memory:/lxc/web\n", "lxc web"),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/apptainer-4242.scope\n",
                "apptainer 4242",
            ),
            ("9:memory:/slurm/uid_1000/job_4711/step_0/task_0\n", "slurm job 4711"),
            (
                "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n",
                "slurm job 4711",
            ),
            ("0::/machine.slice/machine-my\\x2dbox.scope/payload\n", "machine my-box"),
        ];
        for (text, expected) in cases {
            let found = container(&text.replace("ID", ID));
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn ordinary_processes_have_no_container() {
        for text in [
            "",
            "0::/\n",
            "0::/init.scope\n",
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-docker-desktop.scope\n",
            "0::/system.slice/docker.service\n",
            "1:name=systemd:/system.slice/slurmd.service\nnonsense\n",
        ] {
            assert_eq!(container(text), None, "{text}");
        }
    }
}
