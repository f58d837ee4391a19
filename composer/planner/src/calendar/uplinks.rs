//! Uplink limits in a problem: for GPUs at work, between the places of hosts and GPUs.
//!
//! Pinned GPUs reduce a limit. The GPUs of demands that are attached across already raise it to their number if needed.

use super::pool::{GpuAt, Pool};
use super::{few, reach};
use crate::horizon::extended::Switch;
use crate::plan::World;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Uplinks {
    pub told: Vec<Switch>,
    pub not_said: Vec<String>,
}

impl Uplinks {
    pub fn of(world: &World<'_>, pool: &Pool) -> Self {
        let mut uplinks = Self::default();
        if world.uplinks.most.is_empty() {
            return uplinks;
        }
        let of_gpus = pool.gpus.iter().map(|gpu| &gpu.place);
        let places: BTreeSet<&String> = of_gpus.chain(pool.hosts.iter().map(|host| &host.place)).collect();
        let (mut exceeded, mut several) = (Vec::new(), Vec::new());
        for ((fabric, switch), most) in &world.uplinks.most {
            let place = reach::name(&[(fabric, Some(switch))]);
            if places
                .iter()
                .any(|other| **other != place && reach::parts(other).any(|part| part == place))
            {
                several.push(place.clone());
            }
            if !places.contains(&place) {
                continue;
            }
            let crosses = |gpu: &&GpuAt| {
                let host = gpu.at.map(|at| &pool.hosts[at].place);
                host.is_some_and(|host| *host != gpu.place && (*host == place || gpu.place == place))
            };
            let across = || pool.gpus.iter().filter(crosses);
            let pinned = across().filter(|gpu| gpu.pinned).count() as u64;
            let at_work = across().filter(|gpu| !gpu.pinned && gpu.demand.is_some()).count() as u64;
            let left = u64::from(*most).saturating_sub(pinned);
            if at_work > left {
                exceeded.push(place.clone());
            }
            uplinks.told.push(Switch {
                id: place,
                uplink_gpus: Some(left.max(at_work)),
            });
        }
        if !exceeded.is_empty() {
            uplinks.not_said.push(format!(
                "more is attached across the uplinks of these than may be, and they may carry that here: {}",
                few(&exceeded)
            ));
        }
        if !several.is_empty() {
            uplinks.not_said.push(format!(
                "hosts and GPUs at several switches are behind one of their own here, so that what is attached between it and \
                 these counts in the uplinks of these, too: {}",
                few(&several)
            ));
        }
        uplinks
    }
}
