//! Remedies by which the program needs less, or has more GPUs: those that suit the kind of program.

use super::Remedy;
use super::pool::{
    completed_unified_memory, preallocate, raise_decisive_fraction, raise_fraction, unified_memory,
};
use crate::bytes::Bytes;
use crate::explain::facts::Facts;
use crate::explain::figures::NeedFigures;
use crate::explain::message::Message;
use crate::explain::need::LARGE_BYTES;
use crate::explain::number::add_sizes;
use crate::explain::start::{BatchOption, batch_option, names_batch};
use crate::explain::workload::Workload;
use crate::gpu::Gpu;
use crate::program::parse_dimensions;

/// In the names of operations of attention.
const ATTENTION: [&str; 3] = ["attn", "attention", "softmax"];
/// Fewer keys are not what takes the memory.
const MIN_KEYS: u64 = 256;

type Offer = fn(&Facts<'_>) -> Option<Remedy>;

/// Returns what makes the program need less, or gives it more: first what the log names, then what suits its kind.
pub(super) fn need_less(facts: &Facts<'_>) -> Vec<Remedy> {
    let named: [Offer; 7] = [
        raise_decisive_fraction,
        captured_constants,
        attention_scores,
        jit_of_pmap,
        single_operation,
        growing_pool,
        completed_unified_memory,
    ];
    // The fraction comes late where a little more is not likely to be enough.
    let suited: [Offer; 6] = match Shortage::of(facts) {
        Shortage::Outputs => {
            [smaller_outputs, less_at_once, more_gpus, narrow_types, unified_memory, raise_fraction]
        }
        Shortage::State => [donate, more_gpus, narrow_types, plan, smaller_batch, raise_fraction],
        Shortage::Activations => {
            [plan, smaller_batch, more_gpus, narrow_types, donate, raise_fraction]
        }
        Shortage::Weights => {
            [narrow_types, more_gpus, unified_memory, donate, raise_fraction, less_at_once]
        }
        Shortage::ForwardPass => {
            [less_at_once, narrow_types, more_gpus, unified_memory, smaller_outputs, raise_fraction]
        }
        Shortage::LargeRequest => {
            [less_at_once, more_gpus, narrow_types, unified_memory, plan, raise_fraction]
        }
        Shortage::SingleOperation => {
            [donate, more_gpus, narrow_types, unified_memory, raise_fraction, less_at_once]
        }
        Shortage::LiveArrays if facts.has_batch() => {
            [donate, smaller_batch, more_gpus, narrow_types, raise_fraction, plan]
        }
        Shortage::LiveArrays => {
            [donate, more_gpus, narrow_types, raise_fraction, less_at_once, plan]
        }
    };
    let offered = named.iter().chain(&suited).filter_map(|offer| offer(facts));
    let mut remedies: Vec<Remedy> = Vec::new();
    for remedy in offered {
        if remedies.iter().all(|known| known.id != remedy.id) {
            remedies.push(remedy);
        }
    }
    remedies
}

/// Returns what is left where one request is larger than the GPU.
pub(super) fn divide(facts: &Facts<'_>) -> Vec<Remedy> {
    let offers: [Offer; 8] = [
        captured_constants,
        jit_of_pmap,
        single_operation,
        less_at_once,
        unified_memory,
        blockwise,
        more_gpus,
        plan,
    ];
    offers.iter().filter_map(|offer| offer(facts)).collect()
}

/// What there is too much of, as far as the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortage {
    /// What the program returns.
    Outputs,
    /// Weights, moments of the optimizer, gradients.
    State,
    /// What the backward pass needs of the forward pass.
    Activations,
    /// The weights of a program without a backward pass.
    Weights,
    /// Temporaries of a program without a backward pass.
    ForwardPass,
    /// One large request of a program of an unknown kind.
    LargeRequest,
    /// An operation outside of `jax.jit`.
    SingleOperation,
    /// A small request beside much that is in use.
    LiveArrays,
}

impl Shortage {
    fn of(facts: &Facts<'_>) -> Shortage {
        if facts.figures.outputs_only.is_some() {
            return Shortage::Outputs;
        }
        let parts = facts.figures.need;
        let is_state = parts
            .is_some_and(|need| need.argument_bytes.max(need.live_out_bytes) > need.temp_bytes);
        // Donated arguments are among the outputs: what is more than they is new.
        let is_returned = parts.is_some_and(|need| {
            need.live_out_bytes.saturating_sub(need.argument_bytes)
                > need.argument_bytes.max(need.temp_bytes)
        });
        // Where no request failed, what the compiler counts.
        let most = facts.rounded_bytes().or(facts.need().map(|need| need.bytes));
        match facts.workload() {
            _ if is_returned => Shortage::Outputs,
            Workload::Training if is_state => Shortage::State,
            Workload::Training => Shortage::Activations,
            Workload::Inference if is_state => Shortage::Weights,
            Workload::Inference => Shortage::ForwardPass,
            Workload::Unknown if single_operation(facts).is_some() => Shortage::SingleOperation,
            Workload::Unknown if most < Some(LARGE_BYTES) => Shortage::LiveArrays,
            Workload::Unknown => Shortage::LargeRequest,
        }
    }
}

