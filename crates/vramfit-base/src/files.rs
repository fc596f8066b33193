//! Files and directories that a user has named and that cannot be read.

use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::nearest::nearest;

/// What to do where nothing has a similar name.
const CHECK_PATH: &str = "check the path; it is relative to the current directory";

/// Returns the error for a file that could not be read. One that does not exist is told from all others, with the file
/// beside it whose name is nearest.
pub fn cannot_read(path: &Path, error: std::io::Error) -> Error {
    cannot_read_with_hint(path, error, CHECK_PATH)
}

/// As [`cannot_read`]; `hint` is what to do about a file that does not exist where no name is near.
pub fn cannot_read_with_hint(path: &Path, error: std::io::Error, hint: &str) -> Error {
    if error.kind() == IoErrorKind::NotFound {
        return missing("file", path, Path::is_file, hint);
    }
    Error::io(format!("cannot read `{}`", path.display())).cause(error)
}

/// Returns the error for a file that does not exist.
pub fn missing_file(path: &Path) -> Error {
    missing("file", path, Path::is_file, CHECK_PATH)
}

/// Returns the error for a directory that does not exist, with the directory beside it whose name is nearest; `hint` is what
/// to do where no name is near.
pub fn missing_directory(path: &Path, hint: &str) -> Error {
    missing("directory", path, Path::is_dir, hint)
}

fn missing(what: &str, path: &Path, is_one: impl Fn(&Path) -> bool, hint: &str) -> Error {
    let error = Error::io(format!("there is no {what} `{}`", path.display()));
    match nearest_entry(path, is_one) {
        Some(meant) => error.hint(format!("did you mean `{}`?", meant.display())),
        None => error.hint(hint),
    }
}

/// Returns what lies beside a path and has the name most like it, of what `is_one` holds for.
fn nearest_entry(path: &Path, is_one: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?.flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| is_one(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| has_similar_extension(wanted, name))
        .collect();
    names.sort();
    let meant = *nearest(wanted, names.iter().map(String::as_str)).first()?;
    Some(path.with_file_name(meant))
}

/// Returns `false` for files of two formats: `train.h5` is no slip for `train.py`.
fn has_similar_extension(wanted: &str, name: &str) -> bool {
    let extension = |name: &str| Path::new(name).extension()?.to_str().map(str::to_owned);
    match (extension(wanted), extension(name)) {
        (Some(wanted), Some(other)) => !nearest(&wanted, std::iter::once(&*other)).is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn the_nearest_file_of_the_same_format_is_suggested() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["gpt.trace", "plan.toml", "train.h5", "train.log", "trace", "run_train.py"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        std::fs::create_dir(folder.path().join("gtp.traces")).expect("made");
        for (wanted, meant) in [
            ("gtp.trace", Some("gpt.trace")),
            ("gpt", Some("gpt.trace")),
            ("plna.toml", Some("plan.toml")),
            ("plan.tml", Some("plan.toml")),
            ("train.hd5", Some("train.h5")),
            ("trian.log", Some("train.log")),
            ("train.py", None),
            ("model.trace", None),
            ("no/gpt.trace", None),
        ] {
            let path = folder.path().join(wanted);
            let error = std::fs::read(&path).expect_err("there is none");
            let error = cannot_read_with_hint(&path, error, "another");
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!(error.message(), format!("there is no file `{}`", path.display()));
            let shown = |meant| format!("did you mean `{}`?", folder.path().join(meant).display());
            let expected = meant.map_or_else(|| "another".to_owned(), shown);
            assert_eq!(error.hint_text(), Some(&*expected), "{wanted}");
        }
        let error = missing_directory(&folder.path().join("gpt.traces"), "another");
        assert!(error.hint_text().is_some_and(|hint| hint.ends_with("/gtp.traces`?")), "{error:?}");
    }

    #[test]
    fn other_failures_keep_what_the_system_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = std::fs::read(folder.path()).expect_err("it is a directory");
        let said = error.to_string();
        let error = cannot_read(folder.path(), error);
        assert_eq!(error.message(), format!("cannot read `{}`", folder.path().display()));
        assert_eq!((error.cause_text(), error.hint_text()), (Some(&*said), None));
    }
}
