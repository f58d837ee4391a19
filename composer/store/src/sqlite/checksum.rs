//! What tells that a backup is as it was written: a line behind the database, which SQLite does not look at, with the
//! SHA-256 digest of all that is before it. A database whose pages are sound may still say something else than it did.

use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const BEGINS: &str = "\npoolwright backup, sha256 ";
const DIGITS: usize = 64;
/// With the end of the line.
const LENGTH: u64 = (BEGINS.len() + DIGITS + 1) as u64;
/// The length of a database is a multiple of this, whatever its pages.
const SMALLEST_PAGE: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Right,
    Wrong,
    /// It is a database and nothing else, as backups once were.
    None,
}

/// Adds it, on the disk. Returns how long the file is then.
pub(super) fn add(path: &Path) -> io::Result<u64> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let line = line(&mut file, length)?;
    file.seek(SeekFrom::Start(length))?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    Ok(length + LENGTH)
}

pub(super) fn look(path: &Path) -> io::Result<Checksum> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length % SMALLEST_PAGE == 0 {
        return Ok(Checksum::None);
    }
    let Some(before) = length.checked_sub(LENGTH) else {
        return Ok(Checksum::Wrong);
    };
    let wanted = line(&mut file, before)?;
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(before))?;
    file.read_to_end(&mut found)?;
    Ok(match found == wanted.as_bytes() {
        true => Checksum::Right,
        false => Checksum::Wrong,
    })
}

/// The line that belongs behind so many bytes of the file.
fn line(file: &mut File, length: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut digest = Sha256::new();
    let mut bytes = [0; 1 << 16];
    let mut content = file.take(length);
    loop {
        match content.read(&mut bytes)? {
            0 => break,
            read => digest.update(&bytes[..read]),
        }
    }
    let digits: String = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(format!("{BEGINS}{digits}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_that_is_otherwise_is_seen_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        std::fs::write(&path, [7; 1024]).unwrap();
        assert_eq!(look(&path).unwrap(), Checksum::None);
        let length = add(&path).unwrap();
        assert_eq!((length, look(&path).unwrap()), (1024 + LENGTH, Checksum::Right));
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 600, 1023, 1024, 1030, whole.len() - 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(look(&path).unwrap(), Checksum::Wrong, "byte {at}");
        }
        for cut in [1, 20, 90, 300] {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(look(&path).unwrap(), Checksum::Wrong, "{cut} bytes less");
        }
    }
}
