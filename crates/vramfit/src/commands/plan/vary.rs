//! `--vary NAME=VALUES`: numbers and words in the command that the search may change.

use std::ffi::OsString;
use std::str::FromStr;

use vramfit_analysis::planning::Progression;
use vramfit_analysis::{Error, Result};
use vramfit_runner::plan::{NumberRange, VariedCommand, substitute};

/// How many numbers of a range are tried one by one.
const MAX_LISTED: usize = 16;

/// A placeholder, and what to put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variation {
    /// The name between the braces.
    pub(super) name: String,
    pub(super) values: Values,
}

/// What to put in the place of a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// The largest number of these that fits.
    Range(Progression),
    /// Each of them.
    List(Vec<String>),
}

impl FromStr for Variation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Error::invalid_argument(format!("`{text}` {why}"))
                .hint("write `--vary batch=1..512` or `--vary dtype=float32,bfloat16`")
        };
        let (name, values) = text
            .split_once('=')
            .filter(|(name, values)| !name.is_empty() && !values.is_empty())
            .ok_or_else(|| invalid("does not name values"))?;
        let values = match values.contains("..") {
            true => Values::Range(values.parse()?),
            false => Values::List(values.split(',').map(str::to_owned).collect()),
        };
        Ok(Variation { name: name.to_owned(), values })
    }
}

/// Returns the variations with lists of all their numbers in the place of ranges.
///
/// # Errors
/// `invalid-argument` for a range of more numbers than are tried one by one.
pub(super) fn list_all(variations: &[Variation]) -> Result<Vec<Variation>> {
    let list = |variation: &Variation| {
        let Values::Range(numbers) = &variation.values else {
            return Ok(variation.clone());
        };
        let all: Vec<String> =
            numbers.iter().take(MAX_LISTED + 1).map(|number| number.to_string()).collect();
        if all.len() > MAX_LISTED {
            return Err(Error::invalid_argument(format!(
                "`--fastest` measures each number of `{}`, and it has more than {MAX_LISTED}",
                variation.name
            ))
            .hint("name fewer, as with `--vary batch=8..512:x2`"));
        }
        Ok(Variation { values: Values::List(all), ..variation.clone() })
    };
    variations.iter().map(list).collect()
}

/// Separates the range from the lists, and checks that the command has each placeholder.
///
/// # Errors
/// `invalid-argument` for a name that the command lacks, and for a second range.
pub(super) fn split(
    variations: &[Variation],
    command: &[OsString],
) -> Result<(Option<NumberRange>, Vec<Variation>)> {
    let (mut range, mut lists) = (None, Vec::new());
    for variation in variations {
        let placeholder = format!("{{{}}}", variation.name);
        let is_used = |word: &OsString| word.to_string_lossy().contains(&placeholder);
        if !command.iter().any(is_used) {
            return Err(Error::invalid_argument(format!(
                "the command does not contain `{placeholder}`"
            ))
            .hint(format!(
                "write it where the value belongs, such as `--{} {placeholder}`",
                variation.name
            )));
        }
        match &variation.values {
            Values::Range(numbers) if range.is_none() => {
                range = Some(NumberRange { name: variation.name.clone(), numbers: *numbers });
            }
            Values::Range(_) => {
                return Err(Error::invalid_argument("only one `--vary` can be a range")
                    .hint("list the values of the others: `--vary layers=12,24`"));
            }
            Values::List(_) => lists.push(variation.clone()),
        }
    }
    Ok((range, lists))
}

/// Returns the commands for every combination of the lists, with what was put in place.
pub(super) fn commands(lists: &[Variation], command: &[OsString]) -> Vec<VariedCommand> {
    let mut commands = vec![VariedCommand { values: Vec::new(), words: command.to_vec() }];
    for variation in lists {
        let Values::List(values) = &variation.values else {
            continue;
        };
        commands = commands
            .iter()
            .flat_map(|command| {
                values.iter().map(move |value| {
                    let mut chosen = command.values.clone();
                    chosen.push(format!("{}={value}", variation.name));
                    VariedCommand {
                        values: chosen,
                        words: substitute(&command.words, &variation.name, value),
                    }
                })
            })
            .collect();
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_are_distinguished() {
        let range = "batch=1..512".parse::<Variation>().expect("a range");
        let numbers = "1..512".parse().expect("numbers");
        assert_eq!(range.values, Values::Range(numbers));
        let list = "dtype=float32,bfloat16".parse::<Variation>().expect("a list");
        assert_eq!(list.values, Values::List(vec!["float32".into(), "bfloat16".into()]));
        for wrong in ["batch", "=1", "batch=", "batch=9..3", "batch=0..3", "batch=1..x"] {
            assert!(wrong.parse::<Variation>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_combination_is_a_command() {
        let lists: Vec<Variation> =
            ["a=1,2", "b=x,y,z"].map(|text| text.parse().expect("a list")).into();
        let words: Vec<OsString> = ["run", "--a={a}", "{b}"].map(OsString::from).into();
        let commands = commands(&lists, &words);
        assert_eq!(commands.len(), 6);
        assert_eq!(commands[5].values, ["a=2", "b=z"]);
        assert_eq!(commands[5].words, ["run", "--a=2", "z"]);
        assert!(split(&lists, &words[..2]).is_err());
    }

    #[test]
    fn the_batch_is_known_by_its_name() {
        let batch = |lists: &[&str], words: &[&str]| {
            let lists: Vec<Variation> =
                lists.iter().map(|it| it.parse().expect("a list")).collect();
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            commands(&lists, &words)[0].batch()
        };
        assert_eq!(batch(&[], &["train.py", "--batch", "8"]), Some(8));
        assert_eq!(batch(&[], &["train.py", "--batch_size=16"]), Some(16));
        assert_eq!(batch(&["batch=4,8"], &["train.py", "{batch}"]), Some(4));
        for unknown in
            [&["train.py", "8"][..], &["--batch", "many"], &["--batches", "3"], &["batch", "3"]]
        {
            assert_eq!(batch(&[], unknown), None, "{unknown:?}");
        }
    }
}
