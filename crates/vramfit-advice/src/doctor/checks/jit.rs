//! Is a function compiled once, and not again?

use super::super::check::Check;
use super::super::probe::StepOutcome;
use super::super::system_info::SystemInfo;
use super::{cpu_fallback, incomplete};

pub(super) const ID: &str = "jit";

pub(super) fn check(info: &SystemInfo) -> Check {
    let result = match info.probe.jit() {
        StepOutcome::Done(result) => result,
        other => return incomplete(ID, info, other).evidence_lines(info.probe.log.last()),
    };
    if cpu_fallback(info) {
        return Check::skip(ID, "JAX does not use the GPU; see `backend`");
    }
    let evidence = format!(
        "first call: traced {}, compiled {}; second: traced {}, compiled {}",
        result.traced[0], result.compiled[0], result.traced[1], result.compiled[1]
    );
    if result.disabled {
        Check::warn(
            ID,
            "compilation is disabled: every operation runs on its own, slowly and with \
                 different memory use",
            "unset JAX_DISABLE_JIT",
        )
    } else if result.traced != [1, 0] || result.compiled[1] != 0 {
        Check::fail(
            ID,
            "a function called twice with the same shapes was compiled more than once",
            "set `JAX_EXPLAIN_CACHE_MISSES=1` to find out why, and run again",
        )
    } else {
        Check::pass(
            ID,
            format!(
                "compiled in {:.2} s, called again without compilation in {:.2} ms",
                result.seconds[0],
                result.seconds[1] * 1e3
            ),
        )
    }
    .evidence_line(evidence)
}
