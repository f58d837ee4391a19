//! Where a function sits: domain, bus, device, function. A place, never an identity.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Such as `0000:41:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Address {
    pub domain: u32,
    pub bus: u8,
    /// 0 to 31.
    pub device: u8,
    /// 0 to 7.
    pub function: u8,
}

/// What was given is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no PCI address such as 0000:41:00.0")]
pub struct NotAnAddress(String);

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        read(text).ok_or_else(|| NotAnAddress(text.chars().take(40).collect()))
    }
}

fn read(text: &str) -> Option<Address> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let address = Address {
        domain: hex(domain, 4..=8)?,
        bus: u8::try_from(hex(bus, 2..=2)?).ok()?,
        device: u8::try_from(hex(device, 2..=2)?).ok()?,
        function: u8::try_from(hex(function, 1..=1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// Digits alone: `from_str_radix` takes a sign, too.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_hex = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok())?
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = NotAnAddress;

    fn try_from(text: String) -> Result<Self, NotAnAddress> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "0000:41:00",
            "41:00.0",
            "0000:41:20.0",
            "0000:41:00.8",
            "0000:+1:00.0",
            "0000:41:00.0\n",
            "zz",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_address_reads_as_it_is_written(domain: u32, bus: u8, device in 0..32_u8, function in 0..8_u8) {
            let address = Address { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
