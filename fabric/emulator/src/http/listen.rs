//! Addresses for many endpoints from one, and the listeners on them.

use super::ServeError;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

/// Ports for addresses that are used again after a restart: the system gives none of them to a connection or to
/// a listener at port 0 meanwhile. Linux gives 32768 to 60999 (`ip_local_port_range`), others 49152 to 65535.
const LASTING: Range<u16> = 20_000..30_000;

/// Which port a listener takes where none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unnamed {
    /// Any that is free.
    Free,
    /// One that is likely to be free after a restart.
    Lasting,
}

/// Listens for each name, from `first` on. With port 0 all take the port that the first was given.
pub(super) fn all(
    first: SocketAddr,
    unnamed: Unnamed,
    names: &[String],
) -> Result<Vec<(TcpListener, SocketAddr)>, ServeError> {
    raise_file_limit();
    // Where no port is named, the one that is free at the first address may be taken at a later one.
    let attempts = if first.port() == 0 { 16 } else { 1 };
    let mut attempt = 1;
    loop {
        let mut first = first;
        if first.port() == 0 && unnamed == Unnamed::Lasting {
            first.set_port(lasting_port()?);
        }
        match once(first, names) {
            Err(ServeError::Listen { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse && attempt < attempts =>
            {
                attempt += 1;
            }
            other => return other,
        }
    }
}

fn lasting_port() -> Result<u16, ServeError> {
    let span = u32::from(LASTING.end - LASTING.start);
    let chosen = getrandom::u32()? % span;
    Ok(LASTING.start + u16::try_from(chosen).unwrap_or(0))
}

fn once(first: SocketAddr, names: &[String]) -> Result<Vec<(TcpListener, SocketAddr)>, ServeError> {
    let mut listeners = Vec::with_capacity(names.len());
    let mut first = first;
    for (index, name) in names.iter().enumerate() {
        let no_room = || ServeError::NoRoom {
            address: first,
            endpoints: names.len(),
        };
        let address = nth(first, index).ok_or_else(no_room)?;
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            io::Result::Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|source| error(address, name.clone(), source))?;
        if index == 0 {
            first = address;
        }
        listeners.push((listener, address));
    }
    Ok(listeners)
}

/// The next addresses in 127.0.0.0/8, which are all this machine's own; elsewhere the next ports.
fn nth(first: SocketAddr, index: usize) -> Option<SocketAddr> {
    match first.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => {
            let next = u32::from(ip)
                .checked_add(u32::try_from(index).ok()?)
                .map(Ipv4Addr::from)?;
            // The last one is the network's broadcast address.
            let fits = next.is_loopback() && next != Ipv4Addr::new(127, 255, 255, 255);
            fits.then(|| SocketAddr::from((next, first.port())))
        }
        ip => Some(SocketAddr::from((
            ip,
            first.port().checked_add(u16::try_from(index).ok()?)?,
        ))),
    }
}

pub(super) fn error(address: SocketAddr, name: String, source: io::Error) -> ServeError {
    let hint = match source.raw_os_error() {
        // EMFILE and ENFILE are the same numbers on all Unix systems.
        Some(23 | 24) => "; raise the limit of open files (ulimit -n)",
        _ if source.kind() == io::ErrorKind::AddrInUse => "; something listens there already",
        _ if source.kind() == io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        _ => "",
    };
    ServeError::Listen {
        address,
        name,
        source,
        hint,
    }
}

/// A big rack has more listeners than the usual soft limit of 1,024 files.
fn raise_file_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn loopback_goes_on_by_address_and_others_by_port() {
        let nth = |first: &str, index| nth(first.parse().unwrap(), index).map(|at| at.to_string());
        assert_eq!(nth("127.0.0.1:8443", 0).as_deref(), Some("127.0.0.1:8443"));
        assert_eq!(nth("127.0.0.1:8443", 1151).as_deref(), Some("127.0.4.128:8443"));
        assert_eq!(nth("127.255.255.254:1", 1), None);
        assert_eq!(nth("192.0.2.1:8443", 2).as_deref(), Some("192.0.2.1:8445"));
        assert_eq!(nth("[::1]:8443", 1).as_deref(), Some("[::1]:8444"));
        assert_eq!(nth("192.0.2.1:65535", 1), None);
    }

    #[test]
    fn a_taken_address_is_named() {
        let (_held, address) = all("127.0.0.1:0".parse().unwrap(), Unnamed::Free, &["a".into()])
            .unwrap()
            .remove(0);
        let error = all(address, Unnamed::Free, &["box-1".into()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("box-1"),
            "{error}"
        );
        assert!(error.contains("already"), "{error}");
    }

    #[test]
    fn a_port_for_a_restart_is_none_that_the_system_gives_away() {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
        let first = "127.0.0.1:0".parse().unwrap();
        let mut held = Vec::new();
        for _ in 0..20 {
            held.extend(all(first, Unnamed::Lasting, &names).unwrap());
        }
        let ports: BTreeSet<u16> = held.iter().map(|(_, address)| address.port()).collect();
        assert_eq!(ports.len(), 20, "{ports:?}");
        assert!(ports.iter().all(|port| LASTING.contains(port)), "{ports:?}");
    }
}
