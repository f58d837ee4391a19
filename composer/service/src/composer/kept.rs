//! GPUs that stay attached, or are attached ahead, because their tenant is expected to want them soon.
//!
//! What is kept is a composition without a demand, for a tenant, at a host. It stands while nobody needs it: the planner
//! lets go of it where somebody can't be served beside it, or another tenant comes to its host. A demand of its tenant
//! that needs just that takes it up as it is. It is held by nobody: it counts in no share, no wait and no forecast.
//!
//! Only what is whole is kept: all that one demand held, a composition at each of its hosts. What it held at several is
//! taken up together, or by a demand that one of them is enough for. To keep and to take up change no hardware; each is
//! one commit, which expects that no operation has a unit of it in hand. All else is an operation of its own kind, within
//! the limits of what runs by itself.

use super::planning::{Basis, How, Wanted};
use super::requests::Request;
use super::{Composer, Kinds};
use crate::error::ServiceError;
use crate::keep::{Expected, Keep};
use crate::schedule::{next_change, wanted};
use crate::wants::Shape;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{Claim, CompositionRecord, OperationKind};
use poolwright_model::id::{CompositionId, DemandId, TenantId};
use poolwright_planner::promise::width;
use poolwright_planner::{Composition, Demand, Kept, Plan, direct, kept};
use poolwright_sizing::need::Need;
use poolwright_store::{Batch, StoreError, Stored, read};
use std::collections::{BTreeMap, BTreeSet};

/// Times at which calendars change that are looked ahead to.
const MOST_CHANGES: usize = 64;
/// By whom operations are that follow from forecasts.
const FORECAST: &str = "forecast";

/// What a tenant is expected to want beyond what it wants now.
struct More {
    expected: Expected,
    gpus: u32,
    /// Of a demand that calendars are going to want.
    need: Option<Need>,
}

/// What compositions are from now on, to be committed as long as they are as they were read and no operation has them in
/// hand.
pub(super) struct Rewritten(Vec<(CompositionRecord, u64)>);

impl Rewritten {
    pub fn add_to(&self, batch: &mut Batch) -> Result<(), StoreError> {
        for (record, revision) in &self.0 {
            let composition = &record.composition;
            for held in &composition.held {
                batch.expect(Claim::KIND, held.unit.as_str(), None);
            }
            batch.expect(CompositionRecord::KIND, composition.id.as_str(), Some(*revision));
            batch.put(record)?;
        }
        Ok(())
    }

    fn compositions(&self) -> impl Iterator<Item = &Composition> {
        self.0.iter().map(|(record, _)| &record.composition)
    }

    pub fn ids(&self) -> BTreeSet<CompositionId> {
        self.compositions().map(|c| c.id.clone()).collect()
    }

    /// For whoever let go of it.
    pub fn told(&self) -> String {
        let hosts: Vec<&str> = self.compositions().map(|c| c.host.as_str()).collect();
        let label = self.compositions().next().map_or("", |c| c.label.as_str());
        format!("its GPUs stay attached to {}: {label}", hosts.join(", "))
    }
}

