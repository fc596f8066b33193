use serde_json::Value;

use crate::analysis::{Condition, Evidence, StepStop};
use crate::check::report::samples::{grown, of_every_kind};
use crate::check::{ChangedLine, CheckReport, Outcome};
use crate::report::{self, Content, Section};
use crate::run_config::StepLimit;

#[test]
fn text_says_what_grew_where_and_how_to_accept_it() {
    let expected = "\
train on l4: peak 10.0 GiB, 2.0 GiB more than accepted (8.0 GiB)
  +2.0 GiB  activations: attention.py:214 (attention), bf16[8,12,1024,1024]
  +4.0 KiB  parameters: params['w'], train.py:9
  peak in `jit_step`, compared with commit 1a2b3c4
  code +2.0 GiB, toolchain 0 B (JAX 0.9.2 -> 0.10.2, compiler cuda13-0.9.2 -> cuda13-0.10.2)
  peaks accepted so far: 7.0 GiB, 8.0 GiB (+14.3 % total)
unchanged: eval on l4
to accept what was measured: vramfit check --update train
note: `XLA_FLAGS` of the shell is not used
";
    assert_eq!(grown().to_text(false), expected);
}

#[test]
fn five_lines_are_named_and_all_where_that_is_asked_for() {
    let mut report = grown();
    let growth = report.rows[0].growth.as_mut().expect("the sample has grown");
    let line = growth.lines[1].clone();
    growth.lines = (1..=7).map(|bytes| ChangedLine { bytes, ..line.clone() }).collect();
    let count = |text: &str| text.matches(" B  parameters: ").count();
    assert_eq!(count(&report.to_text(false)), 5);
    assert!(report.to_text(false).contains("\n  2 more with `vramfit check --full`\n"));
    assert_eq!(count(&report.to_text(true)), 7);
    assert!(!report.to_text(true).contains("more with"));
    assert_eq!(report.to_json()["rows"][0]["growth"]["lines"].as_array().map(Vec::len), Some(7));
}

/// What is said of a run that ended after some steps.
const ENDED: &str =
    "each dry run ended after 3 calls of jit_step; what comes after them was not measured";

#[test]
fn every_format_says_what_a_check_that_passes_depends_on() {
    let stopped = Condition::StoppedAtStep {
        steps: StepLimit::Calls(3),
        stop: StepStop {
            program: "jit_step".to_owned(),
            calls: 3,
            site: String::new(),
            growth: None,
        },
        evidence: Evidence::Named,
        exit: None,
    };
    let mut report = of_every_kind();
    for row in &mut report.rows {
        row.conditions = vec![stopped.clone()];
    }
    report.rows.retain(|row| row.outcome.passes() == Some(true));
    let texts = [
        report.to_text(false),
        report.to_junit(),
        report.to_sarif().to_string(),
        report.to_markdown().replace("\\_", "_"),
        report.to_json().to_string(),
        report.to_page().to_text().split_whitespace().collect::<Vec<_>>().join(" "),
    ];
    for text in &texts {
        assert!(text.contains(ENDED), "{text}");
    }
    assert!(report.to_text(false).contains(&format!("on l4; {ENDED}\n")));

    // That a check fails is true whatever comes later.
    let mut report = grown();
    report.rows[0].conditions = vec![stopped];
    assert!(!report.to_text(false).contains(ENDED));
}

#[test]
fn an_answer_is_no_before_it_is_unknown() {
    let mut report = of_every_kind();
    assert_eq!(report.passes(), Some(false));
    report.rows.retain(|row| row.outcome.passes() != Some(false));
    assert_eq!(report.passes(), None);
    report.rows.retain(|row| row.outcome.passes() == Some(true));
    assert_eq!(report.passes(), Some(true));
}

#[test]
fn annotations_are_a_line_each_at_the_line_that_grew() {
    let text = grown().to_github_annotations();
    let start =
        "::error file=model/attention.py,line=214,title=vramfit%3A train on l4::train on l4: peak";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("%0A+2.0 GiB"));
    let all = of_every_kind().to_github_annotations();
    assert_eq!(all.lines().count(), 7);
    assert!(all.lines().all(|line| line.starts_with("::")));
    assert!(all.contains("100%25,%0Aa line: |x|"));
    // What the branch has accepted passes, and is said.
    assert!(all.contains("::notice file=vramfit.toml,line=1,title=vramfit%3A accepted on l4"));
}

#[test]
fn junit_counts_failures_and_errors() {
    let xml = of_every_kind().to_junit();
    assert!(xml.contains("tests=\"10\" failures=\"3\" errors=\"3\""));
    assert_eq!(xml.matches("<testcase ").count(), 10);
    assert_eq!(xml.matches("<failure ").count(), 3);
    assert!(xml.contains("a &quot;quote&quot; &lt;b&gt; &amp; 100%,&#10;a line: |x|"));
}

