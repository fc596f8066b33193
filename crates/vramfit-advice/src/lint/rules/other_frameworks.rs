//! Other installed frameworks, and which GPUs exist.

use super::super::context::{LintContext, VISIBLE, find_gpu};
use super::super::finding::{Change, RawFinding};
use super::super::{Rule, Severity};
use crate::Bytes;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "tensorflow-with-jax",
        severity: Severity::Warning,
        meaning: "TensorFlow with GPU support is installed. If a program uses it next to JAX, \
                  often only to read data, it allocates nearly all free memory on every GPU.",
        fix: "Hide the GPUs from TensorFlow, let it grow on demand, or install `tensorflow-cpu`.",
        check: |context| Vec::from_iter(tensorflow(context)),
    },
    Rule {
        id: "torch-with-jax",
        severity: Severity::Note,
        meaning: "The environment configures PyTorch's GPU memory, so the program probably uses \
                  both frameworks. PyTorch allocates on demand; JAX preallocates its pool.",
        fix: "Leave memory for PyTorch: `vramfit run --keep-free`.",
        check: |context| Vec::from_iter(torch(context)),
    },
    Rule {
        id: "no-cuda-plugin",
        severity: Severity::Warning,
        meaning: "There is a GPU, but JAX has no CUDA plugin and uses the CPU.",
        fix: "Install `jax[cuda12]` or `jax[cuda13]`, depending on the driver.",
        check: |context| Vec::from_iter(no_plugin(context)),
    },
    Rule {
        id: "visible-devices-truncated",
        severity: Severity::Warning,
        meaning: "CUDA reads the list of visible devices up to the first invalid entry, and \
                  ignores all entries after it.",
        fix: "List existing GPUs only: `nvidia-smi -L` shows them.",
        check: |context| Vec::from_iter(visible(context)),
    },
];

fn tensorflow(context: &LintContext<'_>) -> Option<RawFinding> {
    let version = context.packages().and_then(|packages| packages.tensorflow.as_deref())?;
    let growth = "TF_FORCE_GPU_ALLOW_GROWTH";
    let grows = context
        .non_empty_var(growth)
        .is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1");
    if grows || !context.may_use_gpu() {
        return None;
    }
    let memory_budgets = context.memory_budgets();
    let free = memory_budgets
        .iter()
        .map(|(_, room)| room.total_bytes.saturating_sub(room.occupied_bytes))
        .min();
    let allocated = match free {
        Some(free) => format!("up to {}, all free memory of a GPU,", Bytes(free)),
        None => "nearly all free memory of every GPU".to_owned(),
    };
    let fix = if version.starts_with("1.") {
        "pass `tf.GPUOptions(per_process_gpu_memory_fraction=0.1, allow_growth=True)` to the \
         session"
            .to_owned()
    } else {
        format!(
            "call `tf.config.set_visible_devices([], \"GPU\")` before any other use; if \
             TensorFlow needs the GPU, set `{growth}=true`"
        )
    };
    let found = RawFinding::new(
        "tensorflow",
        format!("TensorFlow {version} allocates {allocated} if a program uses it next to JAX"),
        fix,
    )
    .with_change(Change::set(growth, "true"));
    Some(match free {
        Some(free) => found.with_cost(free),
        None => found,
    })
}

fn torch(context: &LintContext<'_>) -> Option<RawFinding> {
    let installed = context.packages().is_some_and(|packages| packages.torch.is_some());
    let name = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
        .into_iter()
        .find(|name| context.non_empty_var(name).is_some());
    let fraction_value = context.fraction_value().filter(|_| context.preallocates());
    let (Some(name), Some(fraction_value), true, true) =
        (name, fraction_value, installed, context.may_use_gpu())
    else {
        return None;
    };
    Some(RawFinding::new(
        name,
        format!(
            "PyTorch is configured for the GPU, too, but JAX preallocates {:.0} % of its memory",
            fraction_value * 100.0
        ),
        "if the program uses both, leave memory for PyTorch: `vramfit run --keep-free 8GiB -- …`",
    ))
}

fn no_plugin(context: &LintContext<'_>) -> Option<RawFinding> {
    let missing = context.packages().is_some_and(|packages| !packages.cuda_plugin);
    let host = &context.input.host;
    if !missing || host.gpus.is_empty() || !context.may_use_gpu() {
        return None;
    }
    let major = host
        .cuda
        .as_deref()
        .and_then(|cuda| cuda.split('.').next())
        .and_then(|major| major.parse::<u32>().ok());
    let extra = match major {
        Some(major) if major < 13 => "cuda12",
        _ => "cuda13",
    };
    Some(RawFinding::new(
        "jax",
        "there is a GPU, but JAX has no CUDA plugin and uses the CPU",
        format!("`pip install \"jax[{extra}]\"`"),
    ))
}

fn visible(context: &LintContext<'_>) -> Option<RawFinding> {
    let gpus = context.usable_gpus();
    let list = context.non_empty_var(VISIBLE).filter(|_| !gpus.is_empty())?;
    let words: Vec<_> = list.split(',').map(str::trim).collect();
    let known = words.iter().take_while(|word| find_gpu(&gpus, word).is_some()).count();
    let wrong = words.get(known)?;
    // These hide all GPUs.
    if known == 0 && words.len() == 1 && matches!(*wrong, "-1" | "NoDevFiles" | "none" | "void") {
        return None;
    }
    let message = format!(
        "there is no GPU `{wrong}`: the program sees only {known} of the {} listed GPUs",
        words.len()
    );
    Some(RawFinding::new(VISIBLE, message, "list existing GPUs only; `nvidia-smi -L` shows them"))
}
