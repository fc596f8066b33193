//! The table of settings, as `table.toml` holds it, and the page made from it.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::version::Version;

/// What reads a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// Python code of jax and jaxlib.
    Jax,
    /// XLA's GPU client, inside JAX's CUDA plugin.
    Plugin,
    /// XLA's compiler and runtime, as a flag inside `XLA_FLAGS` or as that variable itself.
    Xla,
    /// The CUDA driver.
    Driver,
    /// NVIDIA's library for collective operations.
    Nccl,
    /// TensorFlow only.
    Tensorflow,
    /// Nothing.
    Unread,
}

/// When a setting is read; a change after that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadAt {
    /// While `import jax` runs.
    Import,
    /// At the first use of a backend.
    Backend,
    /// When the first allocator is made.
    Allocator,
    /// At the first call of CUDA.
    Driver,
    /// At the first use of the library that reads it.
    Process,
}

impl ReadAt {
    /// Returns until when the setting can be set, as a clause.
    pub fn latest_stage(self) -> &'static str {
        match self {
            ReadAt::Import => "before `import jax`",
            ReadAt::Backend => "before the first use of JAX: `jax.devices()`, the first operation",
            ReadAt::Allocator => "before the first use of JAX on the GPU",
            ReadAt::Driver => "before the first CUDA call of any library",
            ReadAt::Process => "before the process starts",
        }
    }
}

/// One environment variable, or one flag inside `XLA_FLAGS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The variable's name, or the flag's without its dashes.
    pub name: String,
    /// What reads it.
    pub reader: Reader,
    /// When it is read.
    pub read_at: ReadAt,
    /// Which values are accepted.
    pub accepts: Option<String>,
    /// What holds when it is not set.
    pub default: Option<String>,
    /// First release that reads it; `None`: every release examined.
    pub since: Option<Version>,
    /// Last release that reads it.
    pub until: Option<Version>,
    /// What it does.
    pub effect: String,
    /// What happens on a value that is not accepted, where that is known.
    pub bad_value: Option<String>,
}

impl Setting {
    /// Returns `true` if this is a flag inside `XLA_FLAGS`, and not a variable.
    pub fn is_flag(&self) -> bool {
        self.name.starts_with("xla_")
    }

    /// Returns `true` if a program that runs on that release of JAX reads the setting at all.
    pub fn is_read_by(&self, version: Version) -> bool {
        !matches!(self.reader, Reader::Tensorflow | Reader::Unread)
            && self.since.is_none_or(|since| since <= version)
            && self.until.is_none_or(|until| version <= until)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    setting: Vec<Setting>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(include_str!("table.toml"))
        .expect("table.toml is part of the program and tested")
});

/// Returns every setting, in the order of the page.
pub fn all() -> &'static [Setting] {
    &TABLE.setting
}

/// Returns the setting of that name.
///
/// Variables are found by their exact name, as the system finds them. Flags are found with or
/// without dashes and value.
pub fn find(name: &str) -> Option<&'static Setting> {
    let bare = name.trim_start_matches('-');
    let flag = bare.split_once('=').map_or(bare, |(flag, _)| flag);
    all().iter().find(|s| if s.is_flag() { s.name == flag } else { s.name == name })
}

/// Writes the table as the page `docs/reference/settings.md`.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for Section { title, text, holds } in SECTIONS {
        write!(page, "\n## {title}\n\n{text}").expect(NEVER_FAILS);
        let entries: Vec<String> = all().iter().filter(|s| holds(s)).map(entry).collect();
        page.push_str(&entries.join("\n"));
    }
    page
}

/// A part of the page.
struct Section {
    title: &'static str,
    text: &'static str,
    holds: fn(&Setting) -> bool,
}

const SECTIONS: &[Section] = &[
    Section { title: "Read by JAX", text: READ_BY_JAX, holds: |s| s.reader == Reader::Jax },
    Section {
        title: "Read by XLA's GPU client",
        text: "",
        holds: |s| !s.is_flag() && matches!(s.reader, Reader::Plugin | Reader::Xla),
    },
    Section {
        title: "Read by CUDA and NCCL",
        text: "",
        holds: |s| matches!(s.reader, Reader::Driver | Reader::Nccl),
    },
    Section { title: "Flags inside XLA_FLAGS", text: FLAGS, holds: Setting::is_flag },
    Section {
        title: "Not read by JAX",
        text: "These names are in many recipes. Setting them has no effect in JAX.\n\n",
        holds: |s| matches!(s.reader, Reader::Tensorflow | Reader::Unread),
    },
];

