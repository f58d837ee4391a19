//! What stays attached, idle, for what is expected: whether it may stay, and whom it serves when a demand comes.
//!
//! Invariant: at a host at which something is kept that was not reset there is nothing of another tenant.

use crate::composition::Composition;
use crate::plan::World;
use crate::promise::Ledger;
use crate::survey::Survey;
use crate::{Demand, suits};

/// What is kept for the demand's tenant and is, as it is, what the demand needs: nothing has to be attached for it.
pub fn serves_as_it_is<'a>(demand: &Demand, world: &World<'a>) -> Option<&'a Composition> {
    let mut kept = world
        .held
        .iter()
        .filter(|c| c.kept.is_some() && c.tenant.as_ref() == Some(&demand.tenant))
        .peekable();
    kept.peek()?;
    let ledger = Ledger::new(world.promises, world.held);
    let others_want = !ledger.guaranteed(std::iter::empty()).elsewhere.is_empty();
    let may_have = |count: u32| {
        let guaranteed = ledger.guarantees(&demand.tenant, 0, count);
        ledger.allows(&demand.tenant, 0, count) && (guaranteed || !others_want)
    };
    let survey = Survey::of(world);
    kept.find(|c| {
        let sound = is_sound(&survey, c) && is_by_itself(c, world, false) && may_have(c.gpu_count());
        sound && suits::serves(&survey, &demand.need, &[c])
    })
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
