//! Values that a dry run did not compute on the CPU although it could have.

use serde::Serialize;

/// Programs whose values were not computed any more from some execution on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotComputed {
    /// Name of the program; empty where it is about all of them.
    pub program: String,
    /// Why: `program_budget`, `run_budget` or `off` (`--no-values`).
    pub reason: String,
    /// Milliseconds that executions of the program had taken until then, all of one name together.
    pub spent_ms: u64,
    /// How many programs of that name.
    pub programs: u64,
}

/// Beyond this a run only repeats itself; what comes later is not kept.
const MAX_KEPT: usize = 1024;

/// Adds what a record holds: program, reason and milliseconds, with line ends between them.
pub(super) fn add(list: &mut Vec<NotComputed>, body: &str) {
    let mut parts = body.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (program, reason, spent) = (part(), part(), part());
    let spent_ms = spent.parse().unwrap_or(0);
    let same = |old: &&mut NotComputed| (&old.program, &old.reason) == (&program, &reason);
    if let Some(old) = list.iter_mut().find(same) {
        old.programs += 1;
        old.spent_ms = old.spent_ms.saturating_add(spent_ms);
    } else if list.len() < MAX_KEPT {
        list.push(NotComputed { program, reason, spent_ms, programs: 1 });
    }
}

/// Returns what the record holds.
pub(super) fn body(program: &str, reason: &str, spent_ms: u64) -> String {
    // A line end is what parts are told apart by.
    let program = program.replace('\n', " ");
    format!("{program}\n{reason}\n{spent_ms}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_name_are_reported_together() {
        let mut list = Vec::new();
        for (program, reason) in
            [("jit_a", "run_budget"), ("jit_b", "run_budget"), ("jit_a", "run_budget")]
        {
            add(&mut list, &body(program, reason, 1500));
        }
        let told: Vec<_> =
            list.iter().map(|row| (row.program.as_str(), row.programs, row.spent_ms)).collect();
        assert_eq!(told, [("jit_a", 2, 3000), ("jit_b", 1, 1500)]);
        add(&mut list, "");
        assert_eq!(list[2].reason, "");
    }
}
