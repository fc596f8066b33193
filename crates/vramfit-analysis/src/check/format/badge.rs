//! What each entry needs on each GPU, as a table for a README.

use std::collections::BTreeSet;

use crate::bytes::Bytes;
use crate::check::format::markdown::cell;
use crate::check::{Entry, Lock, LockLine, WholeRun};
use crate::gpu::GpuSelection;

/// Returns a Markdown table of the accepted peaks, with a row for each entry and a column for each of its GPUs.
///
/// The figures are those of the newest release of JAX that was accepted. A cell that has none is not an answer: the
/// entry was not accepted on that GPU.
pub fn render_badge(entries: &[&Entry], lock: &Lock) -> String {
    let mut gpus: Vec<String> = Vec::new();
    for gpu in entries.iter().flat_map(|entry| &entry.gpus).map(GpuSelection::label) {
        if !gpus.contains(&gpu) {
            gpus.push(gpu);
        }
    }
    let find = |entry: &Entry, gpu: &str| {
        let is_of_entry = entry.gpus.iter().any(|listed| listed.label() == gpu);
        is_of_entry.then(|| lock.find(&entry.name, gpu, "")).flatten()
    };
    let line = |words: Vec<String>| format!("| {} |", words.join(" | "));
    let header = gpus.iter().map(|gpu| cell(gpu));
    let mut lines = vec![
        line(std::iter::once("peak GPU memory".to_owned()).chain(header).collect()),
        line(
            std::iter::once("---".to_owned())
                .chain(gpus.iter().map(|_| "---:".to_owned()))
                .collect(),
        ),
    ];
    let mut releases = BTreeSet::new();
    let mut has_first_steps = false;
    for entry in entries {
        let cells = gpus.iter().map(|gpu| match find(entry, gpu) {
            Some(found) => {
                releases.insert(&*found.key.jax);
                has_first_steps |= !is_whole(found);
                describe(found)
            }
            None => String::new(),
        });
        lines.push(line(std::iter::once(cell(&entry.name)).chain(cells).collect()));
    }
    let jax = releases.into_iter().collect::<Vec<_>>().join(", ");
    let mut note =
        "Fits, with the peak of each GPU: by XLA's compiler and JAX's allocator, without a GPU \
                    (`vramfit check`)"
            .to_owned();
    if !jax.is_empty() {
        note.push_str(&format!("; JAX {jax}"));
    }
    if has_first_steps {
        note.push_str("; \\* in the first steps");
    }
    format!("{}\n\n{note}.\n", lines.join("\n"))
}

fn is_whole(line: &LockLine) -> bool {
    line.whole_run.is_none_or(|whole| whole.peak_bytes().is_some())
}

/// Returns the accepted peak, of the whole run where that is known.
fn describe(line: &LockLine) -> String {
    let whole = line.whole_run.and_then(WholeRun::peak_bytes);
    let peak = Bytes(line.figures.peak_bytes.max(whole.unwrap_or(0)));
    let mark = if is_whole(line) { "" } else { "\\*" };
    format!("{peak}{mark}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::check::{CheckConfig, Figures, LockKey};

    const CONFIG: &str = "\
[check]
gpus = ['l4', 'h100-80gx8']
[[check.entry]]
name = 'train_it'
command = 'python train.py'
[[check.entry]]
name = 'eval'
command = 'python eval.py'
gpus = ['l4', 't4']
";

    fn line(entry: &str, gpu: &str, jax: &str, gib: u64, whole_run: Option<WholeRun>) -> LockLine {
        LockLine {
            key: LockKey { entry: entry.into(), gpu: gpu.into(), jax: jax.into() },
            figures: Figures { peak_bytes: gib << 30, steady_state_bytes: 0, temp_bytes: 0 },
            plugin: String::new(),
            libraries: BTreeMap::new(),
            programs: String::new(),
            whole_run,
        }
    }

    #[test]
    fn each_entry_has_what_was_accepted_with_the_newest_release() {
        let config = CheckConfig::read(Path::new("vramfit.toml"), CONFIG)
            .expect("a configuration")
            .expect("with a table");
        let mut lock = Lock::default();
        for line in [
            line("train_it", "l4", "0.9.2", 3, None),
            line("train_it", "l4", "0.10.2", 4, Some(WholeRun::Peak(5 << 30))),
            line("train_it", "h100-80gx8", "0.10.2", 40, Some(WholeRun::TimeLimit(120))),
            // Of an entry and a GPU that the configuration does not have.
            line("train_it", "t4", "0.10.2", 7, None),
            line("other", "l4", "0.10.2", 7, None),
            line("eval", "t4", "0.11.2", 1, None),
        ] {
            lock.accept(line);
        }
        let entries: Vec<&Entry> = config.entries.iter().collect();
        let expected = "\
| peak GPU memory | l4 | h100-80gx8 | t4 |
| --- | ---: | ---: | ---: |
| train\\_it | 5.0 GiB | 40.0 GiB\\* |  |
| eval |  |  | 1.0 GiB |

Fits, with the peak of each GPU: by XLA's compiler and JAX's allocator, without a GPU (`vramfit check`); JAX 0.10.2, \
0.11.2; \\* in the first steps.
";
        assert_eq!(render_badge(&entries, &lock), expected);
    }
}
