//! Whether what a demand gets is something that it can do with.

use super::super::problem::{Cost, Demand, Group, Need};
use super::Broken;
use std::collections::{BTreeMap, BTreeSet};

/// What it costs that a demand gets these GPUs and not what it likes best. `names` are as the plan has them.
pub(super) fn met<'a>(
    demand: &Demand,
    names: &BTreeMap<String, u16>,
    groups: impl Iterator<Item = &'a Group>,
) -> Result<Cost, Broken> {
    let groups: Vec<&Group> = groups.collect();
    let meets = |need: &&Need| fault(demand, need, names, &groups).is_none();
    if let Some(penalty) = demand.needs.iter().filter(meets).map(|need| need.penalty).min() {
        return Ok(penalty);
    }
    if let [need] = &demand.needs[..]
        && let Some(broken) = fault(demand, need, names, &groups)
    {
        return Err(broken);
    }
    let got: Vec<String> = names
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    Err(Broken::NoOption {
        demand: demand.name(),
        got: got.join(", "),
    })
}

/// What is wrong for a need.
fn fault(demand: &Demand, need: &Need, names: &BTreeMap<String, u16>, groups: &[&Group]) -> Option<Broken> {
    let id = || demand.name();
    let got = names.values().map(|count| u32::from(*count)).sum();
    if got != u32::from(need.gpus) {
        let wanted = u32::from(need.gpus);
        return Some(Broken::Count {
            demand: id(),
            got,
            wanted,
        });
    }
    for (name, group) in names.keys().zip(groups) {
        let (demand, name) = (id(), name.clone());
        if group.memory_gb < need.memory_gb {
            return Some(Broken::Memory { demand, group: name });
        }
        if need
            .kinds
            .as_ref()
            .is_some_and(|kinds| !kinds.contains(&group.kind))
        {
            return Some(Broken::Kind { demand, group: name });
        }
    }
    let kinds: BTreeSet<usize> = groups.iter().map(|group| group.kind).collect();
    (kinds.len() > 1).then(|| Broken::Mixed(id()))
}
