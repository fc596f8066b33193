//! The kinds of allocator that JAX knows, by its names.

use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// The kinds of allocator a client can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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

impl Kind {
    /// Every kind, in the order of JAX's own list.
    pub const ALL: [Kind; 5] = [
        Kind::Bfc,
        Kind::Platform,
        Kind::CudaAsync,
        Kind::Vmm,
        Kind::Address,
    ];

    /// Returns the name that JAX uses.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bfc => "bfc",
            Kind::Platform => "platform",
            Kind::Address => "address",
            Kind::CudaAsync => "cuda_async",
            Kind::Vmm => "vmm",
        }
    }
}

impl FromStr for Kind {
    type Err = Error;

    /// Parses JAX's names in any case; `default` is `bfc`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other word.
    fn from_str(text: &str) -> Result<Self, Error> {
        let word = text.to_ascii_lowercase();
        if word == "default" {
            return Ok(Kind::Bfc);
        }
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == word)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("`{text}` is not an allocator of JAX"),
                )
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
            ("default", Kind::Bfc),
            ("bfc", Kind::Bfc),
            ("BFC", Kind::Bfc),
            ("platform", Kind::Platform),
            ("cuda_async", Kind::CudaAsync),
            ("vmm", Kind::Vmm),
            ("address", Kind::Address),
        ] {
            assert_eq!(text.parse::<Kind>().expect(text), kind);
        }
        assert!("cuda_malloc_async".parse::<Kind>().is_err());
    }
}
