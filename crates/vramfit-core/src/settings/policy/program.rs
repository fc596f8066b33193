//! What concerns the program and not the pool: platforms, rematerialisation, types, compilation, CPU
//! devices.

use super::super::flags::{XlaFlags, with_flag};
use super::super::platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, prefers_gpu};
use super::super::version::Version;
use super::{Changes, Policy};

const REMAT: &str = "JAX_COMPILER_ENABLE_REMAT_PASS";
const FLAGS: &str = "XLA_FLAGS";
const DISABLED_PASSES: &str = "xla_disable_hlo_passes";
const REMAT_PASS: &str = "rematerialization";
const HOST_DEVICES: &str = "xla_force_host_platform_device_count";

/// The first release with a variable for rematerialisation.
const REMAT_VARIABLE: Version = Version::new(0, 4, 34);

/// The last release in which that variable, switched off, drops the other passes that the user has
/// disabled (jax-ml/jax#37391).
const REMAT_DROPS_OTHERS: Version = Version::new(0, 11, 0);

pub(super) fn apply(policy: &Policy, changes: &mut Changes<'_>) {
    if policy.require_gpu {
        require_gpu(changes);
    }
    // What is written into XLA_FLAGS is collected, so that the variable is set once.
    let mut flags = Flags::new(changes);
    if let Some(on) = policy.remat {
        remat(on, &mut flags, changes);
    }
    if let Some(count) = policy.host_devices {
        host_devices(count, &mut flags, changes);
    }
    flags.set(changes);
    if let Some(on) = policy.x64 {
        let reason = if on {
            "64-bit types exist; arrays made without a type are twice as large"
        } else {
            "no 64-bit types"
        };
        changes.set("JAX_ENABLE_X64", on.to_string(), reason);
    }
    if let Some(on) = policy.jit {
        let reason = if on {
            "jitted functions are compiled"
        } else {
            "jitted functions run operation by operation; each value between is an array in the pool"
        };
        changes.set("JAX_DISABLE_JIT", (!on).to_string(), reason);
    }
}

/// Makes a GPU that cannot be had an error, by both variables of [`GPU_REQUIRED`]. What prefers the GPU
/// already stays as it is.
fn require_gpu(changes: &mut Changes<'_>) {
    let held = changes.held(PLATFORMS).unwrap_or_default();
    if held.split(',').next().unwrap_or_default().trim() == "rocm" {
        return;
    }
    for (name, value) in GPU_REQUIRED {
        let held = changes.held(name).unwrap_or_default();
        let held = match name {
            PLATFORM_NAME => held.to_lowercase(),
            _ => held,
        };
        if prefers_gpu(&held) {
            continue;
        }
        let reason = match name {
            PLATFORM_NAME => format!(
                "where no device file is visible, JAX skips `cuda` in `{PLATFORMS}` without a word; \
                 this older name makes that an error, too"
            ),
            _ => "a GPU that cannot be had is an error, and not a reason to go on with the CPU"
                .to_owned(),
        };
        changes.set(name, value, reason);
    }
}

fn remat(on: bool, flags: &mut Flags, changes: &mut Changes<'_>) {
    let disabled = flags.value(DISABLED_PASSES).unwrap_or_default();
    let is_disabled = disabled.split(',').any(|pass| pass.trim() == REMAT_PASS);
    let has_variable = changes.is_since(REMAT_VARIABLE);
    if on {
        if has_variable || changes.held(REMAT).is_some() {
            changes.set(
                REMAT,
                "true",
                "XLA may compute values again when a program does not fit",
            );
        }
        if is_disabled {
            changes.note(format!(
                "`{FLAGS}` disables `{REMAT_PASS}`, and that stays: XLA will not rematerialise"
            ));
        }
        return;
    }
    let reason = "XLA keeps values instead of computing them again, even if they do not fit";
    let drops_others = changes.version.is_none_or(|is| is <= REMAT_DROPS_OTHERS);
    if has_variable && (disabled.is_empty() || is_disabled || !drops_others) {
        changes.set(REMAT, "false", reason);
        if is_disabled && drops_others && disabled.contains(',') {
            changes.note(format!(
                "up to JAX {REMAT_DROPS_OTHERS} `{REMAT}` drops the other passes that `{FLAGS}` \
                 disables"
            ));
        }
        return;
    }
    if !is_disabled {
        let list = if disabled.is_empty() {
            REMAT_PASS.to_owned()
        } else {
            format!("{disabled},{REMAT_PASS}")
        };
        flags.add(DISABLED_PASSES, &list, reason, changes);
    }
    if has_variable && changes.held(REMAT).is_some() {
        let reason = format!(
            "`{FLAGS}` says it; off here, JAX drops the other disabled passes up to \
             {REMAT_DROPS_OTHERS}"
        );
        changes.set(REMAT, "true", reason);
    }
}

fn host_devices(count: u32, flags: &mut Flags, changes: &mut Changes<'_>) {
    let wanted = count.to_string();
    match flags.value(HOST_DEVICES) {
        Some(held) if held == wanted => {}
        Some(held) => changes.note(format!(
            "`{FLAGS}` sets `--{HOST_DEVICES}={held}` already, and that stays"
        )),
        None => {
            let devices = if count == 1 { "device" } else { "devices" };
            let reason = format!("{count} CPU {devices}; nothing on a GPU changes");
            flags.add(HOST_DEVICES, &wanted, &reason, changes);
        }
    }
}

/// The flags of `XLA_FLAGS`, to which some may be added.
struct Flags {
    text: String,
    reasons: Vec<String>,
}

impl Flags {
    fn new(changes: &Changes<'_>) -> Flags {
        Flags {
            text: changes.held(FLAGS).unwrap_or_default(),
            reasons: Vec::new(),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        let flags = XlaFlags::parse(&self.text);
        flags.value(name).map(str::to_owned)
    }

    fn add(&mut self, name: &str, value: &str, reason: &str, changes: &mut Changes<'_>) {
        let flag = format!("--{name}={value}");
        match with_flag(&self.text, &flag) {
            Some(text) => {
                self.text = text;
                self.reasons.push(reason.to_owned());
            }
            None => changes.note(format!(
                "`{FLAGS}` names a file, so `{flag}` is not added: write it into that file"
            )),
        }
    }

    fn set(self, changes: &mut Changes<'_>) {
        if self.reasons.is_empty() {
            return;
        }
        // Nothing is lost by it, so the old value is not told.
        changes.result.set.push(super::Assignment {
            name: FLAGS,
            value: self.text,
            reason: self.reasons.join("; "),
        });
    }
}
