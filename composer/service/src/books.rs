//! What is written down of the pool, in memory as the store has it: so that what a plan costs does not grow with all
//! that was ever written.
//!
//! Learnt from the commits themselves ([`Watcher`]). Invariant: after [`Books::refresh`] they have every commit that was
//! answered before. Where somebody else may have written, or nobody knows what became of a commit, all is read anew.
//! While the store is silent they stay as they are: they know more than what was once read.

use crate::closure::HostClosure;
use crate::endpoint::{Address, Endpoint, Standing};
use crate::error::ServiceError;
use crate::host::RetiredHosts;
use crate::quarantine::Quarantine;
use crate::suspicion::Suspicion;
use crate::uplink::UplinkCapacity;
use poolwright_executor::{Claim, CompositionRecord, GpuRecord, Pause};
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, UnitId};
use poolwright_planner::Composition;
use poolwright_store::{Fate, Store, StoreError, Stored, Versioned, Watcher, Write, read_all};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Changes remembered, for those who keep what they made of the books.
const CHANGES: usize = 4096;
/// Deleted documents remembered: an older commit may be told after the one that deleted its document.
const DELETED: usize = 4096;

/// See the module.
pub(crate) struct Books {
    /// Others write to the store, too.
    shared: bool,
    pages: Mutex<Pages>,
    reading: tokio::sync::Mutex<()>,
}

/// What the books say.
#[derive(Default)]
pub(crate) struct Pages {
    /// What running operations have in hand, by its unit.
    pub claims: BTreeMap<String, Claim>,
    /// What operations wrote down last of each GPU.
    pub records: HashMap<GpuId, Versioned<GpuRecord>>,
    /// All compositions, in the order of their ids.
    pub compositions: Arc<Vec<Composition>>,
    /// Endpoints that were not adopted.
    pub observed: BTreeSet<ControlEndpointId>,
    /// What is kept at which address.
    addresses: HashMap<Address, BTreeSet<ControlEndpointId>>,
    /// By their names.
    pub pauses: BTreeMap<String, Pause>,
    /// GPUs that failed and are out of use.
    pub quarantined: BTreeMap<GpuId, Quarantine>,
    /// GPUs whose links have many errors.
    pub suspects: BTreeMap<GpuId, Suspicion>,
    /// Hosts that somebody closed, also where that is over.
    pub closures: BTreeMap<HostId, HostClosure>,
    /// Hosts that are out of service.
    pub retired: RetiredHosts,
    /// Uplink capacities that an operator set.
    pub uplinks: BTreeMap<String, UplinkCapacity>,
    /// How many compositions hold a unit.
    held: HashMap<UnitId, usize>,
    /// When each document was written or deleted last.
    revisions: HashMap<(Kind, String), u64>,
    deleted: VecDeque<(Kind, String)>,
    /// All was read once.
    were_read: bool,
    /// The last commit that they have.
    known: u64,
    /// Earlier ones that they don't have (yet).
    gaps: BTreeSet<u64>,
    /// Commits of ours whose answer is not there yet.
    in_flight: usize,
    /// What became of a commit of ours is not known.
    in_doubt: bool,
    /// Commits that were told while all is read anew.
    meanwhile: Option<Vec<(Vec<Write>, u64)>>,
    version: u64,
    changes: VecDeque<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Claim,
    Composition,
    Endpoint,
    Gpu,
    HostClosure,
    Pause,
    Quarantine,
    RetiredHosts,
    Suspicion,
    Uplink,
}

/// What was written about.
#[derive(Debug, Clone)]
enum Change {
    Gpu(GpuId),
    Unit(UnitId),
    /// With all that it held before and holds now.
    Composition {
        units: Vec<UnitId>,
        gpus: Vec<GpuId>,
    },
    Endpoint,
}

/// What was written about since somebody looked.
#[derive(Debug, Default)]
pub(crate) struct Since<'p> {
    pub gpus: HashSet<&'p GpuId>,
    pub units: HashSet<&'p UnitId>,
    /// GPUs that compositions gained or lost.
    pub held: Vec<&'p GpuId>,
}

