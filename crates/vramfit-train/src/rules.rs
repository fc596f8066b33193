//! Rules that involve several keys. A key without effect is an error: a person who set it believes that it has one.

use vramfit_base::Result;

use super::config::Config;
use super::raw_config::RawConfig;

/// Factor of a lower learning rate, where it is not set.
const DEFAULT_PLATEAU_FACTOR: f64 = 0.5;
/// Epochs without a better training loss, where it is not set.
const DEFAULT_PLATEAU_PATIENCE: u64 = 3;
/// Number of layers if `layers` is not set and `hidden_sizes` has one width.
const DEFAULT_LAYERS: u64 = 2;

/// Validates a configuration, and expands `hidden_sizes` to one width for each layer.
pub(super) fn validate(config: &mut Config, raw: &RawConfig) -> Result<()> {
    length(config, raw);
    validation(config, raw)?;
    tokens(config, raw)?;
    own_model(config, raw)?;
    layers(config, raw)?;
    heads(config, raw)?;
    schedule(config, raw)?;
    plateau(config, raw)?;
    optimizer(config, raw)
}

fn validation(config: &Config, raw: &RawConfig) -> Result<()> {
    let (path, share) = ("data.validation_path", "data.validation_fraction");
    if let (Some(_), Some(location)) = (raw.location(path), raw.location(share)) {
        return Err(location
            .error("`validation_fraction` has no effect with `validation_path`")
            .hint("remove one of the two"));
    }
    let validates = config.data.validation_path.is_some() || config.data.validation_fraction > 0.0;
    for key in ["stop_after", "eval_every", "best_by"] {
        if let (Some(location), false) = (raw.location(&format!("training.{key}")), validates) {
            let what = format!("`{key}` needs an evaluation, but there is no validation data");
            return Err(location
                .error(&what)
                .hint(format!("set `validation_fraction`, such as to 0.1, or remove `{key}`")));
        }
    }
    let Some((rule, location)) =
        config.training.best_by.as_ref().zip(raw.location("training.best_by"))
    else {
        return Ok(());
    };
    match rule.split_once(' ') {
        Some(("min" | "max", name)) if !name.trim().is_empty() => Ok(()),
        _ => Err(location
            .error(&format!("`best_by` is `{rule}`, but must be `min` or `max` and a metric"))
            .hint("for example `best_by = \"min loss\"` or `best_by = \"max accuracy\"`")),
    }
}

/// The number of epochs has no limit if only that of the steps has one.
fn length(config: &mut Config, raw: &RawConfig) {
    if config.training.steps.is_some() && raw.location("training.epochs").is_none() {
        config.training.epochs = None;
    }
}

fn tokens(config: &Config, raw: &RawConfig) -> Result<()> {
    let has_tokens = raw.location("data.vocabulary").is_some();
    let normalize = raw.location("data.normalize").filter(|_| config.data.normalizes("inputs"));
    match (raw.location("data.scale"), normalize) {
        (Some(location), _) if has_tokens => Err(location
            .error("`scale` has no effect with `vocabulary`, which makes the inputs tokens")
            .hint("remove one of the two")),
        (_, Some(location)) if has_tokens => Err(location
            .error("tokens cannot be normalized, and `vocabulary` makes the inputs tokens")
            .hint("remove one of the two")),
        (Some(location), Some(_)) => Err(location
            .error("`scale` has no effect with `normalize`, which rescales the inputs, too")
            .hint("remove one of the two")),
        _ => Ok(()),
    }
}

fn own_model(config: &Config, raw: &RawConfig) -> Result<()> {
    let arguments = raw.location("model.arguments");
    let Some(own) = config.model.own() else {
        return arguments.map_or(Ok(()), |location| {
            let what =
                format!("`arguments` has no effect on a model of kind `{}`", config.model.kind);
            Err(location.error(&what).hint("remove it, or set `kind` to a class of your own"))
        });
    };
    for key in ["hidden_sizes", "layers", "heads", "dropout", "dtype"] {
        if let Some(location) = raw.location(&format!("model.{key}")) {
            let what = format!("`{key}` has no effect on `{}`, a model of your own", own.name);
            return Err(location.error(&what).hint(format!(
                "remove it; `arguments = {{ {key} = … }}` passes it on, if `{}` has such a parameter",
                own.name
            )));
        }
    }
    Ok(())
}

