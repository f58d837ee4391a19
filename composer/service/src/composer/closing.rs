//! Hosts that an operator closes, at once or for a time that is to come: they are given nothing new, whoever asks for it,
//! and what they have stays. A closure that is over by the clock binds nobody, and is written over by the next one.
//!
//! What is wanted for longer than until a host closes goes elsewhere, where as much is served there; else it is told
//! beforehand, and what is there stays when the host closes.

use super::asking::Check;
use super::avoiding::rather;
use super::planning::{Basis, is_short};
use super::{Composer, Observed};
use crate::closure::{Close, HostClosure, HostShown};
use crate::demand::DemandRecord;
use crate::error::{ErrorCode, ServiceError};
use crate::host::Relocation;
use crate::schedule::Calendar;
use jiff::Timestamp;
use poolwright_model::id::{DemandId, HostId};
use poolwright_model::topology::Host;
use poolwright_planner::closure::{closed_at, closed_within};
use poolwright_planner::{Closure, Composition, Plan};
use poolwright_store::{Batch, StoreError, Stored, read};
use std::collections::{BTreeMap, BTreeSet};

/// The closures that are known at a moment, and until when demands are wanted, where that is known.
#[derive(Clone, Default)]
pub(super) struct Maintenance {
    pub closures: Vec<Closure>,
    at: Timestamp,
    ends: BTreeMap<DemandId, Timestamp>,
}

impl Maintenance {
    /// As it will be at a moment.
    pub fn at(closures: &[Closure], records: &[DemandRecord], calendars: &[Calendar], at: Timestamp) -> Self {
        let ends = records
            .iter()
            .filter_map(|record| Some((record.spec.id.clone(), ends(record, calendars, at)?)));
        Self {
            ends: match closures.is_empty() {
                true => BTreeMap::new(),
                false => ends.collect(),
            },
            closures: closures.to_vec(),
            at,
        }
    }
}

/// Until when a demand is wanted, where it is known.
fn ends(record: &DemandRecord, calendars: &[Calendar], at: Timestamp) -> Option<Timestamp> {
    if let Some(schedule) = &record.schedule {
        let calendar = calendars.iter().find(|calendar| calendar.id == *schedule)?;
        return match calendar.is_open(at) {
            true => calendar.runs_until(at),
            false => calendar.window.next_openings(at, 1).first()?.closes,
        };
    }
    match (&record.course, &record.job, &record.spec.queue) {
        (Some(course), ..) => Some(course.ends()),
        (None, Some(job), Some(spec)) => job.ends(spec, at),
        _ => None,
    }
}

impl Basis {
    /// Gives nothing to hosts that are closed then. Says whether others were before.
    pub fn close_by(&mut self, maintenance: Maintenance) -> bool {
        let closed = closed_at(&maintenance.closures, maintenance.at);
        let is_new = closed != self.cordoned.closed;
        self.cordoned.closed = closed;
        self.maintenance = maintenance;
        is_new
    }

    /// Nor to those that close until then; with no time, ever.
    pub fn close_until(&mut self, until: Option<Timestamp>) {
        let Maintenance { closures, at, .. } = &self.maintenance;
        self.cordoned.closed = closed_within(closures, *at, until);
    }

    /// As if no host were ever closed.
    pub fn open_all(&mut self) {
        self.cordoned.closed.clear();
        self.maintenance = Maintenance::default();
    }

    /// Hosts that close while something is wanted that is not served yet.
    fn closing(&self) -> BTreeSet<HostId> {
        let Maintenance { closures, at, ends } = &self.maintenance;
        let coming = || closures.iter().filter(|closure| closure.from > *at);
        if coming().next().is_none() {
            return BTreeSet::new();
        }
        let unserved = self.demands.iter().filter(|demand| is_short(demand, &self.held));
        let last = unserved
            .map(|demand| ends.get(&demand.id).copied().unwrap_or(Timestamp::MAX))
            .max();
        let Some(last) = last else {
            return BTreeSet::new();
        };
        let meet = coming().filter(|closure| closure.from < last);
        meet.map(|closure| closure.host.clone()).collect()
    }
}

/// A plan that gives nothing to hosts that close while it is wanted, unless more is served with them.
pub(super) fn beside_maintenance(basis: &Basis, plan: impl Fn(&Basis) -> Plan) -> Plan {
    let closing = basis.closing();
    if closing.is_empty() {
        return plan(basis);
    }
    let mut open = basis.clone();
    open.close_hosts(closing);
    rather(plan(&open), || plan(basis))
}

