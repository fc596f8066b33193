//! Where the modules are by which JAX finds the virtual GPU.

use std::path::{Path, PathBuf};

use vramfit_core::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::python::{self, Interpreter};

/// Returns the directory of the modules that JAX discovers: of the package that the caller knows, else of that of the
/// context's Python.
///
/// # Errors
/// `compiler-missing` where that Python does not have vramfit.
pub(super) fn find_shim(context: &Context) -> Result<PathBuf> {
    let python = context.python.clone().unwrap_or_default();
    let package = context.package.clone().or_else(|| {
        let interpreter = Interpreter::bare(python.clone());
        python::query(&interpreter, |_| {})?.package
    });
    let package = package.ok_or_else(|| {
        Error::new(
            ErrorKind::CompilerMissing,
            format!(
                "`{}` does not have the package `vramfit`, which contains the virtual GPU",
                python.display()
            ),
        )
        .hint("install it there, or name the Python that has it with `--python`")
    })?;
    if !has_extension_module(&package) {
        let text = format!("no extension module in `{}`", package.display());
        return Err(Error::new(ErrorKind::CompilerMissing, text)
            .hint("build it with `make build`, or install a wheel"));
    }
    Ok(python::shim_of(&package))
}

/// Returns `true` if a package has the extension module, which is the PJRT plugin, too.
fn has_extension_module(package: &Path) -> bool {
    let files = std::fs::read_dir(package).into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("_native.") && name.ends_with(".so"))
}
