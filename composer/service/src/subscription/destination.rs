//! Where events may be sent. Pure: which addresses a name has, and which are our own, is for whoever asks.
//!
//! A destination is chosen by a client and called by us, from inside: what only we can reach must not be reached for it.
//! Invariants: an address is judged as it is dialled, whatever it was written as; what is not known to be harmless on its
//! own (private networks) is open only where the operator says so.

use poolwright_model::address::{Kind, kind_of, plain};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use url::{Host, Url};

/// The rule against loopback addresses.
const LOOPBACK: &str =
    "a loopback address (127.0.0.0/8, ::1; only serve --insecure-event-loopback allows them)";

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
    #[error("{0} is this machine: only serve --insecure-event-loopback allows it")]
    ThisMachine(String),
    #[error("{0} is {1}: no event is sent there")]
    Never(IpAddr, &'static str),
    #[error("{0} is an address of this manager, which sends no event to itself")]
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
            Kind::Loopback => Verdict::Never(LOOPBACK),
            Kind::Private
                if self
                    .networks
                    .iter()
                    .any(|network| network.contains(plain(address))) =>
            {
                Verdict::Open
            }
            Kind::Private => Verdict::NotAllowed,
            Kind::Carrier => Verdict::Never("an address behind a carrier's NAT (100.64.0.0/10)"),
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

#[cfg(test)]
mod tests;
