//! What somebody would write in the program instead of applying a plan.

use super::chunk::Chunk;
use super::plan::{Plan, SitePlan};
use super::settings::PlanSettings;
use super::site::SiteKind;
use super::site::short_name;

impl Plan {
    /// Returns the edits of the program that come nearest to the plan, a sentence each. Their memory is not
    /// measured: a plan divides a function more finely than a program usually does.
    pub fn edits(&self) -> Vec<String> {
        let sites = self.sites.iter().map(SitePlan::edit);
        let chunks = self.chunks.iter().map(Chunk::edit);
        self.settings.edits().into_iter().chain(chunks).chain(sites).collect()
    }
}

impl PlanSettings {
    fn edits(&self) -> Vec<String> {
        let fraction = self.memory_fraction;
        let fraction = fraction.map(|it| format!("start it with `vramfit run --fraction {it}`"));
        let preallocation = self.preallocate.map(|on| {
            match on {
                true => "start it without `XLA_PYTHON_CLIENT_PREALLOCATE=false`",
                false => "start it with `vramfit run --no-preallocate`",
            }
            .to_owned()
        });
        let allocator = self.allocator.map(|kind| {
            let name = kind.name();
            format!("start it with `vramfit run --allocator {name}`")
        });
        let remat = self.xla_remat.map(|on| {
            let word = if on { "on" } else { "off" };
            format!("start it with `vramfit run --remat {word}`")
        });
        let scheduler = self.latency_hiding.map(|on| {
            format!("add `--xla_gpu_enable_latency_hiding_scheduler={on}` to `XLA_FLAGS`")
        });
        let pool = fraction.into_iter().chain(preallocation).chain(allocator);
        pool.chain(remat).chain(scheduler).collect()
    }
}

impl SitePlan {
    fn edit(&self) -> String {
        let place = short_name(&self.definition);
        let unroll = self.unroll.map(|_| "pass `unroll=True` to its `jax.lax.scan`");
        if self.segments.is_empty() {
            return format!(
                "{place}: {}",
                unroll.unwrap_or("call the functions in it without `jax.jit`")
            );
        }
        let policy = self.policy();
        let arguments = |more: &str| match &policy {
            Some(policy) => format!("{more}policy={policy}"),
            None => more.trim_end_matches(", ").to_owned(),
        };
        let edit = match self.kind {
            SiteKind::Checkpoint => {
                let policy = policy.as_deref().unwrap_or("None");
                format!("{place}: give its `jax.checkpoint` `policy={policy}`")
            }
            SiteKind::Scan if self.unroll.is_some() => {
                let call = checkpoint_call("body", &arguments(""));
                format!("{place}: pass `{call}` and `unroll=True` to `jax.lax.scan`")
            }
            // In the body of a scan XLA cannot merge the two computations.
            SiteKind::Scan => {
                let arguments = arguments("prevent_cse=False, ");
                format!("{place}: pass `jax.checkpoint(body, {arguments})` to `jax.lax.scan`")
            }
            SiteKind::Grad | SiteKind::ShardMap => {
                let call = checkpoint_call("layer", &arguments(""));
                match self.segments.len() {
                    1 => format!("{place}: call what takes most memory in it through `{call}`"),
                    count => {
                        format!("{place}: call its layers, in {count} groups, through `{call}`")
                    }
                }
            }
        };
        let edit = match self.offload_inputs {
            true => format!("{edit}, with a name for what enters each of them"),
            false => edit,
        };
        if self.kept_lines.is_empty() {
            return edit;
        }
        let lines: Vec<&str> = self.kept_lines.iter().map(|line| short_name(line)).collect();
        format!(
            "{edit}, with names from `jax.ad_checkpoint.checkpoint_name` for the values at {}",
            lines.join(", ")
        )
    }

    /// Returns the policy as a program writes it; `None` for the default, which keeps nothing.
    fn policy(&self) -> Option<String> {
        let name = match self.save.as_deref() {
            _ if self.is_offloading() => "save_and_offload_only_these_names(...)",
            Some("dots") => "dots_saveable",
            Some("dots-without-batch") => "dots_with_no_batch_dims_saveable",
            Some("everything") => "everything_saveable",
            None if !self.saved.is_empty() => "save_only_these_names(...)",
            _ => return None,
        };
        Some(format!("jax.checkpoint_policies.{name}"))
    }
}

fn checkpoint_call(function: &str, arguments: &str) -> String {
    match arguments {
        "" => format!("jax.checkpoint({function})"),
        arguments => format!("jax.checkpoint({function}, {arguments})"),
    }
}