impl Composer {
    /// What a composition, with all others of its demand, is from now on if it is kept in place of being let go of: where
    /// that is expected to be wanted soon. To be called with the turn.
    pub(super) async fn keep_in_place(
        &self,
        basis: &Basis,
        id: &CompositionId,
    ) -> Result<Option<Rewritten>, ServiceError> {
        let Some(policy) = self.options.keep else {
            return Ok(None);
        };
        let composition = basis.held.iter().find(|c| c.id == *id && c.kept.is_none());
        let Some((composition, tenant)) = composition.and_then(|c| Some((c, c.tenant.as_ref()?))) else {
            return Ok(None);
        };
        let of_it = |c: &&Composition| c.id == *id || c.demand.is_some() && c.demand == composition.demand;
        let all: Vec<Composition> = basis.held.iter().filter(of_it).cloned().collect();
        if all.iter().any(|c| c.parts as usize != all.len()) {
            return Ok(None);
        }
        let may_stay = all.iter().all(|c| kept::may_stay(c, &basis.world()));
        if !may_stay || self.is_held_by_hand().await? {
            return Ok(None);
        }
        let gpus = all.iter().map(Composition::gpu_count).sum();
        let kept = kept_of(&basis.held, None);
        if self.somebody_waits().await? || kept.saturating_add(gpus) > policy.most_gpus {
            return Ok(None);
        }
        let kind = self.kind_held(&all).await?;
        let gone = composition.demand.as_ref().map(|demand| (demand, gpus));
        let Some(more) = self.expects_more(&policy, tenant, kind.as_deref(), gone).await? else {
            return Ok(None);
        };
        let room = more
            .gpus
            .saturating_sub(self.kept_alike(&basis.held, tenant, kind.as_deref()).await?);
        if room < gpus || self.is_in_use(&all).await {
            return Ok(None);
        }
        let now = self.clock.now();
        let by = after(now, more.expected.in_s);
        let part_of = composition.demand.as_ref().filter(|_| all.len() > 1);
        let kept = all.iter().map(|c| Composition {
            demand: None,
            label: label(&policy, &more, by),
            kept: Some(Kept {
                since: now,
                by,
                part_of: part_of.cloned(),
            }),
            ..c.clone()
        });
        let kept: Vec<Composition> = kept.collect();
        tracing::info!(composition = %id, %tenant, "{}", kept[0].label);
        self.rewritten(kept).await
    }

    /// Gives a demand what is kept for its tenant, if that is just what it needs: in this basis it holds it from now on,
    /// and what is returned is to be committed. To be called with the turn.
    pub(super) async fn take_up_kept(
        &self,
        basis: &mut Basis,
        demand: &Demand,
    ) -> Result<Option<Rewritten>, ServiceError> {
        if basis.held.iter().any(|c| c.demand.as_ref() == Some(&demand.id)) {
            return Ok(None);
        }
        let mut fresh = basis.clone();
        self.leave_out_stale(&mut fresh);
        let found = kept::serves_as_it_is(demand, &fresh.world());
        if found.is_empty() {
            return Ok(None);
        }
        let parts = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let taken = found.into_iter().zip(1..).map(|(found, part)| Composition {
            demand: Some(demand.id.clone()),
            label: demand.need.label.clone(),
            kept: None,
            part,
            parts,
            ..found.clone()
        });
        let rewritten = self.rewritten(taken.collect()).await?;
        for taken in rewritten.iter().flat_map(Rewritten::compositions) {
            tracing::info!(composition = %taken.id, demand = %demand.id, "what was kept is taken up as it is");
            basis.replace(taken.clone());
        }
        Ok(rewritten)
    }

