//! Every kind of error is explained, and known to Python.

use std::path::Path;

use vramfit_analysis::ErrorKind;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_kind_has_a_section_with_an_example() {
    let page = read("docs/reference/errors.md");
    for kind in ErrorKind::ALL {
        let id = kind.id();
        let section = page
            .split("\n## ")
            .find(|section| section.starts_with(&format!("{id}\n")))
            .unwrap_or_else(|| panic!("docs/reference/errors.md has no section `{id}`"));
        assert!(section.contains(&format!("error[{id}]: ")), "section `{id}` shows no such error");
    }
    let sections = page.matches("\n## ").count();
    assert_eq!(sections, ErrorKind::ALL.len(), "a section is about no kind of error");
}

#[test]
fn every_kind_has_a_python_class() {
    let classes = read("python/vramfit/errors.py");
    for kind in ErrorKind::ALL {
        let id = kind.id();
        assert!(classes.contains(&format!("\n    id = \"{id}\"\n")), "errors.py has no `{id}`");
    }
}

/// Collects the text of every test: files of tests, and the test modules inside the sources.
fn tests_in(folder: &Path, inside_tests: bool, text: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            tests_in(&path, inside_tests || name == "tests", text);
        } else if name != "errors.rs"
            && [".rs", ".py", ".trycmd"].iter().any(|end| name.ends_with(end))
        {
            let whole = std::fs::read_to_string(&path).unwrap_or_default();
            let from = if inside_tests { Some(0) } else { whole.find("#[cfg(test)]\nmod tests") };
            text.push_str(from.map_or("", |start| &whole[start..]));
        }
    }
}

#[test]
fn every_kind_is_provoked_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::new();
    tests_in(&root.join("crates"), false, &mut text);
    tests_in(&root.join("tests"), true, &mut text);
    for kind in ErrorKind::ALL {
        let (id, variant) = (kind.id(), format!("ErrorKind::{kind:?}"));
        let asserted = text.contains(&format!("[{id}]")) || text.contains(&format!("\"{id}\""));
        assert!(asserted || text.contains(&variant), "no test provokes `{id}`");
    }
}
