//! The pages of the causes agree with the code, and their examples are explained as they show.

use std::path::PathBuf;

use vramfit_core::explain::{
    CauseId, EXAMPLE_HEADING, ExplainOptions, LogScanner, explain, page_head,
};
use vramfit_core::report::Report;

fn page_path(id: CauseId) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/causes");
    PathBuf::from(root).join(format!("{}.md", id.id()))
}

fn page(id: CauseId) -> String {
    let path = page_path(id);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the code blocks of a page, each without its fences.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```").skip(1).step_by(2);
    let bodies = parts.map(|part| part.split_once('\n').map_or("", |(_, body)| body));
    bodies.map(str::to_owned).collect()
}

#[test]
fn the_head_of_each_page_is_what_the_code_says() {
    for id in CauseId::ALL {
        let head = page_head(id);
        let page = page(id);
        let example = page.find(EXAMPLE_HEADING);
        let example = example.unwrap_or_else(|| panic!("{}: no example", id.id()));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let text = format!("{head}{}", &page[example..]);
            std::fs::write(page_path(id), text).expect("the page can be written");
            continue;
        }
        assert!(
            page[..example] == head,
            "docs/causes/{}.md is out of date; write its head with UPDATE_DOCS=1",
            id.id()
        );
    }
}

#[test]
fn the_example_of_each_page_is_explained_as_shown() {
    for id in CauseId::ALL {
        let blocks = blocks(&page(id));
        let [log, shown] = &blocks[..] else {
            panic!("{}: {} code blocks instead of 2", id.id(), blocks.len());
        };
        let mut scanner = LogScanner::new("");
        scanner.push(log.as_bytes());
        let explanation = explain(&scanner.finish(), &ExplainOptions::default());
        assert_eq!(explanation.causes[0].id, id);
        let text = Report::from_explanation(&explanation).to_text();
        let shown = shown.split_once('\n').map_or("", |(_, output)| output);
        assert!(text.starts_with(shown.trim_end_matches("...\n")), "{}:\n{text}", id.id());
    }
}

#[test]
fn no_page_is_without_a_cause() {
    let folder = page_path(CauseId::Tpu);
    let folder = folder.parent().expect("a folder");
    let pages = std::fs::read_dir(folder).expect("the pages").count();
    assert_eq!(pages, CauseId::ALL.len());
}
