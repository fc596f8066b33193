//! What a Python program wants of JAX's memory, decided as `vramfit run` decides it.
//!
//! The words are those of [`crate::commands::policy`], without a command line around them.

use vramfit_core::allocator::{Kind, PoolOptions};
use vramfit_core::settings::{self, Assignments, Version};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::cards::{self, Told};
use crate::commands::policy::PolicyArgs;

/// The part of the card that the pool takes where nobody says anything.
///
/// More than JAX's three quarters, and what is left is enough for a CUDA context and libraries
/// (0.8 GiB of a card of 8) by the estimate that every command uses; 0.95 leaves too little on
/// cards below 16 GiB.
const DEFAULT_FRACTION: f64 = 0.9;

/// What is wanted; `None` leaves a matter to the environment, and where that says nothing, to the
/// defaults of [`Wishes::settings`].
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The part of the card that the pool may take.
    pub fraction: Option<f64>,
    /// The bytes that the pool may take.
    pub limit: Option<Bytes>,
    /// Among how many processes the card is divided.
    pub processes: Option<u32>,
    /// The bytes that the pool must leave to others.
    pub keep_free: Option<Bytes>,
    /// Which allocator.
    pub allocator: Option<Kind>,
    /// Whether the pool takes its limit at the first operation.
    pub preallocate: Option<bool>,
    /// Whether a GPU that cannot be had is an error.
    pub require_gpu: Option<bool>,
    /// Whether XLA may compute values again instead of keeping them.
    pub remat: Option<bool>,
    /// Whether 64-bit types exist.
    pub x64: Option<bool>,
    /// Whether jitted functions are compiled.
    pub jit: Option<bool>,
    /// How many CPU devices there are.
    pub host_devices: Option<u32>,
    /// Whether the driver is asked where its answer would only tell more: it takes its time.
    pub look_at_cards: bool,
}

/// What to do to the environment.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// What is to be set and removed, and why.
    pub changes: Assignments,
    /// Defaults that yield to the environment: name, value held, why it stays.
    pub kept: Vec<(&'static str, String, String)>,
}