impl Kind {
    fn of(kind: &str) -> Option<Self> {
        match kind {
            Claim::KIND => Some(Self::Claim),
            CompositionRecord::KIND => Some(Self::Composition),
            Endpoint::KIND => Some(Self::Endpoint),
            GpuRecord::KIND => Some(Self::Gpu),
            HostClosure::KIND => Some(Self::HostClosure),
            Pause::KIND => Some(Self::Pause),
            Quarantine::KIND => Some(Self::Quarantine),
            RetiredHosts::KIND => Some(Self::RetiredHosts),
            Suspicion::KIND => Some(Self::Suspicion),
            UplinkCapacity::KIND => Some(Self::Uplink),
            _ => None,
        }
    }
}

impl Books {
    /// `shared`: others write to the store, too.
    pub fn new(shared: bool) -> Self {
        Self {
            shared,
            pages: Mutex::new(Pages {
                // Nothing was read yet.
                in_doubt: true,
                ..Pages::default()
            }),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// What they say, as of the last [`Books::refresh`] or later.
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        // Each use leaves them whole.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that they have every commit that was answered before.
    pub async fn refresh(&self, store: &dyn Store) -> Result<(), ServiceError> {
        let revision = store.revision().await?;
        if self.pages().have(revision, self.shared) || self.can_not_be_better(store) {
            return Ok(());
        }
        let _reading = self.reading.lock().await;
        let revision = store.revision().await?;
        {
            let mut pages = self.pages();
            // Somebody read them while we waited, or nobody can.
            if pages.have(revision, self.shared) || (pages.were_read && store.silence().is_some()) {
                return Ok(());
            }
            pages.in_doubt = false;
            pages.meanwhile = Some(Vec::new());
        }
        let reading = Reading(self);
        let read = Pages::read(store, revision).await;
        std::mem::forget(reading);
        let mut pages = self.pages();
        let meanwhile = pages.meanwhile.take().unwrap_or_default();
        match read {
            // It fell silent meanwhile: what was read may be older than what they had.
            _ if pages.were_read && store.silence().is_some() => pages.in_doubt = true,
            Ok(read) => pages.replace(read),
            Err(error) => {
                pages.in_doubt = true;
                return Err(error.into());
            }
        }
        for (writes, committed) in meanwhile.iter().filter(|(_, committed)| *committed > revision) {
            pages.commit(writes, *committed);
        }
        Ok(())
    }

    /// The store answers from what it remembers, and they were read before.
    fn can_not_be_better(&self, store: &dyn Store) -> bool {
        store.silence().is_some() && self.pages().were_read
    }
}

/// All is read anew. Whoever asked for it may go away before it is.
struct Reading<'b>(&'b Books);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut pages = self.0.pages();
        pages.in_doubt = true;
        pages.meanwhile = None;
    }
}

impl Watcher for Books {
    fn begun(&self) {
        self.pages().in_flight += 1;
    }

    fn ended(&self, writes: &[Write], fate: Fate) {
        let mut pages = self.pages();
        pages.in_flight = pages.in_flight.saturating_sub(1);
        match fate {
            Fate::Refused => {}
            Fate::InDoubt => pages.in_doubt = true,
            Fate::Committed(revision) => {
                pages.commit(writes, revision);
                if let Some(meanwhile) = &mut pages.meanwhile {
                    meanwhile.push((writes.to_vec(), revision));
                }
            }
        }
    }
}

impl Pages {
    /// Whether a running operation has the unit in hand, or a composition of ours holds it.
    pub fn is_ours(&self, unit: &UnitId) -> bool {
        self.is_in_hand(unit) || self.held.contains_key(unit)
    }

    pub fn is_in_hand(&self, unit: &UnitId) -> bool {
        self.claims.contains_key(unit.as_str())
    }

