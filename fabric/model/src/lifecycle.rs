//! The states of a GPU, and every legal transition, in one function: [`GpuState::next`].
//!
//! ```text
//!             Reserve          BindSent            SeenBound           Confirmed
//!   Free ───────────► Reserved ────────► Binding ──────────► Bound ──────────► Attached
//!    ▲                ▲   │  ▲             │                   │ DrainStarted     │ DrainStarted
//!    │        Reserve │   │  └─ SeenFree, ─┘                   ▼                  ▼
//!    │ ResetSeen      │   │     Refused                    Draining ◄─────────────┘
//!    │                │   │ Cancel           UnbindSent      │ │ DrainUndone ──► Bound
//!   Dirty ────────────┘   │                      ┌───────────┘
//!    ▲ ▲                  │                      ▼
//!    │ └──────────────────┘   SeenFree       Unbinding ── SeenBound, Refused ──► Bound
//!    └───────────────────────────────────────────┘
//!
//!   Binding, Unbinding ── OutcomeUnknown ──► Indeterminate ── SeenBound ──► Bound
//!                                                          └─ SeenFree ───► Dirty
//!   any state that holds something ── UndoFailed ──► Quarantined ── Resolved ──► Dirty
//!   Free, Dirty ── FoundBound ──► Foreign ── Adopted ──► Bound
//!                                         └─ SeenFree ──► Dirty
//!   Free, Dirty, Foreign, Bound, Attached ── Vanished ──► Missing
//!   Missing ── SeenFree ──► Dirty,  SeenBound ──► Bound,  FoundBound ──► Foreign
//! ```
//!
//! Invariants: *Bound* (the fabric, read back) comes before *Attached* (confirmed from the host). What
//! was held by a host is *Dirty* until its reset is read back, and closed to other tenants. An unknown
//! outcome is never shown as success and never cleared by time.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a GPU is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GpuState {
    /// In the pool, clean, nobody's.
    Free,
    /// Promised to an operation that has not touched it yet.
    Reserved,
    /// The fabric was asked to bind it.
    Binding,
    /// The fabric says that it is bound; the host has not confirmed it.
    Bound,
    /// Bound, and confirmed from the host.
    Attached,
    /// The host lets go of it.
    Draining,
    /// The fabric was asked to unbind it.
    Unbinding,
    /// Unbound, not reset yet.
    Dirty,
    /// Asked, and the outcome is unknown. Both ends are held.
    Indeterminate,
    /// An undo failed; an operator must look.
    Quarantined,
    /// Bound by somebody else.
    Foreign,
    /// Not seen any more.
    Missing,
}

/// What happens to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuEvent {
    Reserve,
    Cancel,
    BindSent,
    UnbindSent,
    /// The fabric refused, so nothing changed.
    Refused,
    /// Nobody knows whether the fabric did it.
    OutcomeUnknown,
    /// Read back from the fabric: bound to the port that we asked for.
    SeenBound,
    /// Read back from the fabric: bound to nothing.
    SeenFree,
    /// The host sees it.
    Confirmed,
    DrainStarted,
    DrainUndone,
    /// The reset was read back.
    ResetSeen,
    UndoFailed,
    /// An operator looked, and said that nothing holds it.
    Resolved,
    /// Found bound, not by us.
    FoundBound,
    Adopted,
    Vanished,
}

/// An event that can't happen in this state: a mistake of the caller, or of the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a GPU that is {state} can't have {event:?} happen to it")]
pub struct IllegalTransition {
    pub state: GpuState,
    pub event: GpuEvent,
}

impl GpuState {
    pub const ALL: [GpuState; 12] = [
        Self::Free,
        Self::Reserved,
        Self::Binding,
        Self::Bound,
        Self::Attached,
        Self::Draining,
        Self::Unbinding,
        Self::Dirty,
        Self::Indeterminate,
        Self::Quarantined,
        Self::Foreign,
        Self::Missing,
    ];

