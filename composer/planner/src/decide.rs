//! The making of a plan: keep what is served, release what is not wanted, then serve demand by demand.
//!
//! Order: what is within what tenants are guaranteed first; then higher priority first, then more GPUs first (large needs are the hard ones to place, and small ones
//! fit into what they leave), then the older demand, then the smaller id. A demand that is held and has not
//! changed is out of the queue: nothing is taken from it for anybody. Where somebody would not be served so, and tenants
//! have shares, all is planned once more, and of equal priority whose tenant holds least for its weight goes first.
//!
//! No tenant gets more than it may hold. Whoever would get more than is guaranteed to his tenant gets nothing that another
//! tenant is guaranteed and wants, be it that there is too little of it, or that it waits elsewhere.
//!
//! What is kept for what is expected stands, until somebody can't be served beside it: then all is planned once more with
//! what is kept counted as free, and what was needed of it goes. It also goes where another tenant comes to its host.
//!
//! A demand whose need has changed is changed in place where its hosts can gain GPUs of the same kind, or one of them lose
//! some; else it moves as a whole, if there is room for that, and else keeps what it has. A demand that is given back what
//! it lent takes what there is of it, and what somebody uses stays where it is ([`crate::top_up`]).
//!
//! An elastic demand takes as many GPUs as other demands would not lack, and grows once no demand lacks any. It keeps
//! the GPUs that it has: no other demand takes them.

use crate::capacity::Capacity;
use crate::composition::{Composition, Held};
use crate::demand::Demand;
use crate::names::Names;
use crate::place::{self, Part};
use crate::plan::{Deferral, Deferred, Plan, PlanInput, Wanted, World};
use crate::promise::{Guaranteed, Ledger};
use crate::reads::Reads;
use crate::room::Taken;
use crate::survey::{Condition, Survey, way};
use crate::unplaced::Unplaced;
use crate::{sequence, suits, why};
use poolwright_model::id::{CompositionId, DemandId, HostPortId};
use poolwright_model::identity::GpuIdentity;
use poolwright_model::topology::{Gpu, PciIds};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod growing;
mod making_way;
mod promised;

/// Makes the plan for what is wanted now. The same input gives the same plan.
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let survey = Survey::of(&input.world);
    let mut changes = served(input, &survey);
    if !changes.unplaced.is_empty()
        && let Some(modest) = growing::modest(&input.world)
    {
        let input = PlanInput {
            world: World {
                demands: &modest,
                ..input.world
            },
            ..input.clone()
        };
        let others = served(&input, &Survey::of(&input.world));
        if others.unplaced.len() < changes.unplaced.len() {
            changes = others;
        }
    }
    changes.into_plan(input, &survey)
}

fn served(input: &PlanInput<'_>, survey: &Survey<'_>) -> Changes {
    let mut kept = Kept::Stands;
    let mut changes = changes(input, survey, kept, Turns::Packing);
    if !changes.unplaced.is_empty() && input.world.held.iter().any(|c| c.kept.is_some()) {
        let without = self::changes(input, survey, Kept::MakesWay, Turns::Packing);
        if without.unplaced.len() < changes.unplaced.len() {
            (changes, kept) = (without, Kept::MakesWay);
        }
    }
    if !changes.unplaced.is_empty() && several_with_shares(&input.world) {
        changes = self::changes(input, survey, kept, Turns::Shared);
    }
    changes
}

fn several_with_shares(world: &World<'_>) -> bool {
    let tenants: BTreeSet<_> = world.demands.iter().map(|demand| &demand.tenant).collect();
    !world.promises.shares.is_empty() && tenants.len() > 1
}

/// What becomes of what is kept where others need GPUs or slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Stands,
    MakesWay,
}

/// Who goes first of those with the same priority.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Whoever is hardest to place.
    Packing,
    /// Whose tenant holds least for its weight.
    Shared,
}

