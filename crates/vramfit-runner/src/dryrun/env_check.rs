//! Checks the program's environment before it starts, by the rules that `run` and `doctor` use.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use vramfit_advice::lint::{Finding, LintInput, Severity, lint};
use vramfit_analysis::report::render_findings;
use vramfit_base::{Error, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::host::Host;
use vramfit_model::settings::Version;

use super::env::EnvDelta;
use super::spec::DryrunSpec;
use crate::messages::Messages;

/// The file in the folder of the run with the environment that JAX read, if it rejected its settings.
const REJECTED: &str = "settings.json";

/// Reports what is wrong with the environment that the program gets, and rejects what leaves it without a
/// GPU.
///
/// # Errors
/// `invalid-argument` for a setting with which the program would fall back to the CPU, crash, or get a
/// pool that cannot be intended.
pub(super) fn check(
    spec: &DryrunSpec,
    delta: &EnvDelta,
    jax: Option<Version>,
    is_vramfit: bool,
    messages: &dyn Messages,
) -> Result<()> {
    let environment = delta.applied_to(spec.unicode_variables());
    let mut findings = lint_environment(environment, &spec.run.gpus, jax);
    let fatal = findings
        .iter()
        .position(|finding| finding.prevents_gpu_use() && !is_vramfit)
        .map(|index| findings.remove(index));
    findings.retain(|finding| finding.severity != Severity::Note || is_about_gpu(finding));
    if spec.settings.report_findings && !findings.is_empty() {
        messages.info(&render_findings(&findings));
    }
    fatal.map_or(Ok(()), |finding| Err(finding_error(&finding)))
}

/// Applies the rules to an environment, on GPUs that the program has to itself.
fn lint_environment(
    environment: BTreeMap<String, String>,
    gpus: &GpuSelection,
    jax: Option<Version>,
) -> Vec<Finding> {
    lint(&LintInput {
        environment,
        jax,
        host: Host::with_idle_gpus(&gpus.gpu, gpus.count),
        ..LintInput::default()
    })
}

/// Returns `true` if a note concerns the GPU. A name that is unknown here may be one of the program's own.
fn is_about_gpu(finding: &Finding) -> bool {
    finding.id != "unknown-name"
}

fn finding_error(finding: &Finding) -> Error {
    let Finding { subject, message, .. } = finding;
    let message = if message.contains(subject.as_str()) {
        message.clone()
    } else {
        format!("`{subject}`: {message}")
    };
    Error::invalid_argument(message)
        .hint(format!("{} (rule `{}`, docs/reference/lint-rules.md)", finding.fix, finding.id))
}

/// Returns the reason why JAX has no GPU, where it rejected its settings.
pub(super) fn rejected(folder: &Path, gpus: &GpuSelection, jax: Option<Version>) -> Option<Error> {
    let text = std::fs::read_to_string(folder.join(REJECTED)).ok()?;
    let environment = serde_json::from_str(&text).ok()?;
    let findings = lint_environment(environment, gpus, jax);
    let finding = findings.iter().find(|finding| finding.prevents_gpu_use())?;
    Some(finding_error(finding))
}

/// Returns `true` if a command is vramfit itself, which corrects settings before it starts a program.
pub(super) fn is_vramfit(program: &Path, arguments: &[OsString]) -> bool {
    let is_module = arguments.windows(2).any(|pair| pair[0] == "-m" && pair[1] == "vramfit");
    program.file_name() == Some(OsStr::new("vramfit")) || is_module
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_base::ErrorKind;

    fn found(variables: &[(&str, &str)]) -> Vec<Finding> {
        let environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let gpus = "t4".parse().expect("in the catalog");
        lint_environment(environment.collect(), &gpus, Some(Version::new(0, 10, 2)))
    }

    #[test]
    fn a_fraction_that_cannot_be_intended_is_rejected() {
        for value in ["100", ".XX", "75%", "0", "-1"] {
            let found = found(&[("XLA_PYTHON_CLIENT_MEM_FRACTION", value)]);
            let fatal = found.iter().find(|finding| finding.prevents_gpu_use());
            let error = finding_error(fatal.expect("it leaves no GPU"));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{value}");
            assert!(error.message().contains("MEM_FRACTION"), "{error}");
            assert!(error.hint_text().is_some());
        }
    }

    #[test]
    fn what_only_has_another_effect_than_intended_is_no_error() {
        let found =
            found(&[("XLA_PYTHON_CLIENT_PREALLOCATE", "no"), ("XLA_CLIENT_MEM_FRACTION", "0.99")]);
        let ids: Vec<_> = found.iter().map(|finding| finding.id).collect();
        assert_eq!(ids, ["preallocate-not-a-boolean", "insufficient-headroom"]);
        assert!(!found.iter().any(Finding::prevents_gpu_use));
    }

    #[test]
    fn vramfit_itself_is_recognized_by_its_name() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_vramfit(Path::new("/bin/vramfit"), &[]));
        assert!(is_vramfit(Path::new("python"), &words("-m vramfit run -- x")));
        assert!(!is_vramfit(Path::new("python"), &words("-m train")));
    }
}