impl Wishes {
    /// Decides for a JAX of that version in an environment.
    ///
    /// Where neither the wishes nor the environment say anything, the pool may take nine tenths of
    /// the card, and a GPU that cannot be had is an error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for wishes that exclude each other or that no card can meet;
    /// those of finding the cards, where an amount depends on them.
    pub fn settings(
        &self,
        version: Option<Version>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Decision> {
        self.check()?;
        let mut wishes = self.clone();
        let mut kept = Vec::new();
        let held = |name: &str| variable(name).filter(|value| !value.is_empty());
        wishes.default_fraction(&held, &mut kept);
        wishes.default_platform(&held, &mut kept);
        let args = PolicyArgs::of(&wishes);
        let policy = args.resolve(wishes.look_at_cards, &variable)?;
        let mut changes = settings::variables_for(&policy, version, variable)?;
        if wishes.processes.is_some() {
            // Their environment was another when they were started, and only that can be read.
            changes.notes.push(
                "processes of the same division that run already count as others; \
                 `vramfit run --processes` knows them"
                    .to_owned(),
            );
        }
        // What is removed was not kept.
        kept.retain(|(name, ..)| !changes.remove.contains(name) && changes.value(name).is_none());
        Ok(Decision { changes, kept })
    }

    fn check(&self) -> Result<()> {
        let refuse = |message: String, hint: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).hint(hint))
        };
        let divided = self.processes.is_some() || self.keep_free.is_some();
        let said = [self.fraction.is_some(), self.limit.is_some(), divided];
        if said.iter().filter(|said| **said).count() > 1 {
            return refuse(
                "how much the pool may take was said in more than one way".to_owned(),
                "give one of `fraction`, `limit`, or `processes` with `keep_free`",
            );
        }
        match (self.processes, self.host_devices) {
            (Some(0 | 1025..), _) => refuse(
                "a GPU is split among 1 to 1024 processes".to_owned(),
                "write how many there will be, such as `processes=2`",
            ),
            (_, Some(0 | 4097..)) => refuse(
                "there are 1 to 4096 CPU devices".to_owned(),
                "write how many, such as `host_devices=8`",
            ),
            _ => Ok(()),
        }
    }

    fn default_fraction(
        &mut self,
        held: &impl Fn(&str) -> Option<String>,
        kept: &mut Vec<(&'static str, String, String)>,
    ) {
        let said = self.fraction.is_some() || self.limit.is_some() || self.processes.is_some();
        if said || self.keep_free.is_some() {
            return;
        }
        const NAMES: [&str; 3] = [
            "XLA_CLIENT_MEM_FRACTION",
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "JAX_PREALLOCATION_SIZE_LIMIT_BYTES",
        ];
        let mut found = false;
        for name in NAMES {
            if let Some(value) = held(name) {
                found = true;
                let why = format!("it goes before the default, a fraction of {DEFAULT_FRACTION}");
                kept.push((name, value, why));
            }
        }
        let word = held("XLA_PYTHON_CLIENT_ALLOCATOR");
        let kind = self
            .allocator
            .or_else(|| word.and_then(|word| word.parse().ok()));
        if !found && matches!(kind, None | Some(Kind::Bfc | Kind::CudaAsync)) {
            self.fraction = Some(DEFAULT_FRACTION);
        }
    }

    fn default_platform(
        &mut self,
        held: &impl Fn(&str) -> Option<String>,
        kept: &mut Vec<(&'static str, String, String)>,
    ) {
        if self.require_gpu.is_some() {
            return;
        }
        // What names the GPU first asks for it in words that leave a gap, and is completed.
        let first = |list: &str| matches!(list.split(',').next(), Some("cuda" | "gpu"));
        for name in ["JAX_PLATFORMS", "JAX_PLATFORM_NAME"] {
            if let Some(value) = held(name).filter(|value| !first(value)) {
                let why = "it goes before the default, which is to require a GPU".to_owned();
                kept.push((name, value, why));
                return;
            }
        }
        self.require_gpu = Some(true);
    }
}

/// Returns what the pool on each card that this process sees may take, by what the environment says;
/// `None` where that cannot be told from it.
///
/// # Errors
/// Those of finding the cards.
pub fn expected_pools(
    version: Version,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<u64>>> {
    let held = |name: &str| variable(name).filter(|value| !value.is_empty());
    let word = held("XLA_PYTHON_CLIENT_ALLOCATOR").unwrap_or_else(|| "bfc".to_owned());
    let fraction = held("XLA_CLIENT_MEM_FRACTION")
        .filter(|_| {
            settings::lookup("XLA_CLIENT_MEM_FRACTION").is_some_and(|s| s.is_read_by(version))
        })
        .or_else(|| held("XLA_PYTHON_CLIENT_MEM_FRACTION"))
        .map_or(Ok(0.75), |text| text.trim().parse::<f64>());
    let (Ok(kind @ (Kind::Bfc | Kind::CudaAsync)), Ok(fraction)) = (word.parse(), fraction) else {
        return Ok(None);
    };
    // These change what the fraction means, or go before it.
    let others = ["JAX_PJRT_CLIENT_CREATE_OPTIONS", "TF_FORCE_UNIFIED_MEMORY"];
    if others.iter().any(|name| held(name).is_some()) {
        return Ok(None);
    }
    let rooms = cards::rooms(&Told::default(), &variable)?;
    let limits = rooms.iter().map(|room| {
        PoolOptions {
            kind,
            total_memory_bytes: room.total_bytes,
            // JAX hands it over in 32 bits.
            memory_fraction: f64::from(fraction as f32),
            jax_version: version.into(),
            ..PoolOptions::default()
        }
        .limit_bytes()
    });
    Ok(Some(limits.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAX: Option<Version> = Some(Version::new(0, 10, 2));

    fn decide(wishes: &Wishes, held: &[(&str, &str)]) -> Decision {
        let get = |name: &str| {
            let found = held.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        wishes.settings(JAX, get).expect("decided")
    }

    #[test]
    fn nothing_said_is_nine_tenths_of_a_gpu_that_must_be_there() {
        let done = decide(&Wishes::default(), &[]);
        assert_eq!(done.changes.value("XLA_CLIENT_MEM_FRACTION"), Some("0.9"));
        assert_eq!(done.changes.value("JAX_PLATFORMS"), Some("cuda,cpu"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn the_environment_goes_before_defaults_and_wishes_before_it() {
        let held = [("XLA_CLIENT_MEM_FRACTION", "0.4"), ("JAX_PLATFORMS", "cpu")];
        let done = decide(&Wishes::default(), &held);
        assert!(done.changes.set.is_empty());
        assert_eq!(done.kept.len(), 2);
        let wishes = Wishes {
            fraction: Some(0.5),
            require_gpu: Some(true),
            ..Wishes::default()
        };
        let done = decide(&wishes, &held);
        assert_eq!(done.changes.value("XLA_CLIENT_MEM_FRACTION"), Some("0.5"));
        assert_eq!(done.changes.value("JAX_PLATFORMS"), Some("cuda,cpu"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn a_split_says_whom_it_does_not_know() {
        let wishes = Wishes {
            processes: Some(2),
            ..Wishes::default()
        };
        let done = decide(&wishes, &[("VRAMFIT_GPU", "t4")]);
        assert!(
            done.changes
                .notes
                .iter()
                .any(|note| note.contains("run --processes"))
        );
    }

    #[test]
    fn what_names_the_gpu_is_completed() {
        let done = decide(&Wishes::default(), &[("JAX_PLATFORMS", "cuda,cpu")]);
        assert_eq!(done.changes.value("JAX_PLATFORM_NAME"), Some("cuda"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn an_allocator_without_a_fraction_gets_none() {
        let held = [("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")];
        let done = decide(&Wishes::default(), &held);
        assert_eq!(done.changes.value("XLA_CLIENT_MEM_FRACTION"), None);
    }

    #[test]
    fn one_amount_at_a_time() {
        let both = Wishes {
            fraction: Some(0.5),
            processes: Some(2),
            ..Wishes::default()
        };
        let error = both.settings(JAX, |_| None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let none = Wishes {
            processes: Some(0),
            ..Wishes::default()
        };
        assert!(none.settings(JAX, |_| None).is_err());
    }

    #[test]
    fn the_pool_that_is_asked_for_is_that_of_the_card() {
        let card = |name: &str| match name {
            "VRAMFIT_GPU" => Some("t4".to_owned()),
            "XLA_CLIENT_MEM_FRACTION" => Some("0.5".to_owned()),
            _ => None,
        };
        let pools = expected_pools(Version::new(0, 10, 2), card).expect("a card");
        let total = vramfit_core::gpu::find("t4")
            .expect("known")
            .total_memory_bytes;
        let [pool] = pools.expect("told")[..] else {
            panic!("one card");
        };
        assert!(pool.abs_diff(total / 2) <= 2 << 20);
    }
}
