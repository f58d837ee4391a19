//! Looking at the hardware, and what is known from the last look.
//!
//! What each endpoint showed last is kept, and joined into one snapshot when somebody asks. What operations
//! wrote down since is laid over it, so that the answer is right at any moment, and not only after the next
//! look.

pub(super) mod naming;

use super::Composer;
use super::silence::log_turn;
use crate::books::Pages;
use crate::connections::NotReached;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, ServiceError};
use crate::missing::Vanished;
use crate::shown::{Closed, Facts, Joined, Shown as PoolShown};
use crate::sight::{Began, Reachability, Sight};
use crate::vanishing::{Baselines, Shown};
use crate::view::LookedAt;
use crate::walk::Walk;
use futures_util::StreamExt;
use jiff::Timestamp;
use poolwright_collector::{Look, assemble, look};
use poolwright_driver::{Bindings, DriverError, Fabric, Progress};
use poolwright_inventory::Snapshot;
use poolwright_model::control::ControlPoint;
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::topology::Topology;
use poolwright_store::read_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The pool as it was last found to be. Looks come by the second, and what they find is the same as a rule: of a look that
/// finds nothing new, nothing but its time is told anew.
#[derive(Debug, Clone)]
pub struct LastLook {
    pub snapshot: Arc<Snapshot>,
    /// When the last look began that found it so.
    pub taken_at: Timestamp,
}

/// What was seen last, by endpoint, and what was made of it.
#[derive(Default)]
pub(super) struct Seen {
    sights: BTreeMap<ControlEndpointId, Sight>,
    /// What endpoints showed when they were believed.
    baselines: Baselines,
    /// Looks that have begun so far.
    looks: u64,
    /// How long the last look at everything took.
    elapsed_ms: u64,
    /// Nothing is joined sooner just to be told.
    tell_after: Option<Instant>,
    names: Names,
    /// All sights in one; `None` where one of them has changed.
    joined: Option<Arc<Joined>>,
    /// All sights in one as they were before.
    before: Option<Arc<Joined>>,
    /// The last of those whose names the store has.
    settled: Option<Arc<Joined>>,
    /// How far the store was when each was read; not yet so for those in `read`.
    looked_at: LookedAt,
    /// Endpoints that were read, or are gone, since the last answer.
    read: BTreeSet<ControlEndpointId>,
    /// When a walk last showed that all was as it is joined.
    still_so: Option<Timestamp>,
    /// The last answer.
    shown: Option<PoolShown>,
    /// `None` where it must be looked for again.
    amiss: Option<Arc<Amiss>>,
}

/// What is amiss with endpoints, as they were seen last.
pub(super) struct Amiss {
    /// Endpoints that carry a mark, whosever it is.
    pub marks: Vec<(ControlEndpointId, String)>,
    /// Those that are not believed, and why.
    pub disbelieved: BTreeMap<ControlEndpointId, String>,
    /// Those of which nothing may be had because of that.
    pub closed: OnceCell<Arc<Closed>>,
}

/// What everything that was ever seen is called; see [`naming`].
#[derive(Default)]
struct Names {
    ids: Topology,
    /// Who was ever seen to speak for each host. One that is silent just now still does.
    speakers: BTreeMap<HostId, ControlEndpointId>,
    /// The store's, when it was read or written last; `None`: it has none.
    revision: Option<u64>,
    /// So far the store was asked for what others have named.
    asked: u64,
    /// There is something new, which the store doesn't have yet.
    to_keep: bool,
    /// Endpoints that speak for nobody any more, of which the store does not know yet.
    silenced: BTreeSet<ControlEndpointId>,
}

impl Seen {
    /// An endpoint was seen, or is gone. `anew`: it is otherwise than before, and not only seen again.
    fn changed(&mut self, endpoint: &ControlEndpointId, anew: bool) {
        self.read.insert(endpoint.clone());
        if anew {
            self.all_changed();
        }
    }

    /// What was seen is to be joined anew.
    fn all_changed(&mut self) {
        self.amiss = None;
        self.joined = None;
    }

    /// Takes in a walk that was answered, failed or is not believed.
    fn take_walk(&mut self, look: Look, began: Began) {
        let (source, answered) = (look.view.source.clone(), look.answered);
        let before = self.sights.get(&source).map(Sight::reachability);
        // A look that failed shows nothing; that is no sign that it is gone.
        let doubt = match look.answered {
            true => self.baselines.take_in(&look).err(),
            false => None,
        };
        let anew = match (self.sights.get_mut(&source), doubt) {
            (Some(sight), None) => sight.walk(look, began),
            (Some(sight), Some(fault)) => {
                sight.doubt(look, fault, began);
                true
            }
            (None, doubt) => {
                let sight = Sight::first(look, doubt, began);
                self.sights.insert(source.clone(), sight);
                true
            }
        };
        if let Some(sight) = self.sights.get(&source) {
            log_turn(before.unwrap_or(Reachability::Reachable), sight);
        }
        let contested = self
            .joined
            .as_ref()
            .is_some_and(|joined| joined.snapshot.contested);
        if !anew && !contested && answered {
            self.still_so = self.still_so.max(Some(began.at));
        }
        self.changed(&source, anew || contested);
    }

