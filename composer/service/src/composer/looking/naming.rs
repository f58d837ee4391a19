//! What everything is called: the same at every manager of a store. Records, compositions and claims name GPUs and
//! hosts by it, so two managers that called one thing differently could each do with it as they like.
//!
//! What a thing is called follows from what is seen and from what everything was called before, so it depends on the
//! order in which a manager learns. Hence all names are one document. Who names something new expects it as it was
//! read; whoever comes second reads what the first one wrote, and names what is left. Before anything is joined, what
//! others have named since is taken over.

use super::{Joined, Names};
use crate::books::Pages;
use crate::composer::{Composer, Thing, Turn, tell};
use crate::error::{ErrorCode, ServiceError};
use crate::sight::Sight;
use crate::vanishing::{Shown, names_at};
use poolwright_inventory::{Snapshot, is_provisional, remember};
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::topology::{Gpu, Host, Topology};
use poolwright_planner::Plan;
use poolwright_store::{Batch, Committed, Order, StoreError, Stored, Versioned, read, written};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Whoever comes second at all of these is told; the next look tries again.
const TRIES: usize = 16;

/// What everything is called, kept over a restart.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ids(Topology);

impl Stored for Ids {
    const KIND: &'static str = "ids";
    fn id(&self) -> &'static str {
        "pool"
    }
}

/// Who speaks for each host, kept over a restart: an endpoint that is silent at the first look is still asked who
/// uses a GPU, and its silence is no leave to pull it. It is always written together with the names of the hosts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Speakers(BTreeMap<HostId, ControlEndpointId>);

impl Stored for Speakers {
    const KIND: &'static str = "speakers";
    fn id(&self) -> &'static str {
        "pool"
    }
}

fn is_named_otherwise(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { kind, .. } if kind == Ids::KIND)
}

fn is_told_already(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { kind, .. } if kind == Shown::KIND)
}

impl Names {
    /// What is to be written, over what revision; `None` where the store has it all.
    fn to_keep(&self) -> Option<(Ids, Speakers, Option<u64>)> {
        let all = || {
            (
                Ids(self.ids.clone()),
                Speakers(self.speakers.clone()),
                self.revision,
            )
        };
        self.to_keep.then(all)
    }

    fn kept(&mut self, ids: &Ids, speakers: &Speakers, revision: u64) {
        self.revision = self.revision.max(Some(revision));
        self.to_keep &= self.ids != ids.0 || self.speakers != speakers.0;
        self.silenced
            .retain(|endpoint| speakers.0.values().any(|speaker| speaker == endpoint));
    }

    /// Takes over what the store has. What was named here and lost is named again by what is seen.
    fn recall(&mut self, ids: Versioned<Ids>, speakers: BTreeMap<HostId, ControlEndpointId>) {
        self.ids = ids.value.0;
        self.revision = Some(ids.revision);
        self.speakers = speakers;
        let before = self.speakers.len();
        self.speakers
            .retain(|_, speaker| !self.silenced.contains(speaker));
        self.to_keep = self.speakers.len() < before;
    }

    /// Adds what was seen.
    pub(super) fn learn(&mut self, seen: &Snapshot) {
        self.to_keep |= remember(&mut self.ids, &seen.topology);
        for (host, speaker) in speakers(&seen.topology.hosts) {
            self.to_keep |= self.speakers.get(&host) != Some(&speaker);
            self.silenced.remove(&speaker);
            self.speakers.insert(host, speaker);
        }
    }

    /// An endpoint that was removed speaks for nobody.
    pub(super) fn forget(&mut self, endpoint: &ControlEndpointId) {
        let before = self.speakers.len();
        self.speakers.retain(|_, speaker| speaker != endpoint);
        if self.speakers.len() < before {
            self.silenced.insert(endpoint.clone());
            self.to_keep = true;
        }
    }

    /// What everything was called so far, for the next join. A host by whose provisional name something is written
    /// down keeps it, also where the fabric does not show yet what is bound to it.
    pub(super) fn to_join_by(&self, pages: &Pages) -> Cow<'_, Topology> {
        let provisional: BTreeSet<&HostId> = self
            .ids
            .hosts
            .iter()
            .filter(|host| is_provisional(host))
            .map(|host| &host.id)
            .collect();
        let mut holding = BTreeMap::new();
        if !provisional.is_empty() {
            for composition in pages
                .compositions
                .iter()
                .filter(|c| provisional.contains(&c.host))
            {
                let gpus = composition.held.iter().flat_map(|held| &held.gpus);
                holding.extend(gpus.map(|gpu| (gpu.as_str(), &composition.host)));
            }
            let hosts = self
                .ids
                .hosts
                .iter()
                .filter(|host| provisional.contains(&host.id));
            let host_of: BTreeMap<_, _> = hosts
                .flat_map(|host| host.ports.iter().map(move |port| (&port.id, &host.id)))
                .collect();
            for claim in pages.claims.values() {
                let host = claim.host_port.as_ref().and_then(|port| host_of.get(port));
                holding.extend(host.map(|host| (claim.unit.as_str(), *host)));
            }
        }
        if holding.is_empty() {
            return Cow::Borrowed(&self.ids);
        }
        let mut ids = self.ids.clone();
        for gpu in &mut ids.gpus {
            let host = holding
                .get(gpu.id.as_str())
                .or_else(|| holding.get(gpu.unit.as_str()));
            if let Some(host) = host {
                gpu.host = Some((*host).clone());
            }
        }
        Cow::Owned(ids)
    }
}

