//! Other names for what identifies a machine or a person. One name always gets the same other name, so links
//! and joins survive; the other names are counted, not computed, so nothing leads back.
//!
//! [`Names`] collects; when all are known they become [`Pseudonyms`], none of which is, or holds, a name that
//! was met.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of name it is, which decides how the other one looks and where it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Uuid,
    Mac,
    Ip,
    Serial,
    HostName,
    Person,
    /// Taken out where it stands; met so that it is found elsewhere, too.
    Secret,
}

/// Words that many machines and accounts are called: replaced only where their property says that it is a name.
const COMMON: [&str; 18] = [
    "redfish",
    "localhost",
    "localdomain",
    "host",
    "user",
    "example",
    "redacted",
    "admin",
    "administrator",
    "root",
    "operator",
    "readonly",
    "guest",
    "service",
    "none",
    "unknown",
    "default",
    "baremetal",
];

/// One thing, by all its spellings in lower case.
#[derive(Debug)]
struct Named {
    kind: Kind,
    spellings: Vec<String>,
}

/// All names so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    met: Vec<Named>,
    /// By a form that all spellings share.
    places: HashMap<String, usize>,
}

impl Names {
    pub(super) fn give(&mut self, kind: Kind, name: &str) {
        let name = name.to_ascii_lowercase();
        let place = *self.places.entry(one_form(kind, &name)).or_insert_with(|| {
            self.met.push(Named {
                kind,
                spellings: Vec::new(),
            });
            self.met.len() - 1
        });
        let spellings = &mut self.met[place].spellings;
        for spelling in std::iter::once(name.clone()).chain(other_spellings(kind, &name)) {
            if !spellings.contains(&spelling) {
                spellings.push(spelling);
            }
        }
    }

    /// The other names. Words of the `vocabulary` are no names outside of properties that say so.
    pub(super) fn pseudonyms(self, vocabulary: &HashSet<String>) -> Pseudonyms {
        let mut result = Pseudonyms {
            replaced: self.met.iter().filter(|named| named.kind != Kind::Secret).count(),
            ..Pseudonyms::default()
        };
        for named in &self.met {
            for name in &named.spellings {
                result.look_for(name, reach(named.kind, name, vocabulary));
            }
        }
        let met: HashSet<&String> = self.met.iter().flat_map(|named| &named.spellings).collect();
        let mut counts: HashMap<Kind, u32> = HashMap::new();
        for named in &self.met {
            let count = counts.entry(named.kind).or_default();
            // One in a thousand is free: names are not that regular.
            for _ in 0..1000 {
                *count += 1;
                let others = named
                    .spellings
                    .iter()
                    .map(|name| other_name(named.kind, name, *count));
                let others: Vec<String> = others.collect();
                let is_free = |other: &String| !met.contains(other) && result.found_in(other).is_empty();
                let free = others.iter().all(is_free);
                result.others.extend(named.spellings.iter().cloned().zip(others));
                if free {
                    break;
                }
            }
        }
        result
    }
}

/// Where a name is looked for, besides the properties whose values are such names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Nowhere: a serial number "1" must not change every "1".
    OwnProperty,
    /// Where no letter or digit is right before or after it.
    BetweenSeparators,
    /// Within other words, too: `SN1652923003067`.
    Anywhere,
}

fn reach(kind: Kind, name: &str, vocabulary: &HashSet<String>) -> Reach {
    const LONG: usize = 8;
    let has_digit = name.bytes().any(|byte| byte.is_ascii_digit());
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let common = || COMMON.contains(&name) || vocabulary.contains(name);
    match kind {
        Kind::Uuid | Kind::Mac | Kind::Serial if name.len() >= LONG && has_digit => Reach::Anywhere,
        Kind::Ip => Reach::BetweenSeparators,
        Kind::Uuid | Kind::Mac | Kind::Serial | Kind::Secret if name.len() >= 6 && !is_plain => {
            Reach::BetweenSeparators
        }
        Kind::HostName | Kind::Person if name.len() >= 4 && !common() => Reach::BetweenSeparators,
        _ => Reach::OwnProperty,
    }
}

/// All names, with the others.
#[derive(Debug, Default)]
pub(super) struct Pseudonyms {
    /// By the name in lower case: services spell one UUID or MAC in several ways.
    others: HashMap<String, String>,
    /// The names that are looked for in texts, by how they begin.
    sought: HashMap<[u8; 3], Vec<(String, Reach)>>,
    replaced: usize,
}

