//! Deterministic simulation: a manager, its store and a rack under one seed and one clock that jumps.
//!
//! An *episode* is one rack and one seed: clients ask for random changes, others meddle with the rack, requests
//! and commits go wrong, the manager is killed at any await and starts again. What must always hold is checked
//! after every action, and at the end, when everything has come to rest, all of it. The manager is the real one,
//! on the real store in memory; it runs in one thread, with time that goes on when all wait. The same seed gives
//! the same trace.
//!
//! * [`mod@episode`]: the course of one.
//! * [`clients`], [`operators`] and [`incidents`]: what happens, by chance.
//! * [`world`]: the rack, the store, and a manager that can be killed; [`gate`]: where it is.
//! * [`invariants`]: what must hold; [`plants`]: bugs, at least one for each of them, which must be caught.

pub mod clients;
pub mod clock;
pub mod episode;
pub mod gate;
pub mod incidents;
pub mod invariants;
pub mod line;
pub mod operators;
pub mod plants;
pub mod trace;
pub mod witness;
pub mod world;

use invariants::Invariant;
use plants::Plant;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use trace::Trace;
use world::World;

/// Racks in all styles of control.
const RACKS: [&str; 4] = ["zones", "connections", "blocks", "small"];
/// Episodes in a row without a single operation mean that nothing is tested.
const IDLE: u64 = 50;
/// Seeds whose violations are told in full.
const TOLD: usize = 5;

/// What is run.
#[derive(Debug, Clone)]
pub struct Campaign {
    pub seed: u64,
    /// Episodes are run until so many operations were acknowledged …
    pub operations: u64,
    /// … and so many seeds were used.
    pub seeds: u64,
    /// Episodes at the same time. The result does not depend on it.
    pub jobs: usize,
    pub plant: Option<Plant>,
    /// Ends with the first seed that shows a violation; with a plant, of what that breaks.
    pub first: bool,
    /// Tells what happens while it does; one episode at a time.
    pub loud: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    pub seed: u64,
    pub seeds: u64,
    pub operations: u64,
    /// How they ended.
    pub ended: BTreeMap<String, u64>,
    pub crashes: u64,
    pub faults: u64,
    pub simulated_hours: f64,
    /// How often each invariant was looked at.
    pub invariants: BTreeMap<Invariant, u64>,
    pub violations: u64,
    /// How often each was violated.
    pub violated: BTreeMap<Invariant, u64>,
    /// The first few, each with the seed that shows it.
    pub failures: Vec<Failure>,
    /// Of each seed, in their order.
    #[serde(skip)]
    pub hashes: Vec<(u64, String)>,
    /// Of all of them.
    pub trace_hash: String,
}

/// A seed that shows a violation.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Failure {
    pub seed: u64,
    pub violations: Vec<String>,
    pub replay: String,
    /// The end of the trace.
    pub trace: Vec<String>,
}

/// Runs a campaign; `progress` is told after each episode. Episodes run side by side, and count in the order of
/// their seeds.
pub fn run(campaign: &Campaign, mut progress: impl FnMut(&Report)) -> Report {
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let (told, outcomes) = mpsc::sync_channel(campaign.jobs.max(1) * 4);
    let outcomes = Mutex::new(outcomes);
    std::thread::scope(|scope| {
        for _ in 0..campaign.jobs.max(1) {
            let told = told.clone();
            scope.spawn(|| {
                let told = told;
                while !over.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if campaign.operations == 0 && nth >= campaign.seeds {
                        return;
                    }
                    let outcome = episode(campaign, campaign.seed.wrapping_add(nth));
                    if told.send((nth, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        let report = collect(campaign, &gate::unpoisoned(&outcomes), &mut progress);
        over.store(true, Ordering::Relaxed);
        // Whoever still has something to tell is let go.
        while gate::unpoisoned(&outcomes).recv().is_ok() {}
        report
    })
}

fn collect(
    campaign: &Campaign,
    outcomes: &mpsc::Receiver<(u64, Outcome)>,
    progress: &mut impl FnMut(&Report),
) -> Report {
    let mut report = Report {
        seed: campaign.seed,
        ..Report::default()
    };
    let mut trace = Trace::default();
    let mut early = BTreeMap::new();
    let mut idle = 0;
    while report.operations < campaign.operations || report.seeds < campaign.seeds {
        let Some(outcome) = early.remove(&report.seeds) else {
            let Ok((nth, outcome)) = outcomes.recv() else {
                break;
            };
            early.insert(nth, outcome);
            continue;
        };
        idle = if outcome.operations == 0 { idle + 1 } else { 0 };
        trace.add(&outcome.trace_hash);
        report.hashes.push((outcome.seed, outcome.trace_hash.clone()));
        let failed = outcome
            .violations
            .iter()
            .any(|(invariant, _)| campaign.plant.is_none_or(|plant| plant.breaks() == *invariant));
        add(&mut report, campaign, outcome);
        if idle == IDLE {
            report.violations += 1;
            *report.violated.entry(Invariant::EveryOperationEnds).or_default() += 1;
        }
        progress(&report);
        if idle == IDLE || (failed && campaign.first) {
            break;
        }
    }
    report.trace_hash = trace.hash();
    report
}

/// What came of one seed.
#[derive(Default)]
pub struct Outcome {
    pub seed: u64,
    pub operations: u64,
    pub ended: BTreeMap<String, u64>,
    pub crashes: u64,
    pub faults: u64,
    pub simulated_hours: f64,
    pub checked: BTreeMap<Invariant, u64>,
    pub violations: Vec<(Invariant, String)>,
    pub trace_hash: String,
    pub last: Vec<String>,
}

fn add(report: &mut Report, campaign: &Campaign, outcome: Outcome) {
    report.seeds += 1;
    report.operations += outcome.operations;
    report.crashes += outcome.crashes;
    report.faults += outcome.faults;
    report.simulated_hours += outcome.simulated_hours;
    report.violations += outcome.violations.len() as u64;
    for (invariant, times) in outcome.checked {
        *report.invariants.entry(invariant).or_default() += times;
    }
    for (how, times) in outcome.ended {
        *report.ended.entry(how).or_default() += times;
    }
    for (invariant, _) in &outcome.violations {
        *report.violated.entry(*invariant).or_default() += 1;
    }
    if !outcome.violations.is_empty() && report.failures.len() < TOLD {
        let violations = outcome.violations.iter();
        report.failures.push(Failure {
            seed: outcome.seed,
            violations: violations
                .map(|(which, what)| format!("{which}: {what}"))
                .collect(),
            replay: replay(outcome.seed, campaign.plant),
            trace: outcome.last,
        });
    }
}

fn replay(seed: u64, plant: Option<Plant>) -> String {
    let plant = plant.map(|plant| format!(" --plant {plant}")).unwrap_or_default();
    format!("cargo run --release -p poolwright-tests --bin torture -- --seed {seed} --seeds 1 --loud{plant}")
}

/// One seed, on a runtime of its own whose time jumps whenever all wait.
fn episode(campaign: &Campaign, seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    let rack = RACKS[(seed % RACKS.len() as u64) as usize];
    runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let mut world = World::new(seed, rack, campaign.plant, campaign.loud).await;
        episode::run(&mut world).await;
        Outcome {
            seed,
            operations: world.acknowledged.len() as u64,
            ended: world.ended().await,
            crashes: world.crashes,
            faults: world.faults,
            simulated_hours: began.elapsed().as_secs_f64() / 3600.0,
            trace_hash: world.trace.hash(),
            last: world.trace.last(),
            checked: world.checked,
            violations: world.violations,
        }
    })
}
