//! Is a function compiled once, and not again?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::trial::Outcome;
use super::{fell_back, unfinished};

pub(super) const ID: &str = "jit";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let told = match facts.trial.jit() {
        Outcome::Done(told) => told,
        other => return vec![unfinished(ID, facts, other).because_of(facts.trial.log.last())],
    };
    if fell_back(facts) {
        return vec![Check::skip(ID, "JAX is not on the GPU; see `backend`")];
    }
    let evidence = format!(
        "first call: traced {}, compiled {}; second: traced {}, compiled {}",
        told.traced[0], told.compiled[0], told.traced[1], told.compiled[1]
    );
    vec![
        if told.disabled {
            Check::warn(
                ID,
                "compiling is switched off: every operation runs by itself, slowly and with other \
                 needs of memory",
                "unset JAX_DISABLE_JIT",
            )
        } else if told.traced != [1, 0] || told.compiled[1] != 0 {
            Check::fail(
                ID,
                "a function that was called twice with the same shapes was not compiled just once",
                "export JAX_EXPLAIN_CACHE_MISSES=1 to learn why, and start again",
            )
        } else {
            Check::pass(
                ID,
                format!(
                    "compiled in {:.2} s, called again without compiling in {:.2} ms",
                    told.seconds[0],
                    told.seconds[1] * 1e3
                ),
            )
        }
        .because(evidence),
    ]
}