fn changes(input: &PlanInput<'_>, survey: &Survey<'_>, kept: Kept, turns: Turns) -> Changes {
    let mut draft = Draft::of(input, survey);
    let mut waiting = draft.settle();
    if kept == Kept::MakesWay {
        draft.let_go(&draft.kept.clone());
    }
    waiting.sort_by_cached_key(Wish::rank);
    let wanted = waiting.iter().map(|wish| (wish.demand, wish.gpus()));
    draft.guaranteed = draft.ledger.guaranteed(wanted);
    waiting.sort_by_key(|wish| !draft.guaranteed.here.contains(&wish.demand.id));
    // A demand that changes may free something for one whose turn is over. Each round serves one or ends.
    loop {
        draft.freed = false;
        draft.short.clear();
        let (mut unplaced, mut left) = (Vec::new(), Vec::new());
        let mut turn: VecDeque<Wish<'_>> = waiting.into();
        while let Some(wish) = draft.next(&mut turn, turns) {
            if let Err(why) = draft.serve(&wish) {
                unplaced.push(why);
                left.push(wish);
            }
        }
        waiting = left;
        if !draft.freed {
            draft.changes.unplaced = unplaced;
            break;
        }
    }
    for wish in &waiting {
        draft.keep(&wish.has);
        if input.world.cordoned.in_part.contains(&wish.demand.id) {
            draft.serve_in_part(wish);
        }
    }
    // What is kept makes way for what somebody lacks, and growing is not that.
    if kept == Kept::Stands {
        draft.grow();
    }
    draft.see_to_kept(kept);
    draft.changes
}

/// What is enough for a demand that gains GPUs beside those that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enough {
    All,
    AnyPart,
}

/// What a plan changes, before it is put in order.
#[derive(Default)]
pub(crate) struct Changes {
    pub keeps: BTreeSet<CompositionId>,
    pub releases: Vec<Composition>,
    pub composes: Vec<Composition>,
    pub unplaced: Vec<Unplaced>,
    pub deferred: Vec<Deferred>,
}

impl Changes {
    pub fn into_plan(mut self, input: &PlanInput<'_>, survey: &Survey<'_>) -> Plan {
        self.releases.sort_by(|a, b| a.id.cmp(&b.id));
        self.composes.sort_by(|a, b| a.id.cmp(&b.id));
        self.deferred.sort_by(|a, b| a.composition.cmp(&b.composition));
        let touched = || self.releases.iter().chain(&self.composes).flat_map(|c| &c.held);
        let units = touched().map(|held| &held.unit);
        let ports = touched().map(|held| &held.host_port);
        let served: BTreeSet<_> = self.composes.iter().filter_map(|c| c.demand.as_ref()).collect();
        let demands = input.world.demands.iter();
        let wanted = demands
            .filter(|demand| served.contains(&demand.id))
            .map(wanted)
            .collect();
        Plan {
            id: input.id.clone(),
            parent: input.parent.clone(),
            made_at: input.now,
            seed: input.seed,
            reads: Reads::of(input.world.snapshot, units, ports),
            steps: sequence::steps(survey, &self.releases, &self.composes),
            keeps: self.keeps.into_iter().collect(),
            releases: self.releases,
            composes: self.composes,
            unplaced: self.unplaced,
            deferred: self.deferred,
            wanted,
        }
    }
}

fn wanted(demand: &Demand) -> Wanted {
    Wanted {
        demand: demand.id.clone(),
        since: demand.created,
        alternatives: demand.need.alternatives.clone(),
    }
}

/// A demand that something must be done for.
pub(crate) struct Wish<'a> {
    pub demand: &'a Demand,
    /// What it holds, where its need has changed.
    pub has: Vec<&'a Composition>,
}

impl<'a> Wish<'a> {
    /// GPUs that it holds.
    fn gpus(&self) -> u32 {
        self.has.iter().map(|c| c.gpu_count()).sum()
    }

    fn rank(&self) -> impl Ord + use<'a> {
        let Demand {
            id,
            priority,
            need,
            created,
            ..
        } = self.demand;
        let gpus = need.best().map_or(0, |set| set.count);
        (
            Reverse(*priority),
            Reverse(gpus),
            Reverse(need.least_total_memory()),
            *created,
            id,
        )
    }
}

pub(crate) struct Draft<'a, 's> {
    pub survey: &'s Survey<'a>,
    pub capacity: Capacity<'a>,
    names: Names<'a>,
    pub ledger: Ledger<'a>,
    guaranteed: Guaranteed<'a>,
    /// Demands within guarantees that could not be served in this round.
    short: Vec<&'a Demand>,
    pub changes: Changes,
    /// What is kept for what is expected, and may go.
    kept: Vec<&'a Composition>,
    /// Whether a demand whose turn came has let go of something.
    freed: bool,
    /// Demands that are served, and may be given more.
    elastic: Vec<Wish<'a>>,
}

