//! A trace at an offered load: how many GPUs there are, when jobs come, and what a seed decides about each.

use crate::apportion::apportion;
use crate::runtimes::LOOSE;
use crate::scenario::{GpuPower, Scenario};
use crate::site::Site;
use crate::trace::{Trace, TraceJob};
use poolwright_planner::engine::{ANY_LARGER, Class, ClassIndex, Job, JobId, Millis, Urgency};
use std::f64::consts::TAU;

/// A job to be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct SimJob {
    pub tenant: usize,
    pub gpus: u32,
    /// The smallest class that suffices, and the largest that it may run on.
    pub class: ClassIndex,
    pub upto: ClassIndex,
    pub submit: Millis,
    pub run_time: Millis,
    /// How many times too long its user's estimate is, where estimates are loose.
    pub looseness: f64,
    /// Normal variates of its attach and of the detach before it.
    pub noise: [f64; 2],
}

impl SimJob {
    /// What it uses.
    #[must_use]
    pub fn gpu_seconds(&self) -> f64 {
        self.run_time as f64 / 1000.0 * f64::from(self.gpus)
    }

    /// As the engine knows it.
    pub(crate) fn job(&self, id: JobId, expected: Millis, limit: Option<Millis>) -> Job {
        Job {
            id,
            tenant: self.tenant,
            gpus: self.gpus,
            class: self.class,
            upto: self.upto,
            submitted: self.submit,
            expected,
            limit,
            urgency: Urgency::default(),
            avoids_closing_hosts: false,
        }
    }
}

/// GPUs that are promised for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct SimWindow {
    /// When the promise is asked for.
    pub asked: Millis,
    pub from: Millis,
    pub until: Millis,
    pub gpus: u32,
    /// As [`SimJob::noise`].
    pub noise: [f64; 2],
}

/// Jobs, and the GPUs for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub jobs: Vec<SimJob>,
    pub tenants: usize,
    /// By memory, the smallest first; whole servers of each.
    pub classes: Vec<Class>,
    /// What a GPU of each class draws; none: as the scenario has it for all.
    pub watts: Vec<GpuPower>,
    /// The load that came of it, as whole servers allow.
    pub offered_load: f64,
}

/// Why a trace can't be replayed at a load.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    #[error(
        "all jobs are submitted at one moment, so that no offered load can be told: give replay.gpus in the scenario"
    )]
    NoWindow,
    #[error("job {job} needs {gpus} GPUs; the scenario has {most} of them that it could use (replay.gpus)")]
    TooWide { job: String, gpus: u32, most: u32 },
    #[error(
        "it takes {gpus:.0} GPUs, and {most} are simulated at most: replay fewer jobs, at a higher load, or with fewer GPUs \
         (replay.gpus, server.gpus in the scenario)"
    )]
    TooManyGpus { gpus: f64, most: u32 },
    #[error(
        "the scenario promises {windows:.0} windows while jobs are submitted, and {most} are simulated at most: make \
         gpus_per_set or every_h larger, or replay fewer jobs"
    )]
    TooManyWindows { windows: f64, most: u32 },
}

/// How long beforehand windows are promised: as far as the manager looks ahead in its calendars.
const AHEAD_H: f64 = 31.0 * 24.0;
/// And how many begins of each.
const BEGINS_AHEAD: f64 = 48.0;
/// Windows of one replay.
const MAX_WINDOWS: u32 = 20_000;

/// As a scenario may say of its pool.
const MOST_GPUS: u32 = 1_000_000;

impl Workload {
    /// A trace at a load; memory classes, estimates and latencies by seed. No class suffices for a job that asks for more
    /// memory than the largest has: replays refuse it.
    pub fn new(trace: &Trace, scenario: &Scenario, load: f64, seed: u64) -> Result<Self, WorkloadError> {
        let none = scenario.classes.len();
        let class = |job: &TraceJob, draw| match class_of(scenario, job.min_gpu_mem_gib, draw) {
            Some(class) => (class, ANY_LARGER),
            None => (none, none),
        };
        let mut workload = Self {
            jobs: jobs(trace, seed, class),
            tenants: trace.tenants.len(),
            classes: Vec::new(),
            watts: Vec::new(),
            offered_load: load,
        };
        workload.size(trace, scenario, load)?;
        workload.limit_windows(scenario)?;
        Ok(workload)
    }

