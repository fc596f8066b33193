//! Does `LD_LIBRARY_PATH` put other libraries before those of the packages?

use super::super::check::Check;
use super::super::system_info::SystemInfo;

const ID: &str = "library-path";

/// So many files are named.
const MAX_LISTED: usize = 6;

pub(super) fn check(info: &SystemInfo) -> Check {
    let files = &info.shadowing_libraries;
    let packaged = !info.inventory.library_folders.is_empty();
    match (files.len(), packaged) {
        (0, _) => Check::pass(ID, "`LD_LIBRARY_PATH` contains no CUDA libraries"),
        (count, true) => {
            let more = count.saturating_sub(MAX_LISTED);
            let rest = (more > 0).then(|| format!("and {more} more"));
            Check::warn(
                ID,
                format!(
                    "`LD_LIBRARY_PATH` contains {count} CUDA libraries, and NVIDIA's packages are \
                     installed, too: which ones are loaded depends on the order"
                ),
                "unset LD_LIBRARY_PATH",
            )
            .evidence_lines(files.iter().take(MAX_LISTED))
            .evidence_lines(rest)
        }
        (count, false) => {
            Check::pass(ID, format!("{count} CUDA libraries come from `LD_LIBRARY_PATH`"))
                .evidence_lines(files.iter().take(MAX_LISTED))
        }
    }
}
