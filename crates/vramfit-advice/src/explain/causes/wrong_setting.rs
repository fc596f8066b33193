use super::{Judgement, is_gpu_memory_failure};
use std::collections::BTreeMap;

use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::Message;
use crate::lint::{Finding, LintInput, Severity, lint};
use crate::settings::Version;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    rejected(facts).or_else(|| misread(facts))
}

/// A setting that JAX, XLA or the plugin says it does not accept.
fn rejected(facts: &Facts<'_>) -> Option<Judgement> {
    let is = |message: &Message| matches!(message, Message::SettingRejected { .. });
    let first = facts.log.first(is)?;
    let fell_back = facts.log.first(|message| *message == Message::CpuFallback);
    let effect = match fell_back {
        Some(_) => "; JAX continued on the CPU",
        None => "",
    };
    let is_named = |message: &Message| *message == Message::SettingRejected { is_named: true };
    let has_other_reason = facts.log.has(|message| {
        matches!(
            message,
            Message::Installation
                | Message::DriverError
                | Message::VersionMismatch
                | Message::PluginMismatch
                | Message::KernelResources
                | Message::DonationError
        ) || is_gpu_memory_failure(message)
    });
    let names_setting = facts.log.has(is_named);
    let confidence = match facts.is_after_failure(first) || (has_other_reason && !names_setting) {
        true => Confidence::Possible,
        false if !names_setting => Confidence::Likely,
        false => Confidence::Sure,
    };
    let evidence = facts.quote_all(facts.log.all(is).chain(fell_back));
    let what = match names_setting {
        true => "JAX, XLA or the plugin rejected a setting",
        false => {
            "JAX could not load its plugin, and the log does not show why: it may have rejected a setting"
        }
    };
    let summary = format!("{what}{effect}");
    Some(Judgement::new(confidence, summary, evidence))
}

/// A setting that the log shows, and that does nothing or something else than meant.
fn misread(facts: &Facts<'_>) -> Option<Judgement> {
    let set: Vec<(&Event, &str, &str)> = facts
        .log
        .messages()
        .filter_map(|(event, message)| match message {
            Message::Setting { name, value } => Some((event, name.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    if set.is_empty() {
        return None;
    }
    let environment: BTreeMap<String, String> =
        set.iter().map(|(_, name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let input = LintInput {
        jax: facts.figures.jax.map(|(major, minor, patch)| Version::new(major, minor, patch)),
        environment,
        ..LintInput::default()
    };
    let findings = lint(&input);
    let of_the_log =
        |finding: &&Finding| set.iter().any(|(_, name, _)| finding.subject.contains(name));
    let finding =
        findings.iter().filter(of_the_log).find(|finding| finding.severity != Severity::Note)?;
    let lines = set.iter().filter(|(_, name, _)| finding.subject.contains(name));
    let evidence = facts.quote_all(lines.map(|(event, _, _)| *event));
    if evidence.is_empty() {
        return None;
    }
    let names_it = finding.message.contains(&finding.subject);
    let subject = if names_it { String::new() } else { format!("`{}`: ", finding.subject) };
    let summary = format!("{subject}{}; {}", finding.message, finding.fix);
    Some(Judgement::possible(summary, evidence))
}