fn layers(config: &mut Config, raw: &RawConfig) -> Result<()> {
    let model = &mut config.model;
    if model.own().is_some() {
        // It has none of these, so none is shown or compared.
        model.hidden_sizes.clear();
        return Ok(());
    }
    let widths = model.hidden_sizes.len() as u64;
    match (model.layers, raw.location("model.layers")) {
        (Some(layers), Some(location)) if widths > 1 && widths != layers => {
            let what = format!("`layers` is {layers}, but `hidden_sizes` has {widths} widths");
            return Err(location
                .error(&what)
                .hint("remove `layers`, or set `hidden_sizes` to one width"));
        }
        _ => {}
    }
    if let ([width], layers) = (&model.hidden_sizes[..], model.layers) {
        let layers = layers.unwrap_or(DEFAULT_LAYERS);
        model.hidden_sizes = vec![*width; usize::try_from(layers).unwrap_or(usize::MAX)];
    }
    model.layers = Some(model.hidden_sizes.len() as u64);
    Ok(())
}

fn heads(config: &Config, raw: &RawConfig) -> Result<()> {
    let model = &config.model;
    let heads = raw.location("model.heads");
    if model.kind != "transformer" {
        return heads.map_or(Ok(()), |location| {
            let what = format!("`heads` has no effect on a model of kind `{}`", model.kind);
            Err(location.error(&what).hint("remove it, or set `kind = \"transformer\"`"))
        });
    }
    let width = model.hidden_sizes[0];
    let widths = raw.location("model.hidden_sizes");
    let location = heads.or(widths).or(raw.location("model.kind"));
    let Some(location) = location else {
        return Ok(());
    };
    if model.hidden_sizes.iter().any(|other| *other != width) {
        return Err(widths
            .unwrap_or(location)
            .error("a transformer has a single width, but `hidden_sizes` has several")
            .hint(format!(
                "use `hidden_sizes = [{width}]` and `layers = {}`",
                model.hidden_sizes.len()
            )));
    }
    if !width.is_multiple_of(model.heads) {
        let what = format!("a width of {width} is not divisible by {} heads", model.heads);
        let fitting = (1..=model.heads).rev().find(|heads| width.is_multiple_of(*heads));
        return Err(location.error(&what).hint(format!("use `heads = {}`", fitting.unwrap_or(1))));
    }
    Ok(())
}

fn schedule(config: &Config, raw: &RawConfig) -> Result<()> {
    let optimizer = &config.optimizer;
    match (
        optimizer.schedule.as_str(),
        raw.location("optimizer.warmup_steps"),
        raw.location("optimizer.schedule"),
    ) {
        ("warmup_cosine", None, Some(location)) => Err(location
            .error("`warmup_cosine` needs `warmup_steps`")
            .hint("set `warmup_steps`, such as to 100")),
        ("warmup_cosine", ..) | (_, None, _) => Ok(()),
        (schedule, Some(location), _) => {
            let what = format!("`warmup_steps` has no effect on the schedule `{schedule}`");
            Err(location.error(&what).hint("remove it, or set `schedule = \"warmup_cosine\"`"))
        }
    }
}

fn plateau(config: &mut Config, raw: &RawConfig) -> Result<()> {
    for key in ["plateau_factor", "plateau_patience"] {
        let location = raw.location(&format!("optimizer.{key}"));
        let schedule = &config.optimizer.schedule;
        if let (Some(location), false) = (location, schedule == "reduce_on_plateau") {
            let what = format!("`{key}` has no effect on the schedule `{schedule}`");
            return Err(location
                .error(&what)
                .hint("remove it, or set `schedule = \"reduce_on_plateau\"`"));
        }
    }
    let optimizer = &mut config.optimizer;
    if optimizer.schedule == "reduce_on_plateau" {
        optimizer.plateau_factor.get_or_insert(DEFAULT_PLATEAU_FACTOR);
        optimizer.plateau_patience.get_or_insert(DEFAULT_PLATEAU_PATIENCE);
    }
    Ok(())
}

fn optimizer(config: &Config, raw: &RawConfig) -> Result<()> {
    let name = config.optimizer.name.as_str();
    for (key, optimizers, instead) in [
        ("weight_decay", &["adamw", "lion"][..], "adamw"),
        ("weight_decay_mask", &["adamw", "lion"], "adamw"),
        ("momentum", &["sgd"], "sgd"),
    ] {
        let location = raw.location(&format!("optimizer.{key}"));
        if let (Some(location), false) = (location, optimizers.contains(&name)) {
            let what = format!("`{key}` has no effect on `{name}`");
            return Err(location
                .error(&what)
                .hint(format!("remove it, or set `name = \"{instead}\"`")));
        }
    }
    Ok(())
}
