//! Which Python will run the user's program, and what that Python has installed.
//!
//! This is found out before the program starts, because JAX falls back to the CPU where its compiler is
//! missing. It costs one start of the interpreter; `jax` is not imported.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use vramfit_advice::lint::Packages;
use vramfit_model::settings::Version;

use crate::child;
use crate::python_child::PythonChild;

/// The beginning of scripts that look for installed packages; see its own first lines.
pub const PACKAGES: &str = include_str!("packages.py");

/// The script that prints what is installed; see its own first lines.
const PROBE: &str = concat!(include_str!("packages.py"), include_str!("probe.py"));

/// The oldest Python that the extension module can be loaded into: it is built for this stable interface.
pub const MIN_PYTHON: (u32, u32) = (3, 11);

/// A healthy interpreter answers within a tenth of a second; a wrapper that waits for something
/// must not delay the user's program, which is then started without knowing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// An interpreter and the options it is given before the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The file.
    pub program: PathBuf,
    /// Its own options, such as `-u`, and never the script's.
    pub options: Vec<OsString>,
}

/// What an interpreter has installed, as far as a virtual GPU is concerned.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Installed {
    /// Version of the language, such as `3.11.7`.
    pub python: String,
    /// Major and minor version of the language.
    pub python_version: (u32, u32),
    /// The directory of the package `vramfit`, if it is installed there.
    pub package: Option<PathBuf>,
    /// Whether directories named in `PYTHONPATH` are searched.
    pub reads_pythonpath: bool,
    /// Version of `jax`.
    pub jax: Option<String>,
    /// Version of `jaxlib`.
    pub jaxlib: Option<String>,
    /// The real CUDA plugins: major version of CUDA and version of the package.
    pub plugins: Vec<CudaPlugin>,
    /// Version of TensorFlow for GPUs.
    pub tensorflow: Option<String>,
    /// Version of PyTorch.
    pub torch: Option<String>,
    /// Where XLA will find the assembler for GPU code.
    pub ptxas: Option<PathBuf>,
    /// Where XLA will find the device functions.
    pub libdevice: Option<PathBuf>,
}

/// An installed `jax-cudaXX-plugin`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct CudaPlugin {
    /// Major version of CUDA, such as 13.
    pub cuda: u32,
    /// Version of the package, if its metadata could be read.
    pub version: Option<String>,
    /// Whether the compiler itself (`jax-cudaXX-pjrt`) is installed too.
    pub library: bool,
}

impl Interpreter {
    /// Returns an interpreter without options.
    pub fn bare(program: PathBuf) -> Self {
        Interpreter { program, options: Vec::new() }
    }
}

impl Installed {
    /// Returns the release of JAX, if it is installed.
    pub fn jax_version(&self) -> Option<Version> {
        self.jax.as_ref()?.parse().ok()
    }

    /// Returns what the rules about settings want to know of it; `None` without JAX, whose programs they are about.
    pub fn packages(&self) -> Option<Packages> {
        self.jax.is_some().then(|| Packages {
            tensorflow: self.tensorflow.clone(),
            tensorflow_cpu: None,
            torch: self.torch.clone(),
            cuda_plugin: !self.plugins.is_empty(),
        })
    }
}

/// Finds out which interpreter a command will run, if it is a Python program at all.
///
/// Looks at the program's name, or at the first line of a script such as `pytest`. Returns `None`
/// for shell scripts and launchers, of which nothing is known before they run.
pub fn find_interpreter(program: &Path, arguments: &[OsString]) -> Option<Interpreter> {
    if is_python(program) {
        return Some(Interpreter {
            program: program.to_owned(),
            options: own_options(arguments.iter().map(OsString::as_os_str)),
        });
    }
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(512).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace().map(OsStr::new).peekable();
    let mut named = PathBuf::from(words.next()?);
    if named.file_name() == Some(OsStr::new("env")) {
        while words.peek().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
            words.next();
        }
        named = child::resolve_command(words.next()?).ok()?;
    }
    is_python(&named).then(|| Interpreter { program: named, options: own_options(words) })
}

/// Queries what an interpreter has installed.
///
/// `adjust` sets the environment that the program will get. Returns `None` when no answer came; the
/// program is then started without knowing.
pub fn query(interpreter: &Interpreter, adjust: impl FnOnce(&mut Command)) -> Option<Installed> {
    let mut command = Command::new(&interpreter.program);
    adjust(&mut command);
    command.args(&interpreter.options).args(["-c", PROBE]).stderr(Stdio::null());
    let mut child = PythonChild::spawn(&mut command).ok()?;
    child.close_stdin();
    let installed = child.receive_message(Some(PROBE_TIMEOUT));
    if installed.is_none() {
        child.kill();
    }
    installed
}

