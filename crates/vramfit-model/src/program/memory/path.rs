//! What the path of an argument says of it: words that libraries and their users call things by.
//!
//! The outermost container says most (`params['mu']` is a layer called `mu`), so along a path the first
//! word that settles it counts. Other words only hint: what the program does has to agree.

use super::Owner;
use super::owner::Meaning;

/// Words that settle it, wherever they stand; the first one decides.
const SETTLING: &[(Owner, &[&str])] = &[
    (
        Owner::OptimizerState,
        &[
            "opt_state",
            "opt_states",
            "optstate",
            "optimizer_state",
            "optimiser_state",
            "optimizer",
            "optim",
            "opt",
        ],
    ),
    (Owner::OtherState, &["batch_stats", "batchstats", "cache", "rngs"]),
    (
        Owner::Parameters,
        &["params", "param", "parameters", "weights", "weight", "kernel", "bias", "embedding"],
    ),
];

/// Abbreviations of [`SETTLING`] that mean other things as well (the options of a MuJoCo model are
/// `model.opt`): an optimizer's only in a program that trains.
const AMBIGUOUS: &[&str] = &["opt", "optim"];

/// Statistics of normalizations: wherever they are kept, no gradient is taken of them. Among an
/// optimizer's state they are what it keeps for a layer of that name.
const STATISTICS: &[&str] = &[
    "running_mean",
    "running_var",
    "moving_mean",
    "moving_var",
    "moving_variance",
    "mean_ema",
    "var_ema",
    "batch_mean",
    "batch_var",
    "num_batches_tracked",
];

/// Names of an argument that is a batch, as the first word only.
const BATCH: &[&str] = &[
    "batch",
    "minibatch",
    "microbatch",
    "batches",
    "inputs",
    "images",
    "labels",
    "tokens",
    "targets",
];

/// Words of models.
const MODEL: &[&str] = &[
    "model",
    "net",
    "network",
    "backbone",
    "layers",
    "layer",
    "blocks",
    "block",
    "encoder",
    "decoder",
    "mlp",
    "attention",
    "attn",
    "embed",
    "embeddings",
    "wte",
    "wpe",
    "lm_head",
    "actor",
    "critic",
    "theta",
    "w",
    "w1",
    "w2",
    "w3",
];

/// Words of what optimizers keep.
const MOMENTS: &[&str] =
    &["mu", "nu", "trace", "momentum", "momenta", "velocity", "velocities", "acc_grads"];

/// Words of simulated bodies, also as a part of a word (`positions_a`).
const BODIES: &[&str] = &[
    "position",
    "positions",
    "velocity",
    "velocities",
    "momentum",
    "momenta",
    "force",
    "forces",
    "mass",
    "masses",
    "coordinates",
    "coords",
    "acceleration",
    "accelerations",
];

/// Kinds of variables of flax's nnx that are neither parameters nor an optimizer's: the name of such
/// a variable ends with its kind (`model.norm.mean (BatchStat)`).
const OTHER_KINDS: &[&str] =
    &["BatchStat", "Cache", "Intermediate", "Perturbation", "RngCount", "RngKey", "RngState"];

/// Returns what a path says.
pub(super) fn meaning_of(path: &str) -> Meaning {
    let kind = path.strip_suffix(')').and_then(|path| path.rsplit_once(" ("));
    if kind.is_some_and(|(_, kind)| OTHER_KINDS.contains(&kind)) {
        return Meaning::Settled(Owner::OtherState);
    }
    let words = words(path);
    let is_in = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if words.first().is_some_and(|word| BATCH.contains(&word.as_str())) {
        return Meaning::Settled(Owner::Batch);
    }
    let settled = words.iter().find_map(|word| {
        let found = SETTLING.iter().find(|(_, words)| words.contains(&word.as_str()));
        found.map(|(owner, _)| (*owner, AMBIGUOUS.contains(&word.as_str())))
    });
    let is_ambiguous = settled.is_some_and(|(_, is_ambiguous)| is_ambiguous);
    let settled = settled.map(|(owner, _)| owner);
    if settled != Some(Owner::OptimizerState) && is_in(STATISTICS) {
        return Meaning::Settled(Owner::OtherState);
    }
    if settled == Some(Owner::Parameters) && is_in_optax_state(&words) {
        return Meaning::Moment;
    }
    if is_ambiguous {
        return Meaning::Moment;
    }
    if let Some(owner) = settled {
        return Meaning::Settled(owner);
    }
    let hint = words.iter().find_map(|word| {
        let is_in = |list: &[&str]| list.contains(&word.as_str());
        match (is_in(MODEL), is_in(MOMENTS)) {
            (true, _) => Some(Meaning::Model),
            (_, true) => Some(Meaning::Moment),
            _ => None,
        }
    });
    if let Some(hint) = hint {
        return hint;
    }
    let is_body = |word: &String| word.split('_').any(|part| BODIES.contains(&part));
    match words.iter().any(is_body) {
        true => Meaning::Body,
        false => Meaning::Unknown,
    }
}

