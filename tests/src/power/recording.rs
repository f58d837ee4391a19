//! Makes the recording: the recorder is compiled and preloaded into processes that run [`super::session`].

use super::disk::Disk;
use super::log::{self, Record};
use super::{ACKNOWLEDGED, Failed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lives of the manager, one after the other; the first is killed at work.
const SESSIONS: usize = 3;
/// Fewer, and nothing is tested.
const LEAST_ACKNOWLEDGED: usize = 200;

/// What was recorded.
pub struct Recording {
    pub records: Vec<Record>,
    /// After how many records each acknowledgement was given, and the line.
    pub acknowledged: Vec<(usize, String)>,
}

/// Records into this folder, or reads what was recorded there before. `session` is the command that runs one session:
/// the folder and the session's number are added to it.
pub fn record(folder: &Path, session: impl Fn() -> Command) -> Result<Recording, Failed> {
    let (root, file) = (folder.join("root"), folder.join("log"));
    if !file.exists() {
        std::fs::create_dir_all(&root)?;
        let (root, recorder) = (root.canonicalize()?, compiled(folder)?);
        for nth in 0..SESSIONS {
            let mut command = session();
            command.arg(&root).arg(nth.to_string());
            command.env("LD_PRELOAD", &recorder);
            command.env("POOLWRIGHT_RECORD_ROOT", &root);
            command.env("POOLWRIGHT_RECORD_LOG", &file);
            let ended = command.status()?;
            // The first ends itself.
            if ended.success() == (nth == 0) {
                return Err(format!("session {nth} ended with {ended}").into());
            }
        }
    }
    let records = log::read(&file)?;
    is_whole(&records, &root)?;
    let acknowledged = acknowledged(&records);
    if acknowledged.len() < LEAST_ACKNOWLEDGED {
        return Err(format!("only {} acknowledgements were given", acknowledged.len()).into());
    }
    Ok(Recording {
        records,
        acknowledged,
    })
}

fn compiled(folder: &Path) -> Result<PathBuf, Failed> {
    let (source, library) = (folder.join("recorder.c"), folder.join("recorder.so"));
    std::fs::write(&source, include_str!("recorder.c"))?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-pthread", "-o"]);
    let ran = cc.arg(&library).arg(&source).output();
    let ran = ran.map_err(|error| format!("cc can't be run: {error}; install a C compiler"))?;
    match ran.status.success() {
        true => Ok(library.canonicalize()?),
        false => Err(format!("cc: {}", String::from_utf8_lossy(&ran.stderr)).into()),
    }
}

/// Whether what was written down comes to what is there: a recorder that missed a call would show less than was done.
fn is_whole(records: &[Record], root: &Path) -> Result<(), Failed> {
    let disk = Disk::after(records, None)?;
    for path in disk.paths() {
        if std::fs::read(root.join(path))? != disk.now(path).unwrap_or_default() {
            return Err(format!("{path} is not as it was recorded").into());
        }
    }
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if !name.ends_with("-shm") && !disk.paths().contains(name.as_str()) {
                return Err(format!("{name} was not recorded").into());
            }
        }
    }
    Ok(())
}

fn acknowledged(records: &[Record]) -> Vec<(usize, String)> {
    let told = records.iter().find_map(|record| match record {
        Record::Create { path, inode, .. } if path == ACKNOWLEDGED => Some(*inode),
        _ => None,
    });
    let lines = records
        .iter()
        .enumerate()
        .filter_map(|(at, record)| match record {
            Record::Write { inode, bytes, .. } if Some(*inode) == told => {
                let line = String::from_utf8_lossy(bytes).trim().to_owned();
                Some((at + 1, line))
            }
            _ => None,
        });
    lines.collect()
}