/// Recomputes activations, where there is a backward pass.
fn plan(facts: &Facts<'_>) -> Option<Remedy> {
    let text = match facts.workload() {
        Workload::Training => "recompute or offload activations, without editing the script",
        Workload::Unknown => "if it trains: recompute or offload activations",
        Workload::Inference => return None,
    };
    let command = format!("vramfit plan --gpu {} -- {}", facts.gpu_label(), facts.command);
    Some(Remedy::new("plan", text, command))
}

/// A smaller batch where there is one, chunks of anything else.
pub(super) fn less_at_once(facts: &Facts<'_>) -> Option<Remedy> {
    smaller_batch(facts).or_else(|| {
        let text = "do less at once: fewer samples or tokens in a call, or chunks, such as \
                    `jax.lax.map(f, xs, batch_size=64)` in place of `jax.vmap`";
        Some(Remedy::new("chunk", text, ""))
    })
}

fn smaller_batch(facts: &Facts<'_>) -> Option<Remedy> {
    const MANY: u64 = 1024;
    let search = |option: BatchOption| {
        let command = option.search_command(&format!("--gpu {}", facts.gpu_label()));
        Remedy::new("smaller-batch", "use the largest batch that fits", command)
    };
    match batch_option(&facts.command) {
        Some(option) => Some(search(option)),
        // How the option is written is not known: nothing but the text is certain.
        None if names_batch(&facts.command) => {
            Some(Remedy::new("smaller-batch", "use a smaller batch", ""))
        }
        None if facts.has_batch() => {
            let command = format!("{} --batch {{batch}}", facts.command);
            Some(search(BatchOption { command, size: MANY }))
        }
        None => None,
    }
}

/// Half the bytes of weights and activations, unless most have that already.
fn narrow_types(facts: &Facts<'_>) -> Option<Remedy> {
    let text = match facts.workload() {
        Workload::Training => "compute in 16 bits (`jnp.bfloat16`): half the bytes of activations",
        _ => "load weights and compute in 16 bits (`jnp.bfloat16`): half the bytes",
    };
    (!facts.is_narrow()).then(|| Remedy::new("narrow-types", text, ""))
}

/// Fewer arrays at the same time.
fn donate(facts: &Facts<'_>) -> Option<Remedy> {
    let refused = facts.log.has(|message| *message == Message::DonationWarning);
    if !refused && facts.figures.need.is_some_and(reuses_arguments) {
        return None;
    }
    let text = match (refused, facts.workload()) {
        (true, _) => {
            "make donated arguments usable, as the warning in the log lists them: shape and type have to be those of \
             an output"
        }
        (false, Workload::Training) => {
            "donate what a step replaces, `jax.jit(step, donate_argnums=0)`: else old and new state exist together"
        }
        (false, _) => {
            "keep fewer arrays alive: delete what is no longer needed, and donate what a call replaces \
             (`jax.jit(f, donate_argnums=0)`)"
        }
    };
    let command = format!("vramfit dryrun --gpu {} --full -- {}", facts.gpu_label(), facts.command);
    Some(Remedy::new("donate", text, command))
}

/// Returns `true` if outputs take the place of arguments already: XLA's total counts memory that both share once.
fn reuses_arguments(need: NeedFigures) -> bool {
    let parts = add_sizes([need.argument_bytes, need.live_out_bytes, need.temp_bytes]);
    let shared = parts.saturating_sub(need.total_bytes);
    shared > 0 && shared >= need.live_out_bytes / 10 * 9
}

/// Makes smaller what the program returns.
fn smaller_outputs(facts: &Facts<'_>) -> Option<Remedy> {
    let text = "return less at once: a smaller buffer, fewer steps or samples in one call, or a narrower type";
    let command = format!("vramfit dryrun --gpu {} --full -- {}", facts.gpu_label(), facts.command);
    Some(Remedy::new("smaller-outputs", text, command))
}