    /// The same for what is wanted by the clock, at once.
    pub(super) async fn take_up_for_schedules(&self) -> Result<(), ServiceError> {
        if kept_of(&self.held().await?, None) == 0 {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let mut basis = self.basis(Wanted::Scheduled).await?;
        for demand in basis.demands() {
            if let Some(taken) = self.take_up_kept(&mut basis, &demand).await? {
                self.commit_rewritten(&taken).await?;
            }
        }
        Ok(())
    }

    /// Keeps of what a closing window would let go of what is expected to be wanted soon. Nothing of what goes on to
    /// others, nor of what is suspended. Says whether there was any.
    pub(super) async fn keep_of_schedules(
        &self,
        plan: &Plan,
        suspended: &BTreeSet<DemandId>,
    ) -> Result<bool, ServiceError> {
        if self.options.keep.is_none() || !plan.composes.is_empty() || !plan.unplaced.is_empty() {
            return Ok(false);
        }
        let is_suspended = |c: &Composition| c.demand.as_ref().is_some_and(|id| suspended.contains(id));
        let ends = plan.releases.iter();
        let ends = ends.filter(|c| c.demand.is_some() && !is_suspended(c) && !plan.keeps.contains(&c.id));
        let _turn = self.turn.lock().await;
        let mut basis = self.basis(Wanted::Named).await?;
        let mut some = false;
        for id in ends.map(|c| &c.id) {
            if let Some(kept) = self.keep_in_place(&basis, id).await? {
                self.commit_rewritten(&kept).await?;
                // Each sees what the one before has kept.
                kept.compositions().for_each(|c| basis.replace(c.clone()));
                some = true;
            }
        }
        Ok(some)
    }

    async fn commit_rewritten(&self, rewritten: &Rewritten) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        rewritten.add_to(&mut batch)?;
        let demands = rewritten.compositions().filter_map(|c| c.demand.clone());
        let demands = demands.collect();
        self.hold_for(&mut batch, demands).await?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// What is to be written of compositions that are this from now on; `None` where one is gone.
    async fn rewritten(&self, compositions: Vec<Composition>) -> Result<Option<Rewritten>, ServiceError> {
        let (operation, since) = (self.new_operation(), self.clock.now());
        let mut records = Vec::new();
        for composition in compositions {
            let found = read::<CompositionRecord>(self.store.as_ref(), composition.id.as_str()).await?;
            let Some(found) = found else { return Ok(None) };
            let record = CompositionRecord {
                composition,
                // Whatever wrote it before can't be undone as if nothing had happened since.
                operation: operation.clone(),
                since,
                ..found.value
            };
            records.push((record, found.revision));
        }
        Ok(Some(Rewritten(records)))
    }

    /// Whether anybody uses the GPUs, or might.
    async fn is_in_use(&self, compositions: &[Composition]) -> bool {
        for composition in compositions {
            for held in &composition.held {
                if self.executor.is_in_use(&held.target(&composition.host)).await {
                    return true;
                }
            }
        }
        false
    }

    /// Whether anybody has fewer GPUs than he wants.
    async fn somebody_waits(&self) -> Result<bool, ServiceError> {
        let tenants = self.wants_now().await?;
        Ok(tenants.values().any(|now| now.wanted > now.held))
    }

    /// GPUs of a kind that are kept for a tenant.
    async fn kept_alike(
        &self,
        held: &[Composition],
        tenant: &TenantId,
        kind: Option<&str>,
    ) -> Result<u32, ServiceError> {
        let mut gpus = 0;
        for composition in held
            .iter()
            .filter(|c| c.kept.is_some() && c.tenant.as_ref() == Some(tenant))
        {
            if self
                .kind_held(std::slice::from_ref(composition))
                .await?
                .as_deref()
                == kind
            {
                gpus += composition.gpu_count();
            }
        }
        Ok(gpus)
    }

    /// What a tenant is expected to want of a kind beyond what it wants now, were it without a demand and its GPUs.
    async fn expects_more(
        &self,
        policy: &Keep,
        tenant: &TenantId,
        kind: Option<&str>,
        gone: Option<(&DemandId, u32)>,
    ) -> Result<Option<More>, ServiceError> {
        let (demand, without) = gone.unzip();
        let parts = self.parts_now().await?;
        let wants = |kind: Option<&str>| {
            let of_tenant = parts.iter().filter(|part| part.tenant == tenant.as_str());
            let alike = of_tenant.filter(|part| kind.is_none_or(|kind| part.kind == kind));
            let wanted: f64 = alike.map(|part| part.now.wanted).sum();
            (wanted as u32).saturating_sub(without.unwrap_or(0))
        };
        let mut found: Option<More> = None;
        let mut say = |expected: Expected, wanted: u32, need: Option<Need>| {
            let gpus = expected.gpus.saturating_sub(wanted);
            let is_more = |known: &More| (gpus, -expected.in_s) > (known.gpus, -known.expected.in_s);
            if found.as_ref().is_none_or(is_more) {
                found = Some(More { expected, gpus, need });
            }
        };
        if let Some((expected, of_kind)) = self.forecast_within(policy, tenant, kind, demand).await? {
            say(expected, wants(kind.filter(|_| of_kind)), None);
        }
        if let Some((expected, need)) = self.known_within(policy, tenant).await? {
            say(expected, wants(None), need);
        }
        Ok(found)
    }

    /// The most that calendars and phases are going to want for a tenant, and the largest need among it of what has
    /// nothing now.
    async fn known_within(
        &self,
        policy: &Keep,
        tenant: &TenantId,
    ) -> Result<Option<(Expected, Option<Need>)>, ServiceError> {
        let (demands, calendars, courses) = (
            self.demands().await?,
            self.calendars().await?,
            self.courses().await?,
        );
        let held = self.held().await?;
        let now = self.clock.now();
        let until = after(now, i64::from(policy.ahead_h) * 3600);
        let mut found: Option<(Expected, Option<Need>)> = None;
        let mut at = now;
        for _ in 0..MOST_CHANGES {
            let Some(next) = next_change(&calendars, &courses, at).filter(|next| *next <= until) else {
                break;
            };
            at = next;
            let mut then = wanted(&demands, &calendars, at);
            then.retain(|demand| demand.tenant == *tenant);
            let expected = Expected {
                gpus: then.iter().map(width).sum(),
                in_s: at.duration_since(now).as_secs(),
                coverage: None,
            };
            then.retain(|demand| !held.iter().any(|c| c.demand.as_ref() == Some(&demand.id)));
            let need = then.into_iter().max_by_key(width).map(|demand| demand.need);
            if found.as_ref().is_none_or(|(most, _)| expected.gpus > most.gpus) {
                found = Some((expected, need));
            }
        }
        Ok(found)
    }

    /// What forecasts of a kind say, else of all kinds; and which of them it is. What was noted for too short a time says
    /// nothing.
    async fn forecast_within(
        &self,
        policy: &Keep,
        tenant: &TenantId,
        kind: Option<&str>,
        gone: Option<&DemandId>,
    ) -> Result<Option<(Expected, bool)>, ServiceError> {
        let ahead: BTreeSet<u32> = (1..=policy.ahead_h).collect();
        let only = kind.map(|kind| Kinds::Only(kind.to_owned()));
        for kinds in only.into_iter().chain([Kinds::Together]) {
            let made = self
                .forecast_without(Some(tenant.as_str()), &kinds, &ahead, gone)
                .await;
            let expected = made.ok().and_then(|made| policy.expects(&made.first()?.forecast));
            if let Some(expected) = expected {
                return Ok(Some((expected, kinds != Kinds::Together)));
            }
        }
        Ok(None)
    }

    /// Lets go of what is kept and expected no longer, and attaches ahead what is expected, a composition a tenant.
    pub(super) async fn see_to_kept(&self) -> Result<(), ServiceError> {
        let held = self.held().await?;
        let policy = self.options.keep;
        if policy.is_none_or(|policy| !policy.attach) && kept_of(&held, None) == 0
            || self.is_held_by_hand().await?
        {
            return Ok(());
        }
        let mut alike: BTreeMap<(TenantId, Option<String>), Vec<&Composition>> = BTreeMap::new();
        for composition in held.iter().filter(|c| c.kept.is_some()) {
            let Some(tenant) = composition.tenant.clone().filter(|_| policy.is_some()) else {
                self.let_go_of_kept(composition).await;
                continue;
            };
            let kind = self.kind_held(std::slice::from_ref(composition)).await?;
            alike.entry((tenant, kind)).or_default().push(composition);
        }
        let Some(policy) = policy else {
            return Ok(());
        };
        for ((tenant, kind), kept) in &alike {
            let more = self.expects_more(&policy, tenant, kind.as_deref(), None).await?;
            self.no_more_than(more.as_ref(), kept).await;
        }
        if policy.attach {
            self.see_to_attached_ahead(&policy).await?;
        }
        Ok(())
    }

    async fn see_to_attached_ahead(&self, policy: &Keep) -> Result<(), ServiceError> {
        for (tenant, shape) in self.shapes().await? {
            let kind = shape.as_ref().map(|shape| shape.kind.clone());
            let Some(more) = self.expects_more(policy, &tenant, kind.as_deref(), None).await? else {
                continue;
            };
            let like_before = shape.map(|Shape { kind, gpus }| Need::of_kind(kind, gpus));
            let Some(need) = more.need.clone().or(like_before) else {
                continue;
            };
            let gpus = need.best().map_or(0, |set| set.count);
            let held = self.held().await?;
            let (has, all) = (kept_of(&held, Some(&tenant)), kept_of(&held, None));
            if has.saturating_add(gpus) <= more.gpus && all.saturating_add(gpus) <= policy.most_gpus {
                self.attach_ahead(policy, &tenant, &more, need).await;
            }
        }
        Ok(())
    }

    /// Lets go of what is kept beyond what is expected, once the time has come by which it was; the oldest first.
    async fn no_more_than(&self, more: Option<&More>, kept: &[&Composition]) {
        let now = self.clock.now();
        let most = more.map_or(0, |more| more.gpus);
        let mut has: u32 = kept.iter().map(|c| c.gpu_count()).sum();
        let mut kept = kept.to_vec();
        kept.sort_by_key(|c| c.kept.as_ref().map(|kept| kept.since));
        for composition in kept {
            let is_due = composition.kept.as_ref().is_some_and(|kept| kept.by <= now);
            let gpus = composition.gpu_count();
            if is_due && has > most {
                self.let_go_of_kept(composition).await;
                has -= gpus;
            }
        }
    }

    /// What can't be let go of just now is tried again at the next look.
    async fn let_go_of_kept(&self, composition: &Composition) {
        let id = &composition.id;
        let done = async {
            let how = How::default();
            let what = format!("let go of {id}, which is expected no longer");
            let request = Request::new(OperationKind::Keep, what, id, FORECAST, &how)?;
            let _turn = self.turn.lock().await;
            let basis = self.basis(Wanted::Named).await?;
            // Somebody has taken it up since.
            if !basis.held.iter().any(|c| c.id == *id && c.kept.is_some()) {
                return Ok(());
            }
            let plan = direct::release(id, &self.input(&basis))?;
            let operation = self.new_operation();
            self.submit(request, operation, plan, Batch::new())
                .await
                .map(drop)
        };
        if let Err(error) = done.await {
            let error: ServiceError = error;
            tracing::warn!(composition = %id, "what was kept is not let go of yet: {error}");
        }
    }

    /// Attaches so many GPUs that are free, if there are so many; nobody is moved for it.
    async fn attach_ahead(&self, policy: &Keep, tenant: &TenantId, more: &More, need: Need) {
        let done = async {
            let how = How::default();
            let what = format!("attach ahead for {tenant}");
            let request = Request::new(OperationKind::Keep, what, tenant, FORECAST, &how)?;
            let _turn = self.turn.lock().await;
            if self.somebody_waits().await? {
                return Ok(());
            }
            let now = self.clock.now();
            let demand = Demand {
                id: DemandId::from_lossy(&format!("ahead-{tenant}")),
                tenant: tenant.clone(),
                priority: i32::MIN,
                need: need.spanning(false),
                created: now,
            };
            let whole = self.basis(Wanted::Only(&demand)).await?;
            let mut basis = whole.clone().keeping_all();
            self.leave_out_stale(&mut basis);
            let mut plan = self.plan_beside_pauses(&basis).await?;
            if !plan.unplaced.is_empty() || !plan.releases.is_empty() {
                tracing::debug!(%tenant, "nothing is free to be attached ahead");
                return Ok(());
            }
            let by = after(now, more.expected.in_s);
            let of_it = |c: &&mut Composition| c.demand.as_ref() == Some(&demand.id);
            for composed in plan.composes.iter_mut().filter(of_it) {
                composed.demand = None;
                composed.label = label(policy, more, by);
                composed.kept = Some(Kept {
                    since: now,
                    by,
                    part_of: None,
                });
                tracing::info!(composition = %composed.id, %tenant, "attached ahead: {}", composed.label);
            }
            if !plan.composes.iter().all(|c| kept::is_free_for(c, &whole.world())) {
                tracing::debug!(%tenant, "something of another tenant is kept at the host");
                return Ok(());
            }
            let operation = self.new_operation();
            self.submit(request, operation, plan, Batch::new())
                .await
                .map(drop)
        };
        if let Err(error) = done.await {
            let error: ServiceError = error;
            tracing::warn!(%tenant, "nothing is attached ahead: {error}");
        }
    }
}

/// GPUs that are kept, for all or for one tenant.
pub(super) fn kept_of(held: &[Composition], tenant: Option<&TenantId>) -> u32 {
    let of = |c: &&Composition| c.kept.is_some() && (tenant.is_none() || c.tenant.as_ref() == tenant);
    held.iter().filter(of).map(Composition::gpu_count).sum()
}

fn label(policy: &Keep, more: &More, by: Timestamp) -> String {
    let Expected { gpus, coverage, .. } = more.expected;
    match coverage {
        None => format!("kept: {gpus} wanted at {by} by the calendar"),
        Some(coverage) => format!(
            "kept: {gpus} expected by {by} with {} (p90 was enough in {:.0}% of the hours measured)",
            policy.level,
            100.0 * coverage
        ),
    }
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(now)
}
