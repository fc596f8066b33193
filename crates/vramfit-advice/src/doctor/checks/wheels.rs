//! Are NVIDIA's packages there, in versions that the plugin takes?

use super::super::check::Check;
use super::super::probe::StepOutcome;
use super::super::requirement::Requirement;
use super::super::system_info::SystemInfo;

const ID: &str = "cuda-packages";

pub(super) fn check(info: &SystemInfo) -> Check {
    let inventory = &info.inventory;
    let Some(cuda) = inventory.cuda_plugins().first().copied() else {
        return Check::skip(ID, "JAX has no CUDA plugin");
    };
    let asked = inventory.requirements.get(&format!("jax-cuda{cuda}-plugin"));
    let wanted: Vec<Requirement> = asked
        .into_iter()
        .flatten()
        .filter(|text| text.starts_with("nvidia"))
        .filter_map(|text| Requirement::parse(text))
        .collect();
    if wanted.is_empty() {
        return Check::skip(ID, "the plugin does not declare which NVIDIA packages it requires");
    }
    let mut wrong = Vec::new();
    let mut missing = Vec::new();
    for requirement in &wanted {
        match inventory.version(&requirement.name) {
            None => missing.push(format!("{}{}", requirement.name, requirement.versions)),
            Some(version) if !requirement.accepts(version) => wrong.push(format!(
                "{} is {version}, required: {}",
                requirement.name, requirement.versions
            )),
            Some(_) => {}
        }
    }
    let on_gpu = matches!(info.probe.backend(), StepOutcome::Done(ref result)
        if result.platform == "gpu" && !result.is_virtual);
    let has_gpu = info.virtual_gpu.is_none() && !info.gpus().is_empty();
    let install =
        format!("`{} -m pip install --upgrade \"jax[cuda{cuda}]\"`", inventory.executable);
    let (count, all) = (missing.len(), wanted.len());
    let check = if !wrong.is_empty() {
        let message = format!("{} NVIDIA packages are incompatible with the plugin", wrong.len());
        match has_gpu {
            true => Check::fail(ID, message, install),
            false => Check::warn(ID, message, install),
        }
    } else if missing.is_empty() {
        Check::pass(ID, format!("all {all} NVIDIA packages are compatible with the plugin"))
    } else if on_gpu {
        Check::pass(
            ID,
            format!(
                "{count} of {all} NVIDIA packages are not installed: the system's CUDA is used"
            ),
        )
    } else if has_gpu {
        Check::fail(
            ID,
            format!("{count} of {all} NVIDIA packages are missing, and JAX does not use the GPU"),
            install,
        )
    } else {
        Check::skip(
            ID,
            format!(
                "{count} of {all} NVIDIA packages are not installed; only a real GPU requires them"
            ),
        )
    };
    let missing = missing.into_iter().map(|one| format!("missing: {one}"));
    check.evidence_lines(wrong).evidence_lines(missing)
}
