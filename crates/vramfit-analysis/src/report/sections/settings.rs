//! The settings of a run: what was set, what takes effect, and what is wrong with it.

use std::collections::BTreeMap;

use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::host::Host;
use crate::lint::{self, Finding, LintInput};
use crate::report::Section;
use crate::settings;
use crate::trace::RunEnvironment;

/// A variable that was set for the run, and its effect.
pub(in crate::report) struct Variable<'a> {
    pub(in crate::report) name: &'a str,
    pub(in crate::report) value: &'a str,
    /// Set by vramfit, and not by the user's environment or program.
    pub(in crate::report) set_by_vramfit: bool,
    /// In one clause.
    pub(in crate::report) effect: String,
}

/// Returns the variables of the run by name.
pub(in crate::report) fn variables(summary: &RunSummary) -> Vec<Variable<'_>> {
    let Some(environment) = &summary.environment else {
        return Vec::new();
    };
    let findings = findings(summary);
    let all = environment.variables.iter();
    all.map(|(name, value)| Variable {
        name,
        value,
        set_by_vramfit: environment.set_by_vramfit.contains(name),
        effect: effect_and_findings(summary, &findings, name),
    })
    .collect()
}

/// Returns what the lint finds in the settings of the run.
pub(in crate::report) fn findings(summary: &RunSummary) -> Vec<Finding> {
    let environment = summary.environment.as_ref();
    environment.map_or_else(Vec::new, |environment| lint::lint(&lint_input(summary, environment)))
}

fn lint_input(summary: &RunSummary, environment: &RunEnvironment) -> LintInput {
    let header = &summary.header;
    let total_bytes = header.total_memory_bytes();
    let name = &header.gpu().description;
    let machine = Host::with_virtual_gpus(name, header.devices, total_bytes, 0);
    LintInput {
        environment: user_variables(environment),
        jax: header.jax.parse().ok(),
        host: machine,
        late: environment.late.clone(),
        ..LintInput::default()
    }
}

/// Returns the variables without those that vramfit set: on a GPU they would not be there.
fn user_variables(environment: &RunEnvironment) -> BTreeMap<String, String> {
    let mut variables = environment.variables.clone();
    variables.retain(|name, _| !environment.set_by_vramfit.contains(name));
    variables
}

/// One point for each variable, and for findings about anything else.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let mut variables = variables(summary);
    variables.retain(|variable| !variable.set_by_vramfit);
    // What is about no variable of the list: set too late, or about the GPU.
    let findings = findings(summary).into_iter().filter(|finding| {
        let is_listed = variables.iter().any(|it| it.name == finding.subject);
        finding.id == SET_TOO_LATE || !is_listed
    });
    let listed = variables.iter().map(|it| format!("`{}={}`: {}", it.name, it.value, it.effect));
    let points = listed.chain(findings.map(|finding| describe(&finding)));
    Section::list("settings of this run", points.collect())
}

/// What the program set too late: the only findings that were not shown before it was started.
pub(in crate::report) fn late_section(summary: &RunSummary) -> Option<Section> {
    let late = findings(summary).into_iter();
    let late = late.filter(|finding| finding.id == SET_TOO_LATE);
    let points = late.map(|finding| describe(&finding)).collect();
    Section::list("settings that had no effect", points)
}

/// It is about when a variable was set, and not about its value.
const SET_TOO_LATE: &str = "set-too-late";

fn describe(finding: &Finding) -> String {
    let (severity, id) = (finding.severity.label(), finding.id);
    format!("{severity} ({id}): {}; {}", finding.message, finding.fix)
}

/// Returns the effect of a variable, and what is wrong with it.
fn effect_and_findings(summary: &RunSummary, findings: &[Finding], name: &str) -> String {
    let about = findings.iter().filter(|finding| finding.subject == name);
    let wrong = about.clone().filter(|finding| finding.id != SET_TOO_LATE);
    let is_unread = settings::find(name).is_some_and(|setting| {
        let version = summary.header.jax.parse();
        version.is_ok_and(|version| !setting.is_read_by(version))
    });
    let is_ignored = about.clone().any(|finding| finding.id == "ignored-by-allocator");
    let effect =
        if is_unread || is_ignored { "no effect".to_owned() } else { effect(summary, name) };
    let clauses = std::iter::once(effect).chain(wrong.map(describe));
    clauses.collect::<Vec<_>>().join(". ")
}

/// Returns the effect of a variable that JAX reads.
fn effect(summary: &RunSummary, name: &str) -> String {
    let header = &summary.header;
    match name {
        "XLA_CLIENT_MEM_FRACTION" | "XLA_PYTHON_CLIENT_MEM_FRACTION" => {
            let total = Bytes(header.total_memory_bytes());
            match summary.devices.first().and_then(|device| device.limit_bytes) {
                Some(limit) => format!("the pool may use {} of {total}", Bytes(limit)),
                None => format!("no effect: `{}` has no pool", header.allocator),
            }
        }
        "XLA_PYTHON_CLIENT_PREALLOCATE" if header.preallocate => {
            "the pool is reserved at the first operation".to_owned()
        }
        "XLA_PYTHON_CLIENT_PREALLOCATE" => "the pool grows as needed".to_owned(),
        "XLA_PYTHON_CLIENT_ALLOCATOR" => match header.allocator.as_str() {
            "platform" | "address" => {
                "every buffer is allocated by the driver, without a pool and without a limit"
                    .to_owned()
            }
            "cuda_async" => "CUDA's memory pool; its limit is what it keeps for reuse".to_owned(),
            other => format!("JAX's pool, `{other}`"),
        },
        "XLA_FLAGS" => "read by XLA's compiler and runtime".to_owned(),
        _ => match settings::find(name) {
            Some(setting) => first_sentence(&setting.effect),
            None if name.starts_with("JAX_") => "read by JAX".to_owned(),
            None => "read by a library that JAX uses".to_owned(),
        },
    }
}

/// Returns the first sentence of a text, as a clause.
fn first_sentence(text: &str) -> String {
    let end = text.find(". ").unwrap_or(text.len());
    let mut letters = text[..end].trim_end_matches('.').chars();
    let first = letters.next().map(|letter| letter.to_lowercase());
    first.into_iter().flatten().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_is_a_clause() {
        assert_eq!(
            first_sentence("Whether 64-bit types exist. On, it costs."),
            "whether 64-bit types exist"
        );
        assert_eq!(first_sentence("A path."), "a path");
        assert_eq!(first_sentence(""), "");
    }
}