/// Who is seen to speak for each host.
fn speakers(hosts: &[Host]) -> impl Iterator<Item = (HostId, ControlEndpointId)> {
    let speaks = |host: &Host| Some((host.id.clone(), host.bmc.clone()?));
    hosts.iter().filter_map(speaks)
}

impl Composer {
    /// Takes over what everything was called, and who spoke for whom, before the restart.
    /// All GPUs that were ever seen.
    pub(in crate::composer) fn known_gpus(&self) -> Vec<Gpu> {
        self.lock_seen().names.ids.gpus.clone()
    }

    pub(in crate::composer) async fn recall_ids(&self) -> Result<(), ServiceError> {
        let ids = read::<Ids>(self.store.as_ref(), Ids(Topology::default()).id()).await?;
        match ids {
            Some(ids) => self.take_over_ids(ids).await,
            None => Ok(()),
        }
    }

    async fn take_over_ids(&self, ids: Versioned<Ids>) -> Result<(), ServiceError> {
        // After the names: they are never older than those.
        let none = Speakers(BTreeMap::new());
        let speakers = read::<Speakers>(self.store.as_ref(), none.id()).await?;
        let speakers = speakers.map_or(none, |found| found.value).0;
        let mut seen = self.lock_seen();
        // A commit of ours may have overtaken the read.
        if seen.names.revision < Some(ids.revision) {
            if seen.names.to_keep {
                // What was called by a name that does not stand has not vanished.
                seen.before = seen.settled.clone();
            }
            seen.names.recall(ids, speakers);
            seen.all_changed();
        }
        Ok(())
    }

    /// Takes over what other managers have named since.
    async fn recall_ids_of_others(&self) -> Result<(), ServiceError> {
        if self.leases.is_none() || self.store.silence().is_some() {
            return Ok(());
        }
        let now = self.store.revision().await?;
        let (asked, known) = {
            let seen = self.lock_seen();
            (seen.names.asked, seen.names.revision.unwrap_or(0))
        };
        if now <= asked {
            return Ok(());
        }
        let since = Order::EarliestFirst { after: known };
        let news = written::<Ids>(self.store.as_ref(), since, 1).await?;
        for ids in news {
            self.take_over_ids(ids).await?;
        }
        let mut seen = self.lock_seen();
        seen.names.asked = seen.names.asked.max(now);
        Ok(())
    }

    /// Everything that was seen in one. Where that can't be written down just now it is shown all the same; nothing is
    /// begun on it before it is, see [`Composer::keep_what_was_seen`].
    pub(in crate::composer) async fn joined(&self) -> Arc<Joined> {
        let mut tries = 0;
        loop {
            if let Err(error) = self.recall_ids_of_others().await {
                tracing::warn!("what other managers call things can't be read: {error}");
            }
            let joined = self.join_what_was_seen().await;
            // As a rule nothing was seen since it was written down: then no sight is looked at.
            if self.is_written_down(&joined) {
                return joined;
            }
            tries += 1;
            match self.write_down_what_was_seen().await {
                Err(error) if is_named_otherwise(&error) && tries < TRIES => {
                    if let Err(error) = self.recall_ids().await {
                        tracing::warn!("what things are called can't be read: {error}");
                    }
                    continue;
                }
                // Another manager has told it.
                Err(error) if is_told_already(&error) && tries < TRIES => continue,
                Err(error) => tracing::warn!("what was seen can't be written down: {error}"),
                Ok(()) => self.lock_seen().settled = Some(joined.clone()),
            }
            return joined;
        }
    }

    fn is_written_down(&self, joined: &Arc<Joined>) -> bool {
        let seen = self.lock_seen();
        let settled = seen.settled.as_ref();
        let is_settled = settled.is_some_and(|settled| Arc::ptr_eq(settled, joined));
        is_settled && !seen.names.to_keep && !seen.baselines.has_news()
    }

    async fn join_what_was_seen(&self) -> Arc<Joined> {
        if let Some(joined) = &self.lock_seen().joined {
            return joined.clone();
        }
        // By what hosts are called in what is written down. Where that can't be read, nothing is begun either.
        if self.leases.is_some()
            && let Err(error) = self.books.refresh(self.store.as_ref()).await
        {
            tracing::warn!("what is written down can't be read: {error}");
        }
        let mut seen = self.lock_seen();
        match &seen.joined {
            Some(joined) => joined.clone(),
            None => self.join(&mut seen),
        }
    }

