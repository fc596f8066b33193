//! The settings of a run: what was set, what takes effect, and what is wrong with it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Body, Section, dryrun};
use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::host::{GpuMemory, Host, HostGpu};
use crate::lint::{self, Finding, Surroundings};
use crate::trace::RunEnvironment;
use crate::{gpu, settings};

/// A variable that was set for the run, and what it comes to.
#[derive(Debug, Serialize)]
pub(super) struct Variable<'a> {
    name: &'a str,
    value: &'a str,
    /// Whether the command set it, and not the user's environment or program.
    own: bool,
    /// What takes effect of it, in one clause.
    effect: String,
}

/// Returns the variables of the run by name, with what each comes to.
pub(super) fn variables(answer: &RunSummary) -> Vec<Variable<'_>> {
    let Some(environment) = &answer.environment else {
        return Vec::new();
    };
    let found = findings(answer);
    let all = environment.variables.iter();
    all.map(|(name, value)| Variable {
        name,
        value,
        own: environment.own.contains(name),
        effect: effect(answer, &found, name),
    })
    .collect()
}

/// Returns what the rules about settings find in those of the run.
pub(super) fn findings(answer: &RunSummary) -> Vec<Finding> {
    let environment = answer.environment.as_ref();
    environment.map_or_else(Vec::new, |environment| {
        lint::lint(&surroundings(answer, environment))
    })
}

fn surroundings(answer: &RunSummary, environment: &RunEnvironment) -> Surroundings {
    let header = &answer.header;
    let machine = match gpu::find(&header.gpu) {
        // A catalogue that has changed since must not change what is told of the run.
        Ok(gpu) if gpu.total_memory_bytes == header.total_memory_bytes => {
            Surroundings::machine_of(&gpu, header.devices)
        }
        _ => Host {
            gpus: (0..header.devices)
                .map(|index| HostGpu {
                    index,
                    name: header.gpu_description.clone(),
                    memory: Some(GpuMemory {
                        total_bytes: header.total_memory_bytes,
                        reserved_bytes: Some(0),
                        used_bytes: 0,
                        free_bytes: header.total_memory_bytes,
                    }),
                    ..HostGpu::default()
                })
                .collect(),
            ..Host::default()
        },
    };
    Surroundings {
        environment: users(environment),
        jax: header.jax.parse().ok(),
        machine,
        late: environment.late.clone(),
        ..Surroundings::default()
    }
}

/// Returns the variables without those that the command set itself: on a card they would not be there.
fn users(environment: &RunEnvironment) -> BTreeMap<String, String> {
    let mut variables = environment.variables.clone();
    variables.retain(|name, _| !environment.own.contains(name));
    variables
}

/// Tells the settings; `None` where nothing was set, or the trace does not tell.
pub(super) fn section(answer: &RunSummary) -> Option<Section> {
    let found = findings(answer);
    let variables = variables(answer);
    let mut lines: Vec<String> = variables
        .iter()
        .filter(|variable| !variable.own)
        .map(|variable| {
            format!(
                "`{}={}`: {}",
                variable.name, variable.value, variable.effect
            )
        })
        .collect();
    // What is about no variable of the list: set too late, or about the card.
    let is_told = |finding: &Finding| {
        finding.id != "set-too-late"
            && variables
                .iter()
                .any(|variable| !variable.own && variable.name == finding.subject)
    };
    lines.extend(found.iter().filter(|finding| !is_told(finding)).map(told));
    (!lines.is_empty()).then(|| dryrun::section("settings of this run", Body::Text(lines)))
}

fn told(finding: &Finding) -> String {
    let (severity, id) = (finding.severity.word(), finding.id);
    format!("{severity} ({id}): {}; {}", finding.message, finding.fix)
}

/// Says what a variable comes to: what is wrong with it, or else what it does.
fn effect(answer: &RunSummary, found: &[Finding], name: &str) -> String {
    let about = found
        .iter()
        .filter(|finding| finding.subject == name && finding.id != "set-too-late");
    let wrong: Vec<String> = about.map(told).collect();
    let nothing = settings::lookup(name).is_some_and(|setting| {
        let version = answer.header.jax.parse();
        version.is_ok_and(|version| !setting.is_read_by(version))
    });
    let is_voided = found
        .iter()
        .any(|finding| finding.subject == name && finding.id == "ignored-by-allocator");
    let works = if nothing || is_voided {
        "no effect".to_owned()
    } else {
        works(answer, name)
    };
    match wrong.is_empty() {
        true => works,
        false => format!("{works}. {}", wrong.join(". ")),
    }
}

/// Says what a variable does that is read.
fn works(answer: &RunSummary, name: &str) -> String {
    let header = &answer.header;
    match name {
        "XLA_CLIENT_MEM_FRACTION" | "XLA_PYTHON_CLIENT_MEM_FRACTION" => {
            let total = Bytes(header.total_memory_bytes);
            let limit = answer.devices.first().and_then(|device| device.limit_bytes);
            match limit {
                Some(limit) => format!("the pool may take {} of {total}", Bytes(limit)),
                None => format!("no effect: `{}` has no pool", header.allocator),
            }
        }
        "XLA_PYTHON_CLIENT_PREALLOCATE" => match header.preallocate {
            true => "the pool is taken at the first operation".to_owned(),
            false => "the pool grows as needed".to_owned(),
        },
        "XLA_PYTHON_CLIENT_ALLOCATOR" => match header.allocator.as_str() {
            "platform" | "address" => {
                "every buffer is asked of the driver, without a pool and without a limit".to_owned()
            }
            "cuda_async" => "CUDA's own pool; its limit is what it keeps".to_owned(),
            other => format!("JAX's pool, `{other}`"),
        },
        "XLA_FLAGS" => "read by XLA's compiler and runtime".to_owned(),
        _ => match settings::lookup(name) {
            Some(setting) => first_sentence(&setting.effect),
            None if name.starts_with("JAX_") => "read by JAX".to_owned(),
            None => "read by a neighbour of JAX".to_owned(),
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
