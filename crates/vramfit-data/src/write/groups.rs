//! The groups of a file: which there are, what is in each, and their headers.

use std::collections::BTreeMap;

use super::content::Content;
use super::heap::Heap;
use super::message::{Header, UNDEFINED};

/// Each group's path with the paths of its members; the root, whose path is empty, comes first.
pub(super) struct Groups {
    members: BTreeMap<String, Vec<String>>,
}

impl Groups {
    /// Finds the groups that datasets are in.
    pub(super) fn of(content: &Content) -> Self {
        let mut members = BTreeMap::from([(String::new(), Vec::new())]);
        for dataset in &content.datasets {
            add(&mut members, &dataset.path);
        }
        for members in members.values_mut() {
            members.sort();
        }
        Groups { members }
    }

    /// Returns the header of each group; `places` are the addresses of all objects, as far as they are known.
    pub(super) fn encode(
        &self,
        content: &Content,
        places: &BTreeMap<String, u64>,
        heap: &mut Heap,
    ) -> Vec<(String, Vec<u8>)> {
        let mut objects = Vec::new();
        for (path, members) in &self.members {
            let mut header = Header::default();
            header.group();
            for member in members {
                let name = member.rsplit('/').next().unwrap_or(member);
                header.link(name, places.get(member).copied().unwrap_or(UNDEFINED));
            }
            for attribute in content.attributes.iter().filter(|_| path.is_empty()) {
                header.attribute(attribute, heap);
            }
            objects.push((path.clone(), header.encode()));
        }
        objects
    }
}

/// Makes a path a member of its group, and that of the group above, as far up as they are new.
fn add(members: &mut BTreeMap<String, Vec<String>>, path: &str) {
    let mut path = path;
    while !path.is_empty() {
        let group = path.rsplit_once('/').map_or("", |(group, _)| group);
        let known = members.contains_key(group);
        let inside: &mut Vec<String> = members.entry(group.to_owned()).or_default();
        inside.push(path.to_owned());
        if known {
            break;
        }
        path = group;
    }
}
