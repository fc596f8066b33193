//! A plan: what to change about a program so that it fits, and the file that it is kept in.

use std::path::Path;

use serde::{Deserialize, Serialize};
use vramfit_base::files::cannot_read;

use super::chunk::Chunk;
use super::program_edit::ProgramEdit;
use super::settings::PlanSettings;
use super::site::{Site, SiteKind, short_name};
use crate::error::{Error, ErrorKind, Result};

/// The version of the format.
const SCHEMA: u32 = 2;

/// What to change about a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Settings of the process.
    #[serde(default, skip_serializing_if = "PlanSettings::is_default")]
    pub settings: PlanSettings,
    /// Edits that are measured. No search proposes one to be applied.
    #[serde(default, rename = "edit", skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<ProgramEdit>,
    /// What is mapped, by `jax.vmap` or for a Jacobian, to compute in chunks.
    #[serde(default, rename = "chunk", skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Chunk>,
    /// What to do at each site.
    #[serde(default, rename = "site", skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SitePlan>,
}

/// What to do at one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SitePlan {
    /// How the program uses the function.
    pub kind: SiteKind,
    /// Where it is defined: `file.py:line (function)`.
    pub definition: String,
    /// The function that was traced, defined there: this one, or the one whose jaxpr contains it.
    pub inside: String,
    /// Which of the functions that are differentiated that was, from 1; each counts once, whatever its shapes.
    pub call: u64,
    /// Digest of its jaxpr with shapes and types.
    pub fingerprint: String,
    /// Digest of its jaxpr without them.
    pub structure: String,
    /// How many equations its jaxpr has.
    pub equations: usize,
    /// Ranges of equations, each rematerialized as one.
    pub segments: Vec<(usize, usize)>,
    /// Name of the policy for all of them; else the chosen values are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save: Option<String>,
    /// Equations whose values are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saved: Vec<usize>,
    /// Equations whose values are kept in pinned host memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloaded: Vec<usize>,
    /// Whether what enters the segments is kept in pinned host memory, as far as the backward pass
    /// needs it: values of earlier equations, and arguments that are of the same shape as a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offload_inputs: bool,
    /// How many iterations of the loop whose body it is are compiled one after the other: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unroll: Option<u64>,
    /// The lines of the equations that are kept or offloaded, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_lines: Vec<String>,
}

/// What a plan was made for and with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanSource {
    /// Version of vramfit.
    pub vramfit: String,
    /// Version of JAX.
    pub jax: String,
    /// The GPU, as its option names it.
    pub gpu: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Peak of the dry run with the plan.
    pub peak_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct PlanFile {
    schema: u32,
    source: PlanSource,
    #[serde(flatten)]
    plan: Plan,
}

impl SitePlan {
    /// Returns a plan for a site.
    pub(super) fn new(site: &Site, segments: &[(usize, usize)], save: Option<&str>) -> Self {
        SitePlan {
            kind: site.kind,
            definition: site.definition.clone(),
            inside: site.inside.clone(),
            call: site.call,
            fingerprint: site.fingerprint.clone(),
            structure: site.structure.clone(),
            equations: site.equations.len(),
            segments: segments.to_vec(),
            save: save.map(str::to_owned),
            saved: Vec::new(),
            offloaded: Vec::new(),
            offload_inputs: false,
            unroll: None,
            kept_lines: Vec::new(),
        }
    }

    /// Says why it cannot be the plan for a function, if it cannot.
    fn check(&self) -> std::result::Result<(), String> {
        let name = short_name(&self.definition);
        let mut position = 0;
        for &(start, stop) in &self.segments {
            if start < position || start >= stop {
                return Err(format!("{name}: the segment [{start}, {stop}] is out of order"));
            }
            position = stop;
        }
        if position > self.equations {
            return Err(format!(
                "{name}: a segment ends at {position}, and there are {} equations",
                self.equations
            ));
        }
        if let Some(unroll) = self.unroll
            && (self.kind != SiteKind::Scan || unroll < 2)
        {
            return Err(format!("{name}: `unroll` is {unroll}, or it is no loop's"));
        }
        let is_inside = |index: &usize| {
            let mut segments = self.segments.iter();
            segments.any(|&(start, stop)| (start..stop).contains(index))
        };
        match self.saved.iter().chain(&self.offloaded).find(|index| !is_inside(index)) {
            Some(index) => Err(format!("{name}: the equation {index} is in no segment")),
            None => Ok(()),
        }
    }

    /// Returns `true` if it keeps values in host memory.
    pub fn is_offloading(&self) -> bool {
        self.offload_inputs || !self.offloaded.is_empty()
    }

