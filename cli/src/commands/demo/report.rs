//! What came of the demonstration: the figures of the second client, and where the manager says otherwise.

use super::auditor::Binding;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Output, Table};
use poolwright_inventory::Snapshot;
use poolwright_model::id::DemandId;
use poolwright_planner::Composition;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The last line. Counted by the second client, but for `operations`, which only the manager knows.
#[derive(Debug, Serialize)]
pub struct Report {
    pub gpus: usize,
    pub hosts: usize,
    pub compositions: Vec<Composed>,
    pub recompositions: usize,
    pub operations: usize,
    /// GPUs that had two hosts at any look.
    pub double_owned: usize,
    /// GPUs that were still bound at the end.
    pub leaked: usize,
    /// How often the second client looked.
    pub looks: u64,
    pub seconds: f64,
}

/// What a model got.
#[derive(Debug, Clone, Serialize)]
pub struct Composed {
    pub model: String,
    /// Bound for it, as the second client saw it.
    pub gpus: usize,
    /// Hosts that they were bound to.
    pub hosts: usize,
}

impl Report {
    pub fn show(&self, output: Output) -> Result<(), Failure> {
        let mut table = Table::new(["MODEL", "GPUS", "HOSTS"]);
        for composed in &self.compositions {
            table.row([
                composed.model.clone(),
                composed.gpus.to_string(),
                composed.hosts.to_string(),
            ]);
        }
        let text = format!(
            "{}\n{} and {}; {} by the calendar, {}; {} had two hosts at once, {} stayed bound; counted in {} by a \
             second client; {:.0} s\n",
            table.render(None),
            counted(self.gpus, "GPU"),
            counted(self.hosts, "host"),
            counted(self.recompositions, "recomposition"),
            counted(self.operations, "operation"),
            counted(self.double_owned, "GPU"),
            counted(self.leaked, "GPU"),
            counted(self.looks as usize, "look"),
            self.seconds
        );
        output.show_line(self, &table, text)
    }
}

/// The manager's word against what the second client sees.
pub struct Compared {
    /// What each demand has, as the second client sees it.
    pub by_demand: BTreeMap<DemandId, BTreeSet<Binding>>,
    /// Where the two differ.
    pub differences: Vec<String>,
}

impl Compared {
    /// `foreign` is what was bound before, which must stay and is nobody's here.
    pub fn of(
        compositions: &[Composition],
        snapshot: &Snapshot,
        seen: &BTreeSet<Binding>,
        foreign: &BTreeSet<Binding>,
    ) -> Self {
        let mut by_demand: BTreeMap<DemandId, BTreeSet<Binding>> = BTreeMap::new();
        let mut differences = Vec::new();
        let mut unclaimed: BTreeSet<&Binding> = seen.difference(foreign).collect();
        for composition in compositions {
            let host = snapshot
                .topology
                .host(&composition.host)
                .and_then(|host| host.uuid.as_deref());
            for gpu in composition.gpus() {
                let serial = snapshot.topology.gpu(gpu).and_then(|gpu| gpu.serial.as_deref());
                let is_it = |(gpu, at): &&Binding| {
                    serial == Some(gpu) && host.is_some_and(|host| host.eq_ignore_ascii_case(at))
                };
                match seen.iter().find(is_it) {
                    Some(binding) => {
                        unclaimed.remove(binding);
                        if let Some(demand) = &composition.demand {
                            by_demand
                                .entry(demand.clone())
                                .or_default()
                                .insert(binding.clone());
                        }
                    }
                    None => differences.push(format!(
                        "{gpu} not bound to {}, where the manager says it is",
                        composition.host
                    )),
                }
            }
        }
        let unknown = |(gpu, host): &Binding| {
            format!("GPU {gpu} bound to host {host}, and the manager knows nothing of it")
        };
        differences.extend(unclaimed.into_iter().map(unknown));
        let gone =
            |(gpu, host): &Binding| format!("GPU {gpu} no longer bound to host {host}, as it was before us");
        differences.extend(foreign.difference(seen).map(gone));
        Self {
            by_demand,
            differences,
        }
    }
}

/// What a model got, counted in bindings.
pub fn composed(model: &str, bindings: &BTreeSet<Binding>) -> Composed {
    let hosts: BTreeSet<&String> = bindings.iter().map(|(_, host)| host).collect();
    Composed {
        model: model.to_owned(),
        gpus: bindings.len(),
        hosts: hosts.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn binding(gpu: &str, host: &str) -> Binding {
        (gpu.to_owned(), host.to_owned())
    }

    /// A host with UUID `u1` and a composition of the GPUs with the serial numbers `s1` and `s2`.
    fn manager_says() -> (Vec<Composition>, Snapshot) {
        let gpu = |id: &str, serial: &str| {
            json!({
                "id": id, "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": serial,
                "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [],
                "unit": id, "composable": true, "why_not": null, "host": "host-1", "host_port": "p1",
                "state": "attached", "health": "ok",
            })
        };
        let snapshot = json!({
            "taken_at": "2026-06-01T16:00:00Z", "gpus": [gpu("gpu-1", "s1"), gpu("gpu-2", "s2")], "fabrics": [],
            "hosts": [{ "id": "host-1", "name": "host-1", "power_state": "on", "ports": [], "uuid": "u1" }],
            "faults": [], "requests": 0, "elapsed_ms": 0,
        });
        let at = json!({ "endpoint": "box-1", "style": "zones", "address": "/" });
        let held = |gpu: &str| json!({ "unit": gpu, "gpus": [gpu], "host_port": "p1", "unit_at": at, "port_at": at });
        let composition = json!([{
            "id": "web-1", "demand": "web", "tenant": "default", "host": "host-1", "part": 1, "parts": 1,
            "label": "web", "held": [held("gpu-1"), held("gpu-2")],
        }]);
        (
            serde_json::from_value(composition).unwrap(),
            serde_json::from_value(snapshot).unwrap(),
        )
    }

    #[test]
    fn the_manager_is_believed_only_where_it_is_seen() {
        let (compositions, snapshot) = manager_says();
        let foreign = BTreeSet::from([binding("s9", "u9")]);
        let both = BTreeSet::from([binding("s1", "U1"), binding("s2", "u1"), binding("s9", "u9")]);
        let compared = Compared::of(&compositions, &snapshot, &both, &foreign);
        assert!(compared.differences.is_empty(), "{:?}", compared.differences);
        let web = composed("8B", &compared.by_demand[&DemandId::from_lossy("web")]);
        assert_eq!(web.gpus, 2);

        let other = BTreeSet::from([binding("s1", "u1"), binding("s2", "u2"), binding("s3", "u1")]);
        let told = Compared::of(&compositions, &snapshot, &other, &foreign)
            .differences
            .join("; ");
        for part in [
            "gpu-2 not bound to host-1",
            "GPU s2 bound to host u2",
            "GPU s3 bound to host u1",
            "GPU s9 no longer",
        ] {
            assert!(told.contains(part), "no {part:?}: {told}");
        }
    }
}