impl<'a, 's> Draft<'a, 's> {
    fn of(input: &PlanInput<'a>, survey: &'s Survey<'a>) -> Self {
        Self {
            survey,
            capacity: Capacity::of(survey),
            names: Names::new(&input.id, input.world.held.iter().map(|c| &c.id)),
            ledger: Ledger::new(input.world.promises, input.world.held),
            guaranteed: Guaranteed::default(),
            short: Vec::new(),
            changes: Changes::default(),
            kept: Vec::new(),
            freed: false,
            elastic: Vec::new(),
        }
    }

    /// Keeps and releases what is clear, and returns what is to be served.
    fn settle(&mut self) -> Vec<Wish<'a>> {
        let mut has: BTreeMap<&DemandId, Vec<&'a Composition>> = BTreeMap::new();
        for composition in self.survey.world.held {
            match &composition.demand {
                Some(demand) => has.entry(demand).or_default().push(composition),
                None if composition.kept.is_some() && self.survey.deferral(composition).is_none() => {
                    self.kept.push(composition);
                }
                None => self.keep(&[composition]),
            }
        }
        let wanted: BTreeMap<&DemandId, &'a Demand> =
            self.survey.world.demands.iter().map(|d| (&d.id, d)).collect();
        let mut wishes = Vec::new();
        for (id, has) in &has {
            match wanted.get(id) {
                Some(demand) if suits::serves(self.survey, &demand.need, has) => {
                    self.keep_elastic(demand, has)
                }
                _ if self.put_off(has) => {}
                Some(demand) => wishes.push(Wish {
                    demand,
                    has: has.clone(),
                }),
                None => has.iter().for_each(|composition| self.release(composition)),
            }
        }
        let new = wanted.iter().filter(|(id, _)| !has.contains_key(*id));
        wishes.extend(new.map(|(_, demand)| Wish {
            demand,
            has: Vec::new(),
        }));
        wishes
    }

    /// Lets go of what is not wanted any more, but for what somebody uses.
    fn release(&mut self, composition: &Composition) {
        let in_use = &self.survey.world.cordoned.in_use;
        let used = composition.held.iter().find_map(|held| {
            let by = in_use.get(&held.unit)?.clone();
            let unit = held.unit.clone();
            Some(Deferral::InUse { unit, by })
        });
        let idle = composition
            .held
            .iter()
            .filter(|held| !in_use.contains_key(&held.unit));
        let idle = composition.with(idle.cloned().collect());
        self.let_go(&[&idle]);
        if let Some(because) = used {
            self.keep(&[composition]);
            let composition = composition.id.clone();
            self.changes.deferred.push(Deferred { composition, because });
        }
        if !idle.held.is_empty() {
            self.ends(&[&idle]);
        }
    }

    /// What a demand has until it can have all is said with what it lacks.
    fn has_part(&mut self, demand: &Demand) {
        let Changes {
            composes, unplaced, ..
        } = &mut self.changes;
        if let Some(unplaced) = unplaced.iter_mut().find(|unplaced| unplaced.demand == demand.id) {
            let of_it = composes.iter().filter(|c| c.demand.as_ref() == Some(&demand.id));
            let new = of_it
                .filter(|c| !unplaced.holding.contains(&c.id))
                .map(|c| c.id.clone());
            let new: Vec<CompositionId> = new.collect();
            unplaced.holding.extend(new);
        }
    }

    pub(crate) fn keep(&mut self, compositions: &[&Composition]) {
        self.changes
            .keeps
            .extend(compositions.iter().map(|c| c.id.clone()));
    }

    /// Leaves compositions alone, all of them, where one of them can't be touched just now.
    fn put_off(&mut self, compositions: &[&Composition]) -> bool {
        let because = |c: &&&Composition| self.survey.deferral(c).map(|because| (c.id.clone(), because));
        let put_off: Vec<_> = compositions.iter().filter_map(|c| because(&c)).collect();
        if put_off.is_empty() {
            return false;
        }
        self.keep(compositions);
        let deferred = put_off
            .into_iter()
            .map(|(composition, because)| Deferred { composition, because });
        self.changes.deferred.extend(deferred);
        true
    }

    /// Counts what compositions hold as free.
    pub(crate) fn let_go(&mut self, compositions: &[&Composition]) {
        for held in compositions.iter().flat_map(|c| &c.held) {
            if let Some(unit) = self.survey.unit_place(&held.unit) {
                let takes = (held.slots(), &self.survey.load.crossing_of(held));
                self.capacity.release(unit, &held.host_port, takes);
            }
        }
    }

    pub(crate) fn hold_again(&mut self, compositions: &[&Composition]) {
        for held in compositions.iter().flat_map(|c| &c.held) {
            if let Some(unit) = self.survey.unit_place(&held.unit) {
                let takes = (held.slots(), &self.survey.load.crossing_of(held));
                self.capacity.hold_again(unit, &held.host_port, takes);
            }
        }
    }

    /// Compositions that end in this plan.
    pub(crate) fn ends(&mut self, compositions: &[&Composition]) {
        compositions.iter().for_each(|c| self.ledger.gives_back(c));
        self.changes
            .releases
            .extend(compositions.iter().copied().cloned());
    }

    /// Serves a demand by any of these alternatives of its need.
    fn serve_by(&mut self, wish: &Wish<'a>, demand: &Demand) -> Result<(), Unplaced> {
        if self.exchange_failed(wish, demand) {
            return Ok(());
        }
        if let [only] = wish.has.as_slice()
            && self.change_in_place(demand, only)
        {
            return Ok(());
        }
        let comes_back = self.survey.world.cordoned.in_part.contains(&demand.id);
        let grows = wish.has.len() > 1 || (comes_back && !wish.has.is_empty());
        if grows && self.top_up(wish, demand, Enough::All) {
            self.keep(&wish.has);
            return Ok(());
        }
        self.let_go(&wish.has);
        let Some(parts) = place::serve(&mut self.capacity, &demand.need) else {
            let mut unplaced = why::not_placed(self.survey, &mut self.capacity, &self.changes, demand);
            unplaced.holding = wish.has.iter().map(|c| c.id.clone()).collect();
            self.hold_again(&wish.has);
            return Err(unplaced);
        };
        self.freed |= !wish.has.is_empty();
        self.ends(&wish.has);
        self.compose(demand, &parts);
        Ok(())
    }

    fn compose(&mut self, demand: &Demand, parts: &[Part]) {
        for composition in self.parts_of(demand, parts, 0) {
            self.ledger.takes(&composition);
            self.changes.composes.push(composition);
        }
    }

    /// New compositions of a demand that has so many already.
    pub(crate) fn parts_of(&mut self, demand: &Demand, parts: &[Part], has: u32) -> Vec<Composition> {
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX).saturating_add(has);
        let numbered = parts.iter().zip(has + 1..);
        let parts = numbered.map(|(part, number)| Composition {
            id: self.names.give(demand.id.as_str()),
            demand: Some(demand.id.clone()),
            tenant: Some(demand.tenant.clone()),
            host: self.capacity.host_id(part.host).clone(),
            held: self.held(&part.taken),
            part: number,
            parts: count,
            label: demand.need.label.clone(),
            kept: None,
        });
        parts.collect()
    }

    /// Chooses the taken units.
    pub(crate) fn held(&mut self, taken: &[Taken]) -> Vec<Held> {
        let named = self.capacity.name(taken).into_iter();
        let held = named.filter_map(|(unit, port)| held(self.survey, unit, port));
        let mut held: Vec<Held> = held.collect();
        held.sort_by(|a, b| a.unit.cmp(&b.unit));
        held
    }

    /// Takes a choice of units back; the caller puts them back.
    pub(crate) fn unname<'h>(&mut self, held: impl IntoIterator<Item = &'h Held>) {
        let survey = self.survey;
        let units = held.into_iter().filter_map(|held| survey.unit_place(&held.unit));
        self.capacity.unname(units);
    }

    /// Lets a composition gain or lose GPUs so that it serves its demand again. The first alternative of the
    /// need that this is possible for.
    fn change_in_place(&mut self, demand: &Demand, composition: &Composition) -> bool {
        let sets = demand.need.alternatives.iter();
        let labelled = Composition {
            label: demand.need.label.clone(),
            ..composition.clone()
        };
        for set in sets.filter(|set| suits::all_admitted(self.survey, set, composition)) {
            let has = composition.gpu_count();
            let one_host = demand.need.clone().spanning(false);
            if has > set.count {
                let (stays, goes) = suits::without_superfluous(composition, set.count);
                if suits::serves(self.survey, &one_host, &[&composition.with(stays)]) {
                    let goes = labelled.with(goes);
                    self.let_go(&[&goes]);
                    self.freed = true;
                    self.keep(&[composition]);
                    self.ends(&[&goes]);
                    return true;
                }
            } else if let Some(taken) = self.more(composition, set.count - has) {
                let more = self.held(&taken);
                let all: Vec<Held> = composition.held.iter().chain(&more).cloned().collect();
                if suits::serves(self.survey, &one_host, &[&composition.with(all)]) {
                    self.keep(&[composition]);
                    let more = labelled.with(more);
                    self.ledger.takes(&more);
                    self.changes.composes.push(more);
                    return true;
                }
                self.unname(&more);
                self.capacity.put_back(&taken);
            }
        }
        false
    }

    /// Takes more GPUs of the composition's kind for its host.
    pub(crate) fn more(&mut self, composition: &Composition, gpus: u32) -> Option<Vec<Taken>> {
        let host = self.capacity.host_place(&composition.host)?;
        let shelves = self.shelves_like(composition)?;
        place::more_on(&mut self.capacity, host, &shelves, gpus)
    }

    /// Where there are GPUs of the kind that a composition has.
    pub(crate) fn shelves_like(&self, composition: &Composition) -> Option<Vec<usize>> {
        let unit = self.survey.unit(&composition.held.first()?.unit)?;
        let shelves = self.capacity.kinds().get(unit.kind.as_deref()?)?;
        let enough = |shelf: &&usize| self.capacity.shelf(**shelf).memory >= unit.memory;
        Some(shelves.iter().filter(enough).copied().collect())
    }
}

