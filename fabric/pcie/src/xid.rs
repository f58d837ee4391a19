//! What the NVIDIA driver wrote of its GPUs into the kernel's log: errors with a number, called Xid.
//!
//! `dev/kmsg` gives a record for each read, the oldest first, and needs root. It holds what has not been overwritten yet;
//! each record has a number that no other has since the kernel started.

use crate::address::Address;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Longer records are cut off by the kernel.
const LONGEST: usize = 8 * 1024;
/// More than any kernel keeps.
const MOST_RECORDS: usize = 1 << 18;
/// Of one look.
const MOST_XIDS: usize = 1_000;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Xid {
    /// Of the record in the kernel's log.
    pub sequence: u64,
    pub function: Address,
    pub number: u32,
    /// What follows it, as the driver wrote it.
    pub says: String,
}

/// What a record of the log tells.
enum Told {
    /// The kernel found a function at this place.
    Came(Address),
    Failed(Xid),
}

/// The errors that the log below a root holds still, in their order: those of each function since the kernel found it there
/// last, for what was there before it was another. None where there is no log; an error where it may not be read.
pub fn xids(root: &Path) -> io::Result<Vec<Xid>> {
    let told = records(root, |record| {
        parse(record).map(Told::Failed).or_else(|| came(record))
    })?;
    let mut since: BTreeMap<Address, Vec<Xid>> = BTreeMap::new();
    for told in told {
        match told {
            Told::Came(function) => drop(since.remove(&function)),
            Told::Failed(xid) => since.entry(xid.function).or_default().push(xid),
        }
    }
    let mut found: Vec<Xid> = since.into_values().flatten().collect();
    found.sort_by_key(|xid| xid.sequence);
    let old = found.len().saturating_sub(MOST_XIDS);
    Ok(found.split_off(old))
}

/// What is made of the records of the log, the oldest first.
fn records<T>(root: &Path, parse: impl Fn(&[u8]) -> Option<T>) -> io::Result<Vec<T>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = match rustix::fs::open(root.join("dev/kmsg"), flags, Mode::empty()) {
        Ok(log) => log,
        Err(Errno::NOENT | Errno::NODEV) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    let mut buffer = [0; LONGEST];
    // A plain file gives several records at once, and may cut the last one off.
    let mut left = Vec::new();
    for _ in 0..MOST_RECORDS {
        match rustix::io::read(&log, &mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(length) => left.extend_from_slice(&buffer[..length]),
            // Some were overwritten, or it was interrupted: it goes on with what is there.
            Err(Errno::PIPE | Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let whole = left
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let records = left.drain(..whole).collect::<Vec<u8>>();
        found.extend(records.split(|byte| *byte == b'\n').filter_map(&parse));
        if left.len() > LONGEST {
            left.clear();
        }
    }
    Ok(found)
}

/// `6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.`
fn parse(record: &[u8]) -> Option<Xid> {
    let record = String::from_utf8_lossy(record);
    let (prefix, message) = record.split_once(';')?;
    let sequence = prefix.split(',').nth(1)?.parse().ok()?;
    let rest = message.strip_prefix("NVRM: Xid (PCI:")?;
    let (place, rest) = rest.split_once("): ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, says) = rest.split_at(digits);
    let place = match place.contains('.') {
        true => place.to_owned(),
        false => format!("{place}.0"),
    };
    Some(Xid {
        sequence,
        function: place.parse().ok()?,
        number: number.parse().ok()?,
        says: says.trim_start_matches([',', ' ']).trim_end().to_owned(),
    })
}

/// `6,1235,5678902,-;pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint`
fn came(record: &[u8]) -> Option<Told> {
    let record = String::from_utf8_lossy(record);
    let (_, message) = record.split_once(';')?;
    let (place, _) = message.strip_prefix("pci ")?.split_once(": [")?;
    place.parse().ok().map(Told::Came)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const FALLEN: &str =
        "3,812,99120011,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n";

    fn of(log: &[u8]) -> Vec<Xid> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kmsg"), log).unwrap();
        xids(root.path()).unwrap()
    }

    #[test]
    fn an_error_is_read_with_its_gpu_its_number_and_its_words() {
        let other = "6,813,99120012,-;pci 0000:3b:00.0: link is down\n SUBSYSTEM=pci\n";
        let last = "4,900,99120013,c;NVRM: Xid (PCI:0001:af:00.0): 48, DBE";
        let found = of(format!("{FALLEN}{other}{last}\n").as_bytes());
        let told: Vec<_> = found
            .iter()
            .map(|xid| (xid.sequence, xid.function.to_string(), xid.number))
            .collect();
        assert_eq!(
            told,
            [
                (812, "0000:3b:00.0".to_owned(), 79),
                (900, "0001:af:00.0".to_owned(), 48)
            ]
        );
        assert!(
            found[0].says.ends_with("GPU has fallen off the bus."),
            "{:?}",
            found[0]
        );
    }

    #[test]
    fn a_host_without_a_log_has_none_and_a_long_log_is_read_in_pieces() {
        assert_eq!(xids(tempfile::tempdir().unwrap().path()).unwrap(), []);
        let filler = format!("6,1,2,-;{}\n", "x".repeat(3_000)).repeat(10);
        assert_eq!(of(format!("{filler}{FALLEN}").as_bytes()).len(), 1);
        assert_eq!(of(FALLEN.repeat(2_000).as_bytes()).len(), MOST_XIDS);
    }

    #[test]
    fn what_came_later_has_no_part_in_the_errors_of_what_was_there_before() {
        let came = "6,813,99120012,-;pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint\n";
        let other = "6,814,99120013,-;pci 0000:3c:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint\n";
        assert_eq!(of(format!("{FALLEN}{came}").as_bytes()), []);
        for its_own in [format!("{FALLEN}{other}"), format!("{came}{FALLEN}")] {
            assert_eq!(of(its_own.as_bytes()).len(), 1, "{its_own}");
        }
    }

    proptest! {
        #[test]
        fn no_record_can_break_it(bytes: Vec<u8>, words in "[;,:().0-9A-Za-z ]{0,80}") {
            parse(&bytes);
            came(&bytes);
            came(format!("6,1,2,-;pci {words}").as_bytes());
            parse(format!("3,1,2,-;NVRM: Xid (PCI:{words}").as_bytes());
        }
    }
}
