//! The limit on host memory that a container runtime or job scheduler sets through control groups.

use std::path::{Path, PathBuf};

use vramfit_model::host::HostMemoryLimit;

/// Finds the lowest limit among the groups of a process, given its `/proc/PID/cgroup` and the mount point
/// of control groups; `None` if there is no limit.
pub(crate) fn find_limit(mount: &Path, groups: &str) -> Option<HostMemoryLimit> {
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (mount, limit, used, inactive) = if controllers.is_empty() {
            (mount.to_owned(), "memory.max", "memory.current", "inactive_file ")
        } else if controllers.split(',').any(|name| name == "memory") {
            (
                mount.join("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            )
        } else {
            continue;
        };
        let found = ancestor_dirs(&mount, path)
            .filter_map(|dir| {
                Some(HostMemoryLimit {
                    limit_bytes: read_bytes(&dir.join(limit))?,
                    used_bytes: read_bytes(&dir.join(used)),
                    reclaimable_bytes: read_statistic(&dir.join("memory.stat"), inactive),
                    source: dir.join(limit).display().to_string(),
                })
            })
            .min_by_key(|one| one.limit_bytes);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the group's directory and its ancestors. In a container the path may be the host's, which
/// does not exist there, while the mount itself is the container's group.
fn ancestor_dirs(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let all: Vec<PathBuf> = relative.ancestors().map(|part| mount.join(part)).collect();
    all.into_iter()
}

/// Reads a number of bytes; `None` for `max`, and for more than any machine has: no limit.
fn read_bytes(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let bytes = text.trim().parse::<u64>().ok()?;
    // Version 1 writes the largest number of pages for "none".
    (bytes < 1 << 60).then_some(bytes)
}

/// Reads a line of `memory.stat`.
fn read_statistic(file: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_limit_above_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "job/memory.max", "4294967296\n");
        write(root.path(), "job/memory.current", "1000\n");
        write(root.path(), "job/memory.stat", "anon 600\ninactive_file 300\nactive_file 100\n");
        write(root.path(), "job/step/memory.max", "max\n");
        let found = find_limit(root.path(), "0::/job/step\n").expect("a limit");
        assert_eq!(found.limit_bytes, 4 << 30);
        assert_eq!((found.used_bytes, found.reclaimable_bytes), (Some(1000), Some(300)));
        assert_eq!(found.available_bytes(), (4 << 30) - 700);
        assert!(found.source.ends_with("job/memory.max"));
    }

    #[test]
    fn version_1_has_a_folder_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        // Inside a container the path is the host's, and the mount is the group.
        write(root.path(), "memory/memory.limit_in_bytes", "2147483648\n");
        let groups = "11:cpu:/docker/a\n4:memory:/docker/a\n0::/\n";
        let found = find_limit(root.path(), groups).expect("a limit");
        assert_eq!(found.limit_bytes, 2 << 30);
        assert_eq!(found.used_bytes, None);
    }

    #[test]
    fn no_limit_is_none() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(find_limit(root.path(), "4:memory:/\n"), None);
        assert_eq!(find_limit(root.path(), "0::/\n"), None);
        assert_eq!(find_limit(root.path(), ""), None);
    }
}
