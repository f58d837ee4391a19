//! Other names for what identifies a machine or a person. One name always gets the same other name, so links
//! and joins survive; the other names are counted, not computed, so nothing leads back.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of name it is, which decides how the other one looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Uuid,
    Mac,
    Ip,
    Serial,
    HostName,
    Person,
}

/// All names so far, with the others.
#[derive(Debug, Default)]
pub(super) struct Pseudonyms {
    /// By the name in lower case: services spell one UUID or MAC in several ways.
    names: HashMap<String, String>,
    counts: HashMap<Kind, u32>,
}

impl Pseudonyms {
    /// The other name of one that was met; `None` for one that was not.
    pub(super) fn known(&self, name: &str) -> Option<&str> {
        self.names.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// The other name, given now if there is none yet.
    pub(super) fn give(&mut self, kind: Kind, name: &str) -> &str {
        let Self { names, counts } = self;
        names.entry(name.to_ascii_lowercase()).or_insert_with(|| {
            let number = counts.entry(kind).or_default();
            *number += 1;
            other_name(kind, name, *number)
        })
    }

    /// How many names were replaced.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

fn other_name(kind: Kind, name: &str, number: u32) -> String {
    match kind {
        // Version 8 of RFC 9562 is free for everybody's use.
        Kind::Uuid => format!("{number:08x}-0000-8000-8000-000000000000"),
        // Locally administered, so nobody's.
        Kind::Mac => {
            let separator = if name.contains('-') {
                "-"
            } else if name.contains(':') {
                ":"
            } else {
                ""
            };
            let [_, a, b, c] = number.to_be_bytes();
            [0x02, 0, 0, a, b, c]
                .map(|byte| format!("{byte:02x}"))
                .join(separator)
        }
        Kind::Ip => match name.parse() {
            Ok(IpAddr::V6(_)) => Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)).to_string(),
            // 198.18.0.0/15 is set aside for benchmarks (RFC 2544): room for more than the three for documents.
            _ => Ipv4Addr::from((198 << 24 | 18 << 16) + number % (1 << 17)).to_string(),
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
    }
}

/// Where a UUID begins in a text, which may have words around it such as `GPU-`.
pub(super) fn find_uuid(text: &str) -> Option<usize> {
    const LENGTH: usize = 36;
    let bytes = text.as_bytes();
    let is_uuid = |window: &[u8]| {
        window.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    // All zeros names nobody.
    let says_something = |window: &[u8]| window.iter().any(|byte| !matches!(byte, b'0' | b'-'));
    bytes
        .windows(LENGTH)
        .position(|window| is_uuid(window) && says_something(window))
}

/// Six pairs of hexadecimal digits, joined by colons or by hyphens.
pub(super) fn is_mac(text: &str) -> bool {
    let separated_by = |separator| {
        let pairs: Vec<&str> = text.split(separator).collect();
        pairs.len() == 6
            && pairs
                .iter()
                .all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    (separated_by(':') || separated_by('-')) && text.bytes().any(|b| !matches!(b, b'0' | b':' | b'-'))
}

/// An address of somebody: not of everybody, of nobody, or of oneself.
pub(super) fn is_ip(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let is_mask = u32::from(ip).leading_ones() + u32::from(ip).trailing_zeros() == 32;
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_broadcast() || is_mask)
        }
        Ok(IpAddr::V6(ip)) => !(ip.is_unspecified() || ip.is_loopback()),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_other_name_of_its_own_form() {
        let mut names = Pseudonyms::default();
        let uuid = names
            .give(Kind::Uuid, "9DAD5BFD-a732-23fe-40ad-465d0cbe5f95")
            .to_owned();
        assert_eq!(
            names.give(Kind::Uuid, "9dad5bfd-a732-23fe-40ad-465d0cbe5f95"),
            uuid
        );
        assert_eq!(find_uuid(&uuid), Some(0));
        let mac = names.give(Kind::Mac, "B8-3F-D2-00-11-22").to_owned();
        assert!(is_mac(&mac) && mac.contains('-'), "{mac}");
        assert!(names.give(Kind::Ip, "10.7.8.9").parse::<Ipv4Addr>().is_ok());
        assert!(names.give(Kind::Ip, "fe80::1").parse::<Ipv6Addr>().is_ok());
        let serial = names.give(Kind::Serial, "1652923003067").to_owned();
        assert!(
            serial.len() == 13 && serial.chars().all(|c| c.is_ascii_digit()),
            "{serial}"
        );
        assert_ne!(names.give(Kind::Serial, "1652923003068"), serial);
        assert_eq!(names.give(Kind::HostName, "bmc7.corp.local"), "host-1.example");
        assert_eq!(names.len(), 7);
    }

    #[test]
    fn patterns_are_told_from_what_only_looks_like_them() {
        assert_eq!(find_uuid("GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95"), Some(4));
        assert_eq!(find_uuid("00000000-0000-0000-0000-000000000000"), None);
        assert_eq!(find_uuid("é9dad5bfd"), None);
        assert!(is_mac("b8:3f:d2:00:11:22"));
        for other in ["02:40:43", "00:00:00:00:00:00", "b8:3f:d2:00:11", "2024-07-02"] {
            assert!(!is_mac(other), "{other}");
        }
        assert!(is_ip("10.0.0.7") && is_ip("fe80::1"));
        for other in [
            "255.255.255.0",
            "0.0.0.0",
            "127.0.0.1",
            "::",
            "::1",
            "96.00.89.00.01",
            "1.2",
        ] {
            assert!(!is_ip(other), "{other}");
        }
    }
}
