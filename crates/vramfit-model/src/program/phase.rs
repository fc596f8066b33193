//! Forward or backward: which part of a differentiated program an instruction belongs to, read from
//! the names that JAX's transformations leave in it.
//!
//! JAX writes `jvp(…)` around what is differentiated, `transpose(jvp(…))` around what carries
//! gradients back, and `rematted_computation` around what `jax.checkpoint` computes a second time.

use serde::{Deserialize, Serialize};

/// Which part of a differentiated program an instruction belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Neither: nothing is differentiated, or this is what is done with gradients.
    #[default]
    Outside,
    /// The function that is differentiated.
    Forward,
    /// What carries gradients back through it.
    Backward,
}

/// A program that is one pass of a differentiated function: JAX compiles both for `jax.grad` of a function with
/// `jax.jit`, and marks the operations of neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Pass {
    /// Computes the function, and returns residuals.
    Forward = 0,
    /// Computes cotangents.
    Backward = 1,
}

/// Reads the phase from the name of an operation.
pub(super) fn of_name(name: &str) -> Phase {
    if name.contains("transpose(") {
        Phase::Backward
    } else if name.contains("jvp(") {
        Phase::Forward
    } else {
        Phase::Outside
    }
}

/// Returns `true` if an operation computes again what the forward part had computed before.
pub(super) fn is_rematerialized(instruction: &str, name: &str) -> bool {
    // XLA's own pass marks the instructions it duplicates.
    name.contains("rematted_computation") || instruction.contains(".remat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jaxs_transformations_tell_the_phase() {
        for (name, phase) in [
            ("jit(step)/jvp(Dense)/dot_general", Phase::Forward),
            ("jit(step)/jvp()/while/body/closed_call/tanh", Phase::Forward),
            ("jit(step)/transpose(jvp(Dense))/dot_general", Phase::Backward),
            ("jit(step)/mul", Phase::Outside),
            ("state['params']", Phase::Outside),
            ("", Phase::Outside),
        ] {
            assert_eq!(of_name(name), phase, "{name}");
        }
    }

    #[test]
    fn what_is_computed_again_is_reported() {
        let name = "jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh";
        assert!(is_rematerialized("fusion.3", name));
        assert!(is_rematerialized("fusion.3.remat2", ""));
        assert!(!is_rematerialized("fusion.3", "jit(step)/jvp()/checkpoint/tanh"));
    }
}
