//! Keeps this manager alive in the store, and its leases; see the module above.

use super::clock::{BootClock, SystemBootClock};
use super::record::{CALENDAR, Holder, Lease, ManagerRecord, Wish};
use jiff::Timestamp;
use poolwright_executor::{Charge, Tenure};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Expectation, Store, StoreError, Stored, Versioned, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

mod copies;
mod ending;
mod wishes;

/// For so long a manager may be silent. With a margin and a beat, whoever is dead is replaced within 20 s.
const TERM: Duration = Duration::from_secs(12);

/// How a manager shares its store with others.
#[derive(Clone)]
pub struct Sharing {
    /// The id of this instance: random, and new at every start of a manager.
    pub id: String,
    /// The data directory's own id. A copy of the directory has it, too, so it does not prove that an instance is
    /// dead: only [`Sharing::earlier`] does.
    pub home: String,
    /// Earlier instances that held the lock of this very directory, and of no copy, since the machine was started. They
    /// are dead, and nothing that they sent from this machine goes on.
    pub earlier: BTreeSet<String>,
    /// For people.
    pub name: String,
    /// For so long after a beat a manager is in charge. A third of it passes from beat to beat.
    pub term: Duration,
    /// The longest that a request of this manager can be on its way to an endpoint.
    pub write_deadline: Duration,
    pub clock: Arc<dyn BootClock>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Sharing {
    /// As the managers of a cluster have it, with an id for this start. `write_deadline` is the longest that a
    /// request of this manager can be on its way.
    pub fn new(home: String, name: String, write_deadline: Duration) -> Self {
        Self {
            id: format!("manager-{}", uuid::Uuid::now_v7().simple()),
            home,
            earlier: BTreeSet::new(),
            name,
            term: TERM,
            write_deadline,
            clock: Arc::new(SystemBootClock),
        }
    }

    /// Between two beats.
    pub fn pause(&self) -> Duration {
        self.term / 3
    }
}

/// The leases of this manager.
pub struct Leases {
    store: Arc<dyn Store>,
    sharing: Sharing,
    state: Mutex<State>,
    /// One at a time: a round, or the end.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The revision of this manager's own document; `None` before the first beat and after a burial.
    beat: Option<(u64, ManagerRecord)>,
    /// Until then this manager may believe in its leases.
    until: Duration,
    /// What it is in charge of, and the revision of each lease.
    mine: BTreeMap<String, Mine>,
    /// The other managers' beats: the revision, and when it was first seen.
    beats: BTreeMap<String, (u64, Duration)>,
    /// Who has the leases of others, for people.
    holders: BTreeMap<String, String>,
    /// What operations here wait for.
    wanted: Vec<BTreeSet<ControlEndpointId>>,
    /// What others wait for, and since when this manager knows.
    wished: BTreeMap<String, Duration>,
    /// The endpoints that are kept, as of the last round.
    kept: BTreeSet<ControlEndpointId>,
    /// How often this manager was buried: each life has a name of its own.
    lives: u32,
    /// It was given back, and is over for good.
    over: bool,
}

#[derive(Debug, Clone)]
struct Mine {
    revision: u64,
    epoch: u64,
    /// `None`: nothing of a manager before can be on its way.
    from: Option<Instant>,
    /// Sessions of the manager before are to be ended first.
    cutting: Option<Cutting>,
}

/// It stays until the sessions are ended, whatever else fails meanwhile.
#[derive(Debug, Clone)]
struct Cutting {
    taken: Takeover,
    /// Somebody is at it.
    told: bool,
}

/// An endpoint that this manager took over from one that died. Its sessions there are to be ended, and that told
/// ([`Leases::cut_off`]); or it is not kept any more ([`Leases::abandon`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    pub endpoint: ControlEndpointId,
    pub from: String,
    pub epoch: u64,
    /// What the manager before sent is over so long after its sessions have ended.
    pub write_deadline: Duration,
}

/// What came of a look at managers and leases.
#[derive(Debug, Default)]
pub struct Round {
    /// Endpoints that go to others now.
    pub handed_over: Vec<ControlEndpointId>,
}

/// Tells at which endpoints operations run here.
pub type Busy<'b> = dyn Fn() -> BTreeSet<ControlEndpointId> + Send + Sync + 'b;

/// What is found in the store.
struct Found {
    /// The store's revision, read before the leases.
    revision: u64,
    managers: BTreeMap<String, Versioned<ManagerRecord>>,
    leases: BTreeMap<String, Versioned<Lease>>,
    wishes: BTreeMap<String, Versioned<Wish>>,
}

fn lease_of(endpoint: &ControlEndpointId) -> String {
    format!("endpoint/{endpoint}")
}

fn endpoint_of(lease: &str) -> Option<ControlEndpointId> {
    ControlEndpointId::new(lease.strip_prefix("endpoint/")?).ok()
}

