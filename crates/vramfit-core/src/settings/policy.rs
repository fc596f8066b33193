//! From what a user wants to the variables that the installed release of JAX reads.

use super::plugin::PluginSettings;
use super::share::{Share, check_fraction, part_for, shortest};
use super::version::Version;
use crate::allocator::Kind;
use crate::error::{Error, ErrorKind, Result};

/// What a user wants; `None` leaves a matter as the environment has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Policy {
    /// How much of the card the pool may take.
    pub share: Option<Share>,
    /// Which allocator.
    pub allocator: Option<Kind>,
    /// Whether the pool takes its limit at the first operation.
    pub preallocate: Option<bool>,
}

/// What to do to an environment, and what to tell the user about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// Variables to set, by name.
    pub set: Vec<(&'static str, String)>,
    /// Variables to remove.
    pub remove: Vec<&'static str>,
    /// One clause each, in lower case without a full stop.
    pub notes: Vec<String>,
}

const FRACTION: &str = "XLA_CLIENT_MEM_FRACTION";
const OLD_FRACTION: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";

/// The first release that reads the new name of the fraction. It was written between 0.4.31 and
/// 0.4.33; 0.4.32 was never released.
const NEW_FRACTION_NAME: Version = Version::new(0, 4, 33);

/// Says which variables make JAX of that version follow the policy.
///
/// `get` returns what the environment holds now. Of the two names of the fraction only the one that
/// is wanted is left: JAX refuses both together and then goes on with the CPU only.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a share that no card can give, or an allocator that the version
/// does not have.
pub fn variables_for(
    policy: &Policy,
    version: Version,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Assignments> {
    let mut changes = Changes {
        get: &get,
        result: Assignments::default(),
    };
    let kind = match policy.allocator {
        Some(kind) => {
            check_allocator(kind, version)?;
            changes.set(ALLOCATOR, kind.name().to_owned());
            kind
        }
        None => changes
            .held(ALLOCATOR)
            .and_then(|word| word.parse().ok())
            .unwrap_or(Kind::Bfc),
    };
    if let Some(preallocate) = policy.preallocate {
        changes.set(PREALLOCATE, preallocate.to_string());
    }
    fraction(policy.share, version, &mut changes)?;

    let asks = policy.share.is_some() || policy.preallocate.is_some();
    let mut note = |text: String| changes.result.notes.push(text);
    match kind {
        Kind::Platform | Kind::Address if asks => note(format!(
            "the allocator `{}` asks the driver for every buffer: neither a fraction nor \
             preallocation applies to it",
            kind.name()
        )),
        Kind::CudaAsync if policy.share.is_some() => note(
            "the allocator `cuda_async` takes the share as what its pool keeps, not as a limit"
                .to_owned(),
        ),
        Kind::Vmm if policy.preallocate == Some(true) => {
            note("the allocator `vmm` does not preallocate".to_owned());
        }
        _ => {}
    }
    let options = changes.held(CREATE_OPTIONS).unwrap_or_default();
    for (option, ours) in [
        ("allocator", policy.allocator.is_some()),
        ("memory_fraction", policy.share.is_some()),
        ("preallocate", policy.preallocate.is_some()),
    ] {
        let named = options
            .split(';')
            .any(|item| item.split(':').next() == Some(option));
        if ours && named {
            changes.result.notes.push(format!(
                "`{CREATE_OPTIONS}` names `{option}` too, and JAX prefers it"
            ));
        }
    }
    Ok(changes.result)
}

/// The environment as it is, and what is to become of it.
struct Changes<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    result: Assignments,
}

impl Changes<'_> {
    /// Returns a variable's value; JAX takes an empty one as unset.
    fn held(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }

    fn set(&mut self, name: &'static str, value: String) {
        if let Some(old) = self.held(name).filter(|old| *old != value) {
            self.result
                .notes
                .push(format!("`{name}` was {old} and is now {value}"));
        }
        self.result.set.push((name, value));
    }

    fn remove(&mut self, name: &'static str, why: &str) {
        if let Some(old) = self.held(name) {
            self.result
                .notes
                .push(format!("`{name}`, which was {old}, is removed: {why}"));
            self.result.remove.push(name);
        }
    }
}

