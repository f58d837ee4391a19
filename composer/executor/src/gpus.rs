//! What a step means for the lives of its GPUs, in the words of [`GpuState::next`].

use crate::record::GpuRecord;
use jiff::Timestamp;
use poolwright_driver::Learned;
use poolwright_model::id::{CompositionId, GpuId, OperationId, TenantId, UnitId};
use poolwright_model::lifecycle::{GpuEvent, GpuState};
use poolwright_model::step::Target;
use poolwright_model::units::Bytes;
use std::collections::BTreeMap;

/// What was done to a unit, or seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// An operation takes it from the pool.
    Reserve,
    /// The intent to bind is in the journal.
    AskBind,
    /// The intent to unbind is in the journal.
    AskUnbind,
    /// Read back: bound to our port.
    SeenBound,
    /// Read back: bound to nothing.
    SeenFree,
    /// Read back: bound, but not by us.
    SeenForeign,
    /// The fabric promised that it changed nothing.
    Refused,
    /// Asked, and it can't be read back.
    Unknown,
    /// The host sees it.
    Confirmed,
    DrainStarted,
    /// The host has taken it back.
    DrainUndone,
    /// The host promised that nothing of the drain is left.
    DrainRefused,
    ResetSeen,
    UndoFailed,
    /// An operator takes it as bound to our port.
    AcceptBound,
    /// An operator takes it as bound to nothing.
    AcceptFree,
    /// The operation is over.
    LetGo,
}

/// The events that lead from a state to what was seen. Legal by construction: a test tries all pairs.
fn events(change: Change, state: GpuState) -> Vec<GpuEvent> {
    use Change as C;
    use GpuEvent as E;
    use GpuState as S;
    match (change, state) {
        (C::Reserve, S::Free | S::Dirty) => vec![E::Reserve],

        (C::AskBind, S::Free | S::Dirty) => vec![E::Reserve, E::BindSent],
        (C::AskBind, S::Reserved) => vec![E::BindSent],
        (C::AskBind, S::Unbinding | S::Indeterminate) => vec![E::SeenFree, E::Reserve, E::BindSent],
        (C::AskBind, S::Quarantined) => vec![E::Resolved, E::Reserve, E::BindSent],

        (C::AskUnbind, S::Draining) => vec![E::UnbindSent],
        (C::AskUnbind, S::Bound | S::Attached) => vec![E::DrainStarted, E::UnbindSent],
        (C::AskUnbind, S::Binding | S::Indeterminate) => {
            vec![E::SeenBound, E::DrainStarted, E::UnbindSent]
        }
        (C::AskUnbind, S::Foreign) => vec![E::Adopted, E::DrainStarted, E::UnbindSent],
        (C::AskUnbind, S::Quarantined) => {
            vec![
                E::Resolved,
                E::FoundBound,
                E::Adopted,
                E::DrainStarted,
                E::UnbindSent,
            ]
        }

        (C::SeenBound | C::AcceptBound, S::Binding | S::Unbinding | S::Indeterminate | S::Missing) => {
            vec![E::SeenBound]
        }
        (C::SeenBound | C::AcceptBound, S::Foreign) => vec![E::Adopted],
        (C::SeenBound | C::AcceptBound, S::Reserved) => vec![E::BindSent, E::SeenBound],
        (C::SeenBound | C::AcceptBound, S::Free | S::Dirty) => vec![E::FoundBound, E::Adopted],
        (C::SeenBound | C::AcceptBound, S::Quarantined) => {
            vec![E::Resolved, E::FoundBound, E::Adopted]
        }
        (C::AcceptBound, S::Draining) => vec![E::DrainUndone],

        (C::SeenFree, S::Binding) => vec![E::SeenFree],
        (C::AcceptFree, S::Binding) => vec![E::SeenFree, E::Cancel],
        (C::AcceptFree, S::Reserved) => vec![E::Cancel],
        (C::SeenFree | C::AcceptFree, S::Unbinding | S::Indeterminate | S::Missing | S::Foreign) => {
            vec![E::SeenFree]
        }
        (C::SeenFree | C::AcceptFree, S::Draining) => vec![E::UnbindSent, E::SeenFree],
        (C::SeenFree | C::AcceptFree, S::Bound | S::Attached) => {
            vec![E::DrainStarted, E::UnbindSent, E::SeenFree]
        }
        (C::SeenFree | C::AcceptFree, S::Quarantined) => vec![E::Resolved],

        (C::SeenForeign, S::Foreign) => vec![],
        (C::SeenForeign, state) => {
            let mut path = events(C::AcceptFree, state);
            path.push(E::FoundBound);
            path
        }

        (C::Refused, S::Binding | S::Unbinding) => vec![E::Refused],
        (C::Unknown, S::Binding | S::Unbinding) => vec![E::OutcomeUnknown],
        (C::Confirmed, S::Bound) => vec![E::Confirmed],
        (C::DrainStarted, S::Bound | S::Attached) => vec![E::DrainStarted],
        (C::DrainStarted, S::Foreign) => vec![E::Adopted, E::DrainStarted],
        (C::DrainUndone | C::DrainRefused, S::Draining) => vec![E::DrainUndone],
        // An operator had it tried again, and the host has taken it back: it never left.
        (C::DrainUndone | C::DrainRefused, S::Quarantined) => vec![E::Resolved, E::FoundBound, E::Adopted],
        (C::ResetSeen, S::Dirty) => vec![E::ResetSeen],
        (C::ResetSeen, S::Reserved) => vec![E::Cancel, E::ResetSeen],
        (C::UndoFailed, S::Free | S::Dirty) => vec![E::Reserve, E::UndoFailed],
        (C::UndoFailed, state) if state.holds() && !matches!(state, S::Quarantined | S::Foreign) => {
            vec![E::UndoFailed]
        }
        (C::LetGo, S::Reserved) => vec![E::Cancel],

        // It is so already, or it is not for this operation to say.
        _ => vec![],
    }
}