/// Returns `true` if a path leads through a field of optax's into what it keeps for each parameter:
/// `state[0].mu.layers[1].weight`. A layer of that name has a model, or no number, before it.
fn is_in_optax_state(words: &[String]) -> bool {
    let is_in = |word: &String, list: &[&str]| list.contains(&word.as_str());
    let first = words.iter().position(|word| {
        let settles = SETTLING.iter().any(|(_, list)| is_in(word, list));
        settles || is_in(word, MOMENTS) || is_in(word, MODEL)
    });
    first.is_some_and(|at| {
        let before = at.checked_sub(1).and_then(|before| words.get(before));
        is_in(&words[at], MOMENTS)
            && before.is_some_and(|word| word.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Splits a pytree path into its words: `state.params['layer_0'][3]` is `state`, `params`,
/// `layer_0`, `3`.
fn words(path: &str) -> Vec<String> {
    path.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_optax_keeps_for_a_weight_is_no_weight() {
        for (path, meaning) in [
            ("state[0].mu.layers[1].weight", Meaning::Moment),
            ("model.mu.weight", Meaning::Settled(Owner::Parameters)),
            ("vae.mu.weight", Meaning::Settled(Owner::Parameters)),
            ("encoder[0].mu.weight", Meaning::Settled(Owner::Parameters)),
            ("params[0].mu.weight", Meaning::Settled(Owner::Parameters)),
        ] {
            assert_eq!(meaning_of(path), meaning, "{path}");
        }
    }

    #[test]
    fn the_outermost_container_settles_it() {
        for (path, owner) in [
            ("state.params['dense']['kernel']", Owner::Parameters),
            ("state.opt_state[0].mu['dense']['kernel']", Owner::OptimizerState),
            ("variables['batch_stats']['mean']", Owner::OtherState),
            ("state.params['mu']['kernel']", Owner::Parameters),
            ("model.norm.mean (BatchStat)", Owner::OtherState),
            ("model.head.kernel (LoRAParam)", Owner::Parameters),
            ("state.params['attention']['key']['kernel']", Owner::Parameters),
            ("params['mlp/~/linear_0']['w']", Owner::Parameters),
            ("batch['weights']", Owner::Batch),
            ("model.inputs.kernel", Owner::Parameters),
        ] {
            assert_eq!(meaning_of(path), Meaning::Settled(owner), "{path}");
        }
    }

    #[test]
    fn statistics_are_state_wherever_they_are_kept() {
        for (path, owner) in [
            ("model.norm.running_mean", Owner::OtherState),
            ("params['norm']['running_var']", Owner::OtherState),
            ("state['batch_norm/~/mean_ema']['average']", Owner::OtherState),
            ("opt_state[0].mu['running_mean']", Owner::OptimizerState),
        ] {
            assert_eq!(meaning_of(path), Meaning::Settled(owner), "{path}");
        }
    }

    #[test]
    fn other_words_only_hint() {
        for (path, meaning) in [
            ("model.norm.scale", Meaning::Model),
            ("layers['w']", Meaning::Model),
            ("s[0].mu['a']", Meaning::Moment),
            ("m.opt.gravity", Meaning::Moment),
            ("s[0].mu['layers']['w']", Meaning::Moment),
            ("model.mu['w']", Meaning::Model),
            ("velocity", Meaning::Moment),
            ("state.position", Meaning::Body),
            ("positions_a", Meaning::Body),
            ("carry['h']", Meaning::Unknown),
            ("", Meaning::Unknown),
        ] {
            assert_eq!(meaning_of(path), meaning, "{path}");
        }
    }
}
