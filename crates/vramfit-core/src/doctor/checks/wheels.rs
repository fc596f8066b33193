//! Are NVIDIA's packages there, in versions that the plugin takes?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::requirement::Requirement;
use super::super::trial::Outcome;

const ID: &str = "cuda-packages";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let inventory = &facts.inventory;
    let Some(cuda) = inventory.cuda_plugins().first().copied() else {
        return vec![Check::skip(ID, "JAX has no plugin for CUDA")];
    };
    let asked = inventory
        .requirements
        .get(&format!("jax-cuda{cuda}-plugin"));
    let wanted: Vec<Requirement> = asked
        .into_iter()
        .flatten()
        .filter(|text| text.starts_with("nvidia"))
        .filter_map(|text| Requirement::parse(text))
        .collect();
    if wanted.is_empty() {
        return vec![Check::skip(
            ID,
            "the plugin does not say which of NVIDIA's packages it needs",
        )];
    }
    let mut wrong = Vec::new();
    let mut missing = Vec::new();
    for requirement in &wanted {
        match inventory.version(&requirement.name) {
            None => missing.push(format!("{}{}", requirement.name, requirement.versions)),
            Some(version) if !requirement.accepts(version) => wrong.push(format!(
                "{} is {version}, wanted: {}",
                requirement.name, requirement.versions
            )),
            Some(_) => {}
        }
    }
    let on_gpu = matches!(facts.trial.backend(), Outcome::Done(ref told)
        if told.platform == "gpu" && !told.is_virtual);
    let has_gpu = facts.virtual_gpu.is_none() && !facts.gpus().is_empty();
    let install = format!(
        "`{} -m pip install --upgrade \"jax[cuda{cuda}]\"`",
        inventory.executable
    );
    let (count, all) = (missing.len(), wanted.len());
    let check = if !wrong.is_empty() {
        let sentence = format!("{} of NVIDIA's packages do not fit the plugin", wrong.len());
        match has_gpu {
            true => Check::fail(ID, sentence, install),
            false => Check::warn(ID, sentence, install),
        }
    } else if missing.is_empty() {
        Check::pass(ID, format!("all {all} of NVIDIA's packages fit the plugin"))
    } else if on_gpu {
        Check::pass(
            ID,
            format!(
                "{count} of {all} of NVIDIA's packages are not installed: CUDA is the system's"
            ),
        )
    } else if has_gpu {
        Check::fail(
            ID,
            format!("{count} of {all} of NVIDIA's packages are missing, and JAX is not on the GPU"),
            install,
        )
    } else {
        Check::skip(
            ID,
            format!(
                "{count} of {all} of NVIDIA's packages are not installed; only a real GPU needs \
                 them"
            ),
        )
    };
    let missing = missing.into_iter().map(|one| format!("missing: {one}"));
    vec![check.because_of(wrong).because_of(missing)]
}