impl Pseudonyms {
    /// The other name of one that was met; `None` for one that was not.
    pub(super) fn known(&self, name: &str) -> Option<&str> {
        self.others.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// How many names were replaced.
    pub(super) fn len(&self) -> usize {
        self.replaced
    }

    /// A text with all names in it replaced, the longest first.
    pub(super) fn replaced(&self, text: &str) -> String {
        let mut found = self.found_in(text);
        found.sort_by_key(|(start, end)| (std::cmp::Reverse(end - start), *start));
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (start, end) in found {
            if taken.iter().all(|(from, to)| end <= *from || *to <= start) {
                taken.push((start, end));
            }
        }
        taken.sort_unstable();
        let mut result = String::with_capacity(text.len());
        let mut after = 0;
        for (start, end) in taken {
            result.push_str(&text[after..start]);
            result.push_str(self.known(&text[start..end]).unwrap_or_default());
            after = end;
        }
        result.push_str(&text[after..]);
        result
    }

    fn look_for(&mut self, name: &str, reach: Reach) {
        if let (Some(start), true) = (name.as_bytes().first_chunk(), reach != Reach::OwnProperty) {
            self.sought
                .entry(*start)
                .or_default()
                .push((name.to_owned(), reach));
        }
    }

    /// Where names begin and end in a text; they may overlap.
    fn found_in(&self, text: &str) -> Vec<(usize, usize)> {
        let lower = text.to_ascii_lowercase();
        let mut found = Vec::new();
        for (start, window) in lower.as_bytes().windows(3).enumerate() {
            let names = <[u8; 3]>::try_from(window)
                .ok()
                .and_then(|start| self.sought.get(&start));
            for (name, reach) in names.into_iter().flatten() {
                let end = start + name.len();
                if !lower.as_bytes()[start..].starts_with(name.as_bytes()) {
                    continue;
                }
                let (before, after) = (lower[..start].chars().next_back(), lower[end..].chars().next());
                let stands_alone =
                    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric);
                if stands_alone || *reach == Reach::Anywhere {
                    found.push((start, end));
                }
            }
        }
        found
    }
}

/// What all spellings of one name share.
fn one_form(kind: Kind, name: &str) -> String {
    let bare = || name.replace([':', '-', '.'], "");
    match kind {
        Kind::Uuid | Kind::Mac => format!("{kind:?} {}", bare()),
        Kind::Ip => name
            .parse::<IpAddr>()
            .map_or_else(|_| name.to_owned(), |ip| ip.to_string()),
        Kind::Serial | Kind::HostName | Kind::Person | Kind::Secret => name.to_owned(),
    }
}

