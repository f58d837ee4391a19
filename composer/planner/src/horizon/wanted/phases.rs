//! When a demand wants something, and how many times: its window, or its phases, and their parts.

use super::super::cps1::{InstanceDemand, Invalid, MOST_DEMANDS, MOST_TOGETHER, invalid};
use super::{Wanted, WantedGpus, WantedParts};
use std::ops::Range;

/// Where something is said.
pub(super) struct At<'a> {
    pub index: usize,
    pub id: &'a str,
}

impl At<'_> {
    pub fn field(&self, name: &str) -> String {
        format!("demands[{}] ({}).{name}", self.index, self.id)
    }
}

/// What is said of a phase, or of a demand that has but one.
pub(super) struct PhaseAt<'a> {
    at: &'a At<'a>,
    place: Option<usize>,
    pub window: Range<usize>,
    pub gpus: Option<i64>,
    pub min_mem_gb: Option<f64>,
    pub types: Option<&'a Vec<String>>,
    pub options: Option<&'a Vec<WantedGpus>>,
    pub parts: Option<WantedParts>,
}

impl PhaseAt<'_> {
    pub fn field(&self, name: &str) -> String {
        match self.place {
            Some(place) => self.at.field(&format!("phases[{place}].{name}")),
            None => self.at.field(name),
        }
    }
}

/// The phases of a demand; its one window where it has none.
pub(super) fn phases<'a>(
    at: &'a At<'a>,
    demand: &'a InstanceDemand,
    more: &'a Wanted,
    slots: i64,
) -> Result<Vec<PhaseAt<'a>>, Invalid> {
    let start = demand.start;
    if !(0..slots).contains(&start) {
        let allowed = format!("the horizon has slots 0 to {}", slots - 1);
        return invalid(at.field("start"), start.to_string(), allowed);
    }
    if more.phases.is_some() {
        return several(at, demand, more, slots);
    }
    let allowed = format!("the window starts at {start} and must end after that, by {slots}");
    let Some(end) = demand.end else {
        return invalid(at.field("end"), "missing", allowed);
    };
    if end <= start || end > slots {
        return invalid(at.field("end"), end.to_string(), allowed);
    }
    Ok(vec![PhaseAt {
        at,
        place: None,
        window: start as usize..end as usize,
        gpus: demand.gpus,
        min_mem_gb: demand.min_mem_gb,
        types: more.types.as_ref(),
        options: more.options.as_ref(),
        parts: more.parts,
    }])
}

fn several<'a>(
    at: &'a At<'a>,
    demand: &'a InstanceDemand,
    more: &'a Wanted,
    slots: i64,
) -> Result<Vec<PhaseAt<'a>>, Invalid> {
    let beside = [
        ("end", demand.end.is_some()),
        ("gpus", demand.gpus.is_some()),
        ("min_mem_gb", demand.min_mem_gb.is_some()),
        ("types", more.types.is_some()),
        ("options", more.options.is_some()),
        ("parts", more.parts.is_some()),
    ];
    if let Some((name, _)) = beside.iter().find(|(_, is_there)| *is_there) {
        let allowed = match *name {
            "end" => "leave it out: the last phase ends it".to_owned(),
            name => format!("write {name} in each phase, and not beside them"),
        };
        return invalid(at.field(name), "given beside phases", allowed);
    }
    let said = more.phases.as_deref().unwrap_or_default();
    if said.is_empty() {
        return invalid(
            at.field("phases"),
            "none",
            "write one phase or more, or leave it out",
        );
    }
    let (mut phases, mut from) = (Vec::new(), demand.start);
    for (place, phase) in said.iter().enumerate() {
        let left = slots - from;
        if !(1..=left).contains(&phase.slots) {
            let field = at.field(&format!("phases[{place}].slots"));
            let allowed = match left {
                0 => format!("the horizon ends with the phase before, at {slots}"),
                left => format!("it begins at {from}: write 1 to {left}"),
            };
            return invalid(field, phase.slots.to_string(), allowed);
        }
        let window = from as usize..(from + phase.slots) as usize;
        from += phase.slots;
        phases.push(PhaseAt {
            at,
            place: Some(place),
            window,
            gpus: phase.gpus,
            min_mem_gb: phase.min_mem_gb,
            types: phase.types.as_ref(),
            options: phase.options.as_ref(),
            parts: phase.parts,
        });
    }
    Ok(phases)
}

/// The fewest and the most parts of a phase, where so many of other demands are there already.
pub(super) fn parts(phase: &PhaseAt<'_>, before: usize) -> Result<(usize, usize), Invalid> {
    let Some(parts) = phase.parts else {
        return Ok((1, 1));
    };
    let (least, most) = (parts.least, parts.most.unwrap_or(parts.least));
    for (name, value) in [("parts.least", least), ("parts.most", most)] {
        if !(1..=MOST_TOGETHER).contains(&value) {
            let allowed = format!("write 1 to {MOST_TOGETHER}");
            return invalid(phase.field(name), value.to_string(), allowed);
        }
    }
    if most < least {
        let allowed = format!("parts.least is {least}: write as many or more");
        return invalid(phase.field("parts.most"), most.to_string(), allowed);
    }
    if before + most as usize > MOST_DEMANDS {
        let found = format!("{most}, with which all demands have more than {MOST_DEMANDS} parts");
        return invalid(phase.field("parts.most"), found, "wider parts, or fewer");
    }
    Ok((least as usize, most as usize))
}
