//! Do jax, jaxlib and the plugin fit together?

use super::super::check::Check;
use super::super::requirement::{compare, numbers};
use super::super::system_info::SystemInfo;

const ID: &str = "jax";

/// Distributions that bring JAX a GPU that is not NVIDIA's.
const OTHER_PLUGINS: [(&str, &str); 3] = [
    ("jax-metal", "Apple GPUs (experimental)"),
    ("jax-rocm7-plugin", "AMD GPUs"),
    ("jax-rocm60-plugin", "AMD GPUs"),
];

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    let inventory = &info.inventory;
    let Some(jax) = inventory.version("jax") else {
        return vec![Check::fail(
            ID,
            format!("`{}` has no `jax`", inventory.executable),
            format!(
                "select the Python that has it with `--python`, or install it: `{} -m pip install \
                 \"jax[cuda13]\"`",
                inventory.executable
            ),
        )];
    };
    let mut checks = others(info);
    let pip = |what: &str| format!("`{} -m pip install {what}`", inventory.executable);
    let Some(jaxlib) = inventory.version("jaxlib") else {
        checks.push(Check::fail(
            ID,
            format!("jax {jax} is installed without jaxlib"),
            pip(&format!("\"jax=={jax}\"")),
        ));
        return checks;
    };
    let (Some(own), Some(lib)) = (numbers(jax), numbers(jaxlib)) else {
        checks.push(Check::warn(
            ID,
            format!("the versions of jax {jax} and jaxlib {jaxlib} cannot be compared"),
            pip("--upgrade jax"),
        ));
        return checks;
    };
    let oldest = inventory.minimum_jaxlib.as_deref();
    if compare(&lib, &own).is_gt() {
        checks.push(Check::fail(
            ID,
            format!("jaxlib {jaxlib} is newer than jax {jax}, which rejects it"),
            pip(&format!("\"jax=={jaxlib}\"")),
        ));
        return checks;
    }
    if let Some(oldest) =
        oldest.filter(|oldest| numbers(oldest).is_some_and(|oldest| compare(&lib, &oldest).is_lt()))
    {
        checks.push(Check::fail(
            ID,
            format!("jaxlib {jaxlib} is too old: jax {jax} requires {oldest} or later"),
            pip(&format!("\"jaxlib=={jax}\"")),
        ));
        return checks;
    }
    let plugins = inventory.cuda_plugins();
    for cuda in &plugins {
        checks.extend(plugin(info, *cuda, jax, jaxlib));
    }
    if let [newer, .., older] = plugins[..] {
        checks.push(Check::warn(
            ID,
            format!(
                "the CUDA {newer} and CUDA {older} plugins are both installed; JAX uses only \
                     one"
            ),
            format!(
                "keep one: `{} -m pip uninstall jax-cuda{older}-plugin jax-cuda{older}-pjrt`",
                inventory.executable
            ),
        ));
    }
    if checks.is_empty() {
        let result = match plugins.first() {
            Some(cuda) => format!(
                "jax {jax}, jaxlib {jaxlib} and the CUDA {cuda} plugin are \
                                   compatible"
            ),
            None => {
                format!("jax {jax} and jaxlib {jaxlib} are compatible; there is no CUDA plugin")
            }
        };
        checks.push(Check::pass(ID, result));
    }
    checks
}

/// JAX takes a plugin only when its numbers are those of jaxlib.
fn plugin(info: &SystemInfo, cuda: u32, jax: &str, jaxlib: &str) -> Option<Check> {
    let inventory = &info.inventory;
    let pip =
        |name: &str| format!("`{} -m pip install \"{name}=={jaxlib}\"`", inventory.executable);
    let [plugin, pjrt] = ["plugin", "pjrt"].map(|part| format!("jax-cuda{cuda}-{part}"));
    for name in [&plugin, &pjrt] {
        let Some(version) = inventory.version(name) else {
            return Some(Check::fail(
                ID,
                format!("`{plugin}` is installed without `{name}`, which it requires"),
                pip(name),
            ));
        };
        if numbers(version) != numbers(jaxlib) {
            return Some(
                Check::fail(
                    ID,
                    format!(
                        "`{name}` {version} is incompatible with jaxlib {jaxlib}: JAX will \
                             not use it"
                    ),
                    pip(name),
                )
                .evidence_line(format!("jax {jax}; the plugin must have the version of jaxlib")),
            );
        }
    }
    None
}

/// Plugins for other hardware are recognized, not examined.
fn others(info: &SystemInfo) -> Vec<Check> {
    let known = |name: &str| info.inventory.version(name);
    OTHER_PLUGINS
        .iter()
        .filter_map(|(name, what)| Some((name, what, known(name)?)))
        .map(|(name, what, version)| {
            Check::warn(
                ID,
                format!(
                    "`{name}` {version} is installed, for {what}; vramfit only supports \
                         NVIDIA GPUs"
                ),
                format!(
                    "for an NVIDIA GPU: `{} -m pip uninstall {name}`, then install \"jax[cuda13]\"",
                    info.inventory.executable
                ),
            )
        })
        .collect()
}
