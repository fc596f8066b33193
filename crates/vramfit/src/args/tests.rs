//! What all commands have in common, tested on the definition of the command line itself.

use std::collections::BTreeSet;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction};

use super::*;
use crate::usage;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn colors_are_read_from_an_invalid_line() {
    for (line, choice) in [
        ("vramfit --color always --help", ColorChoice::Always),
        ("vramfit gpus --color=never --wrong", ColorChoice::Never),
        ("vramfit --color", ColorChoice::Auto),
        ("vramfit --color sometimes", ColorChoice::Auto),
        ("vramfit dryrun -- train.py --color always", ColorChoice::Auto),
        ("vramfit --colors always", ColorChoice::Auto),
    ] {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(color_choice(&words), choice, "{line}");
    }
}

#[test]
fn definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_examples_recorded_lines_a_page_and_listed_options() {
    let reference = read("../../docs/reference/command-line.md");
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let example = format!("vramfit {name}");
        assert!(help.matches(&example).count() >= 3, "`{name} --help` lacks three examples");
        let recorded = read(&format!("tests/cli/{name}.trycmd"));
        assert!(recorded.contains(&format!("$ {example}")), "{name}.trycmd runs another command");
        let page = read(&format!("../../docs/commands/{name}.md"));
        assert!(page.starts_with(&format!("# `vramfit {name}`\n")), "{name}.md has another title");
        // A section for the command, and one for each of its actions.
        let sections: String = reference
            .split("\n## `vramfit ")
            .filter(|section| section.split(['`', ' ']).next() == Some(name))
            .collect();
        let actions = command.get_subcommands();
        for option in actions
            .chain([command])
            .flat_map(clap::Command::get_arguments)
            .filter(|argument| !argument.is_hide_set())
            .filter_map(|argument| argument.get_long())
        {
            assert!(sections.contains(&format!("`--{option}")), "{name} lacks `--{option}`");
        }
    }
}

/// Returns every command and action with its words, such as `data inspect`.
fn all_commands() -> Vec<(String, clap::Command)> {
    fn add(words: &str, command: &clap::Command, all: &mut Vec<(String, clap::Command)>) {
        for inner in command.get_subcommands() {
            let words = format!("{words} {}", inner.get_name()).trim().to_owned();
            all.push((words.clone(), inner.clone()));
            add(&words, inner, all);
        }
    }
    let mut all = Vec::new();
    add("", &Cli::command(), &mut all);
    all
}

/// Returns every option of that name, with the words of its command.
fn all_options(name: &str) -> Vec<(String, Arg)> {
    let found = all_commands().into_iter().filter_map(|(words, command)| {
        let mut options = command.get_arguments();
        options.find(|option| option.get_long() == Some(name)).map(|option| (words, option.clone()))
    });
    found.collect()
}

fn value_name(option: &Arg) -> &str {
    option.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str())
}

/// Parses a value as an option does, and nothing else of its command.
fn parses(option: &Arg, value: &str) -> bool {
    let alone = Arg::new("value").value_parser(option.get_value_parser().clone());
    clap::Command::new("test").arg(alone).try_get_matches_from(["test", value]).is_ok()
}

#[test]
fn help_lists_every_command_once() {
    let definition = Cli::command();
    let commands: BTreeSet<&str> =
        definition.get_subcommands().map(clap::Command::get_name).collect();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), commands);
    assert_eq!(grouped.len(), commands.len());
    let line = ["vramfit", "help", "data", "inspect"].map(OsString::from);
    let help = parse(&line, ColorChoice::Never).expect_err("it is help").to_string();
    assert!(help.contains("Usage: vramfit data inspect"), "{help}");
}

#[test]
fn json_is_one_option_with_one_meaning() {
    let options = all_options("json");
    let help: BTreeSet<String> =
        options.iter().filter_map(|(_, it)| it.get_help().map(StyledStr::to_string)).collect();
    assert_eq!(help.len(), 1, "{help:?}");
    for (words, option) in &options {
        assert_eq!(value_name(option), "FILE", "{words}");
        assert_eq!(option.get_num_args().map(|it| it.min_values()), Some(0), "{words}");
    }
    // No other command has results that a program could read, or starts one that has.
    let without = ["run", "env", "completions"];
    for (words, command) in all_commands() {
        let is_leaf = command.get_subcommands().count() == 0;
        let has_json = options.iter().any(|(with, _)| *with == words);
        assert_eq!(has_json || without.contains(&&*words), is_leaf || has_json, "{words}");
    }
}

#[test]
fn json_goes_to_standard_output_without_a_file_and_with_a_dash() {
    for (line, is_stdout) in [
        ("vramfit doctor --json", true),
        ("vramfit doctor --json -", true),
        ("vramfit doctor --json --train", true),
        ("vramfit doctor --json answer.json", false),
        ("vramfit dryrun --gpu t4 --json -- train.py", true),
        ("vramfit dryrun --gpu t4 --json=answer.json train.py", false),
        ("vramfit data inspect train.h5 --json", true),
        ("vramfit gpus --json - t4", true),
        ("vramfit gpus show t4 --json", true),
    ] {
        let cli = Cli::try_parse_from(line.split(' ')).expect(line);
        assert_eq!(cli.output_options().json, is_stdout, "{line}");
    }
}

#[test]
fn a_page_is_html_everywhere_and_report_is_its_other_name() {
    let with_page: Vec<String> = all_options("html").into_iter().map(|(words, _)| words).collect();
    assert_eq!(
        with_page,
        ["dryrun", "plan", "check", "explain", "report", "replay", "diff", "train"]
    );
    for (words, option) in all_options("html") {
        assert_eq!(value_name(&option), "FILE", "{words}");
        assert_eq!(option.get_all_aliases(), Some(vec!["report"]), "{words}");
        let help = option.get_help().map(StyledStr::to_string).unwrap_or_default();
        assert!(help.starts_with("Write the report as a self-contained HTML file"), "{words}");
    }
    assert!(all_options("report").is_empty());
}

