//! What the values of the options of a dry run mean.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use vramfit_analysis::planning::Plan;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_model::gpu::Gpu;
use vramfit_model::settings::Options;
use vramfit_runner::dryrun::RemedyLevel;

/// The total memory that drivers report for a GPU of one model varies; which of them to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Total {
    /// The lowest that drivers report.
    Lowest,
    /// The highest that drivers report.
    Highest,
    /// What the user's driver reports.
    Exactly(Bytes),
}

impl Total {
    /// Returns the GPU with this total.
    ///
    /// # Errors
    /// `invalid-argument` for bytes that no driver can report for it.
    pub(super) fn apply(self, gpu: &Gpu) -> Result<Gpu> {
        match self {
            Total::Lowest => gpu.with_total(gpu.total_memory_bytes),
            Total::Highest => gpu.with_total(gpu.max_total_memory_bytes),
            Total::Exactly(bytes) => gpu.with_total(bytes.0),
        }
    }
}

/// Reads `--total`.
///
/// # Errors
/// `invalid-argument` for anything but `lowest`, `highest` or a number of bytes.
pub(super) fn parse_total(text: &str) -> Result<Total> {
    match text {
        "lowest" => Ok(Total::Lowest),
        "highest" => Ok(Total::Highest),
        _ => Bytes::parse_memory(text).map(Total::Exactly),
    }
}

/// Reads `--share-as`.
///
/// # Errors
/// `invalid-argument` for what cannot be the name of a file everywhere.
pub(super) fn parse_share_name(text: &str) -> Result<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(allowed) {
        return Err(Error::invalid_argument(format!(
            "`{text}` is not a valid name for shared GPUs"
        ))
        .hint("use letters, digits and `-_.`, such as `desk`"));
    }
    Ok(text.to_owned())
}

/// Reads `--plan`, adds its settings to the options of the user's, and returns the absolute path: the program
/// may change its directory.
///
/// # Errors
/// Those of [`Plan::read`].
pub(crate) fn read_plan(
    path: Option<&Path>,
    options: Options,
) -> Result<(Option<PathBuf>, Options)> {
    let Some(path) = path else {
        return Ok((None, options));
    };
    let (plan, _) = Plan::read(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((Some(absolute), plan.settings.add_to(&options)))
}

/// Reads `--remedies`.
pub(super) fn remedies_parser() -> impl TypedValueParser<Value = RemedyLevel> {
    const ALL: [(RemedyLevel, &str, &str); 3] = [
        (RemedyLevel::Off, "off", "None"),
        (
            RemedyLevel::Quick,
            "quick",
            "The two that are about most memory, where the program does not fit",
        ),
        (RemedyLevel::Full, "full", "All, also where it fits"),
    ];
    named_values(ALL)
}

/// Returns a parser of values that have a name and a help each.
pub(super) fn named_values<T: Clone + Send + Sync + 'static, const N: usize>(
    all: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let values = all.each_ref().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).map(move |name| {
        let named = all.iter().find(|(_, known, _)| *known == name);
        named.expect("one of the possible values").0.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_analysis::ErrorKind;
    use vramfit_model::gpu;

    #[test]
    fn a_total_is_lowest_or_highest_or_bytes() {
        let t4 = gpu::find("t4").expect("in the catalog");
        for (text, bytes) in
            [("lowest", 15_642_329_088), ("highest", 15_843_721_216), ("15109MiB", 15_842_934_784)]
        {
            let gpu = parse_total(text).and_then(|total| total.apply(&t4)).expect(text);
            assert_eq!(gpu.total_memory_bytes, bytes, "{text}");
            assert_eq!(gpu.max_total_memory_bytes, bytes, "{text}");
        }
        for text in ["80GiB", "most", ""] {
            let error = parse_total(text).and_then(|total| total.apply(&t4)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }
}
