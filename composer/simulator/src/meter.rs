//! What is counted while a run goes on: GPUs in use, free, attached and powered, between one event and the next.

use crate::scenario::Scenario;
use poolwright_planner::queue::{Millis, Part, Pool, Queue};

/// Sums over the time of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    power: Power,
    window: Millis,
    gpus: u32,
    is_fixed: bool,
    now: Millis,
    /// GPUs that compute; those being attached do not.
    active: u32,
    /// By pool and host: GPUs that jobs hold.
    held: Vec<Vec<u32>>,
    hosts: u32,
    busy_hosts: u32,
    /// GPU-milliseconds that were used while jobs were submitted.
    used_in_window: u128,
    /// GPU-milliseconds that were free while a waiting job would have fitted their number.
    stranded: u128,
    energy_j: f64,
    pub attaches: u64,
    pub detaches: u64,
}

/// Watts, by what a thing does.
#[derive(Clone, Debug, PartialEq)]
struct Power {
    fabric_per_gpu: f64,
    gpu_active: f64,
    gpu_idle: f64,
    gpu_detached: f64,
    host_busy: f64,
    host_idle: f64,
}

impl Meter {
    #[must_use]
    pub fn new(scenario: &Scenario, pools: &[Pool], window: Millis) -> Self {
        let is_fixed = pools.iter().all(Pool::is_fixed);
        let (host_busy, host_idle, fabric) = match is_fixed {
            true => (scenario.server.power_w, scenario.server.power_w, 0.0),
            false => {
                let pool = &scenario.pool;
                (pool.host_busy_w, pool.host_idle_w, pool.fabric_w_per_gpu)
            }
        };
        let held: Vec<Vec<u32>> = pools.iter().map(|pool| vec![0; pool.hosts().len()]).collect();
        Self {
            power: Power {
                fabric_per_gpu: fabric,
                gpu_active: scenario.gpu.active_w,
                gpu_idle: scenario.gpu.idle_w,
                gpu_detached: scenario.gpu.detached_w,
                host_busy,
                host_idle,
            },
            window,
            gpus: pools.iter().flat_map(Pool::classes).map(|class| class.gpus).sum(),
            is_fixed,
            now: 0,
            active: 0,
            hosts: held.iter().map(Vec::len).sum::<usize>() as u32,
            held,
            busy_hosts: 0,
            used_in_window: 0,
            stranded: 0,
            energy_j: 0.0,
            attaches: 0,
            detaches: 0,
        }
    }

    /// Time passes, with everything as it is.
    pub fn advance(&mut self, now: Millis, queues: &[Queue]) {
        let span = now - self.now;
        if span == 0 {
            return;
        }
        let in_window = now.min(self.window).saturating_sub(self.now);
        self.used_in_window += u128::from(self.active) * u128::from(in_window);
        let stranded: u32 = queues.iter().map(stranded).sum();
        self.stranded += u128::from(stranded) * u128::from(span);
        self.energy_j += self.watts(queues) * span as f64 / 1000.0;
        self.now = now;
    }

    fn watts(&self, queues: &[Queue]) -> f64 {
        let loose: u32 = queues
            .iter()
            .map(|queue| {
                let classes = 0..queue.pool().classes().len();
                classes.map(|class| queue.pool().loose(class)).sum::<u32>()
            })
            .sum();
        let attached = self.gpus - self.active - loose;
        self.power.fabric_per_gpu * f64::from(self.gpus)
            + self.power.gpu_active * f64::from(self.active)
            + self.power.gpu_idle * f64::from(attached)
            + self.power.gpu_detached * f64::from(loose)
            + self.power.host_busy * f64::from(self.busy_hosts)
            + self.power.host_idle * f64::from(self.hosts - self.busy_hosts)
    }

    pub(crate) fn granted(&mut self, pool: usize, parts: &[Part]) {
        for part in parts {
            let held = &mut self.held[pool][part.host];
            self.busy_hosts += u32::from(*held == 0);
            *held += part.gpus;
            if !self.is_fixed {
                self.attaches += u64::from(part.attached);
                self.detaches += u64::from(part.detached);
            }
        }
    }

    pub(crate) fn begins(&mut self, gpus: u32) {
        self.active += gpus;
    }

    pub(crate) fn ends(&mut self, pool: usize, gpus: u32, parts: &[Part]) {
        self.active -= gpus;
        for part in parts {
            let held = &mut self.held[pool][part.host];
            *held -= part.gpus;
            self.busy_hosts -= u32::from(*held == 0);
        }
    }

    pub(crate) fn detached(&mut self, gpus: u32) {
        self.detaches += u64::from(gpus);
    }

    /// When the run ended.
    #[must_use]
    pub fn makespan_s(&self) -> f64 {
        self.now as f64 / 1000.0
    }

    /// Used GPU-seconds over those that there were, while jobs were submitted.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        let all = u128::from(self.gpus) * u128::from(self.window);
        self.used_in_window as f64 / (all as f64).max(1.0)
    }

    #[must_use]
    pub fn stranded_gpu_h(&self) -> f64 {
        self.stranded as f64 / 3.6e6
    }

    #[must_use]
    pub fn energy_kwh(&self) -> f64 {
        self.energy_j / 3.6e6
    }
}

/// Free GPUs of classes of which there are enough for a job that waits.
fn stranded(queue: &Queue) -> u32 {
    if queue.waiting() == 0 {
        return 0;
    }
    let narrowest = queue.narrowest();
    let free = (0..narrowest.len()).map(|class| {
        let free = queue.pool().free(class);
        let waits = narrowest[..=class].iter().flatten().any(|gpus| *gpus <= free);
        if waits { free } else { 0 }
    });
    free.sum()
}