/// Returns the directory of the modules that JAX and Python discover, in the package `vramfit`.
pub fn shim_of(package: &Path) -> PathBuf {
    package.join("_inprogram/_jax_shim")
}

/// Returns the user's `PYTHONPATH` with a directory in front, of whose modules the first is used.
pub fn prepend_python_path(directory: PathBuf, users: Option<OsString>) -> OsString {
    let mut path = directory.into_os_string();
    if let Some(users) = users.filter(|users| !users.is_empty()) {
        path.push(":");
        path.push(users);
    }
    path
}

/// Returns `true` if a program is Python, by its name.
pub fn is_python(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_prefix("python")
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Returns the script among the arguments of an interpreter.
pub fn find_script(arguments: &[OsString]) -> Option<&OsStr> {
    let options = own_options(arguments.iter().map(OsString::as_os_str));
    // `-um` is an option of its own and the beginning of something else.
    let rest = arguments.strip_prefix(&options[..])?;
    rest.first().map(OsString::as_os_str).filter(|word| !word.as_encoded_bytes().starts_with(b"-"))
}

/// Takes the options that belong to the interpreter itself, up to the script, `-c` or `-m`.
fn own_options<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            break;
        };
        if letters.starts_with('-') {
            break;
        }
        // `-Xdev` and `-Werror` carry their value, `-X dev` takes the next word, and in `-um` the
        // `m` ends the interpreter's part.
        let value = letters.find(['X', 'W']).unwrap_or(letters.len());
        if let Some(end) = letters[..value].find(['c', 'm']) {
            if end > 0 {
                options.push(format!("-{}", &letters[..end]).into());
            }
            break;
        }
        options.push(argument.to_owned());
        if value + 1 == letters.len() {
            options.extend(arguments.next().map(OsStr::to_owned));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(line: &str) -> Vec<String> {
        own_options(line.split(' ').map(OsStr::new))
            .into_iter()
            .map(|option| option.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn options_end_where_the_script_begins() {
        assert_eq!(options_of("-u -X dev -Werror train.py -I"), ["-u", "-X", "dev", "-Werror"]);
        assert_eq!(options_of("-I -m train -u"), ["-I"]);
        assert_eq!(options_of("-um train -I"), ["-u"]);
        assert_eq!(options_of("-Wc -B train.py"), ["-Wc", "-B"]);
        assert_eq!(options_of("- -I"), [""; 0]);
        assert_eq!(options_of("train.py"), [""; 0]);
    }

    #[test]
    fn a_script_follows_the_options() {
        let script_of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            find_script(&words).map(|script| script.to_string_lossy().into_owned())
        };
        assert_eq!(script_of("-u -X dev train.py -I"), Some("train.py".to_owned()));
        for line in ["-m train.py", "-um train.py", "-c train.py", "- train.py"] {
            assert_eq!(script_of(line), None, "{line}");
        }
    }

    #[test]
    fn interpreters_are_recognized_by_name() {
        for name in ["python", "python3", "/usr/bin/python3.11", "python3.14"] {
            assert!(is_python(Path::new(name)), "{name}");
        }
        for name in ["pythonw-wrapper", "ipython", "bash", "python-config"] {
            assert!(!is_python(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_script_names_its_interpreter_in_the_first_line() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let script = folder.path().join("tool");
        std::fs::write(&script, "#!/usr/bin/python3 -s\nimport sys\n").expect("written");
        let found = find_interpreter(&script, &["-I".into()]).expect("the line names a Python");
        assert_eq!(found.program, Path::new("/usr/bin/python3"));
        assert_eq!(found.options, ["-s"]);

        std::fs::write(&script, "#!/bin/sh\nexec python3\n").expect("written");
        assert_eq!(find_interpreter(&script, &[]), None);
        std::fs::write(&script, [0x7f, b'E', b'L', b'F', 0]).expect("written");
        assert_eq!(find_interpreter(&script, &[]), None);
    }

    #[test]
    fn a_program_that_does_not_answer_is_not_known() {
        let silent = Interpreter::bare("/bin/true".into());
        assert_eq!(query(&silent, |_| {}), None);
    }
}
