//! The kinds of allocator that JAX knows, by its names.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The kinds of allocator a client can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocatorKind {
    /// Best fit with coalescing: JAX's default.
    Bfc,
    /// Every buffer straight from the driver.
    Platform,
    /// As `Platform`, built at another level of the client (JAX 0.11).
    Address,
    /// CUDA's own stream-ordered pool.
    CudaAsync,
    /// CUDA's virtual-memory functions with a budget (JAX 0.10).
    Vmm,
}

impl AllocatorKind {
    /// Every kind, in the order of JAX's own list.
    pub const ALL: [AllocatorKind; 5] = [
        AllocatorKind::Bfc,
        AllocatorKind::Platform,
        AllocatorKind::CudaAsync,
        AllocatorKind::Vmm,
        AllocatorKind::Address,
    ];

    /// Returns the name that JAX uses.
    pub fn name(self) -> &'static str {
        match self {
            AllocatorKind::Bfc => "bfc",
            AllocatorKind::Platform => "platform",
            AllocatorKind::Address => "address",
            AllocatorKind::CudaAsync => "cuda_async",
            AllocatorKind::Vmm => "vmm",
        }
    }
}

impl FromStr for AllocatorKind {
    type Err = Error;

    /// Parses JAX's names in any case; `default` is `bfc`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for any other word.
    fn from_str(text: &str) -> Result<Self, Error> {
        let word = text.to_ascii_lowercase();
        if word == "default" {
            return Ok(AllocatorKind::Bfc);
        }
        AllocatorKind::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            Error::invalid_argument(format!("`{text}` is not an allocator of JAX"))
                .hint("choose one of `default`, `bfc`, `platform`, `cuda_async`, `vmm`, `address`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_jax() {
        for (text, kind) in [
            ("default", AllocatorKind::Bfc),
            ("bfc", AllocatorKind::Bfc),
            ("BFC", AllocatorKind::Bfc),
            ("platform", AllocatorKind::Platform),
            ("cuda_async", AllocatorKind::CudaAsync),
            ("vmm", AllocatorKind::Vmm),
            ("address", AllocatorKind::Address),
        ] {
            assert_eq!(text.parse::<AllocatorKind>().expect(text), kind);
        }
        for kind in AllocatorKind::ALL {
            let text = serde_json::to_string(&kind).expect("a name");
            assert_eq!(text, format!("\"{}\"", kind.name()));
        }
        assert!("cuda_malloc_async".parse::<AllocatorKind>().is_err());
    }
}
