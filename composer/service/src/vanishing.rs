//! Endpoints that show far less than before, all at once. Pure. One GPU that is gone was pulled; many that are gone in
//! one look are a fault of whoever shows them, and are not believed before somebody says so.

use poolwright_collector::Look;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_model::topology::Gpu;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Fewer than these are never a fault of the endpoint.
const FEWEST: usize = 2;

/// What an endpoint showed when it was believed last: the GPUs that it binds, by what they are. What it merely sees
/// comes and goes with each binding, as at a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub endpoint: ControlEndpointId,
    pub gpus: BTreeSet<String>,
}

impl Stored for Shown {
    const KIND: &'static str = "shown";
    fn id(&self) -> &str {
        self.endpoint.as_str()
    }
}

impl Shown {
    pub fn of(look: &Look) -> Self {
        let endpoint = &look.view.source;
        let gpus = look.view.topology.gpus.iter();
        Self {
            endpoint: endpoint.clone(),
            gpus: gpus.filter_map(|gpu| name_at(gpu, endpoint)).collect(),
        }
    }
}

/// What a GPU is known by at an endpoint that can bind it.
pub fn name_at(gpu: &Gpu, endpoint: &ControlEndpointId) -> Option<String> {
    let at = gpu.control.iter().find(|at| at.endpoint == *endpoint)?;
    let name = gpu
        .uuid
        .as_ref()
        .or(gpu.serial.as_ref())
        .or(gpu.pcie_serial.as_ref());
    Some(name.unwrap_or(&at.address).clone())
}

/// All that a GPU may be known by at an endpoint.
pub fn names_at<'a>(gpu: &'a Gpu, endpoint: &ControlEndpointId) -> impl Iterator<Item = &'a str> {
    let own = [&gpu.uuid, &gpu.serial, &gpu.pcie_serial].into_iter().flatten();
    let here = gpu.control.iter().filter(move |at| at.endpoint == *endpoint);
    own.chain(here.map(|at| &at.address)).map(String::as_str)
}

/// What all endpoints showed when they were believed last.
#[derive(Debug, Default)]
pub struct Baselines {
    shown: BTreeMap<ControlEndpointId, BTreeSet<String>>,
    /// Those of which the store does not have the latest yet.
    to_keep: BTreeSet<ControlEndpointId>,
    /// More than this share, in percent, is a fault.
    percent: u32,
}

impl Baselines {
    pub fn allow(&mut self, percent: u32) {
        self.percent = percent;
    }

    /// Takes over what is kept of an endpoint: by this manager, or by another on the same store.
    pub fn recall(&mut self, endpoint: &ControlEndpointId, kept: Option<Shown>) {
        if self.to_keep.contains(endpoint) {
            return;
        }
        match kept {
            Some(kept) => self.shown.insert(kept.endpoint, kept.gpus),
            None => self.shown.remove(endpoint),
        };
    }

    /// Whether so many of so many that are gone at once are a fault of whoever shows them.
    pub fn are_too_many(&self, gone: usize, of: usize) -> bool {
        gone >= FEWEST && gone * 100 > of * self.percent as usize
    }

    /// Takes in what an endpoint shows; or says that it is not to be believed, and why.
    pub fn take_in(&mut self, look: &Look) -> Result<(), Fault> {
        let now = Shown::of(look);
        let gone = self.gone(&now);
        let before = self.shown.get(&now.endpoint).map_or(0, BTreeSet::len);
        if self.are_too_many(gone.len(), before) {
            let endpoint = &now.endpoint;
            let message = format!(
                "{} of {before} GPUs vanished in one look, more than {} %: nothing there is composable, and nothing is \
                 done there by itself, until they are back; if they were taken out: poolwright endpoint accept \
                 {endpoint}",
                gone.len(),
                self.percent,
            );
            return Err(Fault::new(endpoint.as_str(), FaultKind::Missing, message));
        }
        self.believe(now);
        Ok(())
    }

    /// What it showed before and does not any more.
    pub fn gone(&self, now: &Shown) -> BTreeSet<String> {
        let before = self.shown.get(&now.endpoint);
        before
            .into_iter()
            .flatten()
            .filter(|gpu| !now.gpus.contains(*gpu))
            .cloned()
            .collect()
    }

    pub fn believe(&mut self, now: Shown) {
        if self.shown.get(&now.endpoint) != Some(&now.gpus) {
            self.to_keep.insert(now.endpoint.clone());
            self.shown.insert(now.endpoint, now.gpus);
        }
    }

