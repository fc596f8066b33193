//! The pages of the causes are what the code makes of their logs; only these are written by hand.

use std::path::PathBuf;

use vramfit_advice::explain::{CauseId, ExplainOptions, LogScanner, explain, page_head};
use vramfit_analysis::report::Report;

fn page_path(id: CauseId) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/causes");
    PathBuf::from(root).join(format!("{}.md", id.id()))
}

/// Returns the page that belongs to the log in `page`, with the beginning of what is explained.
fn page_of(id: CauseId, page: &str) -> String {
    let log = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let log = log.unwrap_or_else(|| panic!("docs/causes/{}.md has no log", id.id()));
    let mut scanner = LogScanner::new("");
    scanner.push(log.as_bytes());
    let explanation = explain(&scanner.finish(), &ExplainOptions::default());
    assert_eq!(explanation.causes[0].id, id);
    let text = Report::from_explanation(&explanation).to_text();
    let shown = text.split("\n\n").next().unwrap_or_default();
    format!(
        "{}\n## Example\n\n```text\n{log}```\n\n```console\n$ vramfit explain run.log\n{shown}\n...\n```\n",
        page_head(id)
    )
}

#[test]
fn each_page_is_what_the_code_says() {
    for id in CauseId::ALL {
        let path = page_path(id);
        let page = std::fs::read_to_string(&path);
        let page = page.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let made = page_of(id, &page);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, made).expect("the page can be written");
        } else {
            let name = id.id();
            assert!(
                page == made,
                "docs/causes/{name}.md is out of date; write it with UPDATE_DOCS=1"
            );
        }
    }
}

#[test]
fn no_page_is_without_a_cause() {
    let folder = page_path(CauseId::Tpu);
    let folder = folder.parent().expect("a folder");
    let pages = std::fs::read_dir(folder).expect("the pages").count();
    assert_eq!(pages, CauseId::ALL.len());
}
