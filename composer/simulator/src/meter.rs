//! What is counted while a run goes on: GPUs in use, free, attached and powered, between one event and the next.

use crate::attachments::Part;
use crate::replay::Side;
use crate::scenario::{GpuPower, Scenario};
use crate::workload::Workload;
use poolwright_planner::engine::{ClassIndex, Millis, Pool};

/// Sums over the time of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    power: Power,
    window: Millis,
    /// By class.
    gpus: Vec<u32>,
    is_fixed: bool,
    now: Millis,
    /// By class: GPUs that compute; those being attached do not.
    active: Vec<u32>,
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
    /// By class; where there are none, all draw as the scenario's.
    by_class: Vec<GpuPower>,
    gpu: GpuPower,
    host_busy: f64,
    host_idle: f64,
}

impl Meter {
    #[must_use]
    pub fn new(scenario: &Scenario, pools: &[Pool], workload: &Workload) -> Self {
        let is_fixed = pools.iter().all(Pool::is_fixed);
        let (host_busy, host_idle, fabric) = match is_fixed {
            true => (scenario.server.power_w, scenario.server.power_w, 0.0),
            false => {
                let pool = &scenario.pool;
                (pool.host_busy_w, pool.host_idle_w, pool.fabric_w_per_gpu)
            }
        };
        let classes = pools.iter().map(|pool| pool.classes().len()).max().unwrap_or(0);
        let mut gpus = vec![0; classes];
        for pool in pools {
            for (all, class) in gpus.iter_mut().zip(pool.classes()) {
                *all += class.gpus;
            }
        }
        let held: Vec<Vec<u32>> = pools.iter().map(|pool| vec![0; pool.slots().len()]).collect();
        Self {
            power: Power {
                fabric_per_gpu: fabric,
                by_class: workload.watts.clone(),
                gpu: scenario.gpu.clone(),
                host_busy,
                host_idle,
            },
            window: workload.window(),
            gpus,
            is_fixed,
            now: 0,
            active: vec![0; classes],
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
    pub fn advance(&mut self, now: Millis, sides: &[Side]) {
        let span = now - self.now;
        if span == 0 {
            return;
        }
        let in_window = now.min(self.window).saturating_sub(self.now);
        let active: u32 = self.active.iter().sum();
        self.used_in_window += u128::from(active) * u128::from(in_window);
        let stranded: u32 = sides.iter().map(stranded).sum();
        self.stranded += u128::from(stranded) * u128::from(span);
        self.energy_j += self.watts(sides) * span as f64 / 1000.0;
        self.now = now;
    }

    fn watts(&self, sides: &[Side]) -> f64 {
        let of_class = |class: usize| {
            let watts = self.power.by_class.get(class).unwrap_or(&self.power.gpu);
            let loose: u32 = sides.iter().map(|side| side.attached.loose(class)).sum();
            let attached = self.gpus[class] - self.active[class] - loose;
            self.power.fabric_per_gpu * f64::from(self.gpus[class])
                + watts.active_w * f64::from(self.active[class])
                + watts.idle_w * f64::from(attached)
                + watts.detached_w * f64::from(loose)
        };
        let gpus: f64 = (0..self.gpus.len()).map(of_class).sum();
        gpus + self.power.host_busy * f64::from(self.busy_hosts)
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

    pub(crate) fn begins(&mut self, class: ClassIndex, gpus: u32) {
        self.active[class] += gpus;
    }

    pub(crate) fn ends(&mut self, pool: usize, class: ClassIndex, gpus: u32, parts: &[Part]) {
        self.active[class] -= gpus;
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
        let gpus: u32 = self.gpus.iter().sum();
        let all = u128::from(gpus) * u128::from(self.window);
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
fn stranded(side: &Side) -> u32 {
    let plan = side.plan();
    if plan.waiting() == 0 {
        return 0;
    }
    let narrowest = plan.narrowest();
    let free = (0..narrowest.len()).map(|class| {
        let free = side.attached.free(class);
        match narrowest[class] {
            Some(gpus) if gpus <= free => free,
            _ => 0,
        }
    });
    free.sum()
}
