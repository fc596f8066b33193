//! Which Python is it?

use super::super::check::Check;
use super::super::facts::Facts;

const ID: &str = "python";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let inventory = &facts.inventory;
    let home = match &inventory.environment {
        Some(folder) => format!("of the environment `{folder}`"),
        None => "of no virtual environment".to_owned(),
    };
    let sentence = format!("Python {} {home}", inventory.python);
    let executable = format!("`{}`", inventory.executable);
    // An active environment that is not the one examined: the user's `python` is another.
    let active = facts
        .environment
        .get("VIRTUAL_ENV")
        .filter(|active| !active.is_empty());
    let check = match active {
        Some(active) if inventory.environment.as_ref() != Some(active) => Check::warn(
            ID,
            format!("{sentence} is examined, but `{active}` is active"),
            format!("vramfit doctor --python {active}/bin/python"),
        ),
        _ => Check::pass(ID, sentence),
    };
    vec![check.because(executable)]
}
