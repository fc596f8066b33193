//! What of the remedies holds for GPUs that are none of NVIDIA's.

use super::Remedy;
use crate::explain::facts::Facts;
use crate::explain::message::{Library, Message, Platform};

/// What only NVIDIA's software has.
const CUDA_REMEDIES: [&str; 6] = [
    "cuda-async",
    "matching-libraries",
    "matching-plugin",
    "other-release",
    "smaller-nccl-buffers",
    "unified-memory",
];
/// What changes XLA's pool, which Metal does not have.
const POOL_REMEDIES: [&str; 8] = [
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
pub(super) fn adapt_to_platform(remedies: Vec<Remedy>, platform: Platform) -> Vec<Remedy> {
    let holds = |remedy: &Remedy| {
        !CUDA_REMEDIES.contains(&remedy.id)
            && (platform != Platform::Metal || !POOL_REMEDIES.contains(&remedy.id))
    };
    let adapted = remedies.into_iter().filter(holds).map(|remedy| {
        let text = match remedy.id {
            "larger-gpu" | "shard" => {
                "use a GPU with more memory, or shard over several".to_owned()
            }
            "plan" => "recompute activations in the backward pass: `jax.checkpoint`".to_owned(),
            _ => remedy.text.replace(", implementation=\"cudnn\"", ""),
        };
        Remedy { text, command: keep_if_portable(remedy.command), ..remedy }
    });
    adapted.collect()
}

/// Returns a command, or an empty one where it is about NVIDIA's GPUs: vramfit's own are.
pub(in crate::explain) fn keep_if_portable(command: String) -> String {
    let is_of_nvidia = ["vramfit", "cuda", "nvidia"].iter().any(|word| command.contains(word));
    if is_of_nvidia { String::new() } else { command }
}
