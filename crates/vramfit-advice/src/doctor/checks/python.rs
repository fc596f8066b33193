//! Which Python is it?

use super::super::check::Check;
use super::super::system_info::SystemInfo;

const ID: &str = "python";

pub(super) fn check(info: &SystemInfo) -> Check {
    let inventory = &info.inventory;
    let home = match &inventory.environment {
        Some(folder) => format!("in the environment `{folder}`"),
        None => "outside a virtual environment".to_owned(),
    };
    let message = format!("Python {} {home}", inventory.python);
    let executable = format!("`{}`", inventory.executable);
    let check = match &info.other_active_environment {
        Some(active) => Check::warn(
            ID,
            format!("{message} is checked, but `{active}` is active"),
            format!("vramfit doctor --python {active}/bin/python"),
        ),
        None => Check::pass(ID, message),
    };
    check.evidence_line(executable)
}
