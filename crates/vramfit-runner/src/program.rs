//! The program that a command of the user's names.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vramfit_base::{Error, Result};

use crate::child;
use crate::context::Context;
use crate::messages::Messages;
use crate::python::{self, Interpreter};

/// Splits a command into a program that exists and its arguments; a file that ends in `.py` is run with
/// the context's Python. What is not in `PATH` is relative to `directory`, else to the current one.
///
/// # Errors
/// `command-not-found`, and `invalid-argument` for an unknown option.
pub fn split_program(
    words: Vec<OsString>,
    directory: Option<&Path>,
    context: &Context,
) -> Result<(PathBuf, Vec<OsString>)> {
    let mut words = words.into_iter();
    let first = words.next().expect("a command has one word");
    if first.as_encoded_bytes().starts_with(b"-") {
        let shown = first.to_string_lossy();
        return Err(Error::invalid_argument(format!("unknown option `{shown}`"))
            .hint("`--help` lists the options; they come before the program"));
    }
    let locate = |word: &OsStr| directory.map_or_else(|| PathBuf::from(word), |it| it.join(word));
    let located = locate(&first);
    let is_script = |path: &Path| path.extension() == Some(OsStr::new("py"));
    if !is_script(&located) {
        let has_folder = first.as_encoded_bytes().contains(&b'/');
        let program = match &context.replaced_python {
            Some((name, python)) if *name == first => python.as_os_str(),
            _ if has_folder => located.as_os_str(),
            _ => &first,
        };
        let program = child::resolve_command(program)?;
        let arguments: Vec<OsString> = words.collect();
        let script = python::find_script(&arguments).filter(|_| python::is_python(&program));
        if let Some(script) =
            script.map(locate).filter(|script| is_script(script) && !script.exists())
        {
            return Err(child::does_not_exist(&script));
        }
        return Ok((program, arguments));
    }
    if !located.is_file() {
        return Err(child::does_not_exist(&located));
    }
    let python = context.python.clone().unwrap_or_default();
    let arguments = std::iter::once(first).chain(words).collect();
    Ok((child::resolve_command(python.as_os_str())?, arguments))
}

/// Returns a context in which a `python` that has no JAX stands for vramfit's own, which has, and says so: the environment
/// that vramfit was installed in need not be activated.
pub fn with_own_python<'w>(
    programs: impl IntoIterator<Item = &'w OsStr>,
    context: &Context,
    messages: &dyn Messages,
) -> Context {
    let has_jax = |program: &Path| {
        let installed = python::query(&Interpreter::bare(program.to_owned()), |_| {});
        installed.map(|installed| installed.jax.is_some())
    };
    let is_bare = |name: &OsStr| Path::new(name).file_name() == Some(name);
    let mut programs = programs.into_iter();
    let name = programs.find(|name| is_bare(name) && python::is_python(Path::new(name)));
    let own = context.python.as_ref().and_then(|own| child::resolve_command(own.as_os_str()).ok());
    let (Some(name), Some(own)) = (name, own) else {
        return context.clone();
    };
    let found = child::resolve_command(name).ok();
    // Names of one interpreter lie in one folder; files are no measure, since all environments link to the same one.
    let is_own = found.as_ref().is_some_and(|found| found.parent() == own.parent());
    let lacks_jax = || found.as_ref().is_none_or(|found| has_jax(found) == Some(false));
    if is_own || !lacks_jax() || has_jax(&own) != Some(true) {
        return context.clone();
    }
    let name_shown = name.to_string_lossy();
    let why = match &found {
        Some(found) => format!("`{}` has no JAX", found.display()),
        None => "there is none on the `PATH`".to_owned(),
    };
    messages.info(&format!("note: `{name_shown}` is vramfit's own, `{}`: {why}", own.display()));
    Context { replaced_python: Some((name.to_owned(), own)), ..context.clone() }
}
