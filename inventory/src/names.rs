//! The names that one thing goes by, and which sightings of several endpoints are one thing.
//!
//! A name that the same endpoint gives to two things joins nothing: it is a conflict, told to the caller. A serial number
//! that an endpoint gives to things with different UUIDs is that of their board or enclosure: no name, and no conflict.

use poolwright_model::identity::meaningful;
use poolwright_model::topology::{Gpu, Host};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A name that identifies a thing wherever it sits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Uuid(String),
    Serial(String),
    PcieSerial(String),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Uuid(uuid) => write!(f, "UUID {uuid}"),
            Name::Serial(serial) => write!(f, "serial number {serial}"),
            Name::PcieSerial(serial) => write!(f, "PCIe serial number {serial}"),
        }
    }
}

/// A GPU's names, the strongest first.
pub(crate) fn of_gpu(gpu: &Gpu) -> Vec<Name> {
    let uuid = gpu
        .uuid
        .as_deref()
        .and_then(meaningful)
        .map(|text| Name::Uuid(strip_gpu(&text)));
    let serial = gpu.serial.as_deref().and_then(meaningful).map(Name::Serial);
    let pcie = gpu
        .pcie_serial
        .as_deref()
        .and_then(meaningful)
        .map(|text| Name::PcieSerial(hex_only(&text)));
    uuid.into_iter().chain(serial).chain(pcie).collect()
}

/// A host's names, the strongest first.
pub(crate) fn of_host(host: &Host) -> Vec<Name> {
    let uuid = host.uuid.as_deref().and_then(meaningful).map(Name::Uuid);
    let serial = host.serial.as_deref().and_then(meaningful).map(Name::Serial);
    uuid.into_iter().chain(serial).collect()
}

/// The UUID among the names of a thing.
pub(crate) fn uuid_in(names: &[Name]) -> Option<&str> {
    names.iter().find_map(|name| match name {
        Name::Uuid(uuid) => Some(uuid.as_str()),
        Name::Serial(_) | Name::PcieSerial(_) => None,
    })
}