    /// A trace on a pool as it is, at the moments at which its jobs were submitted. A job that asks for a kind gets that
    /// kind, one that asks for memory any kind that has it; what no kind there is suffices for can't be held.
    #[must_use]
    pub fn on(site: &Site, trace: &Trace, scenario: &Scenario, seed: u64) -> Self {
        let classes = site.classes();
        let none = classes.len();
        let with = |memory: u32| classes.iter().position(|class| class.memory_gib >= memory);
        let class = |job: &TraceJob, draw| {
            if let Some(name) = &job.gpu_type {
                let kind = site.kinds.iter().position(|kind| kind.is_meant_by(name));
                return kind.map_or((none, none), |kind| (kind, kind));
            }
            let drawn =
                || class_of(scenario, None, draw).and_then(|class| named(scenario).get(class).cloned());
            let memory = job.min_gpu_mem_gib.or_else(|| drawn().map(|(_, memory)| memory));
            (with(memory.unwrap_or(0)).unwrap_or(none), ANY_LARGER)
        };
        let window = trace.window_s();
        Self {
            jobs: jobs(trace, seed, class),
            tenants: trace.tenants.len(),
            offered_load: trace.gpu_seconds() / window.max(1.0) / f64::from(site.gpus().max(1)),
            watts: site.watts(scenario),
            classes,
        }
    }

    /// Decides how many GPUs there are of each class, or how fast jobs come.
    fn size(&mut self, trace: &Trace, scenario: &Scenario, load: f64) -> Result<(), WorkloadError> {
        let each = scenario.server.gpus;
        let (used, window) = (trace.gpu_seconds(), trace.window_s());
        let (demands, least) = self.wanted(scenario);
        if scenario.replay.gpus.is_none() && window <= 0.0 {
            return Err(WorkloadError::NoWindow);
        }
        let wanted = match scenario.replay.gpus {
            Some(gpus) => u64::from(gpus / each),
            None => {
                let least: u64 = least.iter().copied().map(u64::from).sum();
                ((used / window / load / f64::from(each)).round() as u64).max(least)
            }
        };
        let in_all = wanted.saturating_mul(u64::from(each));
        let (Ok(wanted), Some(all)) = (
            u32::try_from(wanted),
            u32::try_from(in_all).ok().filter(|all| *all <= MOST_GPUS),
        ) else {
            return Err(WorkloadError::TooManyGpus {
                gpus: in_all as f64,
                most: MOST_GPUS,
            });
        };
        let Some(classes) = classes(scenario, wanted, &demands, &least) else {
            let widest = trace.jobs.iter().max_by_key(|job| job.gpus);
            return Err(WorkloadError::TooWide {
                job: widest.map(|job| job.id.clone()).unwrap_or_default(),
                gpus: trace.widest(),
                most: all,
            });
        };
        self.classes = classes;
        self.offered_load = used / window / f64::from(all);
        if scenario.replay.gpus.is_some() {
            let stretch = self.offered_load / load;
            for job in self.jobs.iter_mut().filter(|job| job.submit > 0) {
                job.submit = (job.submit as f64 * stretch) as Millis;
            }
            self.offered_load = load;
        }
        Ok(())
    }

    /// By class: GPU-seconds that are wanted, and the servers that its widest job needs.
    fn wanted(&self, scenario: &Scenario) -> (Vec<f64>, Vec<u32>) {
        let mut demands = vec![0.0; scenario.classes.len().max(1)];
        let classes = demands.len();
        let mut least = vec![0; classes];
        for job in self.jobs.iter().filter(|job| job.class < classes) {
            demands[job.class] += job.gpu_seconds();
            least[job.class] = job.gpus.div_ceil(scenario.server.gpus).max(least[job.class]);
        }
        (demands, least)
    }

    /// The same jobs at the same times on `servers` servers. `None` if a job needs more GPUs than they have, or if they
    /// exceed the largest pool size.
    #[must_use]
    pub fn with_servers(&self, scenario: &Scenario, servers: u32) -> Option<Self> {
        let (demands, least) = self.wanted(scenario);
        Some(Self {
            classes: classes(scenario, servers, &demands, &least)?,
            ..self.clone()
        })
    }

    #[must_use]
    pub fn gpus(&self) -> u32 {
        let gpus = self.classes.iter().map(|class| class.gpus);
        gpus.fold(0, u32::saturating_add)
    }

