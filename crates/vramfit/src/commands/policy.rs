//! Options about JAX's pool, the same in every command that has them.

use vramfit_core::allocator::Kind;
use vramfit_core::settings::{self, Policy, Share, Version};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

/// How JAX's pool is to be.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct PoolArgs {
    /// The share of the card that JAX's pool may take
    #[arg(
        long,
        value_name = "F",
        conflicts_with = "limit",
        allow_negative_numbers = true
    )]
    fraction: Option<f64>,
    /// The bytes that JAX's pool may take
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// The allocator that JAX uses: default, bfc, platform, cuda_async, vmm or address
    #[arg(long, value_name = "NAME")]
    allocator: Option<Kind>,
    /// Let the pool grow instead of taking it at the first operation
    #[arg(long)]
    no_preallocate: bool,
}

/// A version that has everything any version has.
const ANY_VERSION: Version = Version::new(u32::MAX, 0, 0);

impl PoolArgs {
    /// Gathers what was asked for, for a card of so many bytes.
    ///
    /// # Errors
    /// `invalid-argument` for a share that no card can give.
    pub(crate) fn policy(
        &self,
        total_bytes: u64,
        inherited: impl Fn(&str) -> Option<String>,
    ) -> Result<Policy> {
        let limit = self.limit.map(|limit| Share::Limit {
            limit_bytes: limit.0,
            total_bytes,
        });
        let policy = Policy {
            share: self.fraction.map(Share::Fraction).or(limit),
            allocator: self.allocator,
            preallocate: self.no_preallocate.then_some(false),
        };
        // Which names the program's JAX reads is known later; whether a share can be had, now.
        settings::variables_for(&policy, ANY_VERSION, inherited)?;
        Ok(policy)
    }
}

/// Refuses more memory in others' hands than the card has.
///
/// # Errors
/// `invalid-argument`.
pub(crate) fn check_taken(taken: Option<Bytes>, total_bytes: u64) -> Result<()> {
    let total = Bytes(total_bytes);
    match taken {
        Some(taken) if taken > total => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{taken} cannot be taken of a card of {total}"),
        )
        .hint(format!("give at most {} bytes", total.0))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_can_be_taken_than_the_card_has() {
        assert!(check_taken(None, 100).is_ok());
        assert!(check_taken(Some(Bytes(100)), 100).is_ok());
        let error = check_taken(Some(Bytes(101)), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
