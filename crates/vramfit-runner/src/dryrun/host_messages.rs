//! What hosts have published for each other, and what they did not find: files that
//! `python/vramfit/_inprogram/_hosts/_exchange.py` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The messages of the hosts of one dry run.
pub(super) struct HostMessages {
    folder: PathBuf,
}

/// Digests of values by kind and key.
type Published = BTreeMap<(String, String), String>;

#[derive(Deserialize)]
struct Message {
    kind: String,
    key: String,
    digest: String,
}

/// A message that a host has asked for.
#[derive(Deserialize)]
struct ReadRecord {
    kind: String,
    key: String,
    /// Of whom; `None` for any host.
    host: Option<u32>,
    /// Of its value, or of what it was taken to be; `None` where its lack was an error.
    digest: Option<String>,
    /// Whether it was there.
    is_known: bool,
}

impl HostMessages {
    pub(super) fn new(folder: &Path) -> HostMessages {
        HostMessages { folder: folder.to_owned() }
    }

    fn read_published(&self, host: u32) -> Published {
        let messages = read_lines::<Message>(&self.published_path(host));
        let messages = messages.into_iter();
        messages.map(|message| ((message.kind, message.key), message.digest)).collect()
    }

    /// Returns `true` if a host did not find something that it asked for.
    pub(super) fn misses_any(&self, host: u32) -> bool {
        let read = read_lines::<ReadRecord>(&self.reads_path(host));
        read.iter().any(|read| !read.is_known)
    }

    /// Returns the kind and key of a message that a host has read, and that another of the hosts has since published with
    /// another value. Of what was missing, a value that is as it was assumed matters only to a host that decided something by it.
    pub(super) fn find_changed(
        &self,
        host: u32,
        hosts: &[u32],
        has_decided: bool,
    ) -> Option<String> {
        let others = hosts.iter().filter(|other| **other != host);
        let published: BTreeMap<u32, Published> =
            others.map(|other| (*other, self.read_published(*other))).collect();
        let read = read_lines::<ReadRecord>(&self.reads_path(host));
        read.into_iter().find_map(|read| {
            let name = format!("{} {}", read.kind, read.key);
            let key = (read.kind, read.key);
            let is_sender = |other: &u32| read.host.is_none_or(|host| host == *other);
            let senders = published.iter().filter(|(other, _)| is_sender(other));
            let mut values = senders.map(|(_, messages)| messages.get(&key));
            let is_other = |value: Option<&String>| value != read.digest.as_ref();
            let is_changed = match read.is_known {
                true => values.any(is_other),
                false => values.any(|value| value.is_some() && (has_decided || is_other(value))),
            };
            is_changed.then_some(name)
        })
    }

    /// Removes what a host has published and read, before it is run once more.
    pub(super) fn forget(&self, host: u32) {
        for file in [self.published_path(host), self.reads_path(host)] {
            // One that is not there is as good as removed.
            let _ = fs::remove_file(file);
        }
    }

    fn published_path(&self, host: u32) -> PathBuf {
        self.folder.join(format!("host-{host}.jsonl"))
    }

    fn reads_path(&self, host: u32) -> PathBuf {
        self.folder.join(format!("read-{host}.jsonl"))
    }
}

/// Returns the values in the lines of a file; none for one that is not there, and none of a line that was cut.
fn read_lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDirectory;

    #[test]
    fn a_message_that_a_host_has_read_is_found_when_it_was_published_or_changed() {
        let folder = TempDirectory::create().expect("a directory");
        let messages = HostMessages::new(folder.path());
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        let has_changed = |hosts: &[u32]| messages.find_changed(0, hosts, false).is_some();
        let reads = |rest: &str| {
            let text = format!(r#"{{"kind": "allgather", "key": "1", {rest}}}"#);
            write("read-0.jsonl", &text);
        };
        assert!(!has_changed(&[0, 1, 2]));
        reads(r#""host": 2, "digest": "b", "is_known": false"#);
        assert!(messages.misses_any(0));
        let message = r#"{"kind": "allgather", "key": "1", "digest": "a"}"#;
        write("host-0.jsonl", message);
        write("host-1.jsonl", message);
        assert!(!has_changed(&[0, 1, 2]), "that of host 2 is missing");
        reads(r#""host": 1, "digest": "a", "is_known": false"#);
        assert!(!has_changed(&[0, 1, 2]), "it is as assumed");
        assert!(messages.find_changed(0, &[0, 1, 2], true).is_some());
        reads(r#""host": null, "digest": null, "is_known": false"#);
        assert!(has_changed(&[0, 1, 2]));
        assert!(!has_changed(&[0]), "its own does not count");
        reads(r#""host": 1, "digest": "a", "is_known": true"#);
        assert!(!messages.misses_any(0));
        assert!(messages.find_changed(0, &[0, 1, 2], true).is_none());
        reads(r#""host": 1, "digest": "b", "is_known": true"#);
        assert_eq!(messages.find_changed(0, &[0, 1], false).as_deref(), Some("allgather 1"));
        messages.forget(1);
        assert!(has_changed(&[0, 1, 2]), "it is gone");
        messages.forget(0);
        assert!(!has_changed(&[0, 1, 2]));
    }
}