impl Charge for Leases {
    fn tenure(&self, endpoint: &ControlEndpointId) -> Option<Tenure> {
        self.tenure_of(&lease_of(endpoint))
    }

    fn want(&self, endpoints: &BTreeSet<ControlEndpointId>) {
        let mut state = self.state();
        if !state.wanted.contains(endpoints) {
            state.wanted.push(endpoints.clone());
        }
    }

    fn is_wanted_elsewhere(&self, endpoint: &ControlEndpointId) -> bool {
        self.state().wished.contains_key(&lease_of(endpoint))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn holder(&self, endpoint: &ControlEndpointId) -> String {
        let state = self.state();
        let holder = state.holders.get(&lease_of(endpoint));
        holder.map_or_else(|| "nobody".to_owned(), |name| format!("manager {name}"))
    }

    fn keeps(&self, endpoint: &ControlEndpointId) -> bool {
        self.state().kept.contains(endpoint)
    }
}

impl Leases {
    pub fn new(store: Arc<dyn Store>, sharing: Sharing) -> Self {
        Self {
            store,
            sharing,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Whether this manager recomposes by the calendar.
    pub fn has_calendar(&self) -> bool {
        self.tenure_of(CALENDAR).is_some()
    }

    /// Whether this manager is in charge of an endpoint.
    pub fn has(&self, endpoint: &ControlEndpointId) -> bool {
        self.tenure_of(&lease_of(endpoint)).is_some()
    }

    fn tenure_of(&self, lease: &str) -> Option<Tenure> {
        let state = self.state();
        let mine = state.mine.get(lease)?;
        (self.sharing.clock.now() < state.until).then(|| Tenure {
            proof: Some(Expectation {
                kind: Lease::KIND.to_owned(),
                id: lease.to_owned(),
                revision: Some(mine.revision),
            }),
            epoch: Some(mine.epoch),
            from: mine.from,
        })
    }

    /// Beats, looks at the others, takes what is anybody's, and hands over what others wait for. `busy` tells at which
    /// endpoints operations run here; it is asked when nothing can begin there any more.
    #[crate::boxed]
    pub async fn round(
        &self,
        kept: &BTreeSet<ControlEndpointId>,
        busy: &Busy<'_>,
        now: Timestamp,
    ) -> Result<Round, StoreError> {
        let _turn = self.turn.lock().await;
        if self.state().over {
            return Ok(Round::default());
        }
        self.state().kept.clone_from(kept);
        self.beat(now).await?;
        let mut found = self.find().await?;
        let mut round = Round::default();
        self.look_at_others(&found);
        self.bury_the_dead(&mut found).await?;
        let names = kept.iter().map(lease_of).chain([CALENDAR.to_owned()]);
        let free: Vec<Lease> = names.filter_map(|id| self.if_free(&id, &found, now)).collect();
        self.take(&free, &found).await?;
        self.note_wishes(&found);
        self.hand_over(&found, busy, now, &mut round).await?;
        self.wish(&found).await?;
        Ok(round)
    }

    /// What was taken over and is to be cut off; each is told once. To be asked after each round, also after one that
    /// failed: a part of it may have been committed.
    pub fn to_cut_off(&self) -> Vec<Takeover> {
        let mut state = self.state();
        let cutting = state.mine.values_mut().filter_map(|mine| mine.cutting.as_mut());
        let told_now = cutting.filter_map(|cutting| {
            let untold = !std::mem::replace(&mut cutting.told, true);
            untold.then(|| cutting.taken.clone())
        });
        told_now.collect()
    }

    async fn beat(&self, now: Timestamp) -> Result<(), StoreError> {
        let (revision, record) = {
            let state = self.state();
            match &state.beat {
                Some((revision, record)) => (
                    Some(*revision),
                    ManagerRecord {
                        beat: record.beat + 1,
                        ..record.clone()
                    },
                ),
                None => (None, self.born(state.lives, now)),
            }
        };
        // Before the commit is sent: nobody can have seen this beat earlier.
        let began = self.sharing.clock.now();
        let mut batch = Batch::new();
        batch
            .expect(ManagerRecord::KIND, record.id(), revision)
            .put(&record)?;
        match self.store.commit(batch).await {
            Ok(committed) => {
                let mut state = self.state();
                state.until = began + self.sharing.term;
                state.beat = Some((committed.revision, record));
                Ok(())
            }
            Err(error @ StoreError::Conflict { .. }) => {
                tracing::error!(
                    manager = record.id(),
                    "this manager was taken for dead, and is in charge of nothing any more"
                );
                let mut state = self.state();
                let lives = state.lives + 1;
                *state = State {
                    lives,
                    wanted: std::mem::take(&mut state.wanted),
                    kept: std::mem::take(&mut state.kept),
                    ..State::default()
                };
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn born(&self, lives: u32, now: Timestamp) -> ManagerRecord {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let id = match lives {
            0 => self.sharing.id.clone(),
            lives => format!("{}.{lives}", self.sharing.id),
        };
        ManagerRecord {
            who: Holder {
                id,
                home: self.sharing.home.clone(),
                write_deadline_ms: millis(self.sharing.write_deadline),
            },
            name: self.sharing.name.clone(),
            started: now,
            beat: 1,
            term_ms: millis(self.sharing.term),
        }
    }

    async fn find(&self) -> Result<Found, StoreError> {
        fn by_id<T: Stored>(all: Vec<Versioned<T>>) -> BTreeMap<String, Versioned<T>> {
            all.into_iter()
                .map(|found| (found.value.id().to_owned(), found))
                .collect()
        }
        let revision = self.store.revision().await?;
        // Managers last: one that a lease names and that is not there is dead, not new.
        let leases = by_id(read_all::<Lease>(&*self.store).await?);
        let wishes = by_id(read_all::<Wish>(&*self.store).await?);
        let managers = by_id(read_all::<ManagerRecord>(&*self.store).await?);
        Ok(Found {
            revision,
            managers,
            leases,
            wishes,
        })
    }

    fn look_at_others(&self, found: &Found) {
        let now = self.sharing.clock.now();
        let mut state = self.state();
        state.beats.retain(|id, _| found.managers.contains_key(id));
        for (id, manager) in &found.managers {
            let seen = state.beats.entry(id.clone()).or_insert((manager.revision, now));
            if seen.0 != manager.revision {
                *seen = (manager.revision, now);
            }
        }
        let name = |holder: &Holder| {
            let known = found.managers.get(&holder.id);
            known.map_or_else(|| holder.id.clone(), |manager| manager.value.name.clone())
        };
        let holders = found.leases.values();
        let holders =
            holders.filter_map(|lease| Some((lease.value.id.clone(), name(lease.value.manager.as_ref()?))));
        state.holders = holders.collect();
        // What was handed to us or taken from us since the last look, or taken by a commit whose answer was lost.
        let me = state.beat.as_ref().map(|(_, me)| me.who.id.clone());
        let ours = |lease: &Lease| lease.manager.as_ref().map(|manager| &manager.id) == me.as_ref();
        let stands = |id: &String, mine: &Mine| {
            let lease = found.leases.get(id);
            lease.is_some_and(|lease| ours(&lease.value) && lease.revision == mine.revision)
        };
        state.mine.retain(|id, mine| stands(id, mine));
        for (id, lease) in &found.leases {
            if ours(&lease.value) && !state.mine.contains_key(id) {
                self.possess(&mut state, &lease.value, lease.revision);
            }
        }
    }

    /// From here on this manager is in charge. Where the one before died, its sessions are to be ended first.
    fn possess(&self, state: &mut State, lease: &Lease, revision: u64) {
        // Of this instance, and of those before it in this directory, nothing is left that could send anything.
        let dead = lease.after.as_ref().filter(|dead| !self.has_ended_here(&dead.id));
        let taken = dead.zip(endpoint_of(&lease.id)).map(|(dead, endpoint)| Takeover {
            endpoint,
            from: dead.id.clone(),
            epoch: lease.epoch,
            write_deadline: Duration::from_millis(dead.write_deadline_ms),
        });
        let mine = Mine {
            revision,
            epoch: lease.epoch,
            from: taken.as_ref().map(|_| far_off()),
            cutting: taken.map(|taken| Cutting { taken, told: false }),
        };
        state.mine.insert(lease.id.clone(), mine);
    }

    /// Whether this id is of this instance (an earlier life of it), or of one before it in this very directory.
    fn has_ended_here(&self, id: &str) -> bool {
        let instance = id.split_once('.').map_or(id, |(instance, _)| instance);
        instance == self.sharing.id || self.sharing.earlier.contains(instance)
    }

    /// The managers that gave no sign of life for a term and a margin, and earlier lives and instances of this one.
    async fn bury_the_dead(&self, found: &mut Found) -> Result<(), StoreError> {
        let now = self.sharing.clock.now();
        let me = self.me().map(|me| me.id);
        let others = found
            .managers
            .values()
            .filter(|manager| Some(&manager.value.who.id) != me.as_ref());
        let dead: Vec<Versioned<ManagerRecord>> = others
            .filter(|manager| {
                let seen = self
                    .state()
                    .beats
                    .get(manager.value.id())
                    .map_or(now, |(_, seen)| *seen);
                self.has_ended_here(manager.value.id())
                    || now.saturating_sub(seen) > longest_silence(&manager.value)
            })
            .cloned()
            .collect();
        for Versioned { revision, value } in dead {
            let id = value.id();
            let mut batch = Batch::new();
            batch
                .expect(ManagerRecord::KIND, id, Some(revision))
                .delete(ManagerRecord::KIND, id);
            match self.store.commit(batch).await {
                Ok(_) => {
                    tracing::warn!(manager = id, name = value.name, "a manager is taken for dead");
                    found.managers.remove(id);
                }
                // It lives after all, or somebody else was faster.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The lease as it would be with us, if nobody who lives has it.
    fn if_free(&self, id: &str, found: &Found, now: Timestamp) -> Option<Lease> {
        let known = found.leases.get(id).map(|lease| &lease.value);
        let holder = known.and_then(|lease| lease.manager.clone());
        if holder
            .as_ref()
            .is_some_and(|holder| found.managers.contains_key(&holder.id))
        {
            return None;
        }
        // An earlier instance in this directory may have died before its wait for a dead manager's writes was over.
        let here = |holder: &Holder| self.has_ended_here(&holder.id);
        let after = match (holder, known.and_then(|lease| lease.after.clone())) {
            (Some(holder), Some(before)) if here(&holder) && !here(&before) => Some(before),
            // Nobody has ended yet what that one left there.
            (None, before) => before,
            (holder, _) => holder,
        };
        Some(Lease {
            id: id.to_owned(),
            // An agent refuses an epoch below the highest that it has seen, also after the lease was restored from a backup or
            // lost to damage. Each change of an epoch is a commit, so none is higher than the revision.
            epoch: known.map_or(0, |lease| lease.epoch).max(found.revision) + 1,
            manager: Some(self.me()?),
            after,
            since: now,
        })
    }

    /// Takes leases: all in one commit, and where somebody else was faster at one of them, one by one.
    async fn take(&self, free: &[Lease], found: &Found) -> Result<(), StoreError> {
        if free.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for lease in free {
            let revision = found.leases.get(&lease.id).map(|known| known.revision);
            batch.expect(Lease::KIND, &lease.id, revision).put(lease)?;
            if let Some(dead) = &lease.after {
                batch.expect(ManagerRecord::KIND, &dead.id, None);
            }
        }
        match self.store.commit(batch).await {
            Ok(committed) => {
                let mut state = self.state();
                for lease in free {
                    if let Some(dead) = &lease.after {
                        tracing::warn!(
                            lease = lease.id,
                            from = dead.id,
                            epoch = lease.epoch,
                            "taken over from a manager that is dead"
                        );
                    }
                    self.possess(&mut state, lease, committed.revision);
                }
                Ok(())
            }
            Err(StoreError::Conflict { .. }) => {
                if let [_, _, ..] = free {
                    for lease in free {
                        Box::pin(self.take(std::slice::from_ref(lease), found)).await?;
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives away what others wait for and nothing here is at work at.
    async fn hand_over(
        &self,
        found: &Found,
        busy: &Busy<'_>,
        now: Timestamp,
        round: &mut Round,
    ) -> Result<(), StoreError> {
        let me = self.me();
        for (id, wish) in &found.wishes {
            let to = found
                .managers
                .get(&wish.value.manager)
                .map(|manager| manager.value.who.clone());
            let to = to.filter(|to| Some(to) != me.as_ref());
            let mine = self.state().mine.get(id).cloned();
            let Some(mine) = mine
                .filter(|mine| mine.cutting.is_none() && mine.from.is_none_or(|from| from <= Instant::now()))
            else {
                continue;
            };
            let mut batch = Batch::new();
            batch
                .expect(Wish::KIND, id, Some(wish.revision))
                .delete(Wish::KIND, id);
            let endpoint = endpoint_of(id).filter(|_| to.is_some());
            if let Some(endpoint) = &endpoint {
                if busy().contains(endpoint) {
                    continue;
                }
                // From here on nothing begins at it. What began since the last look goes on there, and keeps it.
                self.state().mine.remove(id);
                if busy().contains(endpoint) {
                    self.state().mine.insert(id.clone(), mine);
                    continue;
                }
                let lease = Lease {
                    id: id.clone(),
                    epoch: mine.epoch + 1,
                    manager: to,
                    after: None,
                    since: now,
                };
                batch.expect(Lease::KIND, id, Some(mine.revision)).put(&lease)?;
            }
            match self.store.commit(batch).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => round.handed_over.extend(endpoint),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// `None` before the first beat, and after a burial.
    fn me(&self) -> Option<Holder> {
        self.state().beat.as_ref().map(|(_, me)| me.who.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each use leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manager whose beat is unchanged for longer is dead.
fn longest_silence(manager: &ManagerRecord) -> Duration {
    let term = Duration::from_millis(manager.term_ms);
    term + term / 4
}

/// Longer than anybody waits.
fn far_off() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}
