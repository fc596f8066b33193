//! Files that a command writes: checked before the work is done, and not overwritten without `--force`.

use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, Write};
use std::path::{Path, PathBuf};

use vramfit_analysis::{Error, Result};
use vramfit_runner::files::cannot_write;

/// Returns `true` if a path is `-`, which stands for standard output.
pub(crate) fn is_standard_output(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Rejects a file that would be overwritten, or that cannot be written, before the program runs.
///
/// # Errors
/// `io` when it exists and `--force` was not given, or when its directory does not exist.
pub(crate) fn writable(path: &Path, force: bool) -> Result<PathBuf> {
    let shown = path.display();
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::io(format!("cannot write `{shown}`")).cause(error))?;
    if absolute.is_dir() {
        return Err(Error::io(format!("cannot write `{shown}`: it is a directory")));
    }
    if absolute.exists() && !force && !is_special(&absolute) {
        return Err(Error::io(format!("`{shown}` already exists"))
            .hint("add `--force` to overwrite it, or name another file"));
    }
    match absolute.parent() {
        Some(parent) if !parent.is_dir() => {
            Err(Error::io(format!("cannot write `{shown}`: its directory does not exist"))
                .hint(format!("create it first: `mkdir -p {}`", parent.display())))
        }
        _ => Ok(absolute),
    }
}

/// Returns `true` if a path is a device, a pipe or similar: writing there overwrites nothing.
pub(crate) fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
}

/// Writes a file that did not exist when the command started, but may exist now. It ends in a line feed.
///
/// A temporary file is written, synchronized and renamed: readers find the old file or the complete new
/// one, also after a full disk or a kill.
///
/// # Errors
/// `io`.
pub(crate) fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let written = if is_special(path) { write_to(path, text) } else { replace(path, text, force) };
    written.map_err(|error| cannot_write(path, error))
}

fn replace(path: &Path, text: &str, force: bool) -> std::io::Result<()> {
    // What a link points to is replaced, not the link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().unwrap_or(Path::new("/"));
    let mut beside = tempfile::Builder::new();
    // The mode that any new file has, which the process's mask then narrows.
    let new = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let beside = beside.prefix(".vramfit-").permissions(new);
    let mut file = match beside.tempfile_in(folder) {
        Ok(file) => file,
        // A file may be open to us in a folder that is not.
        Err(error) if error.kind() == IoErrorKind::PermissionDenied && force => {
            return write_to(&target, text);
        }
        Err(error) => return Err(error),
    };
    write_all(file.as_file_mut(), text)?;
    if let Ok(old) = std::fs::metadata(&target) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    let named = match force {
        true => file.persist(&target),
        false => file.persist_noclobber(&target),
    };
    named.map(|_| ()).map_err(|refused| refused.error)
}

/// Writes a device, a pipe, or a file that cannot be replaced.
fn write_to(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = File::options();
    write_all(&mut options.write(true).truncate(true).open(path)?, text)
}

fn write_all(file: &mut File, text: &str) -> std::io::Result<()> {
    file.write_all(text.as_bytes())?;
    match text.ends_with('\n') {
        true => Ok(()),
        false => file.write_all(b"\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use vramfit_analysis::ErrorKind;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answer.json");
        write(&path, "{}", false).expect("it is free");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "{}\n");
        let refused = write(&path, "[]", false).expect_err("it is there");
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "{}\n");

        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&path, mode).expect("ours");
        // A process that has the old file open goes on reading it.
        let mut old = File::open(&path).expect("it is there");
        write(&path, "[]\n", true).expect("forced");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut old, &mut text).expect("read");
        assert_eq!(text, "{}\n");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "[]\n");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["answer.json"]);
    }

    #[test]
    fn what_a_link_points_to_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&path, "old").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        write(&link, "new", true).expect("forced");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "new\n");
    }

    #[test]
    fn a_full_device_is_an_error_with_its_reason() {
        let error = write(Path::new("/dev/full"), "{}", false).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.hint_text().is_some_and(|hint| hint.contains("full")), "{error}");
        write(Path::new("/dev/null"), "{}", false).expect("it takes everything");
    }
}
