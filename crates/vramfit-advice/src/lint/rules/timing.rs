//! Settings that are changed after they have been read.

use super::super::context::{LintContext, PREALLOCATE, python_float};
use super::super::finding::RawFinding;
use super::super::names::{self, ValueKind};
use super::super::{Rule, Severity};
use super::booleans::jax_bool;
use crate::settings::{self, LateChange, PLATFORM_NAME, PLATFORMS, ProcessStage, ReadAt, Reader};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "set-too-late",
    severity: Severity::Error,
    meaning: "The running program sets a variable after it has been read. This has no effect, \
              and nothing reports it. `JAX_*` variables are read by `import jax`; those of the \
              pool at the first use of JAX, which may happen while a library is imported. \
              Detected in dry runs, in programs started by `vramfit run`, and after `import \
              vramfit.jax_memory_fix`.",
    fix: "Set it before the program starts, or earlier in the program. Options of `jax.config` \
          can be changed with `jax.config.update`.",
    check: too_late,
}];

fn too_late(context: &LintContext<'_>) -> Vec<RawFinding> {
    let late: Vec<&LateChange> = context.input.late.iter().collect();
    let is_first = |at: usize| late[..at].iter().all(|other| other.name != late[at].name);
    (0..late.len())
        .filter(|at| is_first(*at))
        .filter_map(|at| check_variable(context, &late[at].name))
        .collect()
}

/// Checks all changes of one variable: the value that was read is that before the first late change, the
/// intended one that after the last.
fn check_variable(context: &LintContext<'_>, name: &str) -> Option<RawFinding> {
    let read_at = read_at(context, name)?;
    let mut changes = context
        .input
        .late
        .iter()
        .filter(|change| change.name == name && is_late(change.stage, read_at));
    let first = changes.next()?;
    let last = changes.next_back().unwrap_or(first);
    if effective_value(context, name, first.old.as_deref())
        == effective_value(context, name, last.new.as_deref())
    {
        return None;
    }
    let read_event = match read_at {
        ReadAt::Import => "JAX was imported",
        _ => "the first use of JAX",
    };
    let at = match last.site.as_str() {
        "" => String::new(),
        site => format!(" at {site}"),
    };
    let what = match &last.new {
        Some(value) => format!("`{name}={value}` is set{at}"),
        None => format!("`{name}` is removed{at}"),
    };
    let read = match &first.old {
        Some(value) => format!("JAX has read `{value}`"),
        None => "it was not set when JAX read it".to_owned(),
    };
    let message =
        format!("{what}, after {read_event}, which has no effect in this process: {read}");
    // Options that select backends can be changed too, but not after the backends were created.
    let has_option = read_at == ReadAt::Import
        && (last.stage < ProcessStage::Started || !BACKEND_OPTIONS.contains(&name));
    let fix = if has_option {
        format!(
            "call `jax.config.update(\"{}\", …)`, or set it {}",
            name.to_lowercase(),
            read_at.latest_stage()
        )
    } else {
        format!("set it {}, as `vramfit run` does", read_at.latest_stage())
    };
    Some(RawFinding::new(name, message, fix))
}

/// Options that are read when the backends are created.
const BACKEND_OPTIONS: [&str; 4] =
    [PLATFORMS, PLATFORM_NAME, "JAX_PJRT_CLIENT_CREATE_OPTIONS", "JAX_NUM_CPU_DEVICES"];

/// Returns whether a change at that stage comes after the variable was read.
fn is_late(stage: ProcessStage, read_at: ReadAt) -> bool {
    match read_at {
        ReadAt::Import => stage >= ProcessStage::Imported,
        ReadAt::Backend => stage >= ProcessStage::Discovered,
        // XLA reads its flags, and CUDA its list, when they are first used: for the backend.
        ReadAt::Allocator | ReadAt::Driver | ReadAt::Process => stage >= ProcessStage::Started,
    }
}

/// Returns a canonical form of a value, so that equivalent values are equal.
fn effective_value(context: &LintContext<'_>, name: &str, value: Option<&str>) -> Option<String> {
    let default = settings::find(name).and_then(|setting| setting.default.as_deref());
    let text = value.filter(|value| !value.is_empty()).or(default)?;
    if name == PREALLOCATE {
        return Some((!matches!(text, "false" | "False" | "0")).to_string());
    }
    let is_boolean = names::find_jax_name(name, context.version())
        .is_some_and(|known| known.kind == ValueKind::Bool);
    if let Some(not_a_boolean) = jax_bool(text).filter(|_| is_boolean) {
        return Some(not_a_boolean.to_string());
    }
    Some(match python_float(text) {
        Some(number) => number.to_string(),
        None => text.to_owned(),
    })
}

/// Returns when a variable is read, if that is known.
fn read_at(context: &LintContext<'_>, name: &str) -> Option<ReadAt> {
    match settings::find(name).filter(|setting| !setting.is_flag()) {
        // NCCL reads its variables at the first communication, which cannot be observed.
        Some(setting) if setting.reader == Reader::Nccl => None,
        Some(setting) => setting.is_read_by(context.version()).then_some(setting.read_at),
        None => names::find_jax_name(name, context.version())
            .filter(|known| known.kind != ValueKind::Option && name.starts_with("JAX_"))
            .map(|_| ReadAt::Import),
    }
}