    /// The pool by all that was seen, and by what is written down.
    fn show(&mut self, joined: &Arc<Joined>, closed: Arc<Closed>, pages: &Pages) -> Arc<Snapshot> {
        let mut read = std::mem::take(&mut self.read);
        read.retain(|id| self.looked_at.read(id, self.sights.get(id).map(Sight::looked_at)));
        let facts = Facts {
            joined,
            pages,
            closed,
            looked_at: &self.looked_at,
            ids: &self.names.ids,
        };
        let shown = match self.shown.take() {
            Some(shown) => shown.renewed(facts, &read),
            None => PoolShown::new(facts),
        };
        self.shown.insert(shown).snapshot()
    }
}

impl Composer {
    /// Looks at every endpoint.
    #[crate::boxed]
    pub async fn discover(&self, progress: &dyn Progress) -> Result<Arc<Snapshot>, ServiceError> {
        let started = tokio::time::Instant::now();
        let now = self.clock.now();
        let kept = self.kept_endpoints().await?;
        let unreached = self.connect(kept.clone(), now).await?;
        self.recall_baselines(&kept).await?;
        let began = self.begin_look().await?;
        let looks = look(&self.connections.fabrics(), now, self.options.collect, progress).await;
        self.drop_refused(&looks).await;
        self.take_in(began, [looks, unreached].concat());
        self.heed_marks().await?;
        let kept: BTreeSet<_> = self.kept_endpoints().await?.into_iter().collect();
        {
            let mut seen = self.lock_seen();
            // One that was removed while it was looked at.
            let connected = |id: &ControlEndpointId| self.connections.get(id).is_some();
            let gone = seen
                .sights
                .keys()
                .filter(|id| !kept.contains(*id) && !connected(id));
            for id in gone.cloned().collect::<Vec<_>>() {
                seen.sights.remove(&id);
                seen.changed(&id, true);
            }
            seen.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            seen.all_changed();
        }
        self.snapshot().await
    }

    /// How many endpoints nobody has looked at since the start, and of how many.
    pub(crate) fn not_looked_at(&self) -> (usize, usize) {
        let seen = self.lock_seen();
        let recalled = seen.sights.values().filter(|sight| sight.is_recalled());
        (recalled.count(), seen.sights.len())
    }

    /// Connects to endpoints that are not connected. Returns a failed look for each that can't be reached now; it is tried
    /// again at the next.
    async fn connect(&self, kept: Vec<ControlEndpointId>, now: Timestamp) -> Result<Vec<Look>, ServiceError> {
        let connect = futures_util::stream::iter(kept).map(|id| async move {
            let reached = self.connections.reach(&id).await;
            (id, reached.err())
        });
        let mut connect = connect.buffer_unordered(self.options.collect.endpoints_at_once.max(1));
        let mut failed = Vec::new();
        while let Some((id, error)) = connect.next().await {
            match error {
                Some(NotReached::Endpoint(error)) => failed.push(Look::failed(id, &error, now)),
                Some(NotReached::Store(error)) => return Err(error.into()),
                None => {}
            }
        }
        Ok(failed)
    }

    /// Looks at some endpoints again: at all that they have where that is quick, else at who is bound where. The
    /// others are as they were seen last.
    pub(super) async fn look_again(
        &self,
        endpoints: &BTreeSet<ControlEndpointId>,
    ) -> Result<(), ServiceError> {
        /// A walk that takes longer is not waited for.
        const QUICK: Duration = Duration::from_secs(10);
        let is_slow =
            |id: &&ControlEndpointId| self.with_sight(id, |s| s.last_walk().took > QUICK) == Some(true);
        let (slow, quick): (Vec<_>, Vec<_>) = endpoints.iter().partition(is_slow);
        self.recall_baselines(endpoints).await?;
        let began = self.begin_look().await?;
        let quick: Vec<ControlEndpointId> = quick.into_iter().cloned().collect();
        let unreached = self.connect(quick.clone(), began.at).await?;
        let reached = quick.iter().filter_map(|id| self.connections.get(id));
        let fabrics: Vec<Arc<dyn Fabric>> = reached.map(|connected| connected.fabric).collect();
        let mut looks = look(&fabrics, began.at, self.options.collect, &()).await;
        looks.extend(unreached);
        // One that was removed while it was looked at.
        let kept = self.kept_endpoints().await?;
        looks.retain(|look| kept.contains(&look.view.source));
        self.take_in(began, looks);
        self.read_owners_of(slow).await?;
        self.heed_marks().await
    }