#[test]
fn whatever_is_written_is_overwritten_by_force_only() {
    for (words, command) in all_commands() {
        let has = |name| command.get_arguments().any(|option| option.get_long() == Some(name));
        assert!(has("force") || !(has("json") || has("html")), "{words}");
    }
}

#[test]
fn the_whole_report_is_full_everywhere() {
    let names = |options: Vec<(String, Arg)>| -> BTreeSet<String> {
        options.into_iter().map(|(words, _)| words).collect()
    };
    let (mut reports, with_full) = (names(all_options("html")), names(all_options("full")));
    // It prints the lines of the training; the report is on the page only.
    assert!(reports.remove("train"));
    // Long without being the report of a run.
    reports.extend(["doctor".to_owned(), "data inspect".to_owned()]);
    assert_eq!(with_full, reports);
    for (words, option) in all_options("full") {
        assert!(matches!(option.get_action(), ArgAction::SetTrue), "{words}");
    }
    assert!(all_options("all").is_empty());
}

#[test]
fn amounts_and_times_are_written_alike_everywhere() {
    let (mut amounts, mut times) = (0, 0);
    for (words, command) in all_commands() {
        for option in command.get_arguments() {
            let name = format!("{words} {}", option.get_id());
            match value_name(option) {
                "BYTES" | "AMOUNT" => {
                    amounts += 1;
                    for value in ["8Gi", "8GiB", "8 GB", "512MiB", "15843721216"] {
                        assert!(parses(option, value), "{name}: {value}");
                    }
                    for value in ["16", "8 gigs", "5h"] {
                        assert!(!parses(option, value), "{name}: {value}");
                    }
                }
                "TIME" => {
                    times += 1;
                    for value in ["60", "60s", "5m", "0.5h"] {
                        assert!(parses(option, value), "{name}: {value}");
                    }
                    for value in ["5 minutes", "8GiB", ""] {
                        assert!(!parses(option, value), "{name}: {value}");
                    }
                }
                "SIZE" | "SECONDS" | "DURATION" => panic!("{name} has another name for its value"),
                _ => {}
            }
        }
    }
    assert!(amounts > 15 && times > 4, "{amounts} {times}");
    let hold = &all_options("for")[0].1;
    assert!(parses(hold, "5m"));
    for (words, option) in all_options("fraction") {
        for value in ["0.9", "90%", "90 %"] {
            assert!(parses(&option, value), "{words}: {value}");
        }
    }
}

/// Returns the error in a line.
fn error_of(words: &str) -> vramfit_analysis::Error {
    let line = words.split(' ').map(OsString::from);
    let line: Vec<OsString> = ["vramfit".into()].into_iter().chain(line).collect();
    let error = parse(&line, ColorChoice::Never).expect_err(words);
    usage::from_clap(&error, &usage::find_command(&line).join(" "))
}

#[test]
fn an_error_names_what_it_is_about() {
    for (line, message, hint) in [
        ("gpus t4 extra", "unexpected argument `extra`", "see `vramfit gpus --help`"),
        ("gpus t4 show", "`show` must come before `[NAME]`", "write `vramfit gpus show`"),
        ("gpus --force show t4", "`show` must come before `--force`", "write `vramfit gpus show`"),
        ("data inspect a.h5 b.h5", "unexpected argument `b.h5`", "see `vramfit data inspect"),
    ] {
        let error = error_of(line);
        assert_eq!(error.message(), message, "{line}");
        assert!(error.hint_text().is_some_and(|it| it.starts_with(hint)), "{line}: {error:?}");
    }
    for (words, command) in all_commands() {
        let options = command.get_arguments().filter(|option| !option.is_global_set());
        let long = options.filter_map(Arg::get_long).map(|option| format!("{words} --{option}"));
        let plain = [" a", " a b c", " a b c d --", " --json -- a b c"];
        let lines =
            long.flat_map(|option| ["", " a b c d", "=a a b c"].map(|rest| option.clone() + rest));
        for line in plain.map(|rest| words.clone() + rest).into_iter().chain(lines) {
            let line_words = ["vramfit"].into_iter().chain(line.split(' ')).map(OsString::from);
            let line_words: Vec<OsString> = line_words.collect();
            if parse(&line_words, ColorChoice::Never).is_err() {
                assert!(!error_of(&line).message().contains("``"), "{line}: {:?}", error_of(&line));
            }
        }
    }
}

#[test]
fn every_misspelled_option_and_command_gets_a_suggestion() {
    let hint = |words: &str| error_of(words).hint_text().unwrap_or_default().to_owned();
    let global = Cli::command().get_arguments().cloned().collect::<Vec<_>>();
    for (words, command) in all_commands() {
        let name = command.get_name();
        let misspelled = &words[..words.len() - 1];
        // Alone, the action of a command that also works without one may be its argument.
        let alone = words.split_once(' ').is_none_or(|(outer, _)| outer != "gpus");
        for line in alone
            .then(|| misspelled.to_owned())
            .into_iter()
            .chain([format!("{misspelled} argument"), format!("{misspelled} --force argument")])
        {
            assert_eq!(hint(&line), format!("did you mean `{name}`?"), "{line}");
        }
        for option in command.get_arguments().chain(&global).filter_map(Arg::get_long) {
            let misspelled = format!("{words} --{option}{}", &option[option.len() - 1..]);
            let hint = hint(&misspelled);
            assert!(hint.starts_with("did you mean `--"), "{misspelled}: {hint}");
        }
    }
}