#[test]
fn sarif_names_rule_level_and_place() {
    let log = grown().to_sarif();
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "larger");
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "model/attention.py");
    assert_eq!(place["region"]["startLine"], 214);
    let rules: Vec<&Value> = log["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .expect("rules")
        .iter()
        .map(|rule| &rule["id"])
        .collect();
    let all = of_every_kind().to_sarif();
    let results = all["runs"][0]["results"].as_array().expect("results").clone();
    assert_eq!(results.len(), 7);
    assert!(results.iter().all(|result| rules.contains(&&result["ruleId"])));
}

#[test]
fn code_quality_fingerprints_stay_and_are_unique() {
    let prints = |report: &CheckReport| -> Vec<String> {
        let issues = report.to_code_quality();
        let issues = issues.as_array().expect("a list").iter();
        issues.map(|issue| issue["fingerprint"].to_string()).collect()
    };
    let first = prints(&of_every_kind());
    assert_eq!(first, prints(&of_every_kind()));
    let unique: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!(unique.len(), first.len());
    assert_eq!(grown().to_code_quality()[0]["severity"], "major");
}

#[test]
fn markdown_is_a_table_and_the_problems() {
    let text = grown().to_markdown();
    assert!(text.contains("| train | l4 | 10.0 GiB | +2.0 GiB | +2.0 GiB | **fails** |"));
    assert!(text.contains("| eval | l4 | 8.0 GiB | 0 B | 0 B | ok |"));
    assert!(text.contains("`vramfit check --update train`"));
    assert!(of_every_kind().to_markdown().contains("\\<b> & 100%, a line: \\|x\\|"));
}

#[test]
fn the_page_has_every_entry_and_each_measured_peak_in_its_pool() {
    let report = of_every_kind();
    let page = report.to_page();
    assert_eq!(page.outcome, report::Outcome::Failure);
    assert_eq!(page.headline, "the check fails: larger on l4 and 2 more");
    let Content::Table(entries) = &page.sections[0].content else { panic!("no table") };
    assert_eq!(entries.rows.len(), report.rows.len());
    let Content::Bars(peaks) = &page.sections[1].content else { panic!("no bars") };
    let failed = report.rows.iter().filter(|row| row.peak_bytes().is_none());
    assert_eq!(peaks.len() + failed.count(), report.rows.len());
    assert!(peaks.iter().all(|bar| bar.part_bytes > 0 && bar.whole_bytes > 0));
    for problem in report.problems() {
        let named = |section: &Section| section.title.ends_with(&problem.row.name());
        assert!(page.sections.iter().any(named), "{}", problem.row.name());
    }
    let html = page.to_html();
    assert!(!html.contains("<b> & 100%"), "markup of a message reaches the page");
}

#[test]
fn json_has_figures_and_growth_of_each_row() {
    let json = grown().to_json();
    assert_eq!(json["passes"], false);
    let row = &json["rows"][0];
    assert_eq!(row["outcome"], "larger");
    assert_eq!(row["measured"]["peak_bytes"], 10u64 << 30);
    assert_eq!(row["growth"]["lines"][0]["bytes"], 2u64 << 30);
    assert_eq!(json["rows"][1]["growth"], Value::Null);
}

#[test]
fn files_are_relative_to_the_root() {
    let mut report = grown();
    report.config_file = "sub/vramfit.toml".to_owned();
    let place = |report: &CheckReport| report.problems()[0].location.clone();
    for (site, expected) in [
        ("/repo/a/b.py:3 (f)", ("a/b.py", 3)),
        ("b.py:3 (f)", ("sub/b.py", 3)),
        ("./b.py:3", ("sub/b.py", 3)),
        // Nothing in the repository can be pointed at.
        ("/usr/lib/b.py:3 (f)", ("sub/vramfit.toml", 1)),
        ("", ("sub/vramfit.toml", 1)),
    ] {
        let growth = report.rows[0].growth.as_mut().expect("it grew");
        growth.lines.truncate(1);
        growth.lines[0].site = site.to_owned();
        assert_eq!(place(&report), (expected.0.to_owned(), expected.1), "{site}");
    }
}

#[test]
fn code_that_needs_more_fails_although_the_toolchain_needs_less() {
    let mut report = grown();
    let row = &mut report.rows[0];
    row.outcome = Outcome::Smaller;
    if let Some(measured) = &mut row.measured {
        measured.figures.peak_bytes = 7 << 30;
    }
    assert!(row.is_of_other_versions());
    row.fail_for_code();
    assert_eq!(row.outcome, Outcome::Larger);
    assert!(
        report.to_text(false).starts_with("train on l4: peak 7.0 GiB, but the code needs more")
    );

    let row = &mut report.rows[1];
    row.fail_for_code();
    assert_eq!(row.outcome, Outcome::Unchanged);
    assert!(!row.is_of_other_versions());
}