    pub fn forget(&mut self, endpoint: &ControlEndpointId) {
        self.shown.remove(endpoint);
        self.to_keep.remove(endpoint);
    }

    /// Whether there is something that the store does not have yet.
    pub fn has_news(&self) -> bool {
        !self.to_keep.is_empty()
    }

    /// What the store does not have yet.
    pub fn to_keep(&self) -> Vec<Shown> {
        let of = |endpoint: &ControlEndpointId| {
            let gpus = self.shown.get(endpoint)?.clone();
            Some(Shown {
                endpoint: endpoint.clone(),
                gpus,
            })
        };
        self.to_keep.iter().filter_map(of).collect()
    }

    /// The store has it.
    pub fn kept(&mut self, shown: &Shown) {
        if self.shown.get(&shown.endpoint) == Some(&shown.gpus) {
            self.to_keep.remove(&shown.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_inventory::View;
    use poolwright_model::topology::Topology;
    use serde_json::json;

    /// A look at `box` that shows these GPUs, which it binds or only sees.
    fn look(gpus: &[&str], binds: bool) -> Look {
        let gpus = gpus.iter().map(|name| {
            let control = json!([{"endpoint": "box", "style": "zones", "address": format!("/{name}")}]);
            json!({
                "id": name, "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": name,
                "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [],
                "unit": name, "composable": true, "why_not": null, "host": null, "host_port": null, "state": "free",
                "health": "ok", "control": if binds { control } else { json!([]) },
            })
        });
        let topology = json!({"gpus": gpus.collect::<Vec<_>>(), "hosts": [], "fabrics": []});
        let topology: Topology = serde_json::from_value(topology).unwrap();
        Look {
            view: View {
                source: "box".parse().unwrap(),
                at: jiff::Timestamp::UNIX_EPOCH,
                topology,
                faults: vec![],
            },
            label: None,
            mark: None,
            requests: 1,
            answered: true,
            took: std::time::Duration::ZERO,
        }
    }

    fn baselines() -> Baselines {
        let mut baselines = Baselines::default();
        baselines.allow(25);
        baselines
    }

    const ALL: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    #[test]
    fn a_quarter_may_go_at_once_and_not_more() {
        for (left, believed) in [(8, true), (7, true), (6, true), (5, false), (0, false)] {
            let mut baselines = baselines();
            baselines.take_in(&look(&ALL, true)).unwrap();
            let judged = baselines.take_in(&look(&ALL[..left], true));
            assert_eq!(judged.is_ok(), believed, "{left} left");
            if let Err(fault) = judged {
                let gone = format!("{} of 8 GPUs vanished", 8 - left);
                assert!(fault.message.contains(&gone), "{}", fault.message);
                assert!(
                    baselines.take_in(&look(&ALL[..left], true)).is_err(),
                    "nor at the next look"
                );
                assert!(baselines.take_in(&look(&ALL[1..], true)).is_ok(), "they are back");
            }
        }
    }

    #[test]
    fn a_single_gpu_of_few_may_go_and_one_by_one_all_of_them() {
        let mut baselines = baselines();
        for left in (0..4).rev() {
            assert!(baselines.take_in(&look(&ALL[..left], true)).is_ok());
        }
        assert!(
            baselines.take_in(&look(&ALL, true)).is_ok(),
            "new ones come as they like"
        );
    }

    #[test]
    fn what_is_only_seen_comes_and_goes() {
        let mut baselines = baselines();
        baselines.take_in(&look(&ALL, false)).unwrap();
        assert!(baselines.take_in(&look(&[], false)).is_ok());
    }

    #[test]
    fn what_is_kept_is_recalled_unless_it_is_older() {
        let mut baselines = baselines();
        baselines.take_in(&look(&ALL, true)).unwrap();
        let kept = baselines.to_keep();
        assert_eq!(kept, [Shown::of(&look(&ALL, true))]);
        baselines.kept(&kept[0]);
        assert!(baselines.to_keep().is_empty());

        let mut other = super::tests::baselines();
        other.recall(&kept[0].endpoint, Some(kept[0].clone()));
        assert!(
            other.take_in(&look(&[], true)).is_err(),
            "another manager knows it"
        );
        other.believe(Shown::of(&look(&[], true)));
        other.recall(&kept[0].endpoint, Some(kept[0].clone()));
        assert!(
            other.take_in(&look(&[], true)).is_ok(),
            "what the store has is older"
        );
    }
}
