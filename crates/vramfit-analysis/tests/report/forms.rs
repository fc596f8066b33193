//! The forms a report can take besides the text of a dry run: charts as text, HTML.
//!
//! `TRYCMD=overwrite cargo test -p vramfit-analysis --test main report` accepts new texts; look at the difference
//! then.

use serde_json::Value;
use vramfit_analysis::analysis::summarize;
use vramfit_analysis::report::{Content, Node, Report, Section, Series, Timeline, Tree};
use vramfit_model::trace::{Purpose, Reader};

use crate::recorder::{MIB, Recorder, header};
use crate::samples::{HOSTILE, hostile, nothing, sample};

fn check(name: &str, text: &str) {
    let path = format!("{}/tests/report/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TRYCMD").is_some_and(|value| value == "overwrite") {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected.trim_end(), "{path}:\n{text}\n");
}

/// Returns what stands between two marks.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).unwrap() + start.len();
    &text[from..from + text[from..].find(end).unwrap()]
}

fn data_of(page: &str) -> Value {
    let block = between(page, "<script type=\"application/json\" id=\"data\">", "</script>");
    serde_json::from_str(block).unwrap()
}

fn only(content: Content) -> Report {
    let mut report = sample(20);
    report.sections =
        vec![Section { title: "the only one".into(), content, text: None, detail: false }];
    report
}

fn dryrun() -> Report {
    let mut run = Recorder::new(&header());
    run.upload(100 * MIB);
    assert!(run.allocate(0, 999 * MIB, Purpose::Upload).is_none());
    Report::from_dryrun(&summarize(Reader::new(&run.finish()[..]).unwrap()).unwrap())
}

#[test]
fn charts_as_text() {
    let text = sample(200).to_text();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    check("charts.txt", &text);
}

#[test]
fn hostile_names_keep_to_their_lines() {
    let text = hostile().to_text();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
}

#[test]
fn a_page_contains_the_headline_and_its_data_and_loads_nothing() {
    for report in [dryrun(), sample(200), hostile()] {
        let page = report.to_html();
        // Nothing but the document itself: the page's own tags are those of the template.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<!--").count(), 0);
        assert!(!page.contains("<img") && !page.contains(" src=\"") && !page.contains("url("));
        assert!(!page.contains("{{"));
        assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
        assert!(!page.contains('\u{202e}'));
        let forms = data_of(&page)["sections"].as_array().unwrap().len();
        assert_eq!(forms, report.sections.len());
    }
    let page = dryrun().to_html();
    assert!(page.contains("<h1 class=\"headline failure\">does not fit: "));
    // Without JavaScript there is still the text.
    let text = between(&page, "<noscript><pre>", "</pre></noscript>");
    assert!(text.contains("not included"));
}

#[test]
fn a_hostile_name_is_data_and_nothing_else() {
    let data = data_of(&hostile().to_html());
    let words = data["strings"]["words"].as_array().unwrap();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert!(words.contains(&"script><!--<"), "{words:?}");
    assert!(HOSTILE.contains("</script>"));
}

#[test]
fn the_brief_text_fits_on_a_screen_and_names_the_way_to_the_rest() {
    let brief = sample(200).to_brief_text();
    assert!(brief.lines().count() <= 30, "{brief}");
    let last = brief.lines().last().unwrap();
    assert!(last.starts_with("`--full` shows ") && last.contains("more lines"), "{last}");
    let short = dryrun().to_brief_text();
    assert!(short.starts_with("does not fit: short by "), "{short}");
    assert!(short.ends_with("more sections"), "{short}");
}

#[test]
fn all_but_the_data_is_small_and_100_000_buffers_are_below_5_mb() {
    let page = sample(20).to_html();
    let [data, text] = [("id=\"data\">", "</script>"), ("<pre>", "</pre>")]
        .map(|(start, end)| between(&page, start, end).len());
    assert!(page.len() - data - text < 92_000, "{}", page.len() - data - text);
    let large = sample(100_000).to_html();
    assert!(large.len() < 5_000_000, "{}", large.len());
    let lifetimes = &data_of(&large)["sections"][3];
    assert!(lifetimes["bytes"]["count"].as_u64().unwrap() > 99_000);
}

#[test]
fn charts_of_nothing_are_empty() {
    let report = nothing();
    assert_eq!(report.to_text().matches("nothing").count(), report.sections.len());
    assert!(report.to_html().contains("</html>"));
}

#[test]
fn amounts_at_the_end_of_the_range_are_drawn() {
    let node = |parent, bytes| Node { parent, bytes, label: "x".into(), ..Node::default() };
    let tree =
        Tree { nodes: vec![node(None, u64::MAX), node(Some(0), u64::MAX - 1), node(Some(0), 1)] };
    let timeline = Timeline {
        unit: "events",
        positions: vec![0, u64::MAX],
        series: vec![Series { label: "in use".into(), bytes: vec![0, u64::MAX] }],
        markers: Vec::new(),
        steps: Vec::new(),
        limit_bytes: Some(u64::MAX),
        failed_request: None,
    };
    for content in [Content::Tree(tree), Content::Timeline(timeline)] {
        let report = only(content);
        assert!(report.to_text().lines().all(|line| line.chars().count() <= 80));
        report.to_html();
    }
}
