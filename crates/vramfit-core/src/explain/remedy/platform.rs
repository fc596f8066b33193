//! What of the remedies holds for GPUs that are none of NVIDIA's.

use super::Remedy;
use crate::explain::facts::Facts;
use crate::explain::message::{Library, Message, Platform};

/// What only NVIDIA's software has.
const OF_CUDA: [&str; 6] = [
    "cuda-async",
    "matching-libraries",
    "matching-plugin",
    "other-release",
    "smaller-nccl-buffers",
    "unified-memory",
];
/// What changes XLA's pool, which Metal does not have.
const OF_POOL: [&str; 8] = [
    "correct-settings",
    "disable-graphs",
    "lower-fraction",
    "no-preallocation",
    "one-ended-pool",
    "preallocate",
    "raise-fraction",
    "split-gpu",
];

impl Facts<'_> {
    /// Returns whose GPU it is, where the log shows that it is none of NVIDIA's.
    pub(in crate::explain) fn platform(&self) -> Option<Platform> {
        let of_nvidia = |message: &Message| matches!(message, Message::Gpu { .. });
        let told = self.log.find(|message| match message {
            Message::OtherPlatform(platform) => Some(*platform),
            Message::Library { library: Library::Rocm, .. } => Some(Platform::Rocm),
            _ => None,
        });
        told.map(|(_, platform)| platform).filter(|_| !self.log.has(of_nvidia))
    }
}

/// Leaves out what does not hold for a platform, and the commands of what does.
pub(super) fn adapt(remedies: Vec<Remedy>, platform: Platform) -> Vec<Remedy> {
    let holds = |remedy: &Remedy| {
        !OF_CUDA.contains(&remedy.id)
            && (platform != Platform::Metal || !OF_POOL.contains(&remedy.id))
    };
    let adapted = remedies.into_iter().filter(holds).map(|remedy| {
        let text = match remedy.id {
            "larger-gpu" | "shard" => {
                "use a GPU with more memory, or shard over several".to_owned()
            }
            "plan" => "recompute activations in the backward pass: `jax.checkpoint`".to_owned(),
            _ => remedy.text.replace(", implementation=\"cudnn\"", ""),
        };
        let command = match is_of_nvidia(&remedy.command) {
            true => String::new(),
            false => remedy.command,
        };
        Remedy { text, command, ..remedy }
    });
    adapted.collect()
}

/// Returns `true` if a command is about NVIDIA's GPUs: vramfit's own are.
pub(in crate::explain) fn is_of_nvidia(command: &str) -> bool {
    ["vramfit", "cuda", "nvidia"].iter().any(|word| command.contains(word))
}