    pub(super) async fn kept_endpoints(&self) -> Result<Vec<ControlEndpointId>, ServiceError> {
        let kept = read_all::<Endpoint>(self.store.as_ref()).await?.into_iter();
        Ok(kept.map(|kept| kept.value.spec.id).collect())
    }

    /// The same, with when it was last found so: for who reads its age. What rests on it goes by the look that found
    /// something new.
    #[crate::boxed]
    pub async fn last_look(&self) -> Result<LastLook, ServiceError> {
        let snapshot = self.snapshot().await?;
        let taken_at = self.lock_seen().still_so.max(Some(snapshot.taken_at));
        Ok(LastLook {
            taken_at: taken_at.unwrap_or(snapshot.taken_at),
            snapshot,
        })
    }

    /// The pool as last seen, with what we know of it.
    #[crate::boxed]
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, ServiceError> {
        /// Looks come in seconds, and this takes milliseconds.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let joined = self.joined().await;
            let closed = self.closed().await?;
            self.books.refresh(self.store.as_ref()).await?;
            let mut seen = self.lock_seen();
            // What was read in between is in it, or the books would be newer than what they are laid over.
            if seen
                .joined
                .as_ref()
                .is_some_and(|last| Arc::ptr_eq(last, &joined))
            {
                return Ok(seen.show(&joined, closed, &self.books.pages()));
            }
        }
        let message = format!("the pool was seen anew {TRIES} times while it was to be shown");
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint("try again"))
    }

    /// Takes over what endpoints showed before the restart. Returns those of which nothing is known.
    pub(super) async fn recall_walks(&self) -> Result<BTreeSet<ControlEndpointId>, ServiceError> {
        let mut unknown: BTreeSet<_> = self.kept_endpoints().await?.into_iter().collect();
        let walks = read_all::<Walk>(self.store.as_ref()).await?;
        let mut seen = self.lock_seen();
        for walk in walks {
            if unknown.remove(&walk.value.endpoint) {
                let sight = Sight::recalled(walk.value);
                seen.changed(sight.endpoint(), true);
                seen.sights.insert(sight.endpoint().clone(), sight);
            }
        }
        Ok(unknown)
    }

    /// To be called before a look, whose answers then go to [`Composer::take_in`].
    pub(super) async fn begin_look(&self) -> Result<Began, ServiceError> {
        let revision = self.store.revision().await?;
        let (at, instant) = (self.clock.now(), Instant::now());
        let mut seen = self.lock_seen();
        seen.looks += 1;
        Ok(Began {
            nth: seen.looks,
            revision,
            at,
            instant,
        })
    }

    pub(super) fn take_in(&self, began: Began, looks: Vec<Look>) {
        let mut seen = self.lock_seen();
        looks.into_iter().for_each(|look| seen.take_walk(look, began));
    }

    /// Takes in who is bound where at an endpoint. Says whether that is otherwise than it was known to be.
    pub(super) fn take_in_owners(
        &self,
        endpoint: &ControlEndpointId,
        units: &[ControlPoint],
        read: Bindings,
        began: Began,
    ) -> bool {
        let mut seen = self.lock_seen();
        let Seen {
            sights, baselines, ..
        } = &mut *seen;
        let Some(sight) = sights.get_mut(endpoint) else {
            return false;
        };
        // Many that are gone at once are for a walk to judge; until then they are as they were.
        let (gone, of) = sight.gone(units, &read);
        let doubted = baselines.are_too_many(gone, of);
        let read = match doubted {
            true => without_the_gone(read),
            false => read,
        };
        let before = sight.reachability();
        let news = sight.read(units, read, began, began.instant.elapsed()) | doubted;
        log_turn(before, sight);
        seen.changed(endpoint, news);
        news
    }

    /// What an endpoint showed, if it was ever looked at.
    pub(super) fn with_sight<T>(&self, id: &ControlEndpointId, ask: impl FnOnce(&Sight) -> T) -> Option<T> {
        self.lock_seen().sights.get(id).map(ask)
    }

    /// Who answered at an endpoint when it was looked at last.
    pub(super) fn seen_at(&self, endpoint: &ControlEndpointId) -> Option<DriverLabel> {
        self.with_sight(endpoint, |sight| sight.last_walk().label.clone())?
    }

    /// Joins what was seen, so that what is new is told. That costs the more, the larger the pool is; so it takes a set
    /// share of the time, and what comes meanwhile is told with the rest.
    pub(super) async fn tell_news(&self) {
        /// One part in so many.
        const SHARE: u32 = 4;
        let began = Instant::now();
        let is_due = {
            let seen = self.lock_seen();
            seen.baselines.has_news() && seen.tell_after.is_none_or(|after| after <= began)
        };
        if is_due {
            self.joined().await;
            self.lock_seen().tell_after = Some(began + began.elapsed().saturating_mul(SHARE));
        }
    }

    /// What was seen of the endpoints of which that is so, in the order of their names.
    pub(super) fn last_looks<T>(&self, tell: impl Fn(&Sight) -> Option<T>) -> Vec<T> {
        self.lock_seen().sights.values().filter_map(tell).collect()
    }

    pub(super) fn with_baselines(&self, what: impl FnOnce(&mut Baselines)) {
        what(&mut self.lock_seen().baselines);
    }

    /// What an endpoint shows that is not believed.
    pub(super) fn disbelieved_at(&self, endpoint: &ControlEndpointId) -> Option<Shown> {
        let shown = self.with_sight(endpoint, |sight| sight.doubted().map(|(look, _)| Shown::of(look)));
        shown.flatten()
    }

    /// What is amiss with endpoints just now.
    pub(super) fn amiss(&self) -> Arc<Amiss> {
        let mut seen = self.lock_seen();
        let Seen { sights, amiss, .. } = &mut *seen;
        let mark = |(id, sight): (&ControlEndpointId, &Sight)| Some((id.clone(), sight.mark()?.to_owned()));
        let doubted = |(id, sight): (&ControlEndpointId, &Sight)| {
            let (_, fault) = sight.doubted()?;
            Some((id.clone(), fault.message.clone()))
        };
        let look = || {
            Arc::new(Amiss {
                marks: sights.iter().filter_map(mark).collect(),
                disbelieved: sights.iter().filter_map(doubted).collect(),
                closed: OnceCell::new(),
            })
        };
        amiss.get_or_insert_with(look).clone()
    }

    /// What an endpoint showed before, and does not any more.
    pub(super) fn gone_since(&self, now: &Shown) -> BTreeSet<String> {
        self.lock_seen().baselines.gone(now)
    }

    /// Believes what an endpoint shows.
    pub(super) fn believe(&self, now: Shown) {
        let mut seen = self.lock_seen();
        if let Some(sight) = seen.sights.get_mut(&now.endpoint) {
            let before = sight.reachability();
            sight.believe();
            log_turn(before, sight);
        }
        seen.changed(&now.endpoint, true);
        seen.baselines.believe(now);
    }

    /// Forgets what an endpoint showed.
    pub(super) fn forget(&self, endpoint: &ControlEndpointId) {
        self.forget_looks_at(endpoint);
        self.lock_lost().remove(endpoint);
        let mut seen = self.lock_seen();
        seen.sights.remove(endpoint);
        seen.baselines.forget(endpoint);
        seen.names.forget(endpoint);
        seen.changed(endpoint, true);
    }

    fn join(&self, seen: &mut Seen) -> Arc<Joined> {
        let looks: Vec<Look> = seen.sights.values().map(Sight::look).collect();
        let began = seen.sights.values().filter_map(Sight::read_last);
        let taken_at = began.map(|began| began.at).max();
        let taken_at = taken_at.unwrap_or_else(|| self.clock.now());
        let called = seen.names.to_join_by(&self.books.pages());
        let mut snapshot = assemble(looks, Some(&called), taken_at);
        drop(called);
        snapshot.elapsed_ms = seen.elapsed_ms;
        seen.names.learn(&snapshot);
        self.connections.set_speakers(seen.names.speakers.clone());
        let mut vanished = Vanished::default();
        if let Some(before) = &seen.before {
            vanished.clone_from(&before.vanished);
            let last = seen.still_so.max(Some(before.snapshot.taken_at));
            vanished.compare(
                &before.snapshot,
                last.unwrap_or(before.snapshot.taken_at),
                &snapshot,
                &seen.sights.keys().cloned().collect(),
            );
        }
        let answered = seen.sights.iter().filter(|(_, sight)| sight.answers());
        let answered = answered.map(|(id, _)| id.clone()).collect();
        let joined = Arc::new(Joined::new(snapshot, vanished, answered));
        seen.still_so = None;
        seen.before = Some(joined.clone());
        seen.joined = Some(joined.clone());
        self.connections.set_observed(joined.clone());
        joined
    }

    fn lock_seen(&self) -> MutexGuard<'_, Seen> {
        // Each use leaves it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was read, but for the units that are not there.
fn without_the_gone(mut read: Bindings) -> Bindings {
    for bound in read.units.iter_mut().filter(|bound| matches!(bound, Ok(None))) {
        *bound = Err(DriverError::cannot_tell("too many are gone at once"));
    }
    read
}
