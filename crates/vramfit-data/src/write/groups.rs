//! The groups of a file: which there are, what is in each, and their headers.

use std::collections::BTreeMap;

use super::content::{Content, Group, Target};
use super::heap::Heap;
use super::message::{Header, LinkTarget, UNDEFINED};

/// Each group's path with the paths of its members; the root, whose path is empty, comes first.
pub(super) struct Groups<'a> {
    members: BTreeMap<String, Vec<String>>,
    told: BTreeMap<&'a str, &'a Group>,
    links: BTreeMap<&'a str, &'a Target>,
    /// How many further names an object has, by its path.
    further: BTreeMap<&'a str, u32>,
}

impl<'a> Groups<'a> {
    /// Finds the groups that datasets and links are in, and those that are named.
    pub(super) fn of(content: &'a Content) -> Self {
        let mut members = BTreeMap::from([(String::new(), Vec::new())]);
        for path in content.leaves() {
            add(&mut members, path);
        }
        for group in &content.groups {
            if !members.contains_key(&group.path) {
                members.insert(group.path.clone(), Vec::new());
                add(&mut members, &group.path);
            }
        }
        for members in members.values_mut() {
            members.sort();
        }
        let told = content.groups.iter();
        let links = content.links.iter();
        let mut further = BTreeMap::new();
        for link in &content.links {
            if let Target::Object(path) = &link.target {
                *further.entry(path.as_str()).or_default() += 1;
            }
        }
        Groups {
            members,
            told: told.map(|group| (group.path.as_str(), group)).collect(),
            links: links.map(|link| (link.path.as_str(), &link.target)).collect(),
            further,
        }
    }

    /// Returns by how many names the object at a path is known.
    pub(super) fn names(&self, path: &str) -> u32 {
        1 + self.further.get(path).copied().unwrap_or(0)
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
            let told = self.told.get(path.as_str());
            let order = told.and_then(|group| group.order.as_ref());
            let ordered = order.into_iter().flatten().map(String::as_str).zip(0_u64..);
            let ordered: BTreeMap<&str, u64> = ordered.collect();
            let mut header = Header::default();
            header.group(order.map(Vec::len));
            header.names(self.names(path));
            for member in members {
                let name = member.rsplit('/').next().unwrap_or(member);
                let place = ordered.get(name).copied();
                header.link(name, &self.leads(member, places), place);
            }
            let root = content.attributes.iter().filter(|_| path.is_empty());
            let own = told.iter().flat_map(|group| &group.attributes);
            for attribute in root.chain(own) {
                header.attribute(attribute, heap);
            }
            objects.push((path.clone(), header.encode()));
        }
        objects
    }

    fn leads<'b>(&'b self, member: &str, places: &BTreeMap<String, u64>) -> LinkTarget<'b> {
        let at = |path: &str| LinkTarget::Object(places.get(path).copied().unwrap_or(UNDEFINED));
        match self.links.get(member) {
            None => at(member),
            Some(Target::Object(path)) => at(path),
            Some(Target::Soft(path)) => LinkTarget::Soft(path),
            Some(Target::External { file, path }) => LinkTarget::External { file, path },
        }
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
