//! What else is installed, and which GPUs there are.

use super::super::finding::{Change, Found};
use super::super::scene::{Scene, VISIBLE, find_gpu};
use super::super::{Rule, Severity};
use crate::Bytes;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "tensorflow-beside-jax",
        severity: Severity::Warning,
        meaning: "TensorFlow with its code for GPUs is installed. As soon as a program uses it beside \
                  JAX, often only to read data, it takes nearly all that is free on every GPU.",
        cure: "Hide the GPUs from TensorFlow, let it grow as it needs, or install `tensorflow-cpu`.",
        check: tensorflow,
    },
    Rule {
        id: "torch-beside-jax",
        severity: Severity::Note,
        meaning: "The environment configures PyTorch's memory on the GPU, so that a program seems to \
                  use both. PyTorch takes memory as it needs it; JAX takes its pool at once.",
        cure: "Leave PyTorch its part: `vramfit run --keep-free`.",
        check: torch,
    },
    Rule {
        id: "no-cuda-plugin",
        severity: Severity::Warning,
        meaning: "There is a GPU, and JAX has no plugin for CUDA: it computes on the CPU.",
        cure: "Install `jax[cuda12]` or `jax[cuda13]`, as the driver allows.",
        check: no_plugin,
    },
    Rule {
        id: "visible-list-ends-early",
        severity: Severity::Warning,
        meaning: "CUDA reads the list of visible GPUs up to the first name that it does not know, \
                  and hides all that follow.",
        cure: "Name GPUs that are there: `nvidia-smi -L` lists them.",
        check: visible,
    },
];

fn tensorflow(scene: &Scene<'_>) -> Vec<Found> {
    let Some(version) = scene
        .packages()
        .and_then(|packages| packages.tensorflow.as_deref())
    else {
        return Vec::new();
    };
    let growth = "TF_FORCE_GPU_ALLOW_GROWTH";
    let grows = scene
        .held(growth)
        .is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1");
    if grows || !scene.wants_gpu() {
        return Vec::new();
    }
    let rooms = scene.rooms();
    let free = rooms
        .iter()
        .map(|(_, room)| room.total_bytes.saturating_sub(room.occupied_bytes))
        .min();
    let taken = match free {
        Some(free) => format!("up to the {} that are free on a GPU", Bytes(free)),
        None => "nearly all that is free on every GPU".to_owned(),
    };
    let fix = if version.starts_with("1.") {
        "in the program, give the session \
         `tf.GPUOptions(per_process_gpu_memory_fraction=0.1, allow_growth=True)`"
            .to_owned()
    } else {
        format!(
            "in the program, before any other use, call `tf.config.set_visible_devices([], \"GPU\")`; \
             where TensorFlow needs the GPU, write `{growth}=true`"
        )
    };
    let found = Found::new(
        "tensorflow",
        format!("TensorFlow {version} takes {taken} when a program uses it beside JAX"),
        fix,
    )
    .change(Change::set(growth, "true"));
    vec![match free {
        Some(free) => found.cost(free),
        None => found,
    }]
}

fn torch(scene: &Scene<'_>) -> Vec<Found> {
    let installed = scene
        .packages()
        .is_some_and(|packages| packages.torch.is_some());
    let name = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
        .into_iter()
        .find(|name| scene.held(name).is_some());
    let share = scene.share().filter(|_| scene.preallocates());
    let (Some(name), Some(share), true, true) = (name, share, installed, scene.wants_gpu()) else {
        return Vec::new();
    };
    vec![Found::new(
        name,
        format!(
            "PyTorch is set up for the GPU, too; JAX's pool takes {:.0} % of it at once",
            share * 100.0
        ),
        "if one program uses both, leave PyTorch its part: `vramfit run --keep-free 8GiB -- …`",
    )]
}

fn no_plugin(scene: &Scene<'_>) -> Vec<Found> {
    let missing = scene
        .packages()
        .is_some_and(|packages| !packages.cuda_plugin);
    let machine = &scene.surroundings.machine;
    if !missing || machine.gpus.is_empty() || !scene.wants_gpu() {
        return Vec::new();
    }
    let major = machine
        .cuda
        .as_deref()
        .and_then(|cuda| cuda.split('.').next())
        .and_then(|major| major.parse::<u32>().ok());
    let extra = match major {
        Some(major) if major < 13 => "cuda12",
        _ => "cuda13",
    };
    vec![Found::new(
        "jax",
        "there is a GPU, but JAX has no plugin for CUDA and computes on the CPU",
        format!("`pip install \"jax[{extra}]\"`"),
    )]
}

fn visible(scene: &Scene<'_>) -> Vec<Found> {
    let gpus = scene.usable_gpus();
    let Some(list) = scene.held(VISIBLE).filter(|_| !gpus.is_empty()) else {
        return Vec::new();
    };
    let words: Vec<_> = list.split(',').map(str::trim).collect();
    let known = words
        .iter()
        .take_while(|word| find_gpu(&gpus, word).is_some())
        .count();
    let Some(wrong) = words.get(known) else {
        return Vec::new();
    };
    // These are how one says that no GPU is to be seen.
    if known == 0 && words.len() == 1 && matches!(*wrong, "-1" | "NoDevFiles" | "none" | "void") {
        return Vec::new();
    }
    let message = format!(
        "there is no GPU `{wrong}` here: the program sees {known} of the {} that the list names",
        words.len()
    );
    vec![Found::new(
        VISIBLE,
        message,
        "name GPUs that are there; `nvidia-smi -L` lists them",
    )]
}
