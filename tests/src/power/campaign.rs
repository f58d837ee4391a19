//! Many cuts in one recording.

use super::Failed;
use super::disk::{Disk, Lie, Survives};
use super::judge::{Wrong, judge};
use super::log::Record;
use super::recording::Recording;
use fastrand::Rng;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Cuts that are told in full.
const TOLD: usize = 5;

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    pub cuts: u64,
    /// Calls of the manager that changed its files, flushes among them.
    pub records: usize,
    pub flushes: usize,
    pub acknowledged: usize,
    /// How often one was looked for.
    pub looked_for: u64,
    pub lost: u64,
    pub torn: u64,
    pub failures: Vec<String>,
}

/// Cuts the power so many times, each at a moment and with losses that follow from its own seed.
pub fn run(recording: &Recording, first: u64, cuts: u64, lie: Option<Lie>) -> Result<Report, Failed> {
    let is_flush = |record: &&Record| matches!(record, Record::SyncEnds { .. });
    let report = Mutex::new(Report {
        seed: first,
        cuts,
        records: recording.records.len(),
        flushes: recording.records.iter().filter(is_flush).count(),
        acknowledged: recording.acknowledged.len(),
        ..Report::default()
    });
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || -> Result<(), Failed> {
            // In memory, where there is a place: nothing here needs a disk.
            let memory = Path::new("/dev/shm");
            let place = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir())?;
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if nth >= cuts {
                    return Ok(());
                }
                let seed = first.wrapping_add(nth);
                let cut = one(
                    recording,
                    seed,
                    lie,
                    &place.path().join(seed.to_string()),
                    &runtime,
                )?;
                add(
                    &mut report.lock().unwrap_or_else(PoisonError::into_inner),
                    seed,
                    cut,
                );
            }
        };
        let working: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = working.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Result<(), Failed>>()
    })?;
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One cut: what it was, how many acknowledgements were looked for, and what is wrong.
struct Cut {
    what: String,
    looked_for: usize,
    wrong: Vec<Wrong>,
}

fn one(
    recording: &Recording,
    seed: u64,
    lie: Option<Lie>,
    into: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<Cut, Failed> {
    let mut rng = Rng::with_seed(seed);
    let moment = moment(recording, &mut rng);
    let survives = Survives::any(&mut rng);
    Disk::after(&recording.records[..moment], lie)?.cut(survives, &mut rng, into)?;
    let known = recording
        .acknowledged
        .partition_point(|(after, _)| *after <= moment);
    let wrong = runtime.block_on(judge(into, &recording.acknowledged[..known]))?;
    std::fs::remove_dir_all(into)?;
    Ok(Cut {
        what: format!(
            "after record {moment} of {}, left: {survives:?}",
            recording.records.len()
        ),
        looked_for: known,
        wrong,
    })
}

/// Anywhere; and often just after somebody was told something, or a flush had ended.
fn moment(recording: &Recording, rng: &mut Rng) -> usize {
    let records = &recording.records;
    let anywhere = rng.usize(0..=records.len());
    match rng.u32(0..3) {
        0 => recording.acknowledged[rng.usize(0..recording.acknowledged.len())].0,
        1 => {
            let flushed = records[anywhere..]
                .iter()
                .position(|record| matches!(record, Record::SyncEnds { .. }));
            flushed.map_or(anywhere, |further| anywhere + further + 1)
        }
        _ => anywhere,
    }
}

fn add(report: &mut Report, seed: u64, cut: Cut) {
    report.looked_for += cut.looked_for as u64;
    let count = |is: fn(&Wrong) -> bool| u64::from(cut.wrong.iter().any(is));
    report.lost += count(|wrong| matches!(wrong, Wrong::Lost(_)));
    report.torn += count(|wrong| matches!(wrong, Wrong::Torn(_)));
    if let Some(first) = cut.wrong.first().filter(|_| report.failures.len() < TOLD) {
        let more = cut.wrong.len() - 1;
        report
            .failures
            .push(format!("seed {seed}, {}: {first:?}, and {more} more", cut.what));
    }
}
