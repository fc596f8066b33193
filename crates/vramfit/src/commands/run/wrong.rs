//! What is wrong with the environment that a program gets, and that we do not put right.

use std::collections::BTreeMap;

use vramfit_core::lint::{Finding, Surroundings, lint};
use vramfit_core::settings::{Assignments, Version};

/// Applies the rules that need no card to the environment as the program will get it.
///
/// Left out is what concerns variables that we set ourselves, and what our own notes told.
pub(super) fn findings(
    environment: impl Iterator<Item = (String, String)>,
    settings: &Assignments,
    jax: Option<Version>,
) -> Vec<Finding> {
    let mut environment: BTreeMap<String, String> = environment
        .filter(|(name, _)| !settings.remove.contains(&name.as_str()))
        .collect();
    let ours = settings.set.iter();
    environment.extend(ours.map(|set| (set.name.to_owned(), set.value.clone())));
    let mut findings = lint(&Surroundings {
        environment,
        jax,
        ..Surroundings::default()
    });
    findings.retain(|finding| {
        let quoted = format!("`{}`", finding.subject);
        settings.value(&finding.subject).is_none()
            && !settings.notes.iter().any(|note| note.contains(&quoted))
    });
    findings
}

#[cfg(test)]
mod tests {
    use vramfit_core::settings::Assignment;

    use super::*;

    fn found(environment: &[(&str, &str)], settings: &Assignments) -> Vec<String> {
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        findings(environment, settings, Some(Version::new(0, 10, 2)))
            .into_iter()
            .map(|finding| finding.subject)
            .collect()
    }

    #[test]
    fn what_is_told_or_mended_is_not_told_again() {
        let misspelt = ("XLA_PYTHON_CLIENT_MEM_FRACTON", "0.5");
        let number = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "95");
        let mut settings = Assignments::default();
        assert_eq!(found(&[misspelt], &settings), [misspelt.0]);
        assert_eq!(found(&[number], &settings), [number.0]);

        settings.notes.push(format!("`{}` is no name", misspelt.0));
        assert!(found(&[misspelt], &settings).is_empty());

        settings.set.push(Assignment {
            name: number.0,
            value: "0.95".to_owned(),
            reason: String::new(),
        });
        assert!(found(&[number], &settings).is_empty());
    }
}
