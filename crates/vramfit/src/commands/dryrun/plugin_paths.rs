//! Where the parts of the virtual GPU are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use vramfit_core::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::python::{self, Interpreter};

/// Where the parts of the virtual GPU are.
pub(super) struct PluginPaths {
    /// The extension module, which is the PJRT plugin.
    pub(super) plugin: PathBuf,
    /// The directory of the modules that JAX discovers.
    pub(super) shim: PathBuf,
}

impl PluginPaths {
    /// Takes what the caller knows, else asks the context's Python.
    ///
    /// # Errors
    /// `compiler-missing` where that Python does not have vramfit.
    pub(super) fn find(context: &Context) -> Result<Self> {
        let python = context.python.clone().unwrap_or_default();
        let package = context.package.clone().or_else(|| {
            let interpreter = Interpreter::bare(python.clone());
            python::query(&interpreter, |_| {})?.package
        });
        let Some(package) = package else {
            return Err(Error::new(
                ErrorKind::CompilerMissing,
                format!(
                    "`{}` does not have the package `vramfit`, which contains the virtual GPU",
                    python.display()
                ),
            )
            .hint("install it there, or name the Python that has it with `--python`"));
        };
        let plugin = context.plugin.clone().or_else(|| extension_module(&package));
        let Some(plugin) = plugin else {
            return Err(Error::new(
                ErrorKind::CompilerMissing,
                format!("no extension module in `{}`", package.display()),
            )
            .hint("build it with `make build`, or install a wheel"));
        };
        Ok(PluginPaths { plugin, shim: package.join("_jax_shim") })
    }
}

fn extension_module(package: &Path) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(package).ok()?.flatten().map(|entry| entry.path());
    files.find(|file| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("_native.") && name.ends_with(".so")
    })
}