    /// Writes down what was seen: what is new in it has an id that stays, before anybody uses it.
    pub(in crate::composer) async fn keep_what_was_seen(&self) -> Result<(), ServiceError> {
        match self.write_down_what_was_seen().await {
            Err(error) if is_named_otherwise(&error) => {
                self.recall_ids().await?;
                Err(named_otherwise())
            }
            result => result.map_err(ServiceError::from),
        }
    }

    async fn write_down_what_was_seen(&self) -> Result<(), StoreError> {
        let _alone = self.keeping.lock().await;
        let (names, joined, shown, walks) = {
            let seen = self.lock_seen();
            let walks: Vec<_> = seen.sights.values().filter_map(Sight::to_keep).collect();
            // What is not joined has no names to be told by yet.
            let joined = seen.joined.clone();
            let shown = joined.as_ref().map(|_| seen.baselines.to_keep());
            (seen.names.to_keep(), joined, shown.unwrap_or_default(), walks)
        };
        let mut batch = Batch::new();
        if let Some((ids, speakers, revision)) = &names {
            batch.expect(Ids::KIND, ids.id(), *revision);
            batch.put(ids)?.put(speakers)?;
        }
        for shown in &shown {
            if let Some(joined) = &joined {
                self.tell_comings(shown, joined, &mut batch).await?;
            }
            batch.put(shown)?;
        }
        for (walk, _) in &walks {
            batch.put(walk)?;
        }
        if names.is_none() && shown.is_empty() && walks.is_empty() {
            return Ok(());
        }
        let Committed { revision, .. } = self.store.commit(batch).await?;
        let mut seen = self.lock_seen();
        if let Some((ids, speakers, _)) = &names {
            seen.names.kept(ids, speakers, revision);
        }
        shown.iter().for_each(|shown| seen.baselines.kept(shown));
        for (walk, nth) in walks {
            if let Some(sight) = seen.sights.get_mut(&walk.endpoint) {
                sight.kept(nth);
            }
        }
        Ok(())
    }

    /// Tells which GPUs an endpoint shows that it did not show before, and the other way round. Of what was shown there
    /// first, that the endpoint was added tells enough.
    async fn tell_comings(
        &self,
        shown: &Shown,
        joined: &Joined,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let endpoint = shown.endpoint.as_str();
        let Some(before) = read::<Shown>(self.store.as_ref(), endpoint).await? else {
            return Ok(());
        };
        let there = joined.snapshot.topology.gpus.iter();
        let mut known: BTreeMap<&str, &Gpu> = BTreeMap::new();
        for gpu in there.chain(joined.vanished.gpus()) {
            for name in names_at(gpu, &shown.endpoint) {
                known.entry(name).or_insert(gpu);
            }
        }
        let thing = |name: &String| {
            let gpu = known.get(name.as_str())?;
            Some(Thing::Gpu {
                id: gpu.id.clone(),
                chassis: gpu.chassis.clone(),
            })
        };
        let gone = before.value.gpus.difference(&shown.gpus);
        let gone = gone.filter_map(thing).map(|gpu| (gpu, Turn::Removed));
        let new = shown.gpus.difference(&before.value.gpus);
        let new = new.filter_map(thing).map(|gpu| (gpu, Turn::Added));
        let told: Vec<(Thing, Turn)> = gone.chain(new).collect();
        if !told.is_empty() {
            // Of several managers that see it, one tells it.
            batch.expect(Shown::KIND, endpoint, Some(before.revision));
        }
        let now = self.clock.now();
        told.into_iter()
            .try_for_each(|(thing, became)| tell(batch, now, thing, became))
    }

    /// Everything that the plan composes at is called so still, and is when `with` is committed.
    pub(in crate::composer) async fn is_named_so(
        &self,
        plan: &Plan,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        if self.leases.is_none() || plan.composes.is_empty() {
            return Ok(());
        }
        self.recall_ids_of_others().await?;
        let seen = self.lock_seen();
        let hosts: BTreeMap<&HostId, &Host> =
            seen.names.ids.hosts.iter().map(|host| (&host.id, host)).collect();
        for composition in &plan.composes {
            match hosts.get(&composition.host) {
                None => return Err(named_otherwise()),
                // Only such a one may get another name any moment.
                Some(host) if is_provisional(host) => {
                    let pool = Ids(Topology::default());
                    with.expect(Ids::KIND, pool.id(), seen.names.revision);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

fn named_otherwise() -> ServiceError {
    let message =
        "another manager has just named what was seen, and some of it is called otherwise; nothing was begun";
    ServiceError::new(ErrorCode::Stale, message).with_hint("ask again")
}
