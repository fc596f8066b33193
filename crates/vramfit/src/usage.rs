//! Errors in the command line, in the form of every other error.
//!
//! clap finds what is wrong; its own wording and layout are replaced, so that all errors look alike.

use std::borrow::Cow;
use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use clap::{Arg, ArgMatches, ColorChoice, Command, CommandFactory};
use vramfit_analysis::Error;
use vramfit_base::error::EXIT_CODE;
use vramfit_base::nearest::nearest;

use crate::args::Cli;
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
            let command = find_command(line);
            Output::plain(color).error(&from_clap(error, &command.join(" ")));
            // `vramfit run` passes on the exit codes of a program, and so has its own.
            match command.get(1).is_some_and(|name| name == "run") {
                true => run::FAILED,
                false => EXIT_CODE,
            }
        }
    }
}

/// Fails if the program of a line is an option: clap takes the first one that it does not know for the program.
///
/// # Errors
/// As clap's for an unknown option.
pub(crate) fn check_program(line: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let (mut command, mut matches) = (line, matches);
    while let Some((name, inner)) = matches.subcommand()
        && let Some(found) = command.find_subcommand(name)
    {
        (command, matches) = (found, inner);
    }
    let mut positionals = command.get_positionals();
    let first = positionals
        .find(|argument| argument.is_trailing_var_arg_set())
        .and_then(|program| matches.get_raw(program.get_id().as_str())?.next())
        .map(|word| word.to_string_lossy().into_owned())
        .filter(|word| word.starts_with('-'));
    let Some(first) = first else {
        return Ok(());
    };
    Err(unknown_option(command, first.split('=').next().unwrap_or_default()))
}

/// Returns clap's error for a line, or a better one for what is misspelled in it: clap takes an unknown option before the
/// program for the program, and an unknown action for the argument that the command has without one.
pub(crate) fn find_misspelled(
    root: &Command,
    line: &[OsString],
    error: clap::Error,
) -> clap::Error {
    let names = find_command(line);
    let mut command = root;
    for name in &names[1..] {
        command = command.find_subcommand(name).unwrap_or(command);
    }
    let words = line.iter().map(|word| word.to_string_lossy());
    let words = words.skip_while(|word| Some(&**word) != names.last().map(|name| &**name)).skip(1);
    let words: Vec<_> = words.collect();
    match error.kind() {
        ClapErrorKind::MissingRequiredArgument => {
            find_misspelled_option(command, &words).unwrap_or(error)
        }
        ClapErrorKind::ArgumentConflict => find_misspelled_action(command, &words, error),
        _ => error,
    }
}

/// Returns the error of an unknown option before the program.
fn find_misspelled_option(command: &Command, words: &[Cow<'_, str>]) -> Option<clap::Error> {
    if !command.get_positionals().any(Arg::is_trailing_var_arg_set) {
        return None;
    }
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(written) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            if word.starts_with('-') && word != "--" {
                continue;
            }
            return None;
        };
        let (name, value) =
            written.split_once('=').map_or((written, None), |(name, value)| (name, Some(value)));
        let mut known = command.get_arguments();
        let is_named = |option: &&Arg| {
            let aliases = option.get_all_aliases().unwrap_or_default();
            option.get_long() == Some(name) || aliases.contains(&name)
        };
        match known.find(is_named) {
            None => return Some(unknown_option(command, &format!("--{name}"))),
            Some(option) if option.get_action().takes_values() && value.is_none() => {
                words.next();
            }
            Some(_) => {}
        }
    }
    None
}

/// Returns the error of an action that is unknown, of one that comes too late, or of an argument that is one too many. All
/// of them are a conflict between the action and the argument of a command for clap, and any other conflict is as it was.
fn find_misspelled_action(
    command: &Command,
    words: &[Cow<'_, str>],
    mut error: clap::Error,
) -> clap::Error {
    let Some(later) = error.get(ContextKind::InvalidSubcommand).map(context_values) else {
        return error;
    };
    let later = later.concat();
    if !command.has_subcommands() {
        // The line names this action, but after an option, where clap takes it for the argument.
        let action = ContextValue::String(command.get_name().to_owned());
        error.insert(ContextKind::InvalidSubcommand, action);
        return error;
    }
    if command.find_subcommand(&later).is_some() {
        return error;
    }
    let known = || command.get_subcommands().map(Command::get_name);
    let mut earlier = words.iter().take_while(|word| **word != later);
    let action = earlier.find(|word| !nearest(word, known()).is_empty());
    let (kind, context, name) = match action {
        Some(action) => {
            (ClapErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand, &**action)
        }
        None => (ClapErrorKind::UnknownArgument, ContextKind::InvalidArg, &*later),
    };
    let mut found = clap::Error::new(kind).with_cmd(command);
    found.insert(context, ContextValue::String(name.to_owned()));
    found
}

/// Returns clap's error for an unknown option.
fn unknown_option(command: &Command, option: &str) -> clap::Error {
    let mut error = clap::Error::new(ClapErrorKind::UnknownArgument).with_cmd(command);
    error.insert(ContextKind::InvalidArg, ContextValue::String(option.to_owned()));
    error
}

/// Returns the program and the command that a line names, such as `vramfit data inspect`, as far as it can
/// be told although the line could not be parsed.
pub(crate) fn find_command(line: &[OsString]) -> Vec<String> {
    let root = Cli::command();
    let mut names = vec![root.get_name().to_owned()];
    let mut command = &root;
    let mut words = line.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "--color" | "--python" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            word => match command.find_subcommand(word) {
                Some(found) => {
                    names.push(found.get_name().to_owned());
                    command = found;
                }
                None => break,
            },
        }
    }
    names
}

