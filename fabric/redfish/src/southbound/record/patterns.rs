//! What identifies by its form, whatever property it stands in.

use std::net::IpAddr;

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

/// The addresses of network cards in UEFI device paths: the digits of `MAC(3A289732197E,0x0)`, which some write with
/// zeros behind (UEFI Specification, device path nodes of messaging devices).
pub(super) fn macs_in_device_paths(text: &str) -> impl Iterator<Item = &str> {
    const DIGITS: usize = 12;
    let nodes = text.match_indices('(').filter(|(at, _)| {
        let before = at.checked_sub(3).and_then(|start| text.get(start..*at));
        before.is_some_and(|name| name.eq_ignore_ascii_case("mac"))
    });
    nodes
        .filter_map(|(at, _)| text.get(at + 1..at + 1 + DIGITS))
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .filter(|digits| digits.bytes().any(|byte| byte != b'0'))
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

/// The host in a URL, if it has a name of its own. The schemas' publisher is nobody's machine.
pub(super) fn host_of_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.split(is_between).next()?;
    let host = host
        .split(':')
        .next()
        .filter(|host| !is_ip(host) && host.contains('.'))?;
    (!host.ends_with("dmtf.org")).then_some(host)
}

/// An account and a password in a URL: `alice:pw` of `ftp://alice:pw@host/x`.
pub(super) fn user_info(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find("://")? + 3;
    let end = text[start..]
        .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#'))
        .map_or(text.len(), |at| start + at);
    let at = text[start..end].rfind('@')?;
    (at > 0).then_some(start..start + at)
}

/// Addresses of electronic mail. Annotations look alike: `Members@odata.count`.
pub(super) fn mail_addresses(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+'));
    text.split(ends)
        .map(|word| word.trim_matches('.'))
        .filter(|word| {
            word.split_once('@').is_some_and(|(who, domain)| {
                let annotation = ["odata.", "Redfish.", "Message.", "Privileges."];
                !who.is_empty()
                    && domain.contains('.')
                    && !domain.contains('@')
                    && !annotation.iter().any(|start| domain.starts_with(start))
            })
        })
}

/// Words, as far as a name may be one: with `-`, `_`, `.` and `:` in them.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_between).filter(|word| !word.is_empty())
}

/// What stands between words, as far as a name may not hold it.
fn is_between(c: char) -> bool {
    !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_from_what_only_looks_like_them() {
        assert_eq!(find_uuid("GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95"), Some(4));
        assert_eq!(find_uuid("00000000-0000-0000-0000-000000000000"), None);
        assert_eq!(find_uuid("é9dad5bfd"), None);
        assert!(is_mac("b8:3f:d2:00:11:22"));
        for other in ["02:40:43", "00:00:00:00:00:00", "b8:3f:d2:00:11", "2024-07-02"] {
            assert!(!is_mac(other), "{other}");
        }
        let path = "PciRoot(0x0)/Pci(0x10,0x0)/MAC(3A289732197E,0x0)/IPv4(0.0.0.0)/mac(00000000000000,0x1)";
        assert_eq!(macs_in_device_paths(path).collect::<Vec<_>>(), ["3A289732197E"]);
        for other in ["MAC(short)", "MAC(", "(3A289732197E)", "é(3A289732197E", "PMAC"] {
            assert_eq!(macs_in_device_paths(other).count(), 0, "{other}");
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

    #[test]
    fn people_and_hosts_are_found_in_addresses() {
        assert_eq!(
            host_of_url("https://proxy.corp.local:9900/x"),
            Some("proxy.corp.local")
        );
        assert_eq!(
            host_of_url("ftp://al:pw@files.corp.local/x"),
            Some("files.corp.local")
        );
        assert_eq!(host_of_url("http://redfish.dmtf.org/schemas"), None);
        let url = "see ftp://al:p@w@files.corp.local/x";
        assert_eq!(&url[user_info(url).unwrap()], "al:p@w");
        assert_eq!(user_info("https://host/a@b"), None);
        let found: Vec<_> = mail_addresses("ask ops@corp.local. Members@odata.count").collect();
        assert_eq!(found, ["ops@corp.local"]);
    }
}