/// How else the field spells it.
fn other_spellings(kind: Kind, name: &str) -> Vec<String> {
    let bare = name.replace([':', '-', '.'], "");
    let is_hex = bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups = |size: usize, separator: &str| {
        let parts: Vec<&str> = (0..bare.len() / size)
            .filter_map(|n| bare.get(n * size..(n + 1) * size))
            .collect();
        parts.join(separator)
    };
    match (kind, bare.len()) {
        (Kind::Mac, 12) if is_hex => {
            vec![groups(2, ":"), groups(2, "-"), groups(4, "."), bare.clone()]
        }
        (Kind::Uuid, 32) if is_hex => vec![bare],
        (Kind::Ip, _) if name.contains('.') => vec![name.replace('.', "-"), name.replace('.', "_")],
        (Kind::Ip, _) => one_form(kind, name).lines().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn other_name(kind: Kind, name: &str, number: u32) -> String {
    match kind {
        // Version 8 of RFC 9562 is free for everybody's use.
        Kind::Uuid => {
            let uuid = format!("{number:08x}-0000-8000-8000-000000000000");
            match name.contains('-') {
                true => uuid,
                false => uuid.replace('-', ""),
            }
        }
        // Locally administered, so nobody's.
        Kind::Mac => {
            let [_, a, b, c] = number.to_be_bytes();
            let pairs = [0x02, 0, 0, a, b, c].map(|byte| format!("{byte:02x}"));
            match name.chars().find(|c| matches!(c, ':' | '-' | '.')) {
                Some('.') => [pairs[..2].concat(), pairs[2..4].concat(), pairs[4..].concat()].join("."),
                Some(separator) => pairs.join(&separator.to_string()),
                None => pairs.concat(),
            }
        }
        Kind::Ip => match name.contains(':') {
            true => Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)).to_string(),
            // 198.18.0.0/15 is set aside for benchmarks (RFC 2544): room for more than the three for documents.
            false => {
                let ip = Ipv4Addr::from((198 << 24 | 18 << 16) + number % (1 << 17)).to_string();
                let separator = name.chars().find(|c| !c.is_ascii_digit()).unwrap_or('.');
                ip.replace('.', &separator.to_string())
            }
        },
        Kind::Serial => {
            let width = name.len().max(6);
            match name.chars().all(|c| c.is_ascii_digit()) {
                true => format!("9{number:0>width$}", width = width - 1),
                false => format!("R{number:0>width$}", width = width - 1),
            }
        }
        Kind::HostName if name.contains('.') => format!("host-{number}.example"),
        Kind::HostName => format!("host-{number}"),
        Kind::Person => format!("user-{number}"),
        Kind::Secret => format!("redacted-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::{find_uuid, is_mac};
    use super::*;

    fn named(names: &[(Kind, &str)]) -> Pseudonyms {
        let mut all = Names::default();
        names.iter().for_each(|(kind, name)| all.give(*kind, name));
        all.pseudonyms(&HashSet::new())
    }

    #[test]
    fn one_name_has_one_other_name_of_its_own_form() {
        let names = named(&[
            (Kind::Uuid, "9DAD5BFD-a732-23fe-40ad-465d0cbe5f95"),
            (Kind::Uuid, "9dad5bfd-a732-23fe-40ad-465d0cbe5f95"),
            (Kind::Mac, "B8-3F-D2-00-11-22"),
            (Kind::Ip, "10.7.8.9"),
            (Kind::Ip, "fe80::1"),
            (Kind::Serial, "1652923003067"),
            (Kind::Serial, "1652923003068"),
            (Kind::HostName, "bmc7.corp.local"),
        ]);
        let other = |name: &str| names.known(name).unwrap().to_owned();
        let uuid = other("9dad5bfd-A732-23fe-40ad-465d0cbe5f95");
        assert_eq!(find_uuid(&uuid), Some(0));
        assert_eq!(other("9dad5bfda73223fe40ad465d0cbe5f95"), uuid.replace('-', ""));
        let mac = other("b8-3f-d2-00-11-22");
        assert!(is_mac(&mac) && mac.contains('-'), "{mac}");
        assert_eq!(other("B83FD2001122"), mac.replace('-', ""));
        assert!(other("10.7.8.9").parse::<Ipv4Addr>().is_ok());
        assert!(other("fe80::1").parse::<Ipv6Addr>().is_ok());
        let serial = other("1652923003067");
        assert!(
            serial.len() == 13 && serial.chars().all(|c| c.is_ascii_digit()),
            "{serial}"
        );
        assert_ne!(other("1652923003068"), serial);
        assert_eq!(other("bmc7.corp.local"), "host-1.example");
        assert_eq!(names.len(), 7);
    }

    #[test]
    fn names_are_replaced_between_separators_and_the_longest_first() {
        let names = named(&[
            (Kind::HostName, "web-01"),
            (Kind::HostName, "web-01-bmc"),
            (Kind::HostName, "saturn"),
            (Kind::Serial, "A1B2C3D4E5"),
        ]);
        for (text, expected) in [
            ("PSU of web-01-bmc", "PSU of host-2"),
            ("web-01_fan", "host-1_fan"),
            (
                "/redfish/v1/Chassis/WEB-01:psu/Web-01-bmc",
                "/redfish/v1/Chassis/host-1:psu/host-2",
            ),
            ("(web-01)", "(host-1)"),
            ("web-012 and cweb-01", "web-012 and cweb-01"),
            ("x-web-01-y", "x-host-1-y"),
            ("saturn's rings, saturnine", "host-3's rings, saturnine"),
            ("SNa1b2c3d4e5x", "SNR000000001x"),
            ("größe-web-01é", "größe-web-01é"),
            ("größe-web-01", "größe-host-1"),
        ] {
            assert_eq!(names.replaced(text), expected, "{text}");
        }
    }

    #[test]
    fn no_other_name_is_a_name_that_was_met() {
        let names = named(&[
            (Kind::HostName, "web-01"),
            (Kind::HostName, "host-1"),
            (Kind::Serial, "abcdef1"),
            (Kind::Serial, "R000001"),
        ]);
        assert_eq!(names.replaced("web-01, host-1"), "host-2, host-3");
        assert_eq!(names.known("abcdef1"), Some("R000002"));
    }

    #[test]
    fn common_words_are_names_only_where_their_property_says_so() {
        let mut all = Names::default();
        for name in ["admin", "nvidia", "gb1"] {
            all.give(Kind::HostName, name);
        }
        let names = all.pseudonyms(&HashSet::from(["nvidia".to_owned()]));
        assert_eq!(names.replaced("admin nvidia gb1"), "admin nvidia gb1");
        assert!(names.known("admin").is_some());
    }
}
