//! Do jax, jaxlib and the plugin fit together?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::requirement::{compare, numbers};

const ID: &str = "jax";

/// Distributions that bring JAX a GPU that is not NVIDIA's.
const OTHER_PLUGINS: [(&str, &str); 3] = [
    ("jax-metal", "Apple's GPU, which is experimental"),
    ("jax-rocm7-plugin", "AMD's GPUs"),
    ("jax-rocm60-plugin", "AMD's GPUs"),
];

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let inventory = &facts.inventory;
    let Some(jax) = inventory.version("jax") else {
        return vec![Check::fail(
            ID,
            format!("`{}` has no `jax`", inventory.executable),
            format!(
                "name the Python that has it with `--python`, or install it: `{} -m pip install \
                 \"jax[cuda13]\"`",
                inventory.executable
            ),
        )];
    };
    let mut checks = others(facts);
    let pip = |what: &str| format!("`{} -m pip install {what}`", inventory.executable);
    let Some(jaxlib) = inventory.version("jaxlib") else {
        checks.push(Check::fail(
            ID,
            format!("jax {jax} is there, and no jaxlib"),
            pip(&format!("\"jax=={jax}\"")),
        ));
        return checks;
    };
    let (Some(own), Some(lib)) = (numbers(jax), numbers(jaxlib)) else {
        checks.push(Check::warn(
            ID,
            format!("jax {jax} and jaxlib {jaxlib} have versions that cannot be compared"),
            pip("--upgrade jax"),
        ));
        return checks;
    };
    let oldest = inventory.minimum_jaxlib.as_deref();
    if compare(&lib, &own).is_gt() {
        checks.push(Check::fail(
            ID,
            format!("jaxlib {jaxlib} is newer than jax {jax}, which refuses it"),
            pip(&format!("\"jax=={jaxlib}\"")),
        ));
        return checks;
    }
    if let Some(oldest) =
        oldest.filter(|oldest| numbers(oldest).is_some_and(|oldest| compare(&lib, &oldest).is_lt()))
    {
        checks.push(Check::fail(
            ID,
            format!("jaxlib {jaxlib} is older than {oldest}, the oldest that jax {jax} takes"),
            pip(&format!("\"jaxlib=={jax}\"")),
        ));
        return checks;
    }
    let plugins = inventory.cuda_plugins();
    for cuda in &plugins {
        checks.extend(plugin(facts, *cuda, jax, jaxlib));
    }
    if let [newer, .., older] = plugins[..] {
        checks.push(Check::warn(
            ID,
            format!("the plugins of CUDA {newer} and {older} are both installed; JAX uses one"),
            format!(
                "keep one: `{} -m pip uninstall jax-cuda{older}-plugin jax-cuda{older}-pjrt`",
                inventory.executable
            ),
        ));
    }
    if checks.is_empty() {
        let told = match plugins.first() {
            Some(cuda) => format!("jax {jax}, jaxlib {jaxlib} and the plugin of CUDA {cuda} fit"),
            None => format!("jax {jax} and jaxlib {jaxlib} fit; there is no plugin for CUDA"),
        };
        checks.push(Check::pass(ID, told));
    }
    checks
}

/// JAX takes a plugin only when its numbers are those of jaxlib.
fn plugin(facts: &Facts, cuda: u32, jax: &str, jaxlib: &str) -> Option<Check> {
    let inventory = &facts.inventory;
    let pip = |name: &str| {
        format!(
            "`{} -m pip install \"{name}=={jaxlib}\"`",
            inventory.executable
        )
    };
    let [plugin, pjrt] = ["plugin", "pjrt"].map(|part| format!("jax-cuda{cuda}-{part}"));
    for name in [&plugin, &pjrt] {
        let Some(version) = inventory.version(name) else {
            return Some(Check::fail(
                ID,
                format!("`{plugin}` is installed without `{name}`, its other half"),
                pip(name),
            ));
        };
        if numbers(version) != numbers(jaxlib) {
            return Some(
                Check::fail(
                    ID,
                    format!("`{name}` {version} does not fit jaxlib {jaxlib}: JAX will not use it"),
                    pip(name),
                )
                .because(format!(
                    "jax {jax}; the plugin must have the number of jaxlib"
                )),
            );
        }
    }
    None
}

/// Plugins for other hardware are recognised, not examined.
fn others(facts: &Facts) -> Vec<Check> {
    let known = |name: &str| facts.inventory.version(name);
    OTHER_PLUGINS
        .iter()
        .filter_map(|(name, what)| Some((name, what, known(name)?)))
        .map(|(name, what, version)| {
            Check::warn(
                ID,
                format!("`{name}` {version} is installed, for {what}; vramfit knows NVIDIA's only"),
                format!(
                    "for an NVIDIA card: `{} -m pip uninstall {name}`, then install \
                     \"jax[cuda13]\"",
                    facts.inventory.executable
                ),
            )
        })
        .collect()
}
