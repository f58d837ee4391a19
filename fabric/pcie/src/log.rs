//! The kernel's log: fatal errors of functions since each was added.
//!
//! `dev/kmsg` returns a record for each read, the oldest first, and needs root. It holds the records that have not been
//! overwritten yet; the number of each record is unique since the kernel started. Errors at an address from before its
//! current function was added belong to another function, and are not reported.

use crate::address::Address;
use crate::aer::{self, FatalError};
use crate::xid::{self, Xid};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Longer records are cut off by the kernel.
const LONGEST: usize = 8 * 1024;
/// More than any kernel keeps.
const MOST_RECORDS: usize = 1 << 18;
/// Of one look.
const MOST_XIDS: usize = 1_000;

/// What a record of the log tells.
enum Told {
    /// The kernel found a function at this place.
    Came(u64, Address),
    Failed(Xid),
    Fatal(FatalError),
}

/// What the log holds still.
#[derive(Debug, Default)]
pub struct Log {
    xids: Vec<Xid>,
    /// The last of each function.
    fatal: BTreeMap<Address, FatalError>,
    /// The records that tell when each function came last.
    came: BTreeMap<Address, u64>,
}

impl Log {
    /// Reads the log below a root. Nothing where there is none; an error where it may not be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut log = Self::default();
        let mut since: BTreeMap<Address, Vec<Xid>> = BTreeMap::new();
        for told in records(root, parse)? {
            match told {
                Told::Came(sequence, function) => {
                    since.remove(&function);
                    log.fatal.remove(&function);
                    log.came.insert(function, sequence);
                }
                Told::Failed(xid) => since.entry(xid.function).or_default().push(xid),
                Told::Fatal(error) => drop(log.fatal.insert(error.function, error)),
            }
        }
        log.xids = since.into_values().flatten().collect();
        log.xids.sort_by_key(|xid| xid.sequence);
        let old = log.xids.len().saturating_sub(MOST_XIDS);
        log.xids.drain(..old);
        Ok(log)
    }

    /// Errors that the NVIDIA driver logged, in their order.
    pub fn xids(&self) -> &[Xid] {
        &self.xids
    }

    /// The last fatal error on the link of a function since it came, whichever end of it told.
    pub fn fatal_on_link(&self, function: Address, port: Option<Address>) -> Option<&FatalError> {
        let ends = [Some(function), port].into_iter().flatten();
        let told = ends.filter_map(|end| self.fatal.get(&end));
        // Earlier errors of the port concern the previous function on its link.
        let came = self.came.get(&function).copied();
        told.filter(|error| came.is_none_or(|came| error.sequence > came))
            .max_by_key(|error| error.sequence)
    }
}

/// Parses the records of the log, the oldest first.
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
            // Overwritten records or a signal: continue with the remaining records.
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

/// `6,1234,5678901,-;message`
fn parse(record: &[u8]) -> Option<Told> {
    let record = String::from_utf8_lossy(record);
    let (prefix, message) = record.split_once(';')?;
    let sequence = prefix.split(',').nth(1)?.parse().ok()?;
    let failed = || xid::parse(sequence, message).map(Told::Failed);
    let fatal = || aer::fatal(sequence, message).map(Told::Fatal);
    failed()
        .or_else(fatal)
        .or_else(|| Some(Told::Came(sequence, came(message)?)))
}

/// `pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint`
fn came(message: &str) -> Option<Address> {
    let (place, _) = message.strip_prefix("pci ")?.split_once(": [")?;
    place.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const FALLEN: &str =
        "3,812,99120011,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n";

    fn log(text: &[u8]) -> Log {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kmsg"), text).unwrap();
        Log::read(root.path()).unwrap()
    }

    fn of(text: &[u8]) -> Vec<Xid> {
        log(text).xids
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
        assert_eq!(Log::read(tempfile::tempdir().unwrap().path()).unwrap().xids(), []);
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

    /// Lines as Linux 6.1 writes them: the second of a port, the third as later kernels call it.
    #[test]
    fn a_fatal_error_is_told_of_the_link_of_whoever_was_there_then() {
        const GPU: &str = "0000:02:00.0";
        const PORT: &str = "0000:00:02.0";
        let came = format!("6,10,1,-;pci {GPU}: [10de:2330] type 00 class 0x030200\n");
        let says = "type=Inaccessible, (Unregistered Agent ID)";
        let own = format!("3,11,1,-;pci {GPU}: AER: PCIe Bus Error: severity=Uncorrected (Fatal), {says}\n");
        let above = format!(
            "3,12,1,-;pcieport {PORT}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer\n"
        );
        let others = format!(
            "3,13,1,-;pci {GPU}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer\n\
             4,14,1,-;pci {GPU}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n\
             3,15,1,-;pci 0000:03:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), {says}\n"
        );
        for (text, expected) in [
            (others.clone(), None),
            (format!("{came}{own}{others}"), Some((11, GPU))),
            (format!("{own}{others}"), Some((11, GPU))),
            (format!("{came}{own}{above}"), Some((12, PORT))),
            (format!("{own}{above}{}", came.replace(",10,", ",16,")), None),
        ] {
            let log = log(text.as_bytes());
            let told = log.fatal_on_link(GPU.parse().unwrap(), Some(PORT.parse().unwrap()));
            let told = told.map(|error| (error.sequence, error.function.to_string()));
            let expected = expected.map(|(sequence, end)| (sequence, end.to_owned()));
            assert_eq!(told, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_record_can_break_it(bytes: Vec<u8>, words in "[;,:().0-9A-Za-z= ]{0,80}") {
            parse(&bytes);
            for begun in ["pci ", "pci 0000:3b:00.0: AER: PCIe Bus Error: severity=", "NVRM: Xid (PCI:"] {
                parse(format!("3,1,2,-;{begun}{words}").as_bytes());
            }
        }
    }
}