fn fraction(share: Option<Share>, version: Version, changes: &mut Changes<'_>) -> Result<()> {
    let new_name_is_read = version >= NEW_FRACTION_NAME;
    let Some(share) = share else {
        if new_name_is_read && changes.held(FRACTION).is_some() {
            changes.remove(OLD_FRACTION, &format!("JAX refuses it beside `{FRACTION}`"));
        }
        return Ok(());
    };
    let unified = PluginSettings::read(changes.get).is_ok_and(|plugin| plugin.unified_memory);
    let text = match share {
        Share::Fraction(part) => check_fraction(part, unified)?,
        Share::Limit {
            limit_bytes,
            total_bytes,
        } => {
            let part = part_for(limit_bytes, total_bytes)?;
            if unified {
                changes.result.notes.push(
                    "with `TF_FORCE_UNIFIED_MEMORY` the pool is never smaller than the card"
                        .to_owned(),
                );
            }
            shortest(part)
        }
    };
    if new_name_is_read {
        changes.set(FRACTION, text);
        changes.remove(OLD_FRACTION, &format!("JAX refuses it beside `{FRACTION}`"));
    } else {
        changes.set(OLD_FRACTION, text);
        changes.remove(FRACTION, &format!("JAX {version} does not read it"));
    }
    Ok(())
}

