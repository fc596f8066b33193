//! From what a user wants to the variables that the installed release of JAX reads.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `pool.rs` | allocator, preallocation and fraction of the pool |
//! | `program.rs` | platforms, rematerialisation, types, compilation, CPU devices |
//! | `mend.rs` | what the environment says in words that JAX does not understand |
//!
//! Who wins: what was asked for here beats the environment, and that is told. Flags inside `XLA_FLAGS`
//! are only ever added; one that the user has set there already stays, and that is told too. What
//! nobody asked for stays as it is.

mod mend;
mod pool;
mod program;

pub(crate) use pool::allocator_since;

use super::room::Room;
use super::share::Share;
use super::version::Version;
use crate::allocator::Kind;
use crate::error::Result;

/// What a user wants; `None` leaves a matter as the environment has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Policy {
    /// How much of the card the pool may take.
    pub share: Option<Share>,
    /// Which allocator.
    pub allocator: Option<Kind>,
    /// Whether the pool takes its limit at the first operation.
    pub preallocate: Option<bool>,
    /// Whether a GPU that cannot be had is an error, instead of a reason to go on with the CPU.
    pub require_gpu: bool,
    /// Whether XLA may compute values again instead of keeping them, when a program does not fit.
    pub remat: Option<bool>,
    /// Whether 64-bit types exist.
    pub x64: Option<bool>,
    /// Whether jitted functions are compiled.
    pub jit: Option<bool>,
    /// How many CPU devices there are.
    pub host_devices: Option<u32>,
    /// The card with the least room among those the program will see, where it is known: it decides
    /// nothing, but says what a share leaves to others.
    pub room: Option<Room>,
    /// Whether to set right what the environment says in words that JAX ignores or trips over.
    pub mend: bool,
}

/// A variable to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Its name.
    pub name: &'static str,
    /// Its value, unquoted.
    pub value: String,
    /// Why, as one clause in lower case without a full stop.
    pub reason: String,
}

/// What to do to an environment, and what to tell the user about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// Variables to set; each name once.
    pub set: Vec<Assignment>,
    /// Variables to remove. That JAX takes an empty text as unset holds for each of them.
    pub remove: Vec<&'static str>,
    /// One clause each, in lower case without a full stop.
    pub notes: Vec<String>,
}

impl Assignments {
    /// Returns the value that a variable is set to, if it is.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.set.iter().find(|assignment| assignment.name == name)?;
        Some(&found.value)
    }
}

const FRACTION: &str = "XLA_CLIENT_MEM_FRACTION";
const OLD_FRACTION: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";

/// Says which variables make JAX of that version follow the policy.
///
/// `get` returns what the environment holds now. Where the version is not known, names are taken that
/// every release reads. Of the two names of the fraction only the one that is wanted is left: JAX
/// refuses both together and then goes on with the CPU only.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] for a share that no card can give, or an allocator that the
/// version does not have.
pub fn variables_for(
    policy: &Policy,
    version: impl Into<Option<Version>>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Assignments> {
    let mut changes = Changes {
        get: &get,
        version: version.into(),
        result: Assignments::default(),
    };
    let mended;
    let policy = if policy.mend {
        mended = mend::mend(policy, &mut changes)?;
        &mended
    } else {
        policy
    };
    pool::apply(policy, &mut changes)?;
    program::apply(policy, &mut changes);
    Ok(changes.result)
}

/// The environment as it is, and what is to become of it.
struct Changes<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    version: Option<Version>,
    result: Assignments,
}

impl Changes<'_> {
    /// Returns a variable's value; JAX takes an empty one as unset.
    fn held(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }

    /// Says whether the release is known to be this one or a newer one.
    fn is_since(&self, version: Version) -> bool {
        self.version.is_some_and(|installed| installed >= version)
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>, reason: impl Into<String>) {
        let (value, reason) = (value.into(), reason.into());
        if let Some(old) = self.held(name).filter(|old| *old != value) {
            self.note(format!("`{name}` was {old} and is now {value}"));
        }
        self.result.set.push(Assignment {
            name,
            value,
            reason,
        });
    }

    fn remove(&mut self, name: &'static str, why: &str) {
        if let Some(old) = self.held(name) {
            self.note(format!("`{name}`, which was {old}, is removed: {why}"));
            self.result.remove.push(name);
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.result.notes.push(text.into());
    }
}

#[cfg(test)]
mod tests;
