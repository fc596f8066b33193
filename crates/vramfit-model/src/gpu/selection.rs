//! `NAME` or `NAMExN`: a GPU that a user names, and how many of it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Gpu, find};
use crate::error::{Error, Result};

/// A GPU, and how many of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSelection {
    /// The GPU.
    pub gpu: Gpu,
    /// The name under which another command finds it: of the catalog, or the absolute path of a file.
    pub name: String,
    /// How many, at least 1.
    pub count: u32,
}

/// More devices than one process ever drives; a larger number is a typing error.
const MAX_GPUS: u32 = 1024;

impl GpuSelection {
    fn new(written: &str, gpu: Gpu, count: u32) -> Self {
        // Another command may be started in another directory.
        let name = match std::path::absolute(written) {
            Ok(path) if written.to_ascii_lowercase().ends_with(".toml") => {
                path.to_string_lossy().into_owned()
            }
            _ => gpu.name.clone(),
        };
        GpuSelection { gpu, name, count }
    }

    /// Returns model and number as they are shown, `NAME` or `NAMExN`.
    pub fn label(&self) -> String {
        match self.count {
            1 => self.gpu.name.clone(),
            count => format!("{}x{count}", self.gpu.name),
        }
    }
}

impl FromStr for GpuSelection {
    type Err = Error;

    /// Parses `NAME` or `NAMExN`.
    ///
    /// # Errors
    /// Those of [`find`], and [`crate::ErrorKind::InvalidArgument`] for a number that is out of range.
    fn from_str(text: &str) -> Result<Self> {
        let unknown = match find(text) {
            Ok(gpu) => return Ok(GpuSelection::new(text, gpu, 1)),
            Err(error) => error,
        };
        // Names may contain an `x` and digits themselves, so the number is looked for only now.
        let Some((name, digits)) = text.rsplit_once(['x', 'X', '*']) else {
            return Err(unknown);
        };
        if name.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(unknown);
        }
        let Ok(gpu) = find(name) else {
            return Err(unknown);
        };
        match digits.parse() {
            Ok(count) if (1..=MAX_GPUS).contains(&count) => Ok(GpuSelection::new(name, gpu, count)),
            _ => Err(Error::invalid_argument(format!(
                "number of GPUs {digits} is out of range; expected 1 to {MAX_GPUS}"
            ))
            .hint(format!("write a number such as `{name}x8`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn parse(text: &str) -> Result<GpuSelection> {
        text.parse()
    }

    #[test]
    fn a_number_may_follow_the_name() {
        assert_eq!(parse("h100-80g").unwrap().count, 1);
        let eight = parse("h100-80gx8").unwrap();
        assert_eq!((eight.gpu.name.as_str(), eight.count), ("h100-80g", 8));
    }

    #[test]
    fn unknown_names_and_numbers_out_of_range_are_different_errors() {
        for text in ["h100-80gx0", "h100-80gx1025", "h100-80gx99999999999"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
        for text in ["h1000", "h1000x8", "x8", "", "h100-80gx"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownGpu, "{text}");
        }
    }
}