fn check_allocator(kind: Kind, version: Version) -> Result<()> {
    let since = match kind {
        Kind::Bfc | Kind::Platform | Kind::CudaAsync => return Ok(()),
        Kind::Vmm => Version::new(0, 10, 0),
        Kind::Address => Version::new(0, 11, 0),
    };
    if version >= since {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "JAX {version} has no allocator `{}`; it came with {since}",
            kind.name()
        ),
    )
    .hint("take `bfc`, `platform` or `cuda_async`, or a newer JAX"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version::new(0, 10, 2);
    const OLD: Version = Version::new(0, 4, 31);

    fn with(policy: Policy, version: Version, environment: &[(&str, &str)]) -> Result<Assignments> {
        variables_for(&policy, version, |name| {
            environment
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn share(share: Share) -> Policy {
        Policy {
            share: Some(share),
            ..Policy::default()
        }
    }

    #[test]
    fn nothing_wanted_is_nothing_done() {
        for environment in [&[][..], &[(FRACTION, "0.5")], &[(OLD_FRACTION, "0.5")]] {
            let done = with(Policy::default(), NEW, environment).unwrap();
            assert_eq!(done, Assignments::default(), "{environment:?}");
        }
    }

    #[test]
    fn the_fraction_has_the_name_that_the_version_reads() {
        for (version, name) in [
            (OLD, OLD_FRACTION),
            (Version::new(0, 4, 32), OLD_FRACTION),
            (Version::new(0, 4, 33), FRACTION),
            (NEW, FRACTION),
        ] {
            let done = with(share(Share::Fraction(0.9)), version, &[]).unwrap();
            assert_eq!(done.set, [(name, "0.9".to_owned())], "{version}");
            assert!(done.remove.is_empty() && done.notes.is_empty(), "{version}");
        }
    }

    #[test]
    fn the_other_name_is_removed_and_told() {
        let done = with(share(Share::Fraction(0.5)), NEW, &[(OLD_FRACTION, "0.8")]).unwrap();
        assert_eq!(done.remove, [OLD_FRACTION]);
        assert!(done.notes[0].contains("was 0.8"), "{:?}", done.notes);
        let done = with(share(Share::Fraction(0.5)), OLD, &[(FRACTION, "0.8")]).unwrap();
        assert_eq!(done.remove, [FRACTION]);
        assert!(
            done.notes[0].contains("does not read it"),
            "{:?}",
            done.notes
        );
    }

    #[test]
    fn a_pair_in_the_environment_is_parted_where_jax_refuses_it() {
        let both = [(FRACTION, "0.5"), (OLD_FRACTION, "0.8")];
        assert_eq!(
            with(Policy::default(), NEW, &both).unwrap().remove,
            [OLD_FRACTION]
        );
        assert!(
            with(Policy::default(), OLD, &both)
                .unwrap()
                .remove
                .is_empty()
        );
        // JAX takes an empty value as unset.
        let empty = [(FRACTION, "0.5"), (OLD_FRACTION, "")];
        assert!(
            with(Policy::default(), NEW, &empty)
                .unwrap()
                .remove
                .is_empty()
        );
    }

    #[test]
    fn a_changed_value_is_told_and_an_equal_one_is_not() {
        let told = |old| {
            with(share(Share::Fraction(0.5)), NEW, &[(FRACTION, old)])
                .unwrap()
                .notes
                .len()
        };
        assert_eq!((told("0.8"), told("0.5"), told("")), (1, 0, 0));
    }

    #[test]
    fn impossible_shares_are_refused() {
        for part in [0.0, -0.5, 1.5, 100.0, f64::NAN, f64::INFINITY] {
            let error = with(share(Share::Fraction(part)), NEW, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{part}");
        }
        let hint = with(share(Share::Fraction(90.0)), NEW, &[]).unwrap_err();
        assert!(hint.hint_text().unwrap().contains("0.9"));
        for limit_bytes in [0, 101] {
            let limit = Share::Limit {
                limit_bytes,
                total_bytes: 100,
            };
            assert!(with(share(limit), NEW, &[]).is_err(), "{limit_bytes}");
        }
    }

    #[test]
    fn more_than_the_card_needs_unified_memory() {
        let unified = [("TF_FORCE_UNIFIED_MEMORY", "1")];
        let done = with(share(Share::Fraction(4.0)), NEW, &unified).unwrap();
        assert_eq!(done.set, [(FRACTION, "4".to_owned())]);
    }

    #[test]
    fn allocators_come_with_versions() {
        let ask = |kind, version: &str| {
            let policy = Policy {
                allocator: Some(kind),
                ..Policy::default()
            };
            with(policy, version.parse().unwrap(), &[])
        };
        for (kind, before, first) in [
            (Kind::Vmm, "0.9.2", "0.10.0"),
            (Kind::Address, "0.10.2", "0.11.0"),
        ] {
            let error = ask(kind, before).unwrap_err();
            assert!(error.message().contains(first), "{error}");
            assert_eq!(
                ask(kind, first).unwrap().set,
                [(ALLOCATOR, kind.name().to_owned())]
            );
        }
        assert!(ask(Kind::CudaAsync, "0.4.26").is_ok());
    }

    #[test]
    fn what_an_allocator_ignores_is_told() {
        let notes = |policy, environment: &[(&str, &str)]| {
            with(policy, NEW, environment).unwrap().notes.join("; ")
        };
        let fraction = share(Share::Fraction(0.5));
        let platform = Policy {
            allocator: Some(Kind::Platform),
            ..fraction
        };
        assert!(notes(platform, &[]).contains("neither a fraction nor"));
        assert!(notes(fraction, &[(ALLOCATOR, "Platform")]).contains("neither a fraction nor"));
        assert!(notes(fraction, &[(ALLOCATOR, "cuda_async")]).contains("not as a limit"));
        assert_eq!(notes(fraction, &[]), "");
    }

    #[test]
    fn preallocation_is_written_in_words_that_jax_reads() {
        for (on, text) in [(true, "true"), (false, "false")] {
            let policy = Policy {
                preallocate: Some(on),
                ..Policy::default()
            };
            assert_eq!(
                with(policy, NEW, &[]).unwrap().set,
                [(PREALLOCATE, text.to_owned())]
            );
        }
    }

    #[test]
    fn create_options_that_win_are_told() {
        let options = [(CREATE_OPTIONS, "allocator:platform;num_nodes:1")];
        let policy = Policy {
            allocator: Some(Kind::Bfc),
            ..Policy::default()
        };
        let done = with(policy, NEW, &options).unwrap();
        assert!(
            done.notes.iter().any(|note| note.contains(CREATE_OPTIONS)),
            "{:?}",
            done.notes
        );
    }
}
