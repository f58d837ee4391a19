//! What the kernel tells of PCI functions that come, go, and get a driver: uevents.
//!
//! They are hints to look, and no more: the kernel drops them where nobody reads fast enough ([`Heard::Lost`]), and a
//! function may go without one. Only what the kernel itself has sent is heard; other processes can send there, too.

use crate::address::Address;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The kernel's own group of listeners; those of udev are others.
const OF_THE_KERNEL: u32 = 1;
/// The kernel writes no longer ones.
const LONGEST: usize = 8 * 1024;
/// Enough for a whole switch that comes at once.
const KEPT: usize = 1 << 20;

/// What became of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Add,
    Remove,
    /// A driver was bound to it.
    Bind,
    Unbind,
    /// Something else about it, such as an error that it recovers from.
    Change,
}

impl Action {
    const ALL: [Self; 5] = [Self::Add, Self::Remove, Self::Bind, Self::Unbind, Self::Change];

    /// As the kernel spells it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Change => "change",
        }
    }
}

/// One piece of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Uevent {
    pub action: Action,
    pub function: Address,
}

/// What came of listening for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Told(Uevent),
    /// The kernel dropped some: everything is to be looked at.
    Lost,
    Nothing,
}

/// Listens to this machine's kernel. It needs no rights.
#[derive(Debug)]
pub struct Uevents(OwnedFd);

impl Uevents {
    /// Hears what is told from now on.
    pub fn listen() -> io::Result<Self> {
        let protocol = Some(netlink::KOBJECT_UEVENT);
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        set_socket_recv_buffer_size(&socket, KEPT)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, OF_THE_KERNEL))?;
        Ok(Self(socket))
    }

    /// Waits for what is told next of a PCI function, for so long at most.
    pub fn next(&self, limit: Duration) -> io::Result<Heard> {
        let until = Instant::now() + limit;
        let mut buffer = [0; LONGEST];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Heard::Nothing);
            }
            // Nought would mean without end.
            let left = left.max(Duration::from_millis(1));
            set_socket_timeout(&self.0, Timeout::Recv, Some(left))?;
            match rustix::net::recvfrom(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length, sender)) => {
                    let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
                    let by_the_kernel = sender.is_some_and(|sender| sender.pid() == 0);
                    let message = &buffer[..length.min(LONGEST)];
                    if let Some(told) = parse(message).filter(|_| by_the_kernel) {
                        return Ok(Heard::Told(told));
                    }
                }
                Err(Errno::NOBUFS) => return Ok(Heard::Lost),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// `None`: it is of no PCI function, or not as the kernel writes them.
fn parse(message: &[u8]) -> Option<Uevent> {
    let (mut action, mut function, mut is_pci) = (None, None, false);
    for line in message.split(|byte| *byte == 0) {
        let Some((name, value)) = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.split_once('='))
        else {
            continue;
        };
        match name {
            "ACTION" => action = Action::ALL.into_iter().find(|known| known.word() == value),
            "SUBSYSTEM" => is_pci = value == "pci",
            "PCI_SLOT_NAME" => function = value.parse().ok(),
            _ => {}
        }
    }
    Some(Uevent {
        action: action.filter(|_| is_pci)?,
        function: function?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAME: &[u8] = b"add@/devices/pci0000:00/0000:00:1c.0/0000:01:00.0\0ACTION=add\0\
        DEVPATH=/devices/pci0000:00/0000:00:1c.0/0000:01:00.0\0SUBSYSTEM=pci\0PCI_CLASS=30200\0\
        PCI_ID=10DE:2330\0PCI_SUBSYS_ID=10DE:16C1\0PCI_SLOT_NAME=0000:01:00.0\0SEQNUM=1201\0";

    fn with(from: &str, to: &str) -> Vec<u8> {
        String::from_utf8_lossy(CAME).replace(from, to).into_bytes()
    }

    #[test]
    fn what_comes_and_goes_is_heard() {
        let function = "0000:01:00.0".parse().unwrap();
        let told = |action| Some(Uevent { action, function });
        assert_eq!(parse(CAME), told(Action::Add));
        assert_eq!(parse(&with("ACTION=add", "ACTION=remove")), told(Action::Remove));
        assert_eq!(parse(&with("ACTION=add", "ACTION=bind")), told(Action::Bind));
    }

    #[test]
    fn what_is_of_no_function_is_not() {
        assert_eq!(parse(&with("SUBSYSTEM=pci", "SUBSYSTEM=net")), None);
        assert_eq!(parse(&with("ACTION=add", "ACTION=dance")), None);
        assert_eq!(parse(&with("0000:01:00.0\0SEQ", "somewhere\0SEQ")), None);
        // As udev writes to its own listeners.
        assert_eq!(parse(b"libudev\0\xfe\xed\xca\xfe"), None);
    }

    #[test]
    fn a_wait_for_nothing_ends() {
        let uevents = Uevents::listen().unwrap();
        assert_eq!(uevents.next(Duration::ZERO).unwrap(), Heard::Nothing);
    }

    proptest! {
        #[test]
        fn nothing_that_comes_can_break_it(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