/// Converts an error of clap in a line for `command`.
pub(crate) fn from_clap(error: &clap::Error, command: &str) -> Error {
    let values = |kind| error.get(kind).map(context_values).unwrap_or_default();
    let option = values(ContextKind::InvalidArg).join(" ");
    let value = values(ContextKind::InvalidValue).join(" ");
    let suggestion = values(ContextKind::SuggestedArg)
        .into_iter()
        .chain(values(ContextKind::SuggestedSubcommand))
        .chain(values(ContextKind::SuggestedValue))
        .next()
        .map(|name| format!("did you mean `{name}`?"));
    let meant = |name: &str| nearest_name(command, name).or(suggestion.clone());
    let invalid = |message: String| Error::invalid_argument(message);
    let or_help = |hint: Option<String>| hint.unwrap_or_else(|| format!("see `{command} --help`"));
    let invalid_value = || invalid(format!("invalid value `{value}` for `{option}`"));

    match error.kind() {
        ClapErrorKind::UnknownArgument if !option.starts_with('-') => {
            invalid(format!("unexpected argument `{option}`")).hint(or_help(None))
        }
        ClapErrorKind::UnknownArgument => {
            invalid(format!("unknown option `{option}`")).hint(or_help(meant(&option)))
        }
        ClapErrorKind::InvalidSubcommand => {
            let name = values(ContextKind::InvalidSubcommand).join(" ");
            invalid(format!("unknown command `{name}`")).hint(or_help(meant(&name)))
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
            Some(source) => {
                if let Some(ours) = source.downcast_ref::<Error>() {
                    invalid(format!("invalid value for `{option}`: {}", ours.message()))
                        .hint(or_help(ours.hint_text().map(str::to_owned)))
                } else if let Some(number) = describe_expected_number(source) {
                    let message =
                        format!("invalid value for `{option}`: `{value}` is not {number}");
                    invalid(message).hint(or_help(None))
                } else {
                    invalid_value().cause(source).hint(or_help(None))
                }
            }
            None => invalid_value().hint(or_help(None)),
        },
        ClapErrorKind::MissingRequiredArgument => {
            let missing = quote_all(&values(ContextKind::InvalidArg));
            invalid(format!("missing {}", missing.join(" and "))).hint(or_help(None))
        }
        ClapErrorKind::ArgumentConflict => {
            let prior = values(ContextKind::PriorArg);
            let other = prior.join(" ");
            let action = values(ContextKind::InvalidSubcommand).concat();
            if !action.is_empty() {
                let first = prior.iter().find(|name| name.starts_with('-')).unwrap_or(&other);
                let outer = command.strip_suffix(&format!(" {action}")).unwrap_or(command);
                invalid(format!("`{action}` must come before `{first}`"))
                    .hint(format!("write `{outer} {action}`, then its arguments and options"))
            } else if other.is_empty() || other == option {
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

/// Returns the option or command nearest to what was written in a line for `command`; clap's own choice for `pla` is
/// `explain`.
fn nearest_name(command: &str, written: &str) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let mut found = &root;
    for name in command.split(' ').skip(1) {
        found = found.find_subcommand(name)?;
    }
    let name = match written.strip_prefix("--") {
        Some(option) => {
            let known = found.get_arguments().filter_map(Arg::get_long);
            format!("--{}", nearest(option, known).first()?)
        }
        None => {
            let known = found.get_subcommands().map(Command::get_name);
            (*nearest(written, known).first()?).to_owned()
        }
    };
    Some(format!("did you mean `{name}`?"))
}

/// Returns what a value should have been that Rust could not read as a number.
fn describe_expected_number(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if error.is::<ParseFloatError>() {
        return Some("a number such as `0.75`");
    }
    match error.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::InvalidDigit | IntErrorKind::Empty => Some("a whole number"),
        // One that is too large is a number.
        _ => None,
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
    fn the_command_of_a_line_is_found() {
        let command = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            find_command(&words).join(" ")
        };
        assert_eq!(command("vramfit run --processes 0 -- true"), "vramfit run");
        assert_eq!(command("vramfit -v --color never --python=/p run"), "vramfit run");
        assert_eq!(command("vramfit dryrun -- vramfit run"), "vramfit dryrun");
        assert_eq!(command("vramfit --python run gpus"), "vramfit gpus");
        assert_eq!(command("vramfit data generate x.h5 --samples many"), "vramfit data generate");
        assert_eq!(command("vramfit"), "vramfit");
    }
}
