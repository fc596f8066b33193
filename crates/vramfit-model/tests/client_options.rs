//! Our checks of client options answer as the plugins of fourteen releases did.
//!
//! `fixtures/client-options/*.tsv` were recorded by `scripts/record/client_options.py`.

use std::fs;
use std::path::Path;

use vramfit_model::settings::{ClientOptions, Value};

/// What a plugin answers when it liked the options and then found no GPU to use them on.
const ACCEPTED: &str = "FAILED_PRECONDITION: No visible GPU devices.";

fn value(kind: &str, text: &str) -> Value {
    match kind {
        "string" => Value::String(text.to_owned()),
        "int64" => Value::Int64(text.parse().expect(text)),
        "list" => Value::Int64List(vec![0]),
        "float" => Value::Float(text.parse().expect(text)),
        "bool" => Value::Bool(true),
        other => panic!("a value of type {other} was recorded"),
    }
}

fn code_name(code: i32) -> &'static str {
    match code {
        3 => "INVALID_ARGUMENT",
        5 => "NOT_FOUND",
        12 => "UNIMPLEMENTED",
        _ => "a code that XLA does not use here",
    }
}

#[test]
fn the_answers_are_those_of_the_released_plugins() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/client-options");
    let (mut releases, mut answers) = (0, 0);
    for file in fs::read_dir(folder).expect("the recordings are part of the repository") {
        let path = file.expect("listed").path();
        if path.extension().is_none_or(|extension| extension != "tsv") {
            continue;
        }
        let text = fs::read_to_string(path).expect("readable");
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().expect("a first line").split('\t').collect();
        let (release, minor) = (head[1], head[3].parse().expect("a number"));
        for line in lines {
            let [option, kind, text, recorded] =
                line.split('\t').collect::<Vec<_>>().try_into().expect("four columns");
            let named = [(option.to_owned(), value(kind, text))];
            let ours = match ClientOptions::from_named_values(&named, minor) {
                Ok(_) => ACCEPTED.to_owned(),
                Err(error) => format!("{}: {}", code_name(error.code), error.message),
            };
            assert_eq!(ours, recorded, "jax {release}: {option} = {text} ({kind})");
            answers += 1;
        }
        releases += 1;
    }
    assert!(releases >= 14 && answers >= 1550, "{releases} releases, {answers} answers");
}
