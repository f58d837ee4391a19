//! What stays attached, idle, for what is expected: whether it may stay, and whom it serves when a demand comes.
//!
//! Invariant: at a host at which something is kept that was not reset there is nothing of another tenant.

use crate::composition::{Composition, Kept};
use crate::plan::World;
use crate::promise::Ledger;
use crate::survey::Survey;
use crate::{Demand, suits};
use std::collections::BTreeMap;

/// What is kept for the demand's tenant and is, as it is, what the demand needs: nothing has to be attached for it. One
/// composition, or all parts of one demand that spanned hosts; none where there is nothing like that.
pub fn serves_as_it_is<'a>(demand: &Demand, world: &World<'a>) -> Vec<&'a Composition> {
    let kept = world
        .held
        .iter()
        .any(|c| c.kept.is_some() && c.tenant.as_ref() == Some(&demand.tenant));
    match kept {
        true => serves_by(&Survey::of(world), demand),
        false => Vec::new(),
    }
}

/// The same by a survey.
pub(crate) fn serves_by<'a>(survey: &Survey<'a>, demand: &Demand) -> Vec<&'a Composition> {
    let world = &survey.world;
    let held = world.held.iter();
    let kept = held.filter(|c| c.kept.is_some() && c.tenant.as_ref() == Some(&demand.tenant));
    let kept: Vec<&Composition> = kept.collect();
    if kept.is_empty() {
        return kept;
    }
    let ledger = Ledger::new(world.promises, world.held);
    let others_want = !ledger.guaranteed(std::iter::empty()).elsewhere.is_empty();
    let may_have = |count: u32| {
        let guaranteed = ledger.guarantees(&demand.tenant, 0, count);
        ledger.allows(&demand.tenant, 0, count) && (guaranteed || !others_want)
    };
    let is_in_order = |c: &&Composition| is_sound(survey, c) && is_by_itself(c, world, false);
    let single = kept.iter().map(|c| vec![*c]);
    let mut found = single.chain(parts_of_one(&kept));
    let serves = |parts: &Vec<&Composition>| {
        let gpus = parts.iter().map(|c| c.gpu_count()).sum();
        may_have(gpus) && parts.iter().all(is_in_order) && suits::serves(survey, &demand.need, parts)
    };
    found.find(serves).unwrap_or_default()
}

/// What is kept of demands that spanned hosts, of each of which all parts are there.
fn parts_of_one<'a>(kept: &[&'a Composition]) -> impl Iterator<Item = Vec<&'a Composition>> {
    let mut together: BTreeMap<_, Vec<&Composition>> = BTreeMap::new();
    for composition in kept {
        if let Some(Kept {
            since,
            part_of: Some(demand),
            ..
        }) = &composition.kept
        {
            together.entry((demand, since)).or_default().push(composition);
        }
    }
    let whole = |parts: &Vec<&Composition>| parts.iter().all(|c| c.parts as usize == parts.len());
    together.into_values().filter(move |parts| whole(parts))
}

/// Whether what a composition holds may stay attached when its demand is gone: all of it is where it was put and in
/// order, and no other tenant has anything at its host.
pub fn may_stay(composition: &Composition, world: &World<'_>) -> bool {
    let survey = Survey::of(world);
    is_sound(&survey, composition) && is_by_itself(composition, world, true)
}

/// Nothing is kept for another tenant at this host.
pub fn is_free_for(composition: &Composition, world: &World<'_>) -> bool {
    is_by_itself(composition, world, false)
}

fn is_sound(survey: &Survey<'_>, composition: &Composition) -> bool {
    let is_open = survey
        .host(&composition.host)
        .is_some_and(|host| host.closed.is_none());
    let mut units = composition.held.iter().map(|held| survey.unit(&held.unit));
    is_open
        && survey.deferral(composition).is_none()
        && units.all(|unit| unit.is_some_and(|unit| unit.is_usable()))
}

/// Whether nothing of another tenant is at its host: of all that is held or comes there, or of what is kept.
fn is_by_itself(composition: &Composition, world: &World<'_>, of_all: bool) -> bool {
    let here = world.held.iter().filter(|c| c.host == composition.host);
    let mut others = here.filter(|c| (of_all || c.kept.is_some()) && c.tenant != composition.tenant);
    let port_is_here = |port: &_| composition.held.iter().any(|held| held.host_port == *port);
    let mut coming = world.reserved.iter().filter_map(|r| r.host_port.as_ref());
    others.next().is_none() && !(of_all && coming.any(port_is_here))
}
