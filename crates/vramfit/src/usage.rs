//! Errors in the command line, in the form of every other error.
//!
//! clap finds what is wrong; its own wording and layout are replaced, so that all errors look alike.

use std::error::Error as _;
use std::ffi::OsString;

use clap::ColorChoice;
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use vramfit_core::Error;
use vramfit_core::error::EXIT_CODE;

use crate::commands::run;
use crate::output::Output;

/// Prints help, version or the error, and returns the exit code.
pub(crate) fn render_help_or_error(
    error: &clap::Error,
    line: &[OsString],
    color: ColorChoice,
) -> u8 {
    match error.kind() {
        ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion => {
            // A reader that closes its end is no failure, and nothing else can fail.
            let _ = error.print();
            0
        }
        ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            EXIT_CODE
        }
        _ => {
            let error = from_clap(error);
            Output::plain(color).error(&error);
            if is_run_command(line) {
                return run::FAILED;
            }
            EXIT_CODE
        }
    }
}

/// Says whether a line that could not be parsed is one of `vramfit run`, which passes on the exit codes of
/// a program and so has its own.
fn is_run_command(line: &[OsString]) -> bool {
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

/// Converts an error of clap.
fn from_clap(error: &clap::Error) -> Error {
    let values = |kind| error.get(kind).map(context_values).unwrap_or_default();
    let option = values(ContextKind::InvalidArg).join(" ");
    let value = values(ContextKind::InvalidValue).join(" ");
    let suggestion = values(ContextKind::SuggestedArg)
        .into_iter()
        .chain(values(ContextKind::SuggestedSubcommand))
        .chain(values(ContextKind::SuggestedValue))
        .next()
        .map(|name| format!("did you mean `{name}`?"));
    let invalid = |message: String| Error::invalid_argument(message);
    let or_help = |hint: Option<String>| hint.unwrap_or_else(|| format!("see `{}`", help(error)));
    let invalid_value = || invalid(format!("invalid value `{value}` for `{option}`"));

    match error.kind() {
        ClapErrorKind::UnknownArgument if !option.starts_with('-') => {
            invalid(format!("unexpected argument `{option}`")).hint(or_help(None))
        }
        ClapErrorKind::UnknownArgument => {
            invalid(format!("unknown option `{option}`")).hint(or_help(suggestion))
        }
        ClapErrorKind::InvalidSubcommand => {
            let name = values(ContextKind::InvalidSubcommand).join(" ");
            invalid(format!("unknown command `{name}`")).hint(or_help(suggestion))
        }
        ClapErrorKind::InvalidValue if value.is_empty() => {
            invalid(format!("`{option}` requires a value")).hint(or_help(None))
        }
        ClapErrorKind::InvalidValue => {
            let valid = quote_all(&values(ContextKind::ValidValue));
            let choices =
                (!valid.is_empty()).then(|| format!("choose one of {}", valid.join(", ")));
            invalid_value().hint(or_help(choices))
        }
        // One of our own parsers failed: it knows best what is wrong and what to write instead.
        ClapErrorKind::ValueValidation => match error.source() {
            Some(source) => match source.downcast_ref::<Error>() {
                Some(ours) => invalid(format!("invalid value for `{option}`: {}", ours.message()))
                    .hint(or_help(ours.hint_text().map(str::to_owned))),
                None => invalid_value().cause(source).hint(or_help(None)),
            },
            None => invalid_value().hint(or_help(None)),
        },
        ClapErrorKind::MissingRequiredArgument => {
            let missing = quote_all(&values(ContextKind::InvalidArg));
            invalid(format!("missing {}", missing.join(" and "))).hint(or_help(None))
        }
        ClapErrorKind::ArgumentConflict => {
            let other = values(ContextKind::PriorArg).join(" ");
            if other.is_empty() || other == option {
                invalid(format!("`{option}` is given more than once")).hint("give it once")
            } else {
                invalid(format!("`{option}` cannot be used with `{other}`"))
                    .hint("use only one of them")
            }
        }
        ClapErrorKind::MissingSubcommand => invalid("missing command".into()).hint(or_help(None)),
        _ => invalid(first_sentence(error)).hint(or_help(None)),
    }
}

fn quote_all(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// Returns the values that clap recorded as text.
fn context_values(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::StyledStr(text) => vec![text.to_string()],
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect(),
        ContextValue::Number(number) => vec![number.to_string()],
        ContextValue::Bool(value) => vec![value.to_string()],
        _ => Vec::new(),
    }
}

/// Returns the help command of the subcommand that the line was for.
fn help(error: &clap::Error) -> String {
    let usage = error
        .get(ContextKind::Usage)
        .map(context_values)
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

/// Returns clap's own first sentence, for the kinds that cannot happen with our definitions yet.
fn first_sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_run_is_recognized() {
        let is_run = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            is_run_command(&words)
        };
        assert!(is_run("vramfit run --processes 0 -- true"));
        assert!(is_run("vramfit -v --color never --python=/p run"));
        assert!(!is_run("vramfit dryrun -- vramfit run"));
        assert!(!is_run("vramfit --python run gpus"));
        assert!(!is_run("vramfit"));
    }
}
