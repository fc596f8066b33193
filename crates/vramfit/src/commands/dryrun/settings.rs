//! The settings of the run, judged before the program starts by the rules that `run` and `doctor` use.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use vramfit_core::lint::{Finding, Severity, Surroundings, lint};
use vramfit_core::report::render_findings;
use vramfit_core::settings::Version;
use vramfit_core::{Error, ErrorKind, Result};

use super::environment::Changes;
use crate::cards::Cards;
use crate::output::Output;

/// What the compiler's folder holds when JAX has refused its settings: the environment that it read.
pub(super) const REFUSED: &str = "settings.json";

/// Judges the environment that the program gets, tells what is wrong with it, and refuses what leaves it
/// without the card.
///
/// # Errors
/// `invalid-argument` for a setting with which the program would go on with the CPU, die, or get a pool
/// that nobody can have meant.
pub(super) fn check(
    changes: &Changes,
    cards: &Cards,
    jax: Option<Version>,
    is_ours: bool,
    tells: bool,
    output: &mut Output,
) -> Result<()> {
    // Names and values that are not Unicode are no settings of JAX.
    let inherited = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = changes.applied_to(inherited.collect());
    let mut findings = judge(environment, cards, jax);
    let fatal = findings
        .iter()
        .position(|finding| finding.leaves_no_gpu() && !is_ours);
    let fatal = fatal.map(|at| findings.remove(at));
    findings.retain(|finding| finding.severity != Severity::Note || is_about_a_gpu(finding));
    if tells && !findings.is_empty() {
        output.say(&render_findings(&findings));
    }
    fatal.map_or(Ok(()), |finding| Err(refusal(&finding)))
}

/// Applies the rules to an environment, on cards of which the program has all.
fn judge(
    environment: BTreeMap<String, String>,
    cards: &Cards,
    jax: Option<Version>,
) -> Vec<Finding> {
    lint(&Surroundings {
        environment,
        jax,
        machine: Surroundings::machine_of(&cards.gpu, cards.count),
        ..Surroundings::default()
    })
}

/// Says whether a note is about what somebody takes for a setting of the GPU's memory; names that only
/// their own program may know are left to it.
fn is_about_a_gpu(finding: &Finding) -> bool {
    finding.id != "unknown-name"
}

fn refusal(finding: &Finding) -> Error {
    let Finding {
        subject, message, ..
    } = finding;
    let sentence = match message.contains(subject.as_str()) {
        true => message.clone(),
        false => format!("`{subject}`: {message}"),
    };
    Error::new(ErrorKind::InvalidArgument, sentence).hint(format!(
        "{} (rule `{}`, docs/reference/lint-rules.md)",
        finding.fix, finding.id
    ))
}

/// Returns the reason why JAX has no GPU, where its settings are the reason: what it refused is kept in
/// the folder.
pub(super) fn refused(folder: &Path, cards: &Cards, jax: Option<Version>) -> Option<Error> {
    let text = std::fs::read_to_string(folder.join(REFUSED)).ok()?;
    let environment = serde_json::from_str(&text).ok()?;
    let findings = judge(environment, cards, jax);
    let finding = findings.iter().find(|finding| finding.leaves_no_gpu())?;
    Some(refusal(finding))
}

/// Says whether a command is vramfit itself, which puts settings right before it starts a program.
pub(super) fn is_vramfit(program: &Path, arguments: &[OsString]) -> bool {
    let is_module = arguments
        .windows(2)
        .any(|pair| pair[0] == "-m" && pair[1] == "vramfit");
    program.file_name() == Some(OsStr::new("vramfit")) || is_module
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::cards;

    fn found(variables: &[(&str, &str)]) -> Vec<Finding> {
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let cards = cards("t4").expect("in the catalogue");
        judge(environment.collect(), &cards, Some(Version::new(0, 10, 2)))
    }

    #[test]
    fn a_fraction_that_nobody_can_mean_is_refused() {
        for value in ["100", ".XX", "75%", "0", "-1"] {
            let found = found(&[("XLA_PYTHON_CLIENT_MEM_FRACTION", value)]);
            let fatal = found.iter().find(|finding| finding.leaves_no_gpu());
            let error = refusal(fatal.expect("it leaves no GPU"));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{value}");
            assert!(error.message().contains("MEM_FRACTION"), "{error}");
            assert!(error.hint_text().is_some());
        }
    }

    #[test]
    fn what_only_differs_from_what_is_meant_is_told_and_run() {
        let found = found(&[
            ("XLA_PYTHON_CLIENT_PREALLOCATE", "no"),
            ("XLA_CLIENT_MEM_FRACTION", "0.99"),
        ]);
        let ids: Vec<_> = found.iter().map(|finding| finding.id).collect();
        assert_eq!(ids, ["preallocate-not-a-boolean", "too-little-left"]);
        assert!(!found.iter().any(Finding::leaves_no_gpu));
    }

    #[test]
    fn vramfit_itself_is_told_by_its_name() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_vramfit(Path::new("/bin/vramfit"), &[]));
        assert!(is_vramfit(
            Path::new("python"),
            &words("-m vramfit run -- x")
        ));
        assert!(!is_vramfit(Path::new("python"), &words("-m train")));
    }
}
