//! Rules that involve several keys. A key without effect is an error: a person who set it believes that it has one.

use vramfit_base::Result;

use super::config::Config;
use super::raw_config::RawConfig;

/// Number of layers if `layers` is not set and `hidden_sizes` has one width.
const DEFAULT_LAYERS: u64 = 2;

/// Validates a configuration, and expands `hidden_sizes` to one width for each layer.
pub(super) fn validate(config: &mut Config, raw: &RawConfig) -> Result<()> {
    validation(config, raw)?;
    tokens(raw)?;
    layers(config, raw)?;
    heads(config, raw)?;
    schedule(config, raw)?;
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
    match raw.location("training.stop_after") {
        Some(location) if !validates => Err(location
            .error("`stop_after` needs a validation loss, but there is no validation data")
            .hint("set `validation_fraction`, such as to 0.1, or remove `stop_after`")),
        _ => Ok(()),
    }
}

fn tokens(raw: &RawConfig) -> Result<()> {
    match (raw.location("data.scale"), raw.location("data.vocabulary")) {
        (Some(location), Some(_)) => Err(location
            .error("`scale` has no effect with `vocabulary`, which makes the inputs tokens")
            .hint("remove one of the two")),
        _ => Ok(()),
    }
}

fn layers(config: &mut Config, raw: &RawConfig) -> Result<()> {
    let model = &mut config.model;
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

fn optimizer(config: &Config, raw: &RawConfig) -> Result<()> {
    let name = config.optimizer.name.as_str();
    for (key, optimizers, instead) in
        [("weight_decay", &["adamw", "lion"][..], "adamw"), ("momentum", &["sgd"][..], "sgd")]
    {
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
