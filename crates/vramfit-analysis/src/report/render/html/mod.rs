//! One self-contained file: no network, no framework, nothing but this report.
//!
//! The page's content security policy allows its one script, named by digest, and loads nothing. What
//! comes from elsewhere reaches it as text in the data block, or as escaped markup; see `escape.rs`.

mod data;
mod packing;
mod palette;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::escape::{data_block, markup};
use crate::report::{Outcome, Report};

const PAGE: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");
/// The script, in the order in which its parts depend on each other.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("../../assets/data.js"),
    include_str!("../../assets/format.js"),
    include_str!("../../assets/canvas.js"),
    include_str!("../../assets/bar.js"),
    include_str!("../../assets/table.js"),
    include_str!("../../assets/icicle.js"),
    include_str!("../../assets/timeline.js"),
    include_str!("../../assets/lifetimes.js"),
    include_str!("../../assets/map.js"),
    include_str!("../../assets/curves.js"),
    include_str!("../../assets/tradeoff.js"),
    include_str!("../../assets/stacks.js"),
    include_str!("../../assets/report.js"),
);

pub(in crate::report) fn render(report: &Report) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        sha256(SCRIPT),
        sha256(STYLE)
    );
    let headline = report.short_headline();
    let data = data_block(&data::encode(report).to_string());
    let outcome = match report.outcome {
        Outcome::Success => "success",
        Outcome::Failure => "failure",
        Outcome::Unknown => "unknown",
        Outcome::Neutral => "neutral",
    };
    let mut page = String::with_capacity(data.len() + SCRIPT.len() + STYLE.len() + (1 << 16));
    // One pass: what was filled in is not searched for placeholders.
    for (at, part) in PAGE.split("{{").enumerate() {
        let (name, rest) = part.split_once("}}").unwrap_or(("", part));
        match name {
            "title" => page.push_str(&markup(&report.title)),
            "policy" => page.push_str(&policy),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(SCRIPT),
            "outcome" => page.push_str(outcome),
            "headline" => page.push_str(&markup(&headline.text)),
            "cause" => {
                let said = headline.cause_sentence.as_ref();
                let cause = report.cause.iter().filter(|sentence| Some(*sentence) != said);
                for sentence in headline.below.iter().chain(cause) {
                    page.push_str(&format!("<p class=\"cause\">{}</p>\n", markup(sentence)));
                }
            }
            "text" => page.push_str(&escape_lines(&report.to_full_text())),
            "data" => page.push_str(&data),
            _ => debug_assert_eq!(at, 0, "unknown placeholder in the page: {name}"),
        }
        page.push_str(rest);
    }
    page
}

fn escape_lines(text: &str) -> String {
    text.lines().map(markup).collect::<Vec<_>>().join("\n")
}

/// Returns the SHA-256 of a text, in base64, as a content security policy writes it.
fn sha256(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}
