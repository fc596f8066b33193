//! What concerns the program and not the pool: platforms, rematerialization, types, compilation, CPU
//! devices.

use super::super::flags::{XlaFlags, with_flag};
use super::super::options::Assignment;
use super::super::platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, prefers_gpu};
use super::super::version::Version;
use super::Resolver;

const REMAT: &str = "JAX_COMPILER_ENABLE_REMAT_PASS";
const FLAGS: &str = "XLA_FLAGS";
const DISABLED_PASSES: &str = "xla_disable_hlo_passes";
const REMAT_PASS: &str = "rematerialization";
const LATENCY_HIDING: &str = "xla_gpu_enable_latency_hiding_scheduler";
const HOST_DEVICES: &str = "xla_force_host_platform_device_count";

/// The first release with a variable for rematerialization.
const REMAT_VARIABLE: Version = Version::new(0, 4, 34);

/// The last release in which that variable, switched off, drops the other passes that the user has
/// disabled (jax-ml/jax#37391).
const REMAT_DROPS_OTHERS: Version = Version::new(0, 11, 0);

pub(super) fn apply(resolver: &mut Resolver<'_>) {
    let options = resolver.options;
    if options.require_gpu == Some(true) {
        require_gpu(resolver);
    }
    // Additions to XLA_FLAGS are collected, so that the variable is set once.
    let mut flags = FlagEdits::new(resolver);
    if let Some(on) = options.remat {
        set_remat(on, &mut flags, resolver);
    }
    if let Some(on) = options.latency_hiding {
        let reason = match on {
            true => "transfers and computation overlap, at the cost of memory",
            false => {
                "operations are ordered for low memory, not to overlap transfers and computation"
            }
        };
        if flags.value(LATENCY_HIDING) != Some(on.to_string()) {
            flags.add(LATENCY_HIDING, &on.to_string(), reason, resolver);
        }
    }
    if let Some(count) = options.host_devices {
        set_host_devices(count, &mut flags, resolver);
    }
    flags.write(resolver);
    if let Some(on) = options.x64 {
        let reason = if on {
            "64-bit types are enabled; arrays without an explicit type are twice as large"
        } else {
            "64-bit types are disabled"
        };
        resolver.set("JAX_ENABLE_X64", on.to_string(), reason);
    }
    if let Some(on) = options.jit {
        let reason = if on {
            "jitted functions are compiled"
        } else {
            "jitted functions run operation by operation; every intermediate value is an array in the pool"
        };
        resolver.set("JAX_DISABLE_JIT", (!on).to_string(), reason);
    }
}

/// Sets both variables of [`GPU_REQUIRED`], so that JAX fails if no GPU is available. A value that
/// prefers the GPU already stays as it is.
fn require_gpu(resolver: &mut Resolver<'_>) {
    let platforms = resolver.non_empty_var(PLATFORMS).unwrap_or_default();
    if platforms.split(',').next().unwrap_or_default().trim() == "rocm" {
        return;
    }
    for (name, value) in GPU_REQUIRED {
        let current = resolver.non_empty_var(name).unwrap_or_default();
        let current = match name {
            PLATFORM_NAME => current.to_lowercase(),
            _ => current,
        };
        if prefers_gpu(&current) {
            continue;
        }
        let reason = match name {
            PLATFORM_NAME => format!(
                "where no device file is visible, JAX silently skips `cuda` in `{PLATFORMS}`; with \
                 this older variable it fails instead"
            ),
            _ => "JAX fails if no GPU is available, instead of falling back to the CPU".to_owned(),
        };
        resolver.set(name, value, reason);
    }
}

fn set_remat(on: bool, flags: &mut FlagEdits, resolver: &mut Resolver<'_>) {
    let disabled = flags.value(DISABLED_PASSES).unwrap_or_default();
    let is_disabled = disabled.split(',').any(|pass| pass.trim() == REMAT_PASS);
    let has_variable = resolver.is_at_least(REMAT_VARIABLE);
    if on {
        if has_variable || resolver.non_empty_var(REMAT).is_some() {
            resolver.set(REMAT, "true", "XLA may rematerialize values when a program does not fit");
        }
        if is_disabled {
            resolver.note(format!(
                "`{FLAGS}` disables `{REMAT_PASS}`, and stays as it is: XLA will not rematerialize"
            ));
        }
        return;
    }
    let reason = "XLA does not rematerialize values, even if they do not fit";
    let drops_others = resolver.target.jax.is_none_or(|is| is <= REMAT_DROPS_OTHERS);
    if has_variable && (disabled.is_empty() || is_disabled || !drops_others) {
        resolver.set(REMAT, "false", reason);
        if is_disabled && drops_others && disabled.contains(',') {
            resolver.note(format!(
                "up to JAX {REMAT_DROPS_OTHERS}, `{REMAT}` enables the other passes that `{FLAGS}` \
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
        flags.add(DISABLED_PASSES, &list, reason, resolver);
    }
    if has_variable && resolver.non_empty_var(REMAT).is_some() {
        let reason = format!(
            "`{FLAGS}` disables it; `false` here enables the other disabled passes up to JAX \
             {REMAT_DROPS_OTHERS}"
        );
        resolver.set(REMAT, "true", reason);
    }
}

fn set_host_devices(count: u32, flags: &mut FlagEdits, resolver: &mut Resolver<'_>) {
    let wanted = count.to_string();
    match flags.value(HOST_DEVICES) {
        Some(current) if current == wanted => {}
        Some(current) => resolver.note(format!(
            "`{FLAGS}` sets `--{HOST_DEVICES}={current}` already, and stays as it is"
        )),
        None => {
            let devices = if count == 1 { "device" } else { "devices" };
            let reason = format!("{count} CPU {devices}; does not affect GPUs");
            flags.add(HOST_DEVICES, &wanted, &reason, resolver);
        }
    }
}

/// `XLA_FLAGS`, and flags that are added to it.
struct FlagEdits {
    text: String,
    reasons: Vec<String>,
}

impl FlagEdits {
    fn new(resolver: &Resolver<'_>) -> FlagEdits {
        FlagEdits { text: resolver.non_empty_var(FLAGS).unwrap_or_default(), reasons: Vec::new() }
    }

    fn value(&self, name: &str) -> Option<String> {
        let flags = XlaFlags::parse(&self.text);
        flags.value(name).map(str::to_owned)
    }

    fn add(&mut self, name: &str, value: &str, reason: &str, resolver: &mut Resolver<'_>) {
        let flag = format!("--{name}={value}");
        match with_flag(&self.text, &flag) {
            Some(text) => {
                self.text = text;
                self.reasons.push(reason.to_owned());
            }
            None => resolver.note(format!(
                "`{FLAGS}` names a file, so `{flag}` is not added: add it to that file"
            )),
        }
    }

    fn write(self, resolver: &mut Resolver<'_>) {
        if self.reasons.is_empty() {
            return;
        }
        // All of the old value is kept, so no note shows it.
        resolver.result.set.push(Assignment {
            name: FLAGS,
            value: self.text,
            reason: self.reasons.join("; "),
        });
    }
}
