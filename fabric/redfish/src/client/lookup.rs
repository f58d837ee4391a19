//! Names of services, looked up: an address is judged as it is dialled, so that no name leads where its address would be
//! refused.

use std::io;
use std::net::SocketAddr;

use poolwright_model::address::nobodys;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// As this machine looks names up.
#[derive(Debug)]
pub(crate) struct Lookup;

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses = open(name.as_str(), found)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Those that a service can have.
fn open(name: &str, found: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let (open, nobodys): (Vec<_>, Vec<_>) = found
        .map(|address| (address, nobodys(address.ip())))
        .partition(|(_, what)| what.is_none());
    match nobodys.first() {
        Some((address, Some(what))) if open.is_empty() => Err(io::Error::other(format!(
            "{name} is {}, {what}, and no management service's",
            address.ip()
        ))),
        _ => Ok(open.into_iter().map(|(address, _)| address).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_where_no_service_is() {
        let of = |addresses: &[&str]| {
            let parsed = addresses.iter().map(|text| text.parse().unwrap());
            open("bmc", parsed.map(|ip| SocketAddr::new(ip, 0)))
                .map(|found| {
                    found
                        .iter()
                        .map(|found| found.ip().to_string())
                        .collect::<Vec<_>>()
                })
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            of(&["10.0.0.7", "fe80::1", "fd12::7"]).unwrap(),
            ["10.0.0.7", "fd12::7"]
        );
        let refused = of(&["169.254.169.254"]).unwrap_err();
        assert!(
            refused.contains("bmc is 169.254.169.254, a link-local or metadata address"),
            "{refused}"
        );
        assert!(of(&[]).unwrap().is_empty());
    }
}
