//! One file that opens from a mail attachment: no network, no framework, nothing but this report.
//!
//! The page's own policy lets its one script run, named by digest, and loads nothing. What others
//! wrote reaches it as text in the data block, or as markup that was made inert; see `escape.rs`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::Report;
use super::data::data;
use super::escape::{data_block, markup};

const PAGE: &str = include_str!("assets/report.html");
const STYLE: &str = include_str!("assets/report.css");
/// The script, in the order in which its parts build on each other.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("assets/data.js"),
    include_str!("assets/words.js"),
    include_str!("assets/stage.js"),
    include_str!("assets/table.js"),
    include_str!("assets/icicle.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/bands.js"),
    include_str!("assets/map.js"),
    include_str!("assets/curves.js"),
    include_str!("assets/report.js"),
);

/// Renders a report as a page.
pub(super) fn render(report: &Report) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        sha256(SCRIPT),
        sha256(STYLE)
    );
    let data = data_block(&data(report).to_string());
    let verdict = match report.good {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let mut page = String::with_capacity(data.len() + SCRIPT.len() + STYLE.len() + (1 << 16));
    // One pass: what was filled in is not looked at again.
    for (at, part) in PAGE.split("{{").enumerate() {
        let (place, rest) = part.split_once("}}").unwrap_or(("", part));
        match place {
            "title" => page.push_str(&markup(&report.title)),
            "policy" => page.push_str(&policy),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(SCRIPT),
            "verdict" => page.push_str(verdict),
            "answer" => page.push_str(&markup(&report.answer)),
            "text" => page.push_str(&lines(&report.to_text())),
            "data" => page.push_str(&data),
            _ => debug_assert_eq!(at, 0, "no such place in the page: {place}"),
        }
        page.push_str(rest);
    }
    page
}

/// Makes each line inert, and keeps the lines.
fn lines(text: &str) -> String {
    text.lines().map(markup).collect::<Vec<_>>().join("\n")
}

/// Returns the SHA-256 of a text, in base64, as a content security policy writes it.
fn sha256(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}
