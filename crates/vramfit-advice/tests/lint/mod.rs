//! The lint against settings seen in the wild, against sound ones, rule by rule, and against anything
//! at all.

mod laws;
mod registry;
mod rules;
mod sound;
mod wild;

use std::collections::BTreeMap;

use vramfit_advice::lint::{Finding, LintInput, autofix, lint};
use vramfit_model::host::{GpuMemory, Host, HostGpu};
use vramfit_model::settings::Version;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const NEW: &str = "XLA_CLIENT_MEM_FRACTION";
pub(crate) const OLD: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
pub(crate) const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
pub(crate) const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
pub(crate) const UNIFIED: &str = "TF_FORCE_UNIFIED_MEMORY";

pub(crate) fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn with(variables: &[(&str, &str)]) -> LintInput {
    LintInput {
        environment: environment(variables),
        jax: Some(Version::new(0, 10, 2)),
        ..LintInput::default()
    }
}

pub(crate) fn on(gpu: HostGpu, variables: &[(&str, &str)]) -> LintInput {
    LintInput { host: Host { gpus: vec![gpu], ..Host::default() }, ..with(variables) }
}

pub(crate) fn h100() -> HostGpu {
    gpu("NVIDIA H100 80GB HBM3", 84_942_979_072)
}

pub(crate) fn gpu(name: &str, total_bytes: u64) -> HostGpu {
    HostGpu {
        uuid: "GPU-5a1f".to_owned(),
        name: name.to_owned(),
        memory: Some(GpuMemory { total_bytes, free_bytes: total_bytes, ..GpuMemory::default() }),
        ..HostGpu::default()
    }
}

pub(crate) fn ids(input: &LintInput) -> Vec<&'static str> {
    lint(input).iter().map(|found| found.id).collect()
}

pub(crate) fn only(input: &LintInput) -> Finding {
    let mut findings = lint(input);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

pub(crate) fn fixed(input: &LintInput, name: &str) -> Option<String> {
    autofix(input).remove(name)
}