    fn limit_windows(&self, scenario: &Scenario) -> Result<(), WorkloadError> {
        let hours = self.window() as f64 / 3.6e6;
        let windows = scenario.windows.iter().map(|of| {
            let begins = ((hours - of.from_h) / of.every_h).ceil().max(0.0);
            begins * f64::from(of.sets(self.gpus()))
        });
        let windows: f64 = windows.sum();
        match windows <= f64::from(MAX_WINDOWS) {
            true => Ok(()),
            false => Err(WorkloadError::TooManyWindows {
                windows,
                most: MAX_WINDOWS,
            }),
        }
    }

    /// The windows of a scenario while jobs are submitted, in order of their begins.
    #[must_use]
    pub fn windows(&self, scenario: &Scenario) -> Vec<SimWindow> {
        let mut windows = Vec::new();
        let mut rng = fastrand::Rng::with_seed(0);
        for of in &scenario.windows {
            let ahead = millis(AHEAD_H.min(BEGINS_AHEAD * of.every_h) * 3600.0);
            let starts = (0..).map(|n| millis((of.from_h + of.every_h * f64::from(n)) * 3600.0));
            for from in starts.take_while(|from| *from < self.window()) {
                windows.extend((0..of.sets(self.gpus())).map(|_| SimWindow {
                    asked: from.saturating_sub(ahead),
                    from,
                    until: from + millis(of.hours * 3600.0),
                    gpus: of.gpus_per_set,
                    noise: normal_pair(&mut rng),
                }));
            }
        }
        windows.sort_by_key(|window| window.from);
        windows
    }

    /// When the last job is submitted.
    #[must_use]
    pub fn window(&self) -> Millis {
        self.jobs.last().map_or(0, |job| job.submit)
    }
}

/// Jobs as a seed makes them; `class` says from where to where each may run, with a number drawn for it.
fn jobs(trace: &Trace, seed: u64, class: impl Fn(&TraceJob, f64) -> (ClassIndex, ClassIndex)) -> Vec<SimJob> {
    let job = |(index, job): (usize, &TraceJob)| {
        let mut rng = fastrand::Rng::with_seed(seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (class, upto) = class(job, rng.f64());
        SimJob {
            tenant: job.tenant,
            gpus: job.gpus,
            class,
            upto,
            submit: millis(job.submit_s),
            run_time: millis(job.duration_s).max(1),
            looseness: LOOSE.0 + (LOOSE.1 - LOOSE.0) * rng.f64(),
            noise: normal_pair(&mut rng),
        }
    };
    trace.jobs.iter().enumerate().map(job).collect()
}

/// Servers shared out among the classes of a scenario.
fn classes(scenario: &Scenario, servers: u32, demands: &[f64], least: &[u32]) -> Option<Vec<Class>> {
    let each = scenario.server.gpus;
    servers.checked_mul(each).filter(|all| *all <= MOST_GPUS)?;
    let shares = apportion(servers, demands, least)?;
    let named = named(scenario).into_iter().zip(shares);
    // No more than all of them.
    let class = |((name, memory_gib), servers): ((String, u32), u32)| Class {
        name,
        memory_gib,
        gpus: servers * each,
    };
    Some(named.map(class).collect())
}

/// The classes of a scenario by memory; one for all where it names none.
fn named(scenario: &Scenario) -> Vec<(String, u32)> {
    let mut classes: Vec<_> = scenario
        .classes
        .iter()
        .map(|class| (class.name.clone(), class.memory_gib))
        .collect();
    classes.sort_by_key(|(_, memory_gib)| *memory_gib);
    if classes.is_empty() {
        classes.push(("any".to_owned(), 0));
    }
    classes
}

/// The class that suffices: by the memory that the trace names, else drawn. `None`: no class has so much memory.
fn class_of(scenario: &Scenario, memory_gib: Option<u32>, draw: f64) -> Option<ClassIndex> {
    if scenario.classes.is_empty() {
        return Some(0);
    }
    let mut classes: Vec<_> = scenario.classes.iter().collect();
    classes.sort_by_key(|class| class.memory_gib);
    if let Some(memory_gib) = memory_gib {
        return classes.iter().position(|class| class.memory_gib >= memory_gib);
    }
    let mut below = 0.0;
    let found = classes.iter().position(|class| {
        below += class.share_of_jobs;
        draw < below
    });
    Some(found.unwrap_or(classes.len() - 1))
}

/// Two normal variates (Box and Muller).
fn normal_pair(rng: &mut fastrand::Rng) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let angle = TAU * rng.f64();
    [radius * angle.cos(), radius * angle.sin()]
}

fn millis(seconds: f64) -> Millis {
    (seconds * 1000.0).round() as Millis
}