/// The GPUs that an operation has in hand, by unit.
#[derive(Debug, Default)]
pub(crate) struct Gpus(BTreeMap<UnitId, BTreeMap<GpuId, GpuRecord>>);

/// Of whom and for whom a change is.
pub(crate) struct Context<'a> {
    pub operation: &'a OperationId,
    pub composition: Option<&'a CompositionId>,
    pub tenant: Option<&'a TenantId>,
    pub at: Timestamp,
}

impl Gpus {
    pub fn insert(&mut self, record: GpuRecord) {
        let of_unit = self.0.entry(record.unit.clone()).or_default();
        of_unit.insert(record.gpu.clone(), record);
    }

    pub fn of_unit(&self, unit: &UnitId) -> impl Iterator<Item = &GpuRecord> {
        self.0.get(unit).into_iter().flat_map(BTreeMap::values)
    }

    /// Why the tenant may not be given the unit; `None` where it may. What a host left as it had set it is closed to
    /// others also where a reset need not be seen.
    pub fn not_clean_for(
        &self,
        unit: &UnitId,
        tenant: Option<&TenantId>,
        without_reset: bool,
    ) -> Option<String> {
        self.of_unit(unit)
            .filter(|record| !record.clean && record.tenant.as_ref() != tenant)
            .find(|record| !without_reset || !record.left.is_empty())
            .map(|record| {
                if !record.left.is_empty() {
                    let left = record.left.join("; ");
                    return format!(
                        "{} was not put back as it was by who had it last, so it is closed to other tenants: {left}",
                        record.gpu
                    );
                }
                let holder = match &record.tenant {
                    Some(tenant) => format!("tenant {tenant} held it"),
                    None => "it was last held".to_owned(),
                };
                format!(
                    "{} was not seen reset since {holder}, so it is closed to other tenants",
                    record.gpu
                )
            })
    }

    /// Lets something happen to all GPUs of a unit; returns those that are different now.
    pub fn change(&mut self, target: &Target, change: Change, context: &Context<'_>) -> Vec<GpuRecord> {
        let mut changed = Vec::new();
        let of_unit = self.0.get_mut(&target.unit);
        for record in of_unit.into_iter().flat_map(BTreeMap::values_mut) {
            let before = record.clone();
            alter(record, target, change, context);
            if *record != before {
                record.operation = Some(context.operation.clone());
                record.since = context.at;
                changed.push(record.clone());
            }
        }
        changed
    }
}

impl Gpus {
    /// Takes in what a host told of a unit's GPUs, and what it could not put back on them; returns the records that are
    /// different now.
    pub fn learn(&mut self, unit: &UnitId, told: &[Learned], left: &[String]) -> Vec<GpuRecord> {
        let mut changed = Vec::new();
        for record in self.0.get_mut(unit).into_iter().flat_map(BTreeMap::values_mut) {
            let before = record.clone();
            if let Some(told) = told.iter().find(|told| told.gpu == record.gpu) {
                record.learn(told);
            }
            record.leave(left);
            if *record != before {
                changed.push(record.clone());
            }
        }
        changed
    }

