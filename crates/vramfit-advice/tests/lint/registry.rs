//! The registry of rules, the page made from it, and findings for programs.

use std::collections::BTreeSet;

use vramfit_advice::lint::{markdown, rules};

use super::*;

#[path = "../../../vramfit-model/src/testing.rs"]
mod testing;

#[test]
fn rules_have_lasting_names_and_every_one_is_on_the_page_and_finds_something_in_these_tests() {
    let source = [include_str!("wild.rs"), include_str!("rules.rs")].concat();
    let page = markdown();
    let mut seen = BTreeSet::new();
    for rule in rules() {
        let kebab = rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(kebab && seen.insert(rule.id), "{}", rule.id);
        assert!(page.contains(&format!("### {}\n", rule.id)), "{}", rule.id);
        assert!(source.contains(&format!("\"{}\"", rule.id)), "{} is not tested", rule.id);
        assert!(rule.meaning.ends_with('.') && rule.fix.ends_with('.'), "{}", rule.id);
    }
}

/// `UPDATE_DOCS=1 cargo test -p vramfit-analysis --test main lint` writes the page.
#[test]
fn the_committed_page_is_made_from_the_rules() {
    testing::check_generated("lint-rules.md", &markdown());
}

#[test]
fn findings_are_plain_json() {
    let finding = only(&with(&[(NEW, "0.5"), (OLD, "0.8")]));
    let json = serde_json::to_value(&finding).unwrap();
    assert_eq!(json["id"], "conflicting-fractions");
    assert_eq!(json["severity"], "error");
    assert_eq!(json["changes"][0]["name"], OLD);
    assert!(json["changes"][0]["value"].is_null());
}
