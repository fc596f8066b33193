//! What keys have to do with each other. A key that would have no effect is refused: whoever wrote it
//! believes that it has one.

use super::config::Config;
use super::read::Given;
use crate::error::Result;

/// How many layers there are where nothing says so.
const LAYERS: u64 = 2;

/// Checks a configuration, and makes `hidden_sizes` one width for each layer.
pub(super) fn check(config: &mut Config, given: &Given) -> Result<()> {
    validation(config, given)?;
    tokens(given)?;
    layers(config, given)?;
    heads(config, given)?;
    schedule(config, given)?;
    optimizer(config, given)
}

fn validation(config: &Config, given: &Given) -> Result<()> {
    let (path, share) = ("data.validation_path", "data.validation_share");
    if let (Some(_), Some(place)) = (given.place(path), given.place(share)) {
        return Err(place
            .refuse("`validation_share` has no effect beside `validation_path`")
            .hint("leave one of the two out"));
    }
    let validates = config.data.validation_path.is_some() || config.data.validation_share > 0.0;
    match given.place("training.stop_after") {
        Some(place) if !validates => Err(place
            .refuse("`stop_after` looks at the validation loss, and no rows validate")
            .hint("give `validation_share` a part, such as 0.1, or leave `stop_after` out")),
        _ => Ok(()),
    }
}

fn tokens(given: &Given) -> Result<()> {
    match (given.place("data.scale"), given.place("data.vocabulary")) {
        (Some(place), Some(_)) => Err(place
            .refuse("`scale` has no effect on tokens, which `vocabulary` makes of the inputs")
            .hint("leave one of the two out")),
        _ => Ok(()),
    }
}

fn layers(config: &mut Config, given: &Given) -> Result<()> {
    let model = &mut config.model;
    let widths = model.hidden_sizes.len() as u64;
    match (model.layers, given.place("model.layers")) {
        (Some(layers), Some(place)) if widths > 1 && widths != layers => {
            let what =
                format!("`layers` is {layers}, and `hidden_sizes` has the widths of {widths}");
            return Err(place
                .refuse(&what)
                .hint("leave `layers` out, or give `hidden_sizes` one width"));
        }
        _ => {}
    }
    if let ([width], layers) = (&model.hidden_sizes[..], model.layers) {
        let layers = layers.unwrap_or(LAYERS);
        model.hidden_sizes = vec![*width; usize::try_from(layers).unwrap_or(usize::MAX)];
    }
    model.layers = Some(model.hidden_sizes.len() as u64);
    Ok(())
}

fn heads(config: &Config, given: &Given) -> Result<()> {
    let model = &config.model;
    let heads = given.place("model.heads");
    if model.kind != "transformer" {
        return heads.map_or(Ok(()), |place| {
            let what = format!("`heads` has no effect on a model of kind `{}`", model.kind);
            Err(place
                .refuse(&what)
                .hint("leave it out, or write `kind = \"transformer\"`"))
        });
    }
    let width = model.hidden_sizes[0];
    let widths = given.place("model.hidden_sizes");
    let place = heads.or(widths).or(given.place("model.kind"));
    let Some(place) = place else { return Ok(()) };
    if model.hidden_sizes.iter().any(|other| *other != width) {
        return Err(widths
            .unwrap_or(place)
            .refuse("a transformer has one width, and `hidden_sizes` has several")
            .hint(format!(
                "write `hidden_sizes = [{width}]` and `layers = {}`",
                model.hidden_sizes.len()
            )));
    }
    if !width.is_multiple_of(model.heads) {
        let what = format!("{} heads do not divide a width of {width}", model.heads);
        let fitting = (1..=model.heads)
            .rev()
            .find(|heads| width.is_multiple_of(*heads));
        return Err(place
            .refuse(&what)
            .hint(format!("`heads = {}` do", fitting.unwrap_or(1))));
    }
    Ok(())
}

fn schedule(config: &Config, given: &Given) -> Result<()> {
    let optimizer = &config.optimizer;
    match (
        optimizer.schedule.as_str(),
        given.place("optimizer.warmup_steps"),
        given.place("optimizer.schedule"),
    ) {
        ("warmup_cosine", None, Some(place)) => Err(place
            .refuse("`warmup_cosine` needs `warmup_steps`")
            .hint("add `warmup_steps = 100`: steps until the learning rate is reached")),
        ("warmup_cosine", ..) | (_, None, _) => Ok(()),
        (schedule, Some(place), _) => {
            let what = format!("`warmup_steps` has no effect on the schedule `{schedule}`");
            Err(place
                .refuse(&what)
                .hint("leave it out, or write `schedule = \"warmup_cosine\"`"))
        }
    }
}

fn optimizer(config: &Config, given: &Given) -> Result<()> {
    let name = config.optimizer.name.as_str();
    for (key, those, instead) in [
        ("weight_decay", &["adamw", "lion"][..], "adamw"),
        ("momentum", &["sgd"][..], "sgd"),
    ] {
        let place = given.place(&format!("optimizer.{key}"));
        if let (Some(place), false) = (place, those.contains(&name)) {
            let what = format!("`{key}` has no effect on `{name}`");
            return Err(place
                .refuse(&what)
                .hint(format!("leave it out, or write `name = \"{instead}\"`")));
        }
    }
    Ok(())
}