    /// How one of a unit's GPUs is another than the one that was known under its name.
    pub fn is_another(&self, unit: &UnitId, told: &[Learned]) -> Option<String> {
        self.of_unit(unit).find_map(|record| {
            let told = told.iter().find(|told| told.gpu == record.gpu)?;
            let why = told.differs_from(record.learned.as_ref()?)?;
            Some(format!("{} is another GPU than before: {why}", record.gpu))
        })
    }

    /// What the largest register of a unit wants, where a host has told so.
    pub fn largest_bar(&self, unit: &UnitId) -> Option<Bytes> {
        let told = self.of_unit(unit).filter_map(|record| record.learned.as_ref());
        told.filter_map(|learned| learned.largest_bar).max()
    }
}

fn alter(record: &mut GpuRecord, target: &Target, change: Change, context: &Context<'_>) {
    // What outlasts a drain may outlast a reset, too.
    if change == Change::ResetSeen && !record.left.is_empty() {
        return;
    }
    let before = record.state;
    for event in events(change, before) {
        step(record, event);
    }
    match change {
        // Nothing has changed, so what a host has confirmed holds: nobody need be asked again.
        Change::DrainRefused if record.was_attached => step(record, GpuEvent::Confirmed),
        Change::AskBind | Change::SeenBound | Change::AcceptBound => {
            record.clean = false;
            record.host = Some(target.host.clone());
            record.host_port = Some(target.host_port.clone());
            record.composition = context.composition.cloned();
            record.tenant = context.tenant.cloned();
        }
        Change::ResetSeen if record.state == GpuState::Free => {
            (record.clean, record.tenant) = (true, None);
        }
        // No host was given it in the meantime, so its last reset still counts.
        Change::LetGo if record.clean && record.state == GpuState::Dirty => {
            step(record, GpuEvent::ResetSeen);
        }
        _ => {}
    }
    if record.state != before {
        record.was_attached = (before, record.state) == (GpuState::Attached, GpuState::Draining);
    }
    // However it came to be let go of. The tenant stays: it is who held it last.
    let nowhere = [
        GpuState::Free,
        GpuState::Reserved,
        GpuState::Dirty,
        GpuState::Foreign,
        GpuState::Missing,
    ];
    if nowhere.contains(&record.state) {
        (record.host, record.host_port, record.composition) = (None, None, None);
    }
}

fn step(record: &mut GpuRecord, event: GpuEvent) {
    match record.state.next(event) {
        Ok(state) => record.state = state,
        // Can't be, says the test; if it is, the record stays and the fabric is right.
        Err(error) => tracing::error!(gpu = %record.gpu, %error, "a GPU's record was left as it was"),
    }
}

impl FromIterator<GpuRecord> for Gpus {
    fn from_iter<I: IntoIterator<Item = GpuRecord>>(records: I) -> Self {
        let mut gpus = Self::default();
        for record in records {
            gpus.insert(record);
        }
        gpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: [Change; 17] = [
        Change::Reserve,
        Change::AskBind,
        Change::AskUnbind,
        Change::SeenBound,
        Change::SeenFree,
        Change::SeenForeign,
        Change::Refused,
        Change::Unknown,
        Change::Confirmed,
        Change::DrainStarted,
        Change::DrainUndone,
        Change::DrainRefused,
        Change::ResetSeen,
        Change::UndoFailed,
        Change::AcceptBound,
        Change::AcceptFree,
        Change::LetGo,
    ];

    fn after(change: Change, state: GpuState) -> GpuState {
        events(change, state)
            .into_iter()
            .fold(state, |state, event| state.next(event).unwrap())
    }

    #[test]
    fn every_change_is_legal_in_every_state() {
        for state in GpuState::ALL {
            for change in CHANGES {
                after(change, state);
            }
        }
    }

    #[test]
    fn what_an_operator_accepts_is_settled_whatever_it_was() {
        for state in GpuState::ALL {
            let bound = after(Change::AcceptBound, state);
            assert!(
                matches!(bound, GpuState::Bound | GpuState::Attached | GpuState::Foreign),
                "{state} became {bound}"
            );
            let free = after(Change::AcceptFree, state);
            assert!(
                matches!(free, GpuState::Free | GpuState::Dirty),
                "{state} became {free}"
            );
            assert_eq!(after(Change::SeenForeign, state), GpuState::Foreign, "{state}");
        }
    }

    #[test]
    fn an_undo_that_failed_is_never_overlooked() {
        for state in GpuState::ALL {
            let next = after(Change::UndoFailed, state);
            let not_ours = matches!(state, GpuState::Foreign | GpuState::Missing);
            assert_eq!(next == GpuState::Quarantined, !not_ours, "{state}");
        }
    }
}