/// Whether two UUIDs may be of one thing. An unknown UUID may be any.
pub(crate) fn may_be(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

fn strip_gpu(uuid: &str) -> String {
    uuid.strip_prefix("gpu-").unwrap_or(uuid).to_owned()
}

fn hex_only(text: &str) -> String {
    text.trim_start_matches("0x")
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect()
}

/// Sightings of one thing: (view, place in the view's list).
pub(crate) type Sighting = (usize, usize);

/// Which sightings are one thing, and which names are claimed twice.
pub(crate) struct Groups {
    /// In the order of their first sighting.
    pub groups: Vec<Vec<Sighting>>,
    /// A name that one view gives to several things, with the sightings that it leaves in doubt.
    pub claimed_twice: BTreeMap<Name, Vec<Sighting>>,
}

/// Joins sightings that share a name. `names[view][place]` are the names of one sighting.
pub(crate) fn group(names: &[Vec<Vec<Name>>]) -> Groups {
    let mut by_name: BTreeMap<&Name, Vec<Sighting>> = BTreeMap::new();
    for (view, things) in names.iter().enumerate() {
        for (place, thing) in things.iter().enumerate() {
            for name in thing {
                by_name.entry(name).or_default().push((view, place));
            }
        }
    }
    let mut claimed_twice = BTreeMap::new();
    let mut sets = Sets::new(names);
    for (name, sightings) in by_name {
        let twice = sightings.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if !twice {
            sightings.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
            continue;
        }
        let in_doubt = match is_of_a_board(name, &sightings, names) {
            true => sightings
                .into_iter()
                .filter(|at| uuid(names, *at).is_none())
                .collect(),
            false => sightings,
        };
        if !in_doubt.is_empty() {
            claimed_twice.insert(name.clone(), in_doubt);
        }
    }
    Groups {
        groups: sets.into_groups(names),
        claimed_twice,
    }
}

/// Whether a name is the serial number of a board: where a view gives it to several things, they have different UUIDs.
fn is_of_a_board(name: &Name, sightings: &[Sighting], names: &[Vec<Vec<Name>>]) -> bool {
    let mut views: BTreeMap<usize, Vec<Option<&str>>> = BTreeMap::new();
    for at in sightings {
        views.entry(at.0).or_default().push(uuid(names, *at));
    }
    let differ = |uuids: &Vec<Option<&str>>| {
        let known: BTreeSet<&str> = uuids.iter().copied().flatten().collect();
        known.len() == uuids.len()
    };
    matches!(name, Name::Serial(_)) && views.values().filter(|uuids| uuids.len() > 1).all(differ)
}

fn uuid(names: &[Vec<Vec<Name>>], (view, place): Sighting) -> Option<&str> {
    uuid_in(&names[view][place])
}

/// Disjoint sets over sightings.
struct Sets {
    first: Vec<usize>,
    parent: Vec<usize>,
}

impl Sets {
    fn new(names: &[Vec<Vec<Name>>]) -> Self {
        let mut first = Vec::with_capacity(names.len());
        let mut total = 0;
        for things in names {
            first.push(total);
            total += things.len();
        }
        Self {
            first,
            parent: (0..total).collect(),
        }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn join(&mut self, a: Sighting, b: Sighting) {
        let (a, b) = (self.first[a.0] + a.1, self.first[b.0] + b.1);
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b)] = a.min(b);
    }

    fn into_groups(mut self, names: &[Vec<Vec<Name>>]) -> Vec<Vec<Sighting>> {
        let mut group_of: HashMap<usize, usize> = HashMap::new();
        let mut groups: Vec<Vec<Sighting>> = Vec::new();
        for (view, things) in names.iter().enumerate() {
            for place in 0..things.len() {
                let root = self.root(self.first[view] + place);
                let index = *group_of.entry(root).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[index].push((view, place));
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serial(text: &str) -> Name {
        Name::Serial(text.into())
    }
    fn uuid(text: &str) -> Name {
        Name::Uuid(text.into())
    }

    #[test]
    fn one_gpu_under_several_names_is_one() {
        // The box knows the serial, the host knows UUID and serial, a third knows the UUID.
        let names = vec![
            vec![vec![serial("s1")], vec![serial("s2")]],
            vec![vec![uuid("u1"), serial("s1")]],
            vec![vec![uuid("u1")]],
        ];
        let found = group(&names);
        assert_eq!(found.groups, vec![vec![(0, 0), (1, 0), (2, 0)], vec![(0, 1)]]);
        assert!(found.claimed_twice.is_empty());
    }

    #[test]
    fn a_name_that_one_endpoint_gives_twice_joins_nothing() {
        let names = vec![
            vec![vec![serial("s1")], vec![serial("s1")]],
            vec![vec![serial("s1")]],
        ];
        let found = group(&names);
        assert_eq!(found.groups.len(), 3);
        assert_eq!(found.claimed_twice[&serial("s1")].len(), 3);
    }

    #[test]
    fn a_serial_number_of_things_with_different_uuids_is_that_of_their_board() {
        let on_a_board = || vec![vec![uuid("u1"), serial("b")], vec![uuid("u2"), serial("b")]];
        let found = group(&[on_a_board(), on_a_board()]);
        assert_eq!(found.groups, [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]);
        assert!(found.claimed_twice.is_empty());
        // The second view shows one of the two, and not which.
        let found = group(&[on_a_board(), vec![vec![serial("b")]]]);
        assert_eq!(found.groups.len(), 3);
        assert_eq!(found.claimed_twice[&serial("b")], [(1, 0)]);
        for both in [
            vec![vec![uuid("u1"), serial("b")], vec![uuid("u1"), serial("b")]],
            vec![vec![uuid("u1"), serial("b")], vec![serial("b")]],
        ] {
            let found = group(&[both]);
            assert_eq!(found.claimed_twice[&serial("b")].len(), 2);
        }
    }
}
