//! How JAX interprets the input: queries that several rules share.

use super::input::{LintInput, Packages};
use crate::allocator::AllocatorKind;
use crate::host::HostGpu;
pub(super) use crate::settings::{
    ALLOCATOR, FRACTION, OLD_FRACTION, PREALLOCATE, UNIFIED_MEMORY as UNIFIED,
};
use crate::settings::{
    DEFAULT_FRACTION, GpuMemoryBudget, PluginSettings, Version, allocator_since, find,
    turns_preallocation_off,
};

pub(super) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
pub(super) const XLA_FLAGS: &str = "XLA_FLAGS";

/// The release that is assumed if none is known: the latest that was examined.
const LATEST_EXAMINED_JAX: Version = Version::new(0, 12, 0);

/// The input as JAX reads it.
pub(super) struct LintContext<'a> {
    pub(super) input: &'a LintInput,
}

/// The fraction that the environment sets.
pub(super) struct Fraction<'a> {
    pub(super) name: &'static str,
    pub(super) text: &'a str,
    /// `None` if Python cannot parse the text.
    pub(super) value: Option<f64>,
}

impl<'a> LintContext<'a> {
    /// Returns the JAX release, or the latest known.
    pub(super) fn version(&self) -> Version {
        self.input.jax.unwrap_or(LATEST_EXAMINED_JAX)
    }

    /// Returns a variable's value, which may be empty.
    pub(super) fn var(&self, name: &str) -> Option<&'a str> {
        self.input.environment.get(name).map(String::as_str)
    }

    /// Returns a variable's value unless it is empty, which most readers treat as unset.
    pub(super) fn non_empty_var(&self, name: &str) -> Option<&'a str> {
        self.var(name).filter(|value| !value.is_empty())
    }

    /// Returns the name under which this release reads the fraction.
    pub(super) fn fraction_name(&self) -> &'static str {
        let new = find(FRACTION).is_some_and(|setting| setting.is_read_by(self.version()));
        if new { FRACTION } else { OLD_FRACTION }
    }

    /// Returns the fraction that the environment sets; the newer name if both are set, which JAX rejects.
    pub(super) fn fraction(&self) -> Option<Fraction<'a>> {
        [self.fraction_name(), OLD_FRACTION].into_iter().find_map(|name| {
            let text = self.non_empty_var(name)?;
            Some(Fraction { name, text, value: python_float(text) })
        })
    }

    /// Returns the fraction of JAX's pool, if it is a valid one.
    pub(super) fn fraction_value(&self) -> Option<f64> {
        match self.fraction() {
            None => Some(DEFAULT_FRACTION),
            Some(fraction) => fraction.value.filter(|part| part.is_finite() && *part > 0.0),
        }
    }

    /// Returns the allocator; `None` if JAX would reject the name.
    pub(super) fn allocator(&self) -> Option<AllocatorKind> {
        self.var(ALLOCATOR).map_or(Some(AllocatorKind::Bfc), |word| {
            word.parse().ok().filter(|kind| allocator_since(*kind) <= self.version())
        })
    }

    /// Returns whether the pool is preallocated.
    pub(super) fn preallocates(&self) -> bool {
        matches!(self.allocator(), Some(AllocatorKind::Bfc | AllocatorKind::CudaAsync))
            && !self.var(PREALLOCATE).is_some_and(turns_preallocation_off)
    }

    /// Returns whether the pool uses managed memory, which may lie in host RAM.
    pub(super) fn unified(&self) -> bool {
        let only_unified = |name: &str| (name == UNIFIED).then(|| self.var(UNIFIED)).flatten();
        PluginSettings::read(|name| only_unified(name).map(str::to_owned))
            .is_ok_and(|plugin| plugin.unified_memory)
    }

    /// Returns whether JAX may use a GPU at all.
    pub(super) fn may_use_gpu(&self) -> bool {
        self.non_empty_var("JAX_PLATFORMS")
            .is_none_or(|list| list.split(',').any(|name| matches!(name.trim(), "cuda" | "gpu")))
    }

    /// Returns the GPUs that programs can use, in the driver's order.
    pub(super) fn usable_gpus(&self) -> Vec<&'a HostGpu> {
        let gpus = self.input.host.gpus.iter();
        gpus.filter(|gpu| gpu.is_usable()).collect()
    }

    /// Returns the GPUs that the program sees, in the driver's order. Without a list it sees all but
    /// those partitioned by MIG; a list ends at the first invalid entry.
    pub(super) fn gpus(&self) -> Vec<&'a HostGpu> {
        let usable = self.usable_gpus();
        match self.var(VISIBLE) {
            None => usable,
            Some(list) => list
                .split(',')
                .map(|word| find_gpu(&usable, word.trim()))
                .take_while(Option::is_some)
                .flatten()
                .collect(),
        }
    }

    /// Returns the memory budget of each GPU that the program sees, if the driver reports it.
    pub(super) fn memory_budgets(&self) -> Vec<(&'a HostGpu, GpuMemoryBudget)> {
        let gpus = self.gpus();
        let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        gpus.into_iter()
            .filter_map(|gpu| Some((gpu, GpuMemoryBudget::from_driver(gpu, count)?)))
            .collect()
    }

    pub(super) fn packages(&self) -> Option<&'a Packages> {
        self.input.packages.as_ref()
    }
}

/// Returns the GPU that an entry of CUDA's list names: an index, or the beginning of a UUID.
pub(super) fn find_gpu<'a>(gpus: &[&'a HostGpu], word: &str) -> Option<&'a HostGpu> {
    match word.parse::<u32>() {
        Ok(number) => gpus.iter().find(|gpu| gpu.index == number).copied(),
        Err(_) if word.starts_with("GPU-") || word.starts_with("MIG-") => {
            gpus.iter().find(|gpu| gpu.uuid.starts_with(word)).copied()
        }
        Err(_) => None,
    }
}

/// Parses a number as Python's `float()` does.
pub(super) fn python_float(text: &str) -> Option<f64> {
    without_underscores(text)?.parse().ok()
}

/// Parses a number as Python's `int()` does; huge ones saturate.
pub(super) fn python_int(text: &str) -> Option<i128> {
    let digits = without_underscores(text)?;
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(i128::MAX))
}

/// Strips white space, and the underscores that Python allows between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let misplaced = |at: usize| {
        let digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        !(digit(at.checked_sub(1)) && digit(Some(at + 1)))
    };
    let mut underscores = text.match_indices('_').map(|(at, _)| at);
    if underscores.any(misplaced) {
        return None;
    }
    Some(text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_python() {
        for (text, value) in [
            ("0.9", Some(0.9)),
            (" .5\n", Some(0.5)),
            ("5.", Some(5.0)),
            ("1_0.5", Some(10.5)),
            ("9e-1", Some(0.9)),
            ("inf", Some(f64::INFINITY)),
            ("+1", Some(1.0)),
            ("75%", None),
            (".XX", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("0x1", None),
            ("", None),
            ("0,9", None),
        ] {
            assert_eq!(python_float(text), value, "{text}");
        }
        for (text, value) in [
            ("007", Some(7)),
            ("-1", Some(-1)),
            (" 1_000 ", Some(1000)),
            ("1.0", None),
            ("true", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(python_int(text), value, "{text}");
        }
        assert_eq!(python_int(&"9".repeat(99)), Some(i128::MAX));
    }
}