    /// Describes it in a few words.
    pub fn describe(&self) -> String {
        let place = short_name(&self.definition);
        let unrolled = self.unroll.map(|count| format!("unroll the loop of {count} iterations"));
        if self.segments.is_empty() {
            let change =
                unrolled.unwrap_or_else(|| "inline the calls of `jax.jit` in it".to_owned());
            return format!("{place}: {change}");
        }
        let kept = match self.save.as_deref() {
            Some("nothing") => "recompute everything".to_owned(),
            Some("dots") => "keep matrix products and convolutions".to_owned(),
            Some("dots-without-batch") => {
                "keep matrix products without batch dimensions".to_owned()
            }
            Some("everything") => "keep everything".to_owned(),
            Some(other) => format!("policy {other}"),
            None => {
                let verb = match self.offloaded.is_empty() {
                    true => "save the values of",
                    false => "offload the values of",
                };
                match &self.kept_lines[..] {
                    [] => "recompute everything".to_owned(),
                    [line] => format!("{verb} {}", short_name(line)),
                    [line, rest @ ..] => {
                        let lines = if rest.len() == 1 { "line" } else { "lines" };
                        format!("{verb} {} and {} more {lines}", short_name(line), rest.len())
                    }
                }
            }
        };
        let kept = match self.offload_inputs {
            true => format!("{kept}, offload its inputs to the host"),
            false => kept,
        };
        let kept = match unrolled {
            Some(unrolled) => format!("{unrolled}, {kept}"),
            None => kept,
        };
        match (self.kind, self.segments.len()) {
            (SiteKind::Grad | SiteKind::ShardMap, 1) => {
                format!("{place} in one segment: {kept}")
            }
            (SiteKind::Grad | SiteKind::ShardMap, count) => {
                format!("{place} in {count} segments: {kept}")
            }
            _ => format!("{place}: {kept}"),
        }
    }
}

impl Plan {
    /// Returns `true` if it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Plan::default()
    }

    /// Returns `true` if it changes the program, and not only settings of its process.
    pub fn changes_program(&self) -> bool {
        let settings = self.settings.clone();
        *self != Plan { settings, ..Plan::default() }
    }

    /// Returns its changes, each in a few words.
    pub fn moves(&self) -> Vec<String> {
        let sites = self.sites.iter().map(SitePlan::describe);
        let settings = self.settings.describe().into_iter();
        let edits = self.edits.iter().map(ProgramEdit::describe);
        let chunks = self.chunks.iter().map(Chunk::describe);
        settings.chain(edits).chain(chunks).chain(sites).collect()
    }

    /// Returns the text of a plan file.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for what TOML cannot express.
    pub fn to_toml(&self, source: &PlanSource) -> Result<String> {
        let file = PlanFile { schema: SCHEMA, source: source.clone(), plan: self.clone() };
        let text = toml::to_string(&file).map_err(|error| {
            Error::new(ErrorKind::Internal, "the plan cannot be written as TOML").cause(error)
        })?;
        Ok(format!(
            "# Made by `vramfit plan`; applied by `vramfit run --plan FILE` and `vramfit dryrun --plan FILE`.\n{text}"
        ))
    }

    /// Reads the text of a plan file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] for anything else, and for a plan of another version.
    pub fn parse(text: &str, path: &Path) -> Result<(Plan, PlanSource)> {
        let shown = path.display();
        let invalid = |message: String| Error::invalid_file(message);
        let hint = "make one with `vramfit plan --out FILE`";
        let table: toml::Table = toml::from_str(text).map_err(|error| {
            invalid(format!("`{shown}` is not a plan")).cause(error.message()).hint(hint)
        })?;
        match table.get("schema").and_then(toml::Value::as_integer) {
            Some(schema) if schema == i64::from(SCHEMA) => {}
            Some(schema) => {
                let message = format!(
                    "`{shown}` is a plan of schema {schema}; this version of vramfit reads {SCHEMA}"
                );
                return Err(invalid(message).hint("make it again with `vramfit plan`"));
            }
            None => return Err(invalid(format!("`{shown}` is not a plan")).hint(hint)),
        }
        let file: PlanFile = table.try_into().map_err(|error: toml::de::Error| {
            invalid(format!("the plan `{shown}` cannot be read")).cause(error.message()).hint(hint)
        })?;
        let plan = &file.plan;
        let checks = plan.sites.iter().map(SitePlan::check);
        for check in checks.chain(plan.chunks.iter().map(Chunk::check)) {
            check.map_err(|reason| {
                invalid(format!("the plan `{shown}` cannot be read"))
                    .cause(reason)
                    .hint("make it again with `vramfit plan`")
            })?;
        }
        Ok((file.plan, file.source))
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], and those of [`Plan::parse`].
    pub fn read(path: &Path) -> Result<(Plan, PlanSource)> {
        let text = std::fs::read_to_string(path).map_err(|error| cannot_read(path, error))?;
        Plan::parse(&text, path)
    }
}
