//! Problems made by chance, in the schema that files have.

use fastrand::Rng;
use serde_json::{Value, json};

/// How large a problem is.
#[derive(Clone, Copy)]
pub struct Size {
    hosts: usize,
    room: u64,
    gpus: usize,
    slots: u64,
    demands: usize,
}

impl Size {
    /// So small that all its plans can be tried.
    pub const TINY: Self = Self {
        hosts: 2,
        room: 3,
        gpus: 5,
        slots: 5,
        demands: 3,
    };
    /// Smaller still, for rules with which there is more to try.
    pub const TINIEST: Self = Self {
        hosts: 2,
        room: 2,
        gpus: 3,
        slots: 6,
        demands: 4,
    };
    pub const SMALL: Self = Self {
        hosts: 4,
        room: 8,
        gpus: 20,
        slots: 16,
        demands: 25,
    };
}

/// A problem that is short of GPUs and room now and then.
pub fn instance(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let hosts: Vec<Value> = (0..size.hosts)
        .map(|host| {
            json!({"id": format!("h{host}"), "slots": size.room, "switch": format!("s{}", host % 2),
                "host_on_w": 350, "host_idle_w": 150})
        })
        .collect();
    let mut room = vec![size.room; size.hosts];
    let gpus: Vec<Value> = (0..size.gpus)
        .map(|index| {
            let kind = ["T24", "T40"][usize::from(rng.u8(..3) == 0)];
            let at = rng.usize(..size.hosts);
            let attached = (rng.bool() && room[at] > 0).then(|| {
                room[at] -= 1;
                format!("h{at}")
            });
            gpu(
                &format!("g{index}"),
                kind,
                ["s0", "s1"][rng.usize(..2)],
                attached.as_deref(),
            )
        })
        .collect();
    let demands: Vec<Value> = (0..size.demands)
        .map(|demand| {
            let start = rng.u64(..size.slots);
            let memory = [24, 24, 40][rng.usize(..3)];
            let weight = [1, 2, 4][rng.usize(..3)];
            json!({"id": format!("d{demand}"), "tenant": format!("t{}", demand % 3), "start": start,
                "end": rng.u64(start + 1..=size.slots), "gpus": rng.u64(1..=size.room / 2 + 1),
                "min_mem_gb": memory, "weight": weight})
        })
        .collect();
    json!({"schema": "cps-1", "horizon_slots": size.slots, "slot_s": 3600, "hosts": hosts, "gpus": gpus,
        "demands": demands, "costs": costs()})
}

pub fn costs() -> Value {
    json!({"unmet_per_gpu_slot": 500, "attach": 60, "detach": 20, "host_fire_up": 100, "hop_per_gpu_slot": 2,
        "energy_per_kwh": 100})
}

pub fn gpu(id: &str, kind: &str, switch: &str, attached_to: Option<&str>) -> Value {
    let (memory, active, idle) = if kind == "T24" {
        (24, 150, 25)
    } else {
        (40, 300, 50)
    };
    json!({"id": id, "type": kind, "mem_gb": memory, "switch": switch, "active_w": active, "idle_w": idle,
        "attached_to": attached_to})
}
