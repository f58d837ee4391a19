//! Every kind of document that is kept, by its name: so that what was written by earlier versions can be held against
//! what is read today.

use super::automatic::Automatic;
use super::keeping::DemandOf;
use super::latecoming::Latecomer;
use super::looking::naming::{Ids, Speakers};
use super::pruning::Reckoned;
use super::recording::TurnedAway;
use super::repairing::Repaired;
use super::reserving::Reservations;
use super::rotating::Rotation;
use super::silence::ToldLost;
use super::suspending::PutAside;
use super::wanting::CalendarChange;
use crate::access::AccessRules;
use crate::accounts::Account;
use crate::accounts::lockout::{AccountFailures, SourceFailures};
use crate::agent::{Agent, AgentToken};
use crate::audit::{Head, Page};
use crate::closure::HostClosure;
use crate::demand::DemandRecord;
use crate::endpoint::Endpoint;
use crate::host::{HostHistory, Relocation, RetiredHosts};
use crate::job::JobRun;
use crate::leases::{Lease, ManagerRecord, Wish};
use crate::limits::Limits;
use crate::quarantine::{GpuHistory, Light, Quarantine};
use crate::runner::ScheduleRun;
use crate::schedule::Schedule;
use crate::sealed::Sealed;
use crate::sessions::{Logins, Session};
use crate::subscription::Subscription;
use crate::suspicion::Suspicion;
use crate::tenant::Tenant;
use crate::uplink::UplinkCapacity;
use crate::vanishing::Shown;
use crate::walk::Walk;
use crate::wants::Wants;
use poolwright_executor::documents::{self, again};
use poolwright_store::Stored;

/// The names of those that are not the executor's.
const OURS: &[&str] = &[
    Automatic::KIND,
    DemandOf::KIND,
    Latecomer::KIND,
    Ids::KIND,
    Speakers::KIND,
    Repaired::KIND,
    Rotation::KIND,
    PutAside::KIND,
    CalendarChange::KIND,
    AccessRules::KIND,
    Account::KIND,
    AccountFailures::KIND,
    SourceFailures::KIND,
    Agent::KIND,
    AgentToken::KIND,
    DemandRecord::KIND,
    Endpoint::KIND,
    Lease::KIND,
    ManagerRecord::KIND,
    Wish::KIND,
    Limits::KIND,
    Quarantine::KIND,
    Suspicion::KIND,
    HostClosure::KIND,
    GpuHistory::KIND,
    Light::KIND,
    HostHistory::KIND,
    Relocation::KIND,
    RetiredHosts::KIND,
    ScheduleRun::KIND,
    Schedule::KIND,
    Sealed::KIND,
    Shown::KIND,
    Walk::KIND,
    Wants::KIND,
    Reckoned::KIND,
    TurnedAway::KIND,
    Session::KIND,
    Logins::KIND,
    JobRun::KIND,
    Tenant::KIND,
    UplinkCapacity::KIND,
    Head::KIND,
    Page::KIND,
    Subscription::KIND,
    Reservations::KIND,
    ToldLost::KIND,
];

/// The names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    OURS.iter().chain(documents::KINDS).copied()
}

/// A text of a kind, read as what it is and written again; `None` for a kind that nothing is kept of.
pub fn reread(kind: &str, json: &str) -> Option<serde_json::Result<String>> {
    Some(match kind {
        Automatic::KIND => again::<Automatic>(json),
        DemandOf::KIND => again::<DemandOf>(json),
        Latecomer::KIND => again::<Latecomer>(json),
        Ids::KIND => again::<Ids>(json),
        Speakers::KIND => again::<Speakers>(json),
        Rotation::KIND => again::<Rotation>(json),
        Repaired::KIND => again::<Repaired>(json),
        PutAside::KIND => again::<PutAside>(json),
        CalendarChange::KIND => again::<CalendarChange>(json),
        AccessRules::KIND => again::<AccessRules>(json),
        Account::KIND => again::<Account>(json),
        AccountFailures::KIND => again::<AccountFailures>(json),
        SourceFailures::KIND => again::<SourceFailures>(json),
        Agent::KIND => again::<Agent>(json),
        AgentToken::KIND => again::<AgentToken>(json),
        DemandRecord::KIND => again::<DemandRecord>(json),
        Endpoint::KIND => again::<Endpoint>(json),
        Lease::KIND => again::<Lease>(json),
        ManagerRecord::KIND => again::<ManagerRecord>(json),
        Wish::KIND => again::<Wish>(json),
        Limits::KIND => again::<Limits>(json),
        Quarantine::KIND => again::<Quarantine>(json),
        Suspicion::KIND => again::<Suspicion>(json),
        HostClosure::KIND => again::<HostClosure>(json),
        GpuHistory::KIND => again::<GpuHistory>(json),
        Light::KIND => again::<Light>(json),
        HostHistory::KIND => again::<HostHistory>(json),
        Relocation::KIND => again::<Relocation>(json),
        RetiredHosts::KIND => again::<RetiredHosts>(json),
        ScheduleRun::KIND => again::<ScheduleRun>(json),
        Schedule::KIND => again::<Schedule>(json),
        Sealed::KIND => again::<Sealed>(json),
        Shown::KIND => again::<Shown>(json),
        Walk::KIND => again::<Walk>(json),
        Wants::KIND => again::<Wants>(json),
        Reckoned::KIND => again::<Reckoned>(json),
        TurnedAway::KIND => again::<TurnedAway>(json),
        Session::KIND => again::<Session>(json),
        Logins::KIND => again::<Logins>(json),
        JobRun::KIND => again::<JobRun>(json),
        Tenant::KIND => again::<Tenant>(json),
        UplinkCapacity::KIND => again::<UplinkCapacity>(json),
        Head::KIND => again::<Head>(json),
        Page::KIND => again::<Page>(json),
        Subscription::KIND => again::<Subscription>(json),
        Reservations::KIND => again::<Reservations>(json),
        ToldLost::KIND => again::<ToldLost>(json),
        kind => return documents::reread(kind, json),
    })
}
