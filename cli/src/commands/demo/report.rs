//! What came of the demonstration: the figures of the second client, and where the manager says otherwise.

use super::auditor::Binding;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Output, Table};
use poolwright_inventory::Snapshot;
use poolwright_planner::Composition;
use serde::Serialize;
use std::collections::BTreeSet;

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

/// What of the manager's compositions the second client sees, as bindings; and what it does not see.
pub fn confirmed(
    compositions: &[Composition],
    snapshot: &Snapshot,
    seen: &BTreeSet<Binding>,
) -> (BTreeSet<Binding>, Vec<String>) {
    let mut found = BTreeSet::new();
    let mut missing = Vec::new();
    for composition in compositions {
        let host = snapshot
            .topology
            .host(&composition.host)
            .and_then(|host| host.uuid.clone());
        for gpu in composition.gpus() {
            let serial = snapshot.topology.gpu(gpu).and_then(|gpu| gpu.serial.clone());
            let claimed = serial.zip(host.clone()).and_then(|claim| {
                seen.iter()
                    .find(|(serial, uuid)| *serial == claim.0 && uuid.eq_ignore_ascii_case(&claim.1))
            });
            match claimed {
                Some(binding) => drop(found.insert(binding.clone())),
                None => missing.push(format!(
                    "the manager says that {gpu} is bound to {}, and the second client does not see it",
                    composition.host
                )),
            }
        }
    }
    (found, missing)
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
