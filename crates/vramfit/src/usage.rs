//! A command line that could not be read, told in the form of every other error.
//!
//! clap finds what is wrong; its own wording and layout are replaced so that people learn one form.

use std::error::Error as _;
use std::ffi::OsString;

use clap::ColorChoice;
use clap::error::{ContextKind, ContextValue, ErrorKind as Refused};
use vramfit_core::error::EXIT_CODE;
use vramfit_core::{Error, ErrorKind};

use crate::commands::run;
use crate::output::Output;

/// Prints help, version or the error, and returns the exit code.
pub(crate) fn answer(refusal: &clap::Error, line: &[OsString], color: ColorChoice) -> u8 {
    match refusal.kind() {
        Refused::DisplayHelp | Refused::DisplayVersion => {
            // A reader that went away is no failure, and there is nothing else that could fail.
            let _ = refusal.print();
            0
        }
        Refused::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refusal.print();
            EXIT_CODE
        }
        _ => {
            let error = explain(refusal);
            Output::plain(color).error(&error);
            if starts_a_program(line) {
                return run::FAILED;
            }
            EXIT_CODE
        }
    }
}

/// Says whether a line that could not be read was meant to become a program, whose exit codes are its
/// own.
fn starts_a_program(line: &[OsString]) -> bool {
    let mut words = line.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "--color" | "--python" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            command => return command == "run",
        }
    }
    false
}

/// Turns clap's finding into an error of ours.
fn explain(refusal: &clap::Error) -> Error {
    let about = |kind| refusal.get(kind).map(words).unwrap_or_default();
    let option = about(ContextKind::InvalidArg).join(" ");
    let value = about(ContextKind::InvalidValue).join(" ");
    let suggested = about(ContextKind::SuggestedArg)
        .into_iter()
        .chain(about(ContextKind::SuggestedSubcommand))
        .chain(about(ContextKind::SuggestedValue))
        .next();
    let refuse = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    let or_help = |hint: Option<String>| hint.unwrap_or_else(|| format!("see `{}`", help(refusal)));

    match refusal.kind() {
        Refused::UnknownArgument if !option.starts_with('-') => {
            refuse(format!("`{option}` is one word too many")).hint(or_help(None))
        }
        Refused::UnknownArgument => refuse(format!("there is no option `{option}`")).hint(or_help(
            suggested.map(|name| format!("did you mean `{name}`?")),
        )),
        Refused::InvalidSubcommand => {
            let word = about(ContextKind::InvalidSubcommand).join(" ");
            refuse(format!("there is no command `{word}`")).hint(or_help(
                suggested.map(|name| format!("did you mean `{name}`?")),
            ))
        }
        Refused::InvalidValue if value.is_empty() => {
            refuse(format!("`{option}` needs a value")).hint(or_help(None))
        }
        Refused::InvalidValue => {
            let valid = about(ContextKind::ValidValue);
            let list = valid
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ");
            refuse(format!("`{value}` is not accepted for `{option}`")).hint(or_help(
                (!valid.is_empty()).then(|| format!("write one of {list}")),
            ))
        }
        // A parser of ours refused: it knows best what is wrong and what would be right.
        Refused::ValueValidation => {
            match refusal
                .source()
                .and_then(|source| source.downcast_ref::<Error>())
            {
                Some(ours) => refuse(format!("{}, as `{option}` needs", ours.message()))
                    .hint(or_help(ours.hint_text().map(str::to_owned))),
                None => {
                    let error = refuse(format!("`{value}` is not accepted for `{option}`"));
                    let error = match refusal.source() {
                        Some(source) => error.cause(source),
                        None => error,
                    };
                    error.hint(or_help(None))
                }
            }
        }
        Refused::MissingRequiredArgument => {
            let missing = about(ContextKind::InvalidArg);
            let list = missing
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>();
            refuse(format!("{} is missing", list.join(" and "))).hint(or_help(None))
        }
        Refused::ArgumentConflict => {
            let other = about(ContextKind::PriorArg).join(" ");
            if other.is_empty() || other == option {
                refuse(format!("`{option}` is given more than once")).hint("give it once")
            } else {
                refuse(format!("`{option}` and `{other}` exclude each other"))
                    .hint("give only one of them")
            }
        }
        Refused::MissingSubcommand => refuse("a command is missing".into()).hint(or_help(None)),
        _ => refuse(first_sentence(refusal)).hint(or_help(None)),
    }
}

/// Flattens what clap recorded into plain words.
fn words(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::StyledStr(text) => vec![text.to_string()],
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect(),
        ContextValue::Number(number) => vec![number.to_string()],
        ContextValue::Bool(truth) => vec![truth.to_string()],
        _ => Vec::new(),
    }
}

/// Returns the help command of the subcommand that the refused line was for.
fn help(refusal: &clap::Error) -> String {
    let usage = refusal
        .get(ContextKind::Usage)
        .map(words)
        .unwrap_or_default()
        .join(" ");
    let path: Vec<&str> = usage
        .split_whitespace()
        .skip_while(|word| *word == "Usage:")
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    if path.is_empty() {
        "vramfit --help".into()
    } else {
        format!("{} --help", path.join(" "))
    }
}

/// Takes clap's own first sentence, for the kinds that cannot happen with our definitions yet.
fn first_sentence(refusal: &clap::Error) -> String {
    let text = refusal.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_run_is_told_from_others() {
        let meant = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            starts_a_program(&words)
        };
        assert!(meant("vramfit run --processes 0 -- true"));
        assert!(meant("vramfit -v --color never --python=/p run"));
        assert!(!meant("vramfit dryrun -- vramfit run"));
        assert!(!meant("vramfit --python run gpus"));
        assert!(!meant("vramfit"));
    }
}
