//! A command with values in the place of its placeholders, such as `{batch}`.

use std::ffi::OsString;

use vramfit_analysis::planning::Progression;

/// What programs call the option that sets the number of samples in a step.
const BATCH_NAMES: [&str; 4] = ["batch", "batch-size", "global-batch", "global-batch-size"];

/// A placeholder whose largest number is searched.
#[derive(Clone, Debug)]
pub struct NumberRange {
    /// The name between the braces.
    pub name: String,
    /// The numbers to search in.
    pub numbers: Progression,
}

/// The command with values in the place of its placeholders.
#[derive(Clone, Debug)]
pub struct VariedCommand {
    /// The values, as `NAME=VALUE`.
    pub values: Vec<String>,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

impl VariedCommand {
    /// Returns the number of samples in a step: what an option or a varied value says that has the name of a batch.
    pub fn batch(&self) -> Option<u64> {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        let pairs = words.windows(2).map(|pair| (&*pair[0], &*pair[1]));
        let with_sign = words.iter().filter_map(|word| word.split_once('='));
        let options = pairs
            .chain(with_sign)
            .filter_map(|(name, value)| Some((name.strip_prefix("--")?, value)));
        let values = self.values.iter().filter_map(|value| value.split_once('='));
        values
            .chain(options)
            .filter(|(name, _)| BATCH_NAMES.contains(&&*name.replace('_', "-")))
            .find_map(|(_, value)| value.parse().ok().filter(|batch| *batch > 0))
    }
}

/// Puts a value in the place of a placeholder.
pub fn substitute(command: &[OsString], name: &str, value: &str) -> Vec<OsString> {
    let placeholder = format!("{{{name}}}");
    command
        .iter()
        .map(|word| match word.to_str() {
            Some(text) => OsString::from(text.replace(&placeholder, value)),
            None => word.clone(),
        })
        .collect()
}
