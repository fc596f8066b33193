//! What hosts have published for each other, and what they did not find: files that
//! `python/vramfit/_hosts/_exchange.py` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The messages of the hosts of one dry run.
pub(super) struct HostMessages {
    folder: PathBuf,
}

/// Values by kind and key.
pub(super) type Published = BTreeMap<(String, String), String>;

#[derive(Deserialize)]
struct Message {
    kind: String,
    key: String,
    value: String,
}

/// A message that was not there.
#[derive(Deserialize)]
struct MissingMessage {
    kind: String,
    key: String,
    /// Of whom; `None` for any host.
    host: Option<u32>,
    /// What it was taken to be; `None` where its lack was an error.
    assumed: Option<String>,
}

impl HostMessages {
    pub(super) fn new(folder: &Path) -> HostMessages {
        HostMessages {
            folder: folder.to_owned(),
        }
    }

    /// Returns what a host has published.
    pub(super) fn published(&self, host: u32) -> Published {
        let messages = read_lines::<Message>(&self.published_file(host));
        let messages = messages.into_iter();
        messages
            .map(|message| ((message.kind, message.key), message.value))
            .collect()
    }

    /// Says whether a host did not find something that it asked for.
    pub(super) fn misses_any(&self, host: u32) -> bool {
        !read_lines::<MissingMessage>(&self.missing_file(host)).is_empty()
    }

    /// Says whether one of the hosts has published since what a host did not find. What is as it was assumed is news
    /// only for a host that decided something by it.
    pub(super) fn has_news_for(&self, host: u32, hosts: &[u32], has_decided: bool) -> bool {
        let missing = read_lines::<MissingMessage>(&self.missing_file(host));
        if missing.is_empty() {
            return false;
        }
        let others = hosts.iter().filter(|other| **other != host);
        let published: BTreeMap<u32, Published> = others
            .map(|other| (*other, self.published(*other)))
            .collect();
        missing.into_iter().any(|missing| {
            let key = (missing.kind, missing.key);
            let is_news = |value: &String| has_decided || missing.assumed.as_ref() != Some(value);
            published.iter().any(|(other, messages)| {
                let is_sender = missing.host.is_none_or(|host| host == *other);
                is_sender && messages.get(&key).is_some_and(is_news)
            })
        })
    }

    /// Removes what a host has published and did not find, before it is run once more.
    pub(super) fn forget(&self, host: u32) {
        for file in [self.published_file(host), self.missing_file(host)] {
            // One that is not there is as good as removed.
            let _ = fs::remove_file(file);
        }
    }

    fn published_file(&self, host: u32) -> PathBuf {
        self.folder.join(format!("host-{host}.jsonl"))
    }

    fn missing_file(&self, host: u32) -> PathBuf {
        self.folder.join(format!("missing-{host}.jsonl"))
    }
}

/// Says whether a message that was there before has another value now, or is gone.
pub(super) fn is_changed(before: &Published, now: &Published) -> bool {
    before
        .iter()
        .any(|(key, value)| now.get(key) != Some(value))
}

/// Returns the values in the lines of a file; none for one that is not there, and none of a line that was cut.
fn read_lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDirectory;

    #[test]
    fn a_host_has_news_when_what_it_did_not_find_was_published() {
        let folder = TempDirectory::create().expect("a directory");
        let messages = HostMessages::new(folder.path());
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        let has_news = |hosts: &[u32]| messages.has_news_for(0, hosts, false);
        let misses = |rest: &str| {
            let text = format!(r#"{{"kind": "allgather", "key": "1", {rest}}}"#);
            write("missing-0.jsonl", &text);
        };
        assert!(!has_news(&[0, 1, 2]));
        misses(r#""host": 2, "assumed": "BA==""#);
        let message = r#"{"kind": "allgather", "key": "1", "value": "AA=="}"#;
        write("host-0.jsonl", message);
        write("host-1.jsonl", message);
        assert!(!has_news(&[0, 1, 2]), "that of host 2 is missing");
        misses(r#""host": 1, "assumed": "AA==""#);
        assert!(!has_news(&[0, 1, 2]), "it is as assumed");
        assert!(messages.has_news_for(0, &[0, 1, 2], true));
        misses(r#""host": null, "assumed": null"#);
        assert!(has_news(&[0, 1, 2]));
        assert!(!has_news(&[0]), "its own is no news");
        let before = messages.published(1);
        assert!(!is_changed(&before, &messages.published(0)));
        messages.forget(1);
        assert!(is_changed(&before, &messages.published(1)));
        assert!(!has_news(&[0, 1, 2]));
    }
}