const NEVER_FAILS: &str = "writing to a string does not fail";

const INTRODUCTION: &str = "\
# Settings reference

This page is generated from the table that vramfit itself uses (`crates/vramfit-model/src/settings/`). It
describes the behavior of JAX 0.4.26 to 0.12.0, as read in the sources and measured on the released
wheels, also where common advice differs.

A change after the point in time under *set* has no effect and gives no warning. *From* is the first
release of JAX that reads the name; without it, every examined release does.
";

const READ_BY_JAX: &str = "\
A bad value of an `XLA_*` variable does not end the program: JAX logs a traceback and falls back to
the CPU, unless `JAX_PLATFORMS` names `cuda`. A bad value of a `JAX_*` variable ends `import jax`.

";

const FLAGS: &str = "\
`XLA_FLAGS` contains flags separated by spaces, each with two dashes. The defaults are those
of 0.12.0.

";

/// Writes one setting as a heading and a list.
fn entry(setting: &Setting) -> String {
    let dashes = if setting.is_flag() { "--" } else { "" };
    let mut text = format!("### `{dashes}{}`\n\n{}\n\n", setting.name, setting.effect);
    let mut item = |label: &str, value: &str| {
        writeln!(text, "- *{label}*: {value}").expect(NEVER_FAILS);
    };
    if let Some(accepts) = &setting.accepts {
        item("values", accepts);
    }
    if let Some(default) = &setting.default {
        item("default", default);
    }
    if let Some(bad_value) = &setting.bad_value {
        item("bad value", bad_value);
    }
    if let Some(since) = setting.since {
        item("from", &since.to_string());
    }
    if let Some(until) = setting.until {
        item("until", &until.to_string());
    }
    match setting.reader {
        Reader::Tensorflow => item("read by", "TensorFlow only"),
        Reader::Unread => item("read by", "nothing"),
        _ => item("set", setting.read_at.latest_stage()),
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut seen = HashSet::new();
        for setting in all() {
            assert!(seen.insert(&setting.name), "{} is there twice", setting.name);
            assert_eq!(find(&setting.name), Some(setting));
        }
        assert!(find("--xla_gpu_autotune_level=0").is_some_and(Setting::is_flag));
        assert_eq!(find("xla_client_mem_fraction"), None, "variables have a case");
        assert_eq!(find("XLA_CLIENT_MEM_FRACTON"), None);
    }

    #[test]
    fn what_is_read_says_what_it_accepts() {
        for setting in all() {
            let is_read = !matches!(setting.reader, Reader::Tensorflow | Reader::Unread);
            assert_eq!(setting.accepts.is_some(), is_read, "{}", setting.name);
            assert!(is_read || setting.effect.starts_with("Nothing"), "{}", setting.name);
        }
    }

    #[test]
    fn versions_decide_what_is_read() {
        let read =
            |name: &str, version: &str| find(name).unwrap().is_read_by(version.parse().unwrap());
        for (name, before, first) in [
            ("XLA_CLIENT_MEM_FRACTION", "0.4.31", "0.4.33"),
            ("XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE", "0.6.2", "0.7.0"),
            ("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", "0.7.0", "0.7.1"),
            ("JAX_PJRT_CLIENT_CREATE_OPTIONS", "0.4.28", "0.4.29"),
            ("JAX_COMPILER_ENABLE_REMAT_PASS", "0.4.33", "0.4.34"),
            ("JAX_MEMORY_FITTING_LEVEL", "0.5.0", "0.5.1"),
            ("xla_gpu_enable_allocator_spatial_partitioning", "0.10.2", "0.11.0"),
        ] {
            assert!(!read(name, before), "{name} {before}");
            assert!(read(name, first), "{name} {first}");
        }
        assert!(read("JAX_MEMORY_FITTING_EFFORT", "0.11.0"));
        assert!(!read("JAX_MEMORY_FITTING_EFFORT", "0.12.0"));
        for name in ["JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "TF_GPU_ALLOCATOR"] {
            assert!(!read(name, "0.10.2"), "{name}");
        }
    }

    #[test]
    fn every_setting_is_on_the_page_once() {
        let page = markdown();
        for setting in all() {
            let heading =
                format!("### `{}{}`\n", if setting.is_flag() { "--" } else { "" }, setting.name);
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
        }
    }

    /// `UPDATE_DOCS=1 cargo test -p vramfit-analysis settings` writes the page.
    #[test]
    fn the_committed_page_is_made_from_the_table() {
        crate::testing::check_generated("settings.md", &markdown());
    }
}