    /// The state after an event. The only place that knows what is legal.
    pub fn next(self, event: GpuEvent) -> Result<GpuState, IllegalTransition> {
        use GpuEvent as E;
        use GpuState as S;
        Ok(match (self, event) {
            (S::Free | S::Dirty, E::Reserve) => S::Reserved,
            // It may have been dirty before, and who reserved it may have been told so: reset it again.
            (S::Reserved, E::Cancel) => S::Dirty,
            (S::Reserved, E::BindSent) => S::Binding,
            (S::Binding, E::Refused | E::SeenFree) => S::Reserved,
            (S::Binding, E::SeenBound) => S::Bound,
            (S::Bound, E::Confirmed) => S::Attached,
            (S::Bound | S::Attached, E::DrainStarted) => S::Draining,
            (S::Draining, E::DrainUndone) => S::Bound,
            (S::Draining, E::UnbindSent) => S::Unbinding,
            (S::Unbinding, E::Refused | E::SeenBound) => S::Bound,
            (S::Unbinding, E::SeenFree) => S::Dirty,
            (S::Dirty, E::ResetSeen) => S::Free,

            (S::Binding | S::Unbinding, E::OutcomeUnknown) => S::Indeterminate,
            (S::Indeterminate, E::SeenBound) => S::Bound,
            (S::Indeterminate, E::SeenFree) => S::Dirty,

            (
                S::Reserved
                | S::Binding
                | S::Bound
                | S::Attached
                | S::Draining
                | S::Unbinding
                | S::Indeterminate,
                E::UndoFailed,
            ) => S::Quarantined,
            (S::Quarantined, E::Resolved) => S::Dirty,

            (S::Free | S::Dirty | S::Missing, E::FoundBound) => S::Foreign,
            (S::Foreign, E::Adopted) => S::Bound,
            (S::Foreign, E::SeenFree) => S::Dirty,

            // What is held stays held: a ghost is not free to be given away.
            (S::Free | S::Dirty | S::Foreign | S::Bound | S::Attached, E::Vanished) => S::Missing,
            (S::Missing, E::SeenFree) => S::Dirty,
            (S::Missing, E::SeenBound) => S::Bound,

            (state, event) => return Err(IllegalTransition { state, event }),
        })
    }

    /// Whether a host owns it, or may own it: nobody else may be given it.
    pub fn holds(self) -> bool {
        !matches!(self, Self::Free | Self::Dirty | Self::Missing)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Reserved => "reserved",
            Self::Binding => "binding",
            Self::Bound => "bound",
            Self::Attached => "attached",
            Self::Draining => "draining",
            Self::Unbinding => "unbinding",
            Self::Dirty => "dirty",
            Self::Indeterminate => "indeterminate",
            Self::Quarantined => "quarantined",
            Self::Foreign => "foreign",
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for GpuState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GpuEvent as E;
    use proptest::prelude::*;

    const EVENTS: [GpuEvent; 17] = [
        E::Reserve,
        E::Cancel,
        E::BindSent,
        E::UnbindSent,
        E::Refused,
        E::OutcomeUnknown,
        E::SeenBound,
        E::SeenFree,
        E::Confirmed,
        E::DrainStarted,
        E::DrainUndone,
        E::ResetSeen,
        E::UndoFailed,
        E::Resolved,
        E::FoundBound,
        E::Adopted,
        E::Vanished,
    ];

    fn walk(events: &[GpuEvent]) -> GpuState {
        events
            .iter()
            .fold(GpuState::Free, |state, event| state.next(*event).unwrap())
    }

    #[test]
    fn a_whole_life() {
        let attach = [E::Reserve, E::BindSent, E::SeenBound, E::Confirmed];
        assert_eq!(walk(&attach), GpuState::Attached);
        let detach = [E::DrainStarted, E::UnbindSent, E::SeenFree];
        assert_eq!(walk(&[&attach[..], &detach].concat()), GpuState::Dirty);
        assert_eq!(
            walk(&[&attach[..], &detach, &[E::ResetSeen]].concat()),
            GpuState::Free
        );
    }

    #[test]
    fn an_illegal_event_names_both() {
        let error = GpuState::Free.next(E::Confirmed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a GPU that is free can't have Confirmed happen to it"
        );
    }

    #[test]
    fn no_state_is_a_trap() {
        for state in GpuState::ALL {
            assert!(
                EVENTS
                    .iter()
                    .any(|e| state.next(*e).is_ok_and(|next| next != state)),
                "{state}"
            );
        }
    }

    proptest! {
        /// However events come, a GPU that a host held is never free again without its reset seen.
        #[test]
        fn what_was_held_is_clean_before_it_is_free(choices in proptest::collection::vec(any::<prop::sample::Index>(), 60)) {
            let (mut state, mut dirty) = (GpuState::Free, false);
            for choice in choices {
                // Of those that may come, or most walks would stand still.
                let legal: Vec<_> = EVENTS.into_iter().filter_map(|e| Some((e, state.next(e).ok()?))).collect();
                let (event, next) = *choice.get(&legal);
                dirty |= matches!(next, GpuState::Bound | GpuState::Attached | GpuState::Foreign);
                if event == E::ResetSeen {
                    dirty = false;
                }
                if next == GpuState::Free {
                    prop_assert!(!dirty, "{state} became free by {event:?}");
                }
                state = next;
            }
        }
    }
}