    /// Counts what is written down.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What was written about after that version; `None`: it may be anything.
    pub fn since(&self, version: u64) -> Option<Since<'_>> {
        let new = usize::try_from(self.version.checked_sub(version)?).ok()?;
        let old = self.changes.len().checked_sub(new)?;
        let mut since = Since::default();
        for change in self.changes.iter().skip(old) {
            match change {
                Change::Gpu(gpu) => drop(since.gpus.insert(gpu)),
                Change::Unit(unit) => drop(since.units.insert(unit)),
                Change::Composition { units, gpus } => {
                    since.units.extend(units);
                    since.held.extend(gpus);
                }
                Change::Endpoint => return None,
            }
        }
        Some(since)
    }

    fn have(&self, revision: u64, shared: bool) -> bool {
        let complete = match shared {
            true => self.gaps.is_empty(),
            // What is missing is ours, and about to be told.
            false => true,
        };
        let up_to_date = revision <= self.known || (!shared && self.in_flight > 0);
        !self.in_doubt && complete && up_to_date
    }

    async fn read(store: &dyn Store, revision: u64) -> Result<Self, StoreError> {
        let mut pages = Self {
            known: revision,
            were_read: true,
            ..Self::default()
        };
        for claim in read_all::<Claim>(store).await? {
            pages.note(Kind::Claim, claim.value.id(), claim.revision);
            pages.claims.insert(claim.value.id().to_owned(), claim.value);
        }
        for record in read_all::<GpuRecord>(store).await? {
            pages.note(Kind::Gpu, record.value.id(), record.revision);
            pages.records.insert(record.value.gpu.clone(), record);
        }
        let mut compositions = Vec::new();
        for found in read_all::<CompositionRecord>(store).await? {
            pages.note(Kind::Composition, found.value.id(), found.revision);
            pages.hold(&found.value.composition);
            compositions.push(found.value.composition);
        }
        compositions.sort_by(|a, b| a.id.cmp(&b.id));
        pages.compositions = Arc::new(compositions);
        for endpoint in read_all::<Endpoint>(store).await? {
            pages.note(Kind::Endpoint, endpoint.value.id(), endpoint.revision);
            pages.observe(endpoint.value);
        }
        for pause in read_all::<Pause>(store).await? {
            pages.note(Kind::Pause, pause.value.id(), pause.revision);
            pages.pauses.insert(pause.value.id().to_owned(), pause.value);
        }
        for found in read_all::<Quarantine>(store).await? {
            pages.note(Kind::Quarantine, found.value.id(), found.revision);
            pages.quarantined.insert(found.value.gpu.clone(), found.value);
        }
        for found in read_all::<Suspicion>(store).await? {
            pages.note(Kind::Suspicion, found.value.id(), found.revision);
            pages.suspects.insert(found.value.gpu.clone(), found.value);
        }
        for found in read_all::<HostClosure>(store).await? {
            pages.note(Kind::HostClosure, found.value.id(), found.revision);
            pages
                .closures
                .insert(found.value.closure.host.clone(), found.value);
        }
        for found in read_all::<RetiredHosts>(store).await? {
            pages.note(Kind::RetiredHosts, found.value.id(), found.revision);
            pages.retired = found.value;
        }
        for found in read_all::<UplinkCapacity>(store).await? {
            pages.note(Kind::Uplink, found.value.id(), found.revision);
            pages.uplinks.insert(found.value.id.clone(), found.value);
        }
        Ok(pages)
    }

    /// Everything may be different now.
    fn replace(&mut self, read: Self) {
        *self = Self {
            in_flight: self.in_flight,
            in_doubt: self.in_doubt,
            version: self.version + 1,
            ..read
        };
    }

    pub fn commit(&mut self, writes: &[Write], revision: u64) {
        if revision > self.known {
            if revision - self.known > CHANGES as u64 {
                self.in_doubt = true;
            } else {
                self.gaps.extend(self.known + 1..revision);
            }
            self.known = revision;
        } else {
            self.gaps.remove(&revision);
        }
        for write in writes {
            if let Some(kind) = Kind::of(&write.kind)
                && !self.is_older(kind, &write.id, revision)
            {
                self.note(kind, &write.id, revision);
                if self.write(kind, write, revision).is_err() {
                    // Whoever reads it is told why.
                    self.in_doubt = true;
                }
            }
        }
    }

    /// Of what one commit writes twice the last counts.
    fn is_older(&self, kind: Kind, id: &str, revision: u64) -> bool {
        let known = self.revisions.get(&(kind, id.to_owned()));
        known.is_some_and(|known| revision < *known)
    }

    /// When the endpoint's document was written last.
    pub fn endpoint_revision(&self, endpoint: &ControlEndpointId) -> Option<u64> {
        let key = (Kind::Endpoint, endpoint.as_str().to_owned());
        self.revisions.get(&key).copied()
    }

    /// When it was said last that a host is closed; nothing where nothing is said.
    pub fn closure_revision(&self, host: &HostId) -> Option<u64> {
        let key = (Kind::HostClosure, host.as_str().to_owned());
        let revision = self.revisions.get(&key).copied();
        revision.filter(|_| self.closures.contains_key(host))
    }

    /// Revision of an uplink's document: the last change of its capacity, or the last attach across it.
    pub fn uplink_revision(&self, id: &str) -> Option<u64> {
        let revision = self.revisions.get(&(Kind::Uplink, id.to_owned())).copied();
        revision.filter(|_| self.uplinks.contains_key(id))
    }

    fn note(&mut self, kind: Kind, id: &str, revision: u64) {
        self.revisions.insert((kind, id.to_owned()), revision);
    }

    fn write(&mut self, kind: Kind, write: &Write, revision: u64) -> Result<(), serde_json::Error> {
        let Write { id, json, .. } = write;
        let json = json.as_ref().map(|json| json.get());
        if json.is_none() {
            self.forget_some_deleted();
            self.deleted.push_back((kind, id.clone()));
        }
        match kind {
            Kind::Claim => {
                let claim: Option<Claim> = json.map(serde_json::from_str).transpose()?;
                let old = self.claims.remove(id);
                let unit = claim.as_ref().or(old.as_ref()).map(|claim| claim.unit.clone());
                self.claims.extend(claim.map(|claim| (id.clone(), claim)));
                self.changed(unit.map(Change::Unit));
            }
            Kind::Gpu => {
                let record: Option<GpuRecord> = json.map(serde_json::from_str).transpose()?;
                let gpu = GpuId::from_lossy(id);
                self.records.remove(&gpu);
                let record = record.map(|value| (gpu.clone(), Versioned { value, revision }));
                self.records.extend(record);
                self.changed(Some(Change::Gpu(gpu)));
            }
            Kind::Composition => {
                let new: Option<CompositionRecord> = json.map(serde_json::from_str).transpose()?;
                self.put_composition(id, new.map(|new| new.composition));
            }
            Kind::Endpoint => {
                let endpoint: Option<Endpoint> = json.map(serde_json::from_str).transpose()?;
                self.observed.retain(|observed| observed.as_str() != id);
                self.addresses.retain(|_, known| {
                    known.retain(|known| known.as_str() != id);
                    !known.is_empty()
                });
                endpoint.into_iter().for_each(|endpoint| self.observe(endpoint));
                self.changed(Some(Change::Endpoint));
            }
            Kind::Pause => {
                let pause: Option<Pause> = json.map(serde_json::from_str).transpose()?;
                self.pauses.remove(id);
                self.pauses.extend(pause.map(|pause| (id.clone(), pause)));
            }
            Kind::Quarantine => {
                let new: Option<Quarantine> = json.map(serde_json::from_str).transpose()?;
                let gpu = GpuId::from_lossy(id);
                self.quarantined.remove(&gpu);
                self.quarantined.extend(new.map(|new| (gpu.clone(), new)));
                self.changed(Some(Change::Gpu(gpu)));
            }
            Kind::Suspicion => {
                let new: Option<Suspicion> = json.map(serde_json::from_str).transpose()?;
                let gpu = GpuId::from_lossy(id);
                self.suspects.remove(&gpu);
                self.suspects.extend(new.map(|new| (gpu.clone(), new)));
                self.changed(Some(Change::Gpu(gpu)));
            }
            Kind::HostClosure => {
                let new: Option<HostClosure> = json.map(serde_json::from_str).transpose()?;
                let host = HostId::from_lossy(id);
                self.closures.remove(&host);
                self.closures.extend(new.map(|new| (host, new)));
            }
            Kind::Uplink => {
                let new: Option<UplinkCapacity> = json.map(serde_json::from_str).transpose()?;
                self.uplinks.remove(id);
                self.uplinks.extend(new.map(|new| (id.clone(), new)));
            }
            Kind::RetiredHosts => {
                let new: Option<RetiredHosts> = json.map(serde_json::from_str).transpose()?;
                self.retired = new.unwrap_or_default();
            }
        }
        Ok(())
    }

    fn put_composition(&mut self, id: &str, new: Option<Composition>) {
        let all = Arc::make_mut(&mut self.compositions);
        let place = all.binary_search_by(|known| known.id.as_str().cmp(id));
        let old = place.ok().map(|at| all.remove(at));
        if let Some(new) = &new {
            let (Ok(at) | Err(at)) = place;
            all.insert(at, new.clone());
        }
        let both = || old.iter().chain(&new).flat_map(|c| &c.held);
        let change = Change::Composition {
            units: both().map(|held| held.unit.clone()).collect(),
            gpus: both().flat_map(|held| held.gpus.iter().cloned()).collect(),
        };
        old.iter().for_each(|old| self.let_go(old));
        new.iter().for_each(|new| self.hold(new));
        self.changed(Some(change));
    }

    fn hold(&mut self, composition: &Composition) {
        for held in &composition.held {
            *self.held.entry(held.unit.clone()).or_default() += 1;
        }
    }

    fn let_go(&mut self, composition: &Composition) {
        for held in &composition.held {
            if let Some(holders) = self.held.get_mut(&held.unit) {
                *holders -= 1;
                if *holders == 0 {
                    self.held.remove(&held.unit);
                }
            }
        }
    }

    /// The endpoint at an address, if one is kept.
    pub fn endpoint_at(&self, address: &Address) -> Option<&ControlEndpointId> {
        self.addresses.get(address)?.first()
    }

    fn observe(&mut self, endpoint: Endpoint) {
        if let Some(address) = endpoint.spec.address() {
            let known = self.addresses.entry(address).or_default();
            known.insert(endpoint.spec.id.clone());
        }
        if endpoint.standing == Standing::Observed {
            self.observed.insert(endpoint.spec.id);
        }
    }

    fn changed(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        self.version += 1;
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    fn forget_some_deleted(&mut self) {
        if self.deleted.len() < DELETED {
            return;
        }
        let is_there = |pages: &Self, (kind, id): &(Kind, String)| match kind {
            Kind::Claim => pages.claims.contains_key(id),
            Kind::Gpu => pages.records.contains_key(&GpuId::from_lossy(id)),
            Kind::Composition => pages
                .compositions
                .binary_search_by(|c| c.id.as_str().cmp(id))
                .is_ok(),
            Kind::Pause => pages.pauses.contains_key(id),
            Kind::HostClosure => pages.closures.contains_key(&HostId::from_lossy(id)),
            Kind::Quarantine => pages.quarantined.contains_key(&GpuId::from_lossy(id)),
            Kind::Suspicion => pages.suspects.contains_key(&GpuId::from_lossy(id)),
            Kind::Uplink => pages.uplinks.contains_key(id),
            Kind::Endpoint | Kind::RetiredHosts => true,
        };
        if let Some(oldest) = self.deleted.pop_front()
            && !is_there(self, &oldest)
        {
            self.revisions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