/// A unit at a host port, with everything that binding and unbinding it takes. `None` where no manager can
/// bind the two.
pub(crate) fn held(survey: &Survey<'_>, unit: usize, port: &HostPortId) -> Option<Held> {
    let facts = &survey.units[unit];
    let port_facts = survey.port(port)?.port;
    let port_at = way(port_facts)?;
    let same_manager = facts
        .points
        .iter()
        .find(|point| point.endpoint == port_at.endpoint && point.style == port_at.style);
    let names = facts
        .gpus
        .iter()
        .filter_map(|gpu| gpu.uuid.as_ref().or(gpu.serial.as_ref()));
    Some(Held {
        unit: facts.id.clone(),
        gpus: facts.gpus.iter().map(|gpu| gpu.id.clone()).collect(),
        host_port: port.clone(),
        unit_at: (*same_manager?).clone(),
        port_at: port_at.clone(),
        known_as: names.cloned().collect(),
        slot: port_facts.slot.clone(),
        ids: common_ids(&facts.gpus),
        identities: facts.gpus.iter().map(|gpu| GpuIdentity::of(gpu)).collect(),
    })
}

/// The PCI ids of these GPUs, where all of them have the same.
fn common_ids(gpus: &[&Gpu]) -> Option<PciIds> {
    let (first, others) = gpus.split_first()?;
    let ids = first.pci_ids.as_ref()?;
    let is_same = |gpu: &&Gpu| gpu.pci_ids.as_ref() == Some(ids);
    others.iter().all(is_same).then(|| ids.clone())
}

/// Which composition a unit will be in, of those that stand and those that the plan makes.
pub(crate) fn owners<'c>(survey: &Survey<'c>, changes: &'c Changes) -> Vec<Option<&'c Composition>> {
    let mut owners: Vec<Option<&Composition>> = survey
        .units
        .iter()
        .map(|unit| match unit.condition {
            Condition::Held(at) => survey.world.held.get(at),
            _ => None,
        })
        .collect();
    let mut set = |compositions: &'c [Composition], owned: bool| {
        for composition in compositions {
            for unit in composition
                .held
                .iter()
                .filter_map(|held| survey.unit_place(&held.unit))
            {
                owners[unit] = owned.then_some(composition);
            }
        }
    };
    set(&changes.releases, false);
    set(&changes.composes, true);
    owners
}