/// A larger GPU where one is known to be enough, or several.
fn more_gpus(facts: &Facts<'_>) -> Option<Remedy> {
    let command = |gpu: &str| format!("vramfit dryrun --gpu {gpu} -- {}", facts.command);
    let as_many = |gpu: &str| match facts.figures.gpu_count {
        0 | 1 => gpu.to_owned(),
        count => format!("{gpu}x{count}"),
    };
    // One small request says nothing about what is needed in all.
    let need = facts.need().filter(|need| !need.is_least || need.bytes >= LARGE_BYTES);
    let Some(need) = need else {
        let text =
            "use a larger GPU, or shard over several; how much is needed, the log does not tell";
        return Some(Remedy::new("larger-gpu", text, command("h100-80gx8")));
    };
    let amount = facts.describe_need(need);
    let count = facts.gpus_if_sharded(need);
    let several = match count {
        Some(count) => format!("shard over at least {count} of this GPU"),
        None => "shard over several".to_owned(),
    };
    let gpus = facts.fitting_gpus(need.bytes);
    let Some((smallest, _)) = gpus.first() else {
        let text = format!("{several}, as no larger GPU has {}: {amount}", Bytes(need.bytes));
        let name = facts.figures.gpu.unwrap_or("h100-80g");
        let gpus = format!("{name}x{}", count.unwrap_or(8));
        return Some(Remedy::new("shard", text, command(&gpus)));
    };
    let name = |(gpu, fraction): &(&Gpu, Option<f64>)| match fraction {
        Some(fraction) => format!("{} at {fraction}", as_many(&gpu.name)),
        None => as_many(&gpu.name),
    };
    let names: Vec<String> = gpus.iter().map(name).collect();
    let fits = match need.is_least {
        true => format!("use a larger GPU, from {} on", names.join(" or ")),
        false => format!("use a GPU on which it fits: {}", names.join(", ")),
    };
    let text = format!("{fits}, or {several}: {amount}");
    Some(Remedy::new("larger-gpu", text, command(&as_many(&smallest.name))))
}

/// Arrays that grow with the square of a length need not exist as a whole.
fn blockwise(_: &Facts<'_>) -> Option<Remedy> {
    let text = "if it grows with the square of a length (attention, pairs), compute it in blocks: \
                `jax.nn.dot_product_attention(..., implementation=\"cudnn\")`";
    Some(Remedy::new("blockwise", text, ""))
}

/// The largest buffer is a matrix of scores for each head: queries by keys, as many of each.
fn attention_scores(facts: &Facts<'_>) -> Option<Remedy> {
    let made = facts.log.buffers.iter().filter(|buffer| !buffer.is_argument);
    let largest = made.max_by_key(|buffer| buffer.bytes)?;
    let operation = largest.operation.to_ascii_lowercase();
    let is_attention = ATTENTION.iter().any(|name| operation.contains(name));
    let dimensions = parse_dimensions(&largest.shape)?;
    let [_, .., queries, keys] = dimensions[..] else { return None };
    (is_attention && queries == keys && queries >= MIN_KEYS).then(|| {
        let text = format!(
            "compute attention without its scores (`{}`): `jax.nn.dot_product_attention(..., implementation=\"cudnn\")` \
             in 16 bits, on GPUs from Ampere on",
            largest.shape
        );
        Remedy::new("blockwise", text, "").with_log_bytes(Some(largest.bytes))
    })
}

/// Arrays that a function has captured are constants of its program, and exist a second time.
fn captured_constants(facts: &Facts<'_>) -> Option<Remedy> {
    let (_, size) = facts.log.find(|message| match message {
        Message::CapturedConstants { size } => Some(*size),
        _ => None,
    })?;
    let text = "pass arrays to the function as arguments instead of capturing them: as constants of the program they \
                exist once more";
    let command = format!("JAX_CAPTURED_CONSTANTS_REPORT_FRAMES=-1 {}", facts.command);
    let remedy = Remedy::new("pass-as-arguments", text, command);
    Some(remedy.with_log_bytes(Some(size.bytes)))
}

/// A `jit` around a `pmap` collects inputs and outputs on one device.
fn jit_of_pmap(facts: &Facts<'_>) -> Option<Remedy> {
    let is_warned = facts.log.has(|message| *message == Message::JitOfPmap);
    let text = "remove the `jax.jit` around the `jax.pmap`, or use `jax.shard_map` in it: it collects the inputs and \
                outputs of all devices on one";
    is_warned.then(|| Remedy::new("no-jit-of-pmap", text, ""))
}

/// One operation outside of `jax.jit` needs its inputs and its result together.
fn single_operation(facts: &Facts<'_>) -> Option<Remedy> {
    /// A smaller one is not what fills the memory.
    const MIN_BYTES: u64 = 1 << 30;
    let name = facts.single_operation().filter(|_| facts.rounded_bytes() >= Some(MIN_BYTES))?;
    let text = format!(
        "`{name}` runs by itself, outside of `jax.jit`, and has its inputs and its result in memory: do it in NumPy on \
         the host, in parts, or inside of a jitted function"
    );
    Some(Remedy::new("single-operation", text, ""))
}

/// A pool that the log says is not preallocated.
fn growing_pool(facts: &Facts<'_>) -> Option<Remedy> {
    let is_off = facts.settings.preallocate == Some(false) && facts.settings.has_pool();
    let is_known = facts.log.dump().is_some_and(|dump| dump.free_bytes().is_some());
    let why = "preallocate the pool, which the log turns off: the regions of a growing pool never merge, and free \
               memory in them may be in pieces";
    (is_off && !is_known).then(|| preallocate(facts, why))
}
