//! The kind of an IP address in any notation: whether it may be a destination of requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of an address that no management service can have in any network. Private networks, those behind a NAT and
/// this machine are where management services are.
pub fn nobodys(address: IpAddr) -> Option<&'static str> {
    match kind_of(address) {
        Kind::Never(what) => Some(what),
        Kind::Open | Kind::Private | Kind::Carrier | Kind::Loopback => None,
    }
}

/// In which part of the address space it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of the open internet.
    Open,
    Private,
    /// Between a provider and its customers.
    Carrier,
    /// This machine.
    Loopback,
    /// Never a destination: the kind of address, with the network that the rule names.
    Never(&'static str),
}

/// An IPv4 address in IPv6's clothes is that address.
pub fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

pub fn kind_of(address: IpAddr) -> Kind {
    match plain(address) {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => kind_of_v6(address),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [127, ..] => Kind::Loopback,
        [0, ..] => Kind::Never("this network (0.0.0.0/8)"),
        [169, 254, ..] => Kind::Never("a link-local or metadata address (169.254.0.0/16)"),
        // Azure's and Oracle's services for the machine itself.
        [168, 63, 129, 16] => Kind::Never("a metadata address (168.63.129.16)"),
        [192, 0, 0, _] => Kind::Never("a metadata address (192.0.0.0/24)"),
        // Alibaba's.
        [100, 100, 100, 200] => Kind::Never("a metadata address (100.100.100.200)"),
        [100, 64..=127, ..] => Kind::Carrier,
        [224..=239, ..] => Kind::Never("a multicast address (224.0.0.0/4)"),
        [240..=255, ..] => Kind::Never("a reserved or broadcast address (240.0.0.0/4)"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [198, 18..=19, ..] => Kind::Private,
        _ => Kind::Open,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> Kind {
    let segments = address.segments();
    if address.is_loopback() {
        return Kind::Loopback;
    }
    match segments {
        // AWS's metadata, which looks like a private address.
        [0xfd00, 0x0ec2, ..] => Kind::Never("a metadata address (fd00:ec2::/32)"),
        // A gateway turns these into the IPv4 address that they end with.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            match kind_of_v4(Ipv4Addr::new(a, b, c, d)) {
                Kind::Open => Kind::Open,
                _ => Kind::Never("a translated address of a network that is not open (64:ff9b::/96)"),
            }
        }
        [0x64, 0xff9b, ..] => Kind::Never("an address for translation within a network (64:ff9b::/32)"),
        [0, 0, 0, 0, 0, 0, ..] => Kind::Never("an unspecified or IPv4-compatible address (::/96)"),
        [0, 0, 0, 0, ..] => Kind::Never("an IPv4-translated address (::/64)"),
        [0x2002, ..] => Kind::Never("an address of a tunnel (2002::/16)"),
        [0x2001, 0, ..] => Kind::Never("an address of a tunnel (2001::/32)"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Kind::Never("a link-local address (fe80::/10)"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Kind::Never("a site-local address (fec0::/10)"),
        [first, ..] if first & 0xff00 == 0xff00 => Kind::Never("a multicast address (ff00::/8)"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Kind::Private,
        _ => Kind::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of event destinations cover the other functions.
    #[test]
    fn management_services_are_in_networks_and_at_no_metadata_address() {
        let is_nobodys = |text: &str| nobodys(text.parse().unwrap()).is_some();
        for text in [
            "10.0.0.7",
            "192.168.1.7",
            "100.64.0.7",
            "127.0.0.1",
            "203.0.113.7",
            "fd12::7",
            "::1",
        ] {
            assert!(!is_nobodys(text), "{text}");
        }
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            assert!(is_nobodys(text), "{text}");
        }
    }
}