impl Composer {
    /// Hosts that are closed, and those that will be, by their names.
    #[crate::boxed]
    pub async fn closures(&self) -> Result<Vec<HostClosure>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        let now = self.clock.now();
        let pages = self.books.pages();
        let closures = pages.closures.values();
        let stand = closures.filter(|closure| !closure.closure.is_over(now));
        Ok(stand.cloned().collect())
    }

    /// Hosts that are given nothing now: those that are closed, and those that are retired.
    #[crate::boxed]
    pub async fn hosts_out_of_service(&self) -> Result<BTreeSet<HostId>, ServiceError> {
        let closed = closed_at(&self.planned_closures().await?, self.clock.now());
        // Both out of the books: what clients read of the pool asks for it each time.
        let pages = self.books.pages();
        Ok(closed.into_keys().chain(pages.retired.hosts().cloned()).collect())
    }

    /// The same, as plans know them.
    pub(super) async fn planned_closures(&self) -> Result<Vec<Closure>, ServiceError> {
        let closures = self.closures().await?.into_iter();
        Ok(closures.map(|closure| closure.closure).collect())
    }

    /// The hosts that are seen, with when they are closed.
    #[crate::boxed]
    pub async fn hosts_shown(&self) -> Result<Vec<HostShown>, ServiceError> {
        let closures = self.closures().await?;
        let hosts = self.hosts().await?.into_iter();
        Ok(hosts.map(|seen| shown(seen, &closures)).collect())
    }

    /// One of them.
    #[crate::boxed]
    pub async fn host_shown(&self, id: &HostId) -> Result<Option<HostShown>, ServiceError> {
        let closures = self.closures().await?;
        Ok(self.host(id).await?.map(|seen| shown(seen, &closures)))
    }

    /// Closes a host. One that is closed so already stays as it is, with who did it.
    #[crate::boxed]
    pub async fn close_host(
        &self,
        host: &HostId,
        close: &Close,
        by: &str,
    ) -> Result<HostClosure, ServiceError> {
        let now = self.clock.now();
        let new = close.of(host, by, now)?;
        if self.host(host).await?.is_none() {
            return Err(ServiceError::not_found("host", host.as_str()));
        }
        // By turns with those who plan here: what they have begun goes on.
        let _turn = self.turn.lock().await;
        let known = read::<HostClosure>(self.store.as_ref(), host.as_str()).await?;
        let revision = known.as_ref().map(|known| known.revision);
        let stands = known
            .map(|known| known.value)
            .filter(|known| !known.closure.is_over(now));
        if let Some(stands) = stands {
            if close.is_as(&stands, now) {
                return Ok(stands);
            }
            let what = format!("host {host} {} (by {})", stands.closure.tell(now), stands.by);
            return Err(ServiceError::new(ErrorCode::Conflict, what)
                .with_hint(format!("end that first: poolwright host open {host}")));
        }
        let mut batch = Batch::new();
        batch
            .expect(HostClosure::KIND, host.as_str(), revision)
            .put(&new)?;
        self.commit_closure(batch, host).await?;
        tracing::warn!(%host, by, "{}", new.closure);
        Ok(new)
    }

    /// Opens a host, or cancels its closure. Returns the closure. A host that is being moved stays closed until it arrives.
    #[crate::boxed]
    pub async fn open_host(&self, host: &HostId, by: &str) -> Result<HostClosure, ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(moving) = read::<Relocation>(self.store.as_ref(), host.as_str()).await? {
            return Err(moving.value.refusal());
        }
        let known = read::<HostClosure>(self.store.as_ref(), host.as_str()).await?;
        let now = self.clock.now();
        let Some(known) = known.filter(|known| !known.value.closure.is_over(now)) else {
            let what = format!("host {host} is not closed, and will not be");
            return Err(ServiceError::new(ErrorCode::NotFound, what)
                .with_hint("`poolwright get hosts` shows which are"));
        };
        let mut batch = Batch::new();
        batch
            .expect(Relocation::KIND, host.as_str(), None)
            .expect(HostClosure::KIND, host.as_str(), Some(known.revision))
            .delete(HostClosure::KIND, host.as_str());
        self.commit_closure(batch, host).await?;
        tracing::warn!(%host, by, "open");
        Ok(known.value)
    }

    pub(super) async fn commit_closure(&self, batch: Batch, host: &HostId) -> Result<(), ServiceError> {
        match self.store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => {
                let what = format!("somebody else closed or opened host {host} at this very moment");
                Err(ServiceError::new(ErrorCode::Conflict, what)
                    .with_hint(format!("look again: poolwright describe host {host}")))
            }
            done => {
                done?;
                self.calendar_changed.notify_one();
                self.queue_changed.notify_one();
                Ok(())
            }
        }
    }

    /// When a host closes or opens next.
    pub(crate) async fn next_host_edge(&self, after: Timestamp) -> Result<Option<Timestamp>, ServiceError> {
        let closures = self.closures().await?;
        Ok(closures
            .iter()
            .filter_map(|closure| closure.closure.next_edge(after))
            .min())
    }

    /// What a plan rests on of hosts that are closed.
    pub(super) async fn maintenance(&self) -> Result<Maintenance, ServiceError> {
        let closures = self.planned_closures().await?;
        if closures.is_empty() {
            return Ok(Maintenance::default());
        }
        let (records, calendars) = (self.demands().await?, self.calendars().await?);
        let now = self.clock.now();
        Ok(Maintenance::at(&closures, &records, &calendars, now))
    }

    /// Refuses what would give a closed host something. Where other managers may have closed it meanwhile: that this is so
    /// when it is committed, too.
    pub(super) async fn spares_closed(&self, plan: &Plan, with: &mut Batch) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let hosts: BTreeSet<&HostId> = plan.composes.iter().map(|c| &c.host).collect();
        self.books.refresh(self.store.as_ref()).await?;
        let pages = self.books.pages();
        for host in hosts {
            let known = pages.closures.get(host);
            if let Some(closed) = known.filter(|known| known.closure.holds(now)) {
                let what = format!("host {host} can't be given GPUs: it {}", closed.closure.tell(now));
                return Err(ServiceError::new(ErrorCode::Conflict, what).with_hint(format!(
                    "take another host, or open it: poolwright host open {host}"
                )));
            }
            if self.options.sharing.is_some() {
                with.expect(HostClosure::KIND, host.as_str(), pages.closure_revision(host));
            }
        }
        Ok(())
    }

    /// For people: what of these is at hosts that are closed or will be.
    pub(super) async fn at_closed_hosts<'c>(
        &self,
        held: impl IntoIterator<Item = &'c Composition>,
    ) -> Result<Vec<String>, ServiceError> {
        let (closures, now) = (self.planned_closures().await?, self.clock.now());
        let hosts: BTreeSet<&HostId> = held.into_iter().map(|c| &c.host).collect();
        let here = closures.iter().filter(|closure| hosts.contains(&closure.host));
        Ok(here
            .map(|closure| {
                let told = closure.tell(now);
                format!("host {} {told}; what it holds there stays", closure.host)
            })
            .collect())
    }

    /// Hosts that are closed or will be, and who has something there that will not leave by itself.
    pub(super) async fn closures_check(&self) -> Result<Option<Check>, ServiceError> {
        let (closures, now) = (self.planned_closures().await?, self.clock.now());
        let held = self.held().await?;
        let told = closures.iter().map(|closure| {
            let here = held.iter().filter(|c| c.host == closure.host);
            let here: Vec<String> = here.map(|c| c.id.to_string()).collect();
            let stays = match here.is_empty() {
                true => "nothing is there".to_owned(),
                false => format!("{} there stays", here.join(", ")),
            };
            format!("host {} {}; {stays}", closure.host, closure.tell(now))
        });
        let told: Vec<String> = told.collect();
        Ok(closures.first().map(|first| {
            let hint = format!("poolwright host open {}, once that is done", first.host);
            Check::warning("closed hosts", told.join("; "), hint)
        }))
    }

    /// For people: hosts that are given nothing now.
    pub(super) async fn closed_hosts_told(&self) -> Result<Vec<String>, ServiceError> {
        let now = self.clock.now();
        let closed = closed_at(&self.planned_closures().await?, now);
        Ok(closed
            .iter()
            .map(|(host, why)| format!("host {host} {why}; it is given nothing new"))
            .collect())
    }
}

fn shown(seen: Observed<Host>, closures: &[HostClosure]) -> HostShown {
    let mut closures = closures.iter();
    HostShown {
        closure: closures
            .find(|closure| closure.closure.host == seen.what.id)
            .cloned(),
        seen,
    }
}
