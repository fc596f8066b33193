//! Does `LD_LIBRARY_PATH` put other libraries before those of the packages?

use super::super::check::Check;
use super::super::facts::Facts;

const ID: &str = "library-path";

/// So many files are named.
const NAMED: usize = 6;

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let files = &facts.shadowing_libraries;
    let packaged = !facts.inventory.library_folders.is_empty();
    vec![match (files.len(), packaged) {
        (0, _) => Check::pass(ID, "`LD_LIBRARY_PATH` holds none of CUDA's libraries"),
        (count, true) => {
            let more = count.saturating_sub(NAMED);
            let rest = (more > 0).then(|| format!("and {more} more"));
            Check::warn(
                ID,
                format!(
                    "`LD_LIBRARY_PATH` holds {count} of CUDA's libraries, and NVIDIA's packages are \
                     installed, too: which are loaded depends on the order"
                ),
                "unset LD_LIBRARY_PATH",
            )
            .because_of(files.iter().take(NAMED))
            .because_of(rest)
        }
        (count, false) => Check::pass(
            ID,
            format!("{count} of CUDA's libraries come from `LD_LIBRARY_PATH`"),
        )
        .because_of(files.iter().take(NAMED)),
    }]
}
