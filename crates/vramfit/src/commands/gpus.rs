//! `vramfit gpus`: the catalog of GPUs, with the memory that drivers really report.

use std::path::Path;

use clap::Subcommand;
use serde_json::json;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_model::gpu::{self, Certainty, Gpu, Platform};

use super::results::JsonFileArgs;
use crate::output::Output;
use crate::status::Status;

/// List the known GPUs, or show one
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  vramfit gpus
  vramfit gpus h100-80g
  vramfit gpus h100-80g --json -
")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The GPU to show, as with `show` [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    results: JsonFileArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show everything known about a GPU, and the source of each figure
    Show {
        /// Name of the GPU, its name in the driver, or the path of a `.toml` file
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        results: JsonFileArgs,
    },
}

impl Args {
    pub(crate) fn results(&self) -> &JsonFileArgs {
        match &self.action {
            None => &self.results,
            Some(Action::Show { results, .. }) => results,
        }
    }
}

/// Runs `vramfit gpus`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let name = match &args.action {
        Some(Action::Show { name, .. }) => Some(name),
        None => args.name.as_ref(),
    };
    let gpu = name.map(|name| gpu::find(name)).transpose()?;
    let (value, text) = match &gpu {
        None => (json!({"schema": JSON_SCHEMA, "gpus": gpu::all()}), render_table(gpu::all())),
        Some(gpu) => (json!({"schema": JSON_SCHEMA, "gpu": gpu}), render_details(gpu)),
    };
    // In `--json t4` the GPU is the name of a file.
    let file = args.results().json.path().and_then(Path::to_str).filter(|_| gpu.is_none());
    if let Some(file) = file.filter(|file| gpu::find(file).is_ok()) {
        return Err(Error::invalid_argument(format!("`--json {file}` names a file, not the GPU"))
            .hint(format!("`vramfit gpus {file} --json -` prints what is known about the GPU")));
    }
    let json = args.results().target()?;
    json.write(&value, output)?;
    if !json.is_stdout() {
        output.text(&text)?;
    }
    Ok(Status::Yes)
}

/// Returns a table with one line per GPU.
fn render_table(gpus: &[Gpu]) -> String {
    let width = gpus.iter().map(|gpu| gpu.name.len()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  {:>10}  {:>4}  {:>5}  description\n", "name", "memory", "cc", "cores");
    for gpu in gpus {
        let (major, minor) = gpu.compute_capability;
        let mark = if gpu.memory_certainty == Certainty::Estimated { "~" } else { "" };
        text.push_str(&format!(
            "{:width$}  {:>10}  {:>4}  {:>5}  {}\n",
            gpu.name,
            format!("{mark}{}", Bytes(gpu.total_memory_bytes)),
            format!("{major}.{minor}"),
            gpu.core_count,
            gpu.description,
        ));
    }
    text.push_str(
        "\nmemory: the lowest total that drivers report; `vramfit gpus show NAME` lists the others\n\
         ~ estimated: no driver's report for this GPU is known\n",
    );
    text
}

/// Returns everything known about a GPU.
fn render_details(gpu: &Gpu) -> String {
    let (major, minor) = gpu.compute_capability;
    let certainty = match gpu.memory_certainty {
        Certainty::Reported => "reported by a driver",
        Certainty::Estimated => "estimated",
    };
    let cuda = match gpu.max_cuda_major {
        Some(last) => format!(
            "CUDA {} to {last} (`vramfit[cuda{last}]`: JAX with CUDA {last})",
            gpu.min_cuda_major
        ),
        None => format!("CUDA {} or newer", gpu.min_cuda_major),
    };
    let rates: Vec<String> =
        gpu.peak_tflops.known().map(|(dtype, rate)| format!("{dtype} {rate}")).collect();
    let kib = |bytes: u32| Bytes(bytes.into()).to_string();
    let total = gpu.total_memory_bytes;

    let mut lines = vec![
        ("driver name", gpu.description.clone()),
        ("memory", format!("{} ({total} bytes, {certainty})", Bytes(total))),
    ];
    if gpu.has_total_range() {
        let max = gpu.max_total_memory_bytes;
        lines.push((
            "highest total",
            format!(
                "{} ({max} bytes), {:.2} % more; a dry run uses the lowest by default",
                Bytes(max),
                (max as f64 / total as f64 - 1.0) * 100.0
            ),
        ));
    }
    for seen in &gpu.totals {
        let on = match seen.platform {
            Platform::Linux => "",
            Platform::Windows => " on Windows and WSL2",
        };
        let megabytes = seen.bytes as f64 / f64::from(1 << 20);
        lines.push(("  reported total", format!("{megabytes:.2} MiB{on}: {}", seen.source)));
    }
    if gpu.shares_host_memory {
        lines.push((
            "shared with host",
            "programs on the CPU use the same memory: pass it as `--occupied`".to_owned(),
        ));
    }
    lines.extend([
        ("default pool", format!("{} (75 %, the default of JAX)", Bytes(total / 4 * 3))),
        (
            "CUDA context",
            format!(
                "about {} per process, outside the pool (estimated)",
                Bytes(gpu.context_bytes_estimate).estimated()
            ),
        ),
        ("compute capability", format!("{major}.{minor}, supported by {cuda}")),
        (
            "multiprocessors",
            format!("{} with {} FP32 lanes each", gpu.core_count, gpu.fp32_lanes_per_core),
        ),
        (
            "shared memory",
            format!(
                "{} per multiprocessor, at most {} per block",
                kib(gpu.shared_memory_per_core_bytes),
                kib(gpu.shared_memory_per_block_optin_bytes),
            ),
        ),
        ("level 2 cache", Bytes(gpu.l2_bytes).to_string()),
        ("bandwidth", format!("{} GB/s", gpu.bandwidth_bytes_per_s / 1_000_000_000)),
        (
            "link to the host",
            gpu.host_link.map_or_else(
                || "none, or not known".to_owned(),
                |link| format!("{}, {} GB/s", link.label(), link.bytes_per_s() / 1_000_000_000),
            ),
        ),
        ("clock", format!("{} GHz", gpu.clock_ghz)),
        ("peak 10^12 op/s", format!("{} (dense)", rates.join(", "))),
    ]);
    if let Some(parent) = &gpu.mig_parent {
        lines.push(("slice of", parent.clone()));
    }
    if !gpu.aliases.is_empty() {
        lines.push(("aliases", gpu.aliases.join(", ")));
    }
    lines.push(("source", gpu.source.clone()));

    let mut text = format!("{}\n", gpu.name);
    for (name, value) in lines {
        text.push_str(&format!("  {name:<19} {value}\n"));
    }
    text
}
