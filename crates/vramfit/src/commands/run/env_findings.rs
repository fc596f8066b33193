//! What is wrong with the environment that a program gets, and is not corrected.

use std::collections::BTreeSet;

use vramfit_advice::lint::{Finding, LintInput, Severity, lint};
use vramfit_model::host::Host;
use vramfit_model::settings::ResolvedSettings;
use vramfit_runner::python::Installed;

/// Applies the rules to the environment as the program will get it, to the machine, and to what the program's Python
/// has installed.
///
/// Findings about variables that are set for the program, or that a note is about already, are left out, and what is
/// only good to know of a GPU.
pub(super) fn findings(
    environment: impl Iterator<Item = (String, String)>,
    settings: &ResolvedSettings,
    installed: Option<&Installed>,
    host: Host,
) -> Vec<Finding> {
    let environment = settings.apply_to(environment);
    let names: BTreeSet<String> = environment.keys().cloned().collect();
    let mut findings = lint(&LintInput {
        environment,
        jax: installed.and_then(Installed::jax_version),
        host,
        packages: installed.and_then(Installed::packages),
        ..LintInput::default()
    });
    // The notes on a fraction that is set judge the same.
    let is_judged = |id: &str| {
        settings.budget.is_some() && matches!(id, "used-by-others" | "insufficient-headroom")
    };
    findings.retain(|finding| {
        let quoted = format!("`{}`", finding.subject);
        (finding.severity != Severity::Note || names.contains(&finding.subject))
            && !is_judged(finding.id)
            && settings.value(&finding.subject).is_none()
            && !settings.notes.iter().any(|note| note.contains(&quoted))
    });
    findings
}

#[cfg(test)]
mod tests {
    use vramfit_model::settings::Assignment;

    use super::*;

    fn found(environment: &[(&str, &str)], settings: &ResolvedSettings) -> Vec<String> {
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let installed = Installed { jax: Some("0.10.2".to_owned()), ..Installed::default() };
        findings(environment, settings, Some(&installed), Host::default())
            .into_iter()
            .map(|finding| finding.subject)
            .collect()
    }

    #[test]
    fn what_a_note_is_about_or_was_corrected_is_no_finding() {
        let misspelled = ("XLA_PYTHON_CLIENT_MEM_FRACTON", "0.5");
        let number = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "95");
        let mut settings = ResolvedSettings::default();
        assert_eq!(found(&[misspelled], &settings), [misspelled.0]);
        assert_eq!(found(&[number], &settings), [number.0]);

        settings.notes.push(format!("`{}` is not read", misspelled.0));
        assert!(found(&[misspelled], &settings).is_empty());

        settings.set.push(Assignment {
            name: number.0,
            value: "0.95".to_owned(),
            reason: String::new(),
        });
        assert!(found(&[number], &settings).is_empty());
    }
}
