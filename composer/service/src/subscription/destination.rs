//! Where events may be sent. Pure: which addresses a name has, and which are our own, is for whoever asks.
//!
//! A destination is chosen by a client and called by us, from inside: what only we can reach must not be reached for it.
//! Invariants: an address is judged as it is dialled, whatever it was written as; what is not known to be harmless on its
//! own (private networks) is open only where the operator says so.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use url::{Host, Url};

/// Longer ones are refused.
const LONGEST: usize = 2_000;

/// An https address without a user, a password or a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination(Url);

/// Why something can't be a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is longer than {LONGEST} characters")]
    TooLong,
    #[error("it is no URL ({0})")]
    NoUrl(String),
    #[error("events are sent over https alone")]
    NotHttps,
    #[error("it names a user or a password: say those in HttpHeaders")]
    User,
    #[error("it has a fragment, which is never sent")]
    Fragment,
    #[error("nothing can listen at port 0")]
    NoPort,
    #[error("{0} is this machine")]
    ThisMachine(String),
    #[error("{0} is {1}, where nothing is ever sent")]
    Never(IpAddr, &'static str),
    #[error("{0} is an address of this manager")]
    Ours(IpAddr),
}

impl Destination {
    /// What is written is read as a browser would: other ways to write an address come to the same.
    pub fn read(text: &str) -> Result<Self, Refused> {
        if text.len() > LONGEST {
            return Err(Refused::TooLong);
        }
        let url = Url::parse(text).map_err(|error| Refused::NoUrl(error.to_string()))?;
        if url.scheme() != "https" {
            return Err(Refused::NotHttps);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::User);
        }
        if url.fragment().is_some() {
            return Err(Refused::Fragment);
        }
        match (url.port(), url.host()) {
            (Some(0), _) => Err(Refused::NoPort),
            (_, None) => Err(Refused::NoUrl("it has no host".to_owned())),
            _ => Ok(Self(url)),
        }
    }

    pub fn url(&self) -> &Url {
        &self.0
    }

    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// The address, where it is none that must be looked up.
    pub fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// The name to be looked up, without the dot that may end it.
    pub fn name(&self) -> Option<&str> {
        match self.0.host()? {
            Host::Domain(name) => Some(name.trim_end_matches('.')),
            _ => None,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of the address space, such as `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |first: u128, address: u128, width: u8| {
            let rest = u32::from(width - self.bits.min(width));
            // Nothing is left of a number that all of its bits are taken from.
            first.checked_shr(rest) == address.checked_shr(rest)
        };
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                same(u32::from(first).into(), u32::from(address).into(), 32)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => same(first.into(), address.into(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("{text:?} is no network: write an address, or one with its bits, such as 10.0.0.0/8");
        let (first, bits) = text.split_once('/').unwrap_or((text, ""));
        let first: IpAddr = first.parse().map_err(|_| wanted())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match (bits, text.contains('/')) {
            ("", false) => most,
            (bits, _) => bits.parse().map_err(|_| wanted())?,
        };
        match bits <= most {
            true => Ok(Self { first, bits }),
            false => Err(wanted()),
        }
    }
}

/// What operators allow beside the open internet.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    /// Private addresses that may be sent to.
    pub networks: Vec<Network>,
    /// Loopback addresses may be, too: for a collector on this machine.
    pub loopback: bool,
}

/// Whether something may be sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Open,
    /// It is in a private network, and on no list.
    NotAllowed,
    /// Whatever lists say; what it is.
    Never(&'static str),
}

impl Allowed {
    pub fn judge(&self, address: IpAddr) -> Verdict {
        match kind_of(address) {
            Kind::Open => Verdict::Open,
            Kind::Loopback if self.loopback => Verdict::Open,
            Kind::Loopback => Verdict::Never("a loopback address"),
            Kind::Private
                if self
                    .networks
                    .iter()
                    .any(|network| network.contains(plain(address))) =>
            {
                Verdict::Open
            }
            Kind::Private => Verdict::NotAllowed,
            Kind::Never(what) => Verdict::Never(what),
        }
    }

    /// Names that are this machine by what they are called.
    pub fn judge_name(&self, name: &str) -> Result<(), Refused> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match name == "localhost" || name.ends_with(".localhost") {
            true if !self.loopback => Err(Refused::ThisMachine(name)),
            _ => Ok(()),
        }
    }
}

enum Kind {
    Open,
    Private,
    Loopback,
    Never(&'static str),
}

/// An IPv4 address in IPv6's clothes is that address.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn kind_of(address: IpAddr) -> Kind {
    match plain(address) {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => kind_of_v6(address),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [127, ..] => Kind::Loopback,
        [0, ..] => Kind::Never("this network"),
        [169, 254, ..] => Kind::Never("a link-local or metadata address"),
        // Azure's and Oracle's services for the machine itself.
        [168, 63, 129, 16] | [192, 0, 0, _] => Kind::Never("a metadata address"),
        // Alibaba's metadata is among these.
        [100, 64..=127, ..] => Kind::Never("an address behind a carrier's NAT"),
        [224..=239, ..] => Kind::Never("a multicast address"),
        [240..=255, ..] => Kind::Never("a reserved or broadcast address"),
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
        [0xfd00, 0x0ec2, ..] => Kind::Never("a metadata address"),
        // A gateway turns these into the IPv4 address that they end with.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            match kind_of_v4(Ipv4Addr::new(a, b, c, d)) {
                Kind::Open => Kind::Open,
                _ => Kind::Never("a translated address of a network that is not open"),
            }
        }
        [0x64, 0xff9b, ..] => Kind::Never("an address for translation within a network"),
        [0, 0, 0, 0, 0, 0, ..] => Kind::Never("an unspecified or IPv4-compatible address"),
        [0, 0, 0, 0, ..] => Kind::Never("an IPv4-translated address"),
        [0x2002, ..] | [0x2001, 0, ..] => Kind::Never("an address of a tunnel"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Kind::Never("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Kind::Never("a site-local address"),
        [first, ..] if first & 0xff00 == 0xff00 => Kind::Never("a multicast address"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Kind::Private,
        _ => Kind::Open,
    }
}

#[cfg(test)]
mod tests;
