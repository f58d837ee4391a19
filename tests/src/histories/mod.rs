//! Histories: what many clients at once asked several managers, what they were answered and when, and whether all of
//! it can have been so.
//!
//! Ownership is to be *linearizable*: each answer is as if the whole request had happened at one instant between
//! the question and the answer. Clients write down both; afterwards [`linear`] looks, for each GPU, for an order of
//! the requests that explains every answer. Managers share a store and a rack; they are killed at any await
//! meanwhile, and others adopt what they were at, or the same one starts again. The rack fails, too: requests come too
//! late, answers are lost, management services restart.
//!
//! * [`history`]: what clients write down.
//! * [`linear`]: the checker. It knows nothing of managers.
//! * [`clients`]: those that ask, and [`managers`]: those that answer.
//!
//! A run in which too little was answered shows nothing, and is no good run.
//!
//! In a store in memory all of it runs in a time that jumps whenever all wait. On PostgreSQL it runs in real time, over
//! real connections, and is shorter.

pub mod clients;
pub mod history;
pub mod linear;
pub mod managers;

use clients::Ring;
use fastrand::Rng;
use history::History;
use managers::Managers;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Clients that compose and release, and clients that only look.
const TAKERS: usize = 8;
const READERS: usize = 4;
/// Before anything goes wrong.
const GOOD_TIMES: Duration = Duration::from_secs(2);
/// By when everybody has been answered, or has given up.
const PATIENCE: Duration = Duration::from_secs(3600);
/// A run with fewer grants is none of contention.
const GRANTS: usize = 30;

/// Where it is run, and so in which time.
#[derive(Debug, Clone)]
pub enum Ground {
    Memory,
    /// The address of a database of its own.
    Postgres(String),
}

/// What is run.
#[derive(Debug, Clone)]
pub struct Setup {
    pub ground: Ground,
    pub seed: u64,
    /// One starts again after it was killed; several share the store by leases.
    pub managers: usize,
    /// How often one of them is killed.
    pub kills: u32,
    /// Whether the rack goes wrong meanwhile.
    pub rack_fails: bool,
    /// Between two requests of a client, at most, while all goes well.
    pub pause: Duration,
    /// The same, while managers die.
    pub bad_pause: Duration,
    /// Between two deaths.
    pub bad_times: Duration,
    /// Answers a second, of the rack's time, that must be had while all goes well.
    pub least: f64,
    /// Requests that must be answered until the end.
    pub requests: u32,
    /// For so long answers that are lacking are waited for: in real time a busy machine gives them later.
    pub more_time: Duration,
    pub plant: Option<Plant>,
}

impl Setup {
    pub fn new(seed: u64, managers: usize) -> Self {
        Self {
            ground: Ground::Memory,
            seed,
            managers,
            kills: 6,
            rack_fails: true,
            pause: Duration::from_millis(20),
            bad_pause: Duration::from_secs(8),
            // Long enough that what is not known any more is settled (a reset that a death cut off is waited out for
            // over a minute) and given away again.
            bad_times: Duration::from_secs(120),
            least: 200.0,
            requests: 0,
            more_time: Duration::ZERO,
            plant: None,
        }
    }

    /// Three managers on a database, in real time: with shorter deadlines, so that what a death left open is settled
    /// within seconds, and as many answers as a busy machine of two cores gives.
    pub fn on_postgres(seed: u64, url: String) -> Self {
        Self {
            ground: Ground::Postgres(url),
            kills: 3,
            bad_pause: Duration::from_secs(1),
            bad_times: Duration::from_secs(12),
            least: 25.0,
            requests: 501,
            more_time: Duration::from_secs(120),
            ..Self::new(seed, 3)
        }
    }
}

/// A bug between the managers and their clients, which must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A cache that is a few seconds old answers who owns what.
    StaleReads,
    /// Somebody is given what another was just given.
    DoubleGrants,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// Answers a second while all went well.
    pub rate: f64,
    pub requests: usize,
    pub grants: usize,
    /// Requests whose outcome nobody ever learned.
    pub unknown: usize,
    pub kills: u32,
    /// Operations that another manager than the one that began them carried on.
    pub adopted: usize,
    /// Steps of operations that the rack's faults came in the way of.
    pub disturbed: usize,
    /// Why it is no good run.
    pub wrong: Vec<String>,
}

/// Runs it, on a runtime of its own; in memory its time jumps whenever all wait.
pub fn run(setup: &Setup) -> Report {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match setup.ground {
        Ground::Memory => runtime.enable_time().start_paused(true),
        Ground::Postgres(_) => runtime.enable_all(),
    };
    match runtime.build() {
        Ok(runtime) => runtime.block_on(play(setup)),
        Err(error) => panic!("no runtime: {error}"),
    }
}

async fn play(setup: &Setup) -> Report {
    let mut rng = Rng::with_seed(setup.seed);
    let managers = Managers::start(rng.u64(..), setup.managers, &setup.ground).await;
    let ring = Arc::new(Ring::new(managers, setup));
    let mut clients = JoinSet::new();
    for client in 0..TAKERS {
        clients.spawn(clients::takes(ring.clone(), client, Rng::with_seed(rng.u64(..))));
    }
    for client in TAKERS..TAKERS + READERS {
        clients.spawn(clients::reads(ring.clone(), client, Rng::with_seed(rng.u64(..))));
    }
    let began = Instant::now();
    tokio::time::sleep(GOOD_TIMES).await;
    until_answered(&ring.history, setup.least * GOOD_TIMES.as_secs_f64(), setup).await;
    let (answered, good_times) = (ring.history.answered(), began.elapsed());
    ring.times_are_bad();
    for _ in 0..setup.kills {
        if setup.rack_fails {
            ring.managers.rack_goes_wrong(&mut rng);
        }
        tokio::time::sleep(setup.bad_times).await;
        ring.managers.one_dies(&mut rng).await;
    }
    ring.managers.rack_is_mended();
    until_answered(&ring.history, setup.requests.into(), setup).await;
    ring.end();
    let all = async { while clients.join_next().await.is_some() {} };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    // From here on nobody writes any more.
    clients.abort_all();
    let mut report = judge(&ring.history, (answered, good_times), setup);
    report.adopted = ring.managers.adopted().await;
    report.disturbed = ring.managers.disturbed().await;
    if ended.is_err() {
        let open = ring.managers.open().await.join("; ");
        report
            .wrong
            .push(format!("clients wait for an answer after {PATIENCE:?}: {open}"));
    }
    report
}

/// Until so many requests are answered, or the time for that is over: then the judge says so.
async fn until_answered(history: &History, requests: f64, setup: &Setup) {
    let look = async {
        while (history.answered() as f64) < requests {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(setup.more_time, look).await;
}

fn judge(history: &History, (answered, good_times): (usize, Duration), setup: &Setup) -> Report {
    let rate = answered as f64 / good_times.as_secs_f64();
    let entries = history.entries();
    let mut wrong = linear::check(&entries);
    if (answered as f64) < setup.least * GOOD_TIMES.as_secs_f64() {
        wrong.push(format!(
            "{rate} answers a second while all went well, and less than {} show nothing",
            setup.least
        ));
    }
    let grants = entries.iter().filter(|entry| entry.is_grant()).count();
    if grants < GRANTS {
        wrong.push(format!(
            "{grants} grants in all, and fewer than {GRANTS} show nothing"
        ));
    }
    Report {
        rate,
        requests: entries.len(),
        grants,
        unknown: entries.iter().filter(|entry| entry.answered.is_none()).count(),
        kills: setup.kills,
        adopted: 0,
        disturbed: 0,
        wrong,
    }
}
