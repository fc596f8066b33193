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
    let check = match &facts.other_environment {
        Some(active) => Check::warn(
            ID,
            format!("{sentence} is examined, but `{active}` is active"),
            format!("vramfit doctor --python {active}/bin/python"),
        ),
        None => Check::pass(ID, sentence),
    };
    vec![check.because(executable)]
}
