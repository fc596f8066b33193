//! The JSON objects of reports; their version is [`vramfit_base::JSON_SCHEMA`].

mod attribution;
mod diff;
mod dryrun;
mod explain;
mod replay;
mod training;

use serde_json::Value;

pub(super) use self::diff::diff;
pub(super) use self::dryrun::{conditions, dryrun};
pub(super) use self::explain::explain;
pub(super) use self::replay::replay;
pub(super) use self::training::training;

/// Returns an object with the keys of all.
fn merge(objects: impl IntoIterator<Item = Value>) -> Value {
    let objects = objects.into_iter().filter_map(|object| match object {
        Value::Object(keys) => Some(keys),
        _ => None,
    });
    Value::Object(objects.flatten().collect())
}
