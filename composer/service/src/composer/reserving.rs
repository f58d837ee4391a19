//! Reservations: what was previewed for a client is kept for it for a while, and is nobody else's until then.
//!
//! All of them are one document: each reservation, and where managers share a store each operation that gives units away,
//! is committed on the document as it was read. So of two who want the same unit the second is refused, and told who has
//! it. What is over by the clock binds nobody, and is forgotten with the next change.

use super::Composer;
use super::planning::{How, Wanted};
use super::requests::{Change, Request};
use crate::accounts::AccountVersion;
use crate::demand::DemandSpec;
use crate::error::{ErrorCode, ServiceError};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{Claim, GpuRecord, OperationKind};
use poolwright_model::id::{GpuId, HostId, HostPortId, UnitId};
use poolwright_planner::direct::{self, Purpose};
use poolwright_planner::{Composition, Plan, Reserved};
use poolwright_store::{Batch, StoreError, Stored, Versioned, read};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;

/// How long a reservation binds.
pub const RESERVED: SignedDuration = SignedDuration::from_mins(10);
/// Reservations at a time.
const MOST: usize = 64;
/// Systems in one reservation.
pub const MOST_PARTS: usize = 32;

/// One system that somebody wishes for.
pub struct Wish {
    /// By which the client knows it.
    pub stanza: String,
    pub label: String,
    pub what: Wished,
}

/// Of what it is to be composed.
pub enum Wished {
    Named { gpus: Vec<GpuId>, host: HostId },
    Fitting(Box<DemandSpec>),
}

/// One system that could be composed now, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub stanza: String,
    pub label: String,
    pub host: HostId,
    pub places: Vec<Place>,
    /// It is composed: nothing is kept for it, and the same request again, by its key, finds what came of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub composed: bool,
}

/// A unit, and where it would be put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub unit: UnitId,
    pub gpus: Vec<GpuId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<HostPortId>,
}

/// What is kept for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub id: String,
    /// The account's name.
    pub by: String,
    /// The account's id: another account may get the name. Earlier versions kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub since: Timestamp,
    pub until: Timestamp,
    pub parts: Vec<Part>,
    /// What the client asked for, in its own words. Earlier versions kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Value>,
}

impl Reservation {
    pub fn is_of(&self, name: &str, account: &AccountVersion) -> bool {
        match &self.account {
            Some(id) => *id == account.id,
            None => self.by == name,
        }
    }

    /// What is kept.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let kept = self.parts.iter().filter(|part| !part.composed);
        kept.flat_map(|part| &part.places)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Reservations {
    all: Vec<Reservation>,
}

impl Stored for Reservations {
    const KIND: &'static str = "reservations";
    fn id(&self) -> &'static str {
        "all"
    }
}

impl Part {
    pub fn gpus(&self) -> Vec<GpuId> {
        let gpus = self.places.iter().flat_map(|place| &place.gpus);
        gpus.cloned().collect()
    }

    fn of(wish: &Wish, composition: &Composition) -> Self {
        let places = composition.held.iter().map(|held| Place {
            unit: held.unit.clone(),
            gpus: held.gpus.clone(),
            host_port: Some(held.host_port.clone()),
        });
        Self {
            stanza: wish.stanza.clone(),
            label: wish.label.clone(),
            host: composition.host.clone(),
            places: places.collect(),
            composed: false,
        }
    }
}

impl From<&Place> for Reserved {
    fn from(place: &Place) -> Self {
        Self {
            unit: place.unit.clone(),
            host_port: place.host_port.clone(),
        }
    }
}

impl Composer {
    /// Those that keep something.
    #[crate::boxed]
    pub async fn reservations(&self) -> Result<Vec<Reservation>, ServiceError> {
        let (known, _) = self.known_reservations().await?;
        let all = known.all.into_iter();
        Ok(all.filter(|one| one.places().next().is_some()).collect())
    }

    /// One, also where all of it is composed already.
    #[crate::boxed]
    pub async fn reservation(&self, id: &str) -> Result<Reservation, ServiceError> {
        let (known, _) = self.known_reservations().await?;
        let found = known.all.into_iter().find(|one| one.id == id);
        found.ok_or_else(|| no_such_reservation(id))
    }

    /// Those that are not over, and the revision of their document.
    async fn known_reservations(&self) -> Result<(Reservations, Option<u64>), ServiceError> {
        let found = read::<Reservations>(self.store.as_ref(), Reservations::default().id()).await?;
        let Some(Versioned { mut value, revision }) = found else {
            return Ok((Reservations::default(), None));
        };
        let now = self.clock.now();
        value.all.retain(|reservation| reservation.until > now);
        Ok((value, Some(revision)))
    }

    /// What is reserved for others than this reservation.
    pub(super) async fn reserved_beside(&self, ours: Option<&str>) -> Result<Vec<Reserved>, ServiceError> {
        let (known, _) = self.known_reservations().await?;
        let others = known.all.iter().filter(|one| Some(one.id.as_str()) != ours);
        Ok(others.flat_map(Reservation::places).map(Reserved::from).collect())
    }

    /// All that is reserved, and until when.
    pub(super) async fn reserved_until(&self) -> Result<Vec<(Timestamp, Reserved)>, ServiceError> {
        let (known, _) = self.known_reservations().await?;
        let places = known.all.iter().flat_map(|one| {
            let places = one.places();
            places.map(|place| (one.until, Reserved::from(place)))
        });
        Ok(places.collect())
    }

    /// Of what each of these would be composed, all of them side by side. Changes nothing.
    #[crate::boxed]
    pub async fn preview(&self, wishes: &[Wish]) -> Result<Vec<Part>, ServiceError> {
        let mut parts: Vec<Part> = Vec::new();
        for wish in wishes {
            let part = self.placed(wish, &parts).await?;
            parts.push(part);
        }
        Ok(parts)
    }

    async fn placed(&self, wish: &Wish, before: &[Part]) -> Result<Part, ServiceError> {
        // At a host that closes before, it could not be composed any more.
        let over = self.clock.now() + RESERVED;
        if let Wished::Named { gpus, .. } = &wish.what {
            each_once(wish, gpus, before)?;
        }
        let before = || before.iter().flat_map(|part| &part.places).map(Reserved::from);
        let plan = match &wish.what {
            Wished::Named { gpus, host } => {
                let mut basis = self.basis(Wanted::Named).await?;
                basis.close_until(Some(over));
                basis.reserve(before());
                match direct::attach_for(gpus, host, &Purpose::labelled(&wish.label), &self.input(&basis)) {
                    Ok(plan) => {
                        self.spares_owed(&basis, &plan).await?;
                        plan
                    }
                    Err(refusal) => {
                        let refused = self.or_retired(refusal).await;
                        return Err(self.or_who_has_them(refused, gpus).await);
                    }
                }
            }
            Wished::Fitting(spec) => {
                let record = self.record_of((**spec).clone(), None).await?;
                let mut basis = self.basis(Wanted::Only(&record.demand)).await?;
                basis.close_until(Some(over));
                basis.reserve(before());
                self.leave_out_stale(&mut basis);
                let plan = self.plan_beside_returns(&basis, Some(&record)).await?;
                let id = &record.demand.id;
                if let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand == *id) {
                    let error = ServiceError::new(ErrorCode::Unplaced, unplaced.shortfall());
                    return Err(error.with_details(unplaced.alternatives()));
                }
                plan
            }
        };
        let made = plan.composes.iter().find(|made| match &wish.what {
            Wished::Named { .. } => true,
            Wished::Fitting(spec) => made.demand.as_ref() == Some(&spec.id),
        });
        let nothing = || {
            let text = format!(
                "{} would be composed of nothing that is not composed already",
                wish.label
            );
            ServiceError::new(ErrorCode::Conflict, text)
        };
        made.map(|made| Part::of(wish, made)).ok_or_else(nothing)
    }

    /// Reserves GPUs for all of an account's requests or for none. Stores `asked`, the request as the client sent it.
    #[crate::boxed]
    pub async fn reserve(
        &self,
        wishes: &[Wish],
        asked: Value,
        by: &str,
        account: &AccountVersion,
    ) -> Result<Reservation, ServiceError> {
        let _turn = self.turn.lock().await;
        // Before what the preview rests on: what changes meanwhile refuses the commit.
        self.books.refresh(self.store.as_ref()).await?;
        let revisions: HashMap<GpuId, u64> = {
            let pages = self.books.pages();
            let records = pages.records.iter();
            records
                .map(|(gpu, record)| (gpu.clone(), record.revision))
                .collect()
        };
        let (mut known, revision) = self.known_reservations().await?;
        let now = self.clock.now();
        known.all.retain(|one| one.until > now);
        if known.all.len() >= MOST {
            let text = format!("{MOST} reservations are open, and no more are kept");
            return Err(ServiceError::new(ErrorCode::Conflict, text)
                .with_hint("apply one or delete it, or wait: each is over after 10 minutes"));
        }
        let reservation = Reservation {
            id: self.new_id(),
            by: by.to_owned(),
            account: Some(account.id.clone()),
            since: now,
            until: now + RESERVED,
            parts: self.preview(wishes).await?,
            asked: Some(asked),
        };
        let mut batch = Batch::new();
        for place in reservation.places() {
            batch.expect(Claim::KIND, place.unit.as_str(), None);
            for gpu in &place.gpus {
                batch.expect(GpuRecord::KIND, gpu.as_str(), revisions.get(gpu).copied());
            }
        }
        known.all.push(reservation.clone());
        batch
            .expect(Reservations::KIND, known.id(), revision)
            .put(&known)?;
        match self.store.commit(batch).await {
            Ok(_) => Ok(reservation),
            Err(StoreError::Conflict { .. }) => {
                let text = "somebody else took some of it, or reserved something, at this very moment";
                Err(ServiceError::new(ErrorCode::Conflict, text).with_hint("look again, and try again"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Composes what one part of a reservation says; it is no longer reserved then.
    #[crate::boxed]
    pub async fn compose_reserved(
        &self,
        id: &str,
        stanza: &str,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let what = format!("compose {stanza} of reservation {id}");
        let mut request = Request::new(OperationKind::Attach, what, &(id, stanza), by, how)?;
        request.reservation = Some(id);
        let _turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let (mut known, revision) = self.known_reservations().await?;
        let open = known.all.iter_mut().find(|one| one.id == id);
        let open = open.ok_or_else(|| no_such_reservation(id))?;
        let mut left = open.parts.iter_mut().filter(|part| !part.composed);
        let part = left.find(|part| part.stanza == stanza);
        let part = part.ok_or_else(|| no_such_reservation(&format!("{id} with {stanza} in it")))?;
        part.composed = true;
        let part = part.clone();
        let mut basis = self.basis_beside(Wanted::Named, Some(id)).await?;
        self.leave_out_stale(&mut basis);
        let purpose = Purpose::labelled(&part.label);
        let plan = direct::attach_for(&part.gpus(), &part.host, &purpose, &self.input(&basis))?;
        let mut with = Batch::new();
        with.expect(Reservations::KIND, known.id(), revision)
            .put(&known)?;
        let operation = self.new_operation();
        self.submit(request, operation, plan, with).await
    }

    /// Ends one: what it kept is anybody's.
    #[crate::boxed]
    pub async fn end_reservation(&self, id: &str) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let (mut known, revision) = self.known_reservations().await?;
        let before = known.all.len();
        known.all.retain(|one| one.id != id);
        if known.all.len() == before {
            return Err(no_such_reservation(id));
        }
        let mut batch = Batch::new();
        batch
            .expect(Reservations::KIND, known.id(), revision)
            .put(&known)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// The refusal, or who has reserved one of these GPUs or has it in hand, where that is why.
    pub(super) async fn or_who_has_them(&self, refused: ServiceError, gpus: &[GpuId]) -> ServiceError {
        // One that is about an operation by itself says more.
        if refused.code != ErrorCode::Conflict || (refused.operation.is_some() && !refused.taken) {
            return refused;
        }
        let Ok(open) = self.reservations().await else {
            return refused;
        };
        let Some(told) = who_reserved(&open, gpus) else {
            return self.or_who_moves(refused, gpus).await;
        };
        ServiceError::new(ErrorCode::Conflict, told).with_hint("take another one, or wait until then")
    }

    async fn or_who_moves(&self, refused: ServiceError, gpus: &[GpuId]) -> ServiceError {
        let Ok(claims) = self.claims().await else {
            return refused;
        };
        let pages = self.books.pages();
        let found = gpus.iter().find_map(|gpu| {
            // What no operation wrote about yet is taken for a unit of its own: of a board of several, nobody is named then.
            let known = pages.records.get(gpu).map(|record| record.value.unit.as_str());
            let unit = known.unwrap_or(gpu.as_str());
            let claim = claims.iter().find(|claim| claim.unit.as_str() == unit)?;
            Some((gpu, claim))
        });
        let Some((gpu, claim)) = found else {
            return refused;
        };
        let Claim { operation, by, .. } = claim;
        let text = format!("{gpu} can't be given away: operation {operation} of {by} has it in hand");
        let hint = format!("take another one, or wait: poolwright ops show {operation} says more");
        ServiceError::new(ErrorCode::Conflict, text).with_hint(hint)
    }

    /// Where other managers may have reserved something meanwhile: that it is not what the plan gives away, and that this
    /// is so when it is committed.
    pub(super) async fn spares_reserved(
        &self,
        plan: &Plan,
        ours: Option<&str>,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        if self.options.sharing.is_none() {
            return Ok(());
        }
        let (known, revision) = self.known_reservations().await?;
        let gpus: Vec<GpuId> = plan
            .composes
            .iter()
            .flat_map(Composition::gpus)
            .cloned()
            .collect();
        let others = known.all.iter().filter(|one| Some(one.id.as_str()) != ours);
        let mut places = others.flat_map(Reservation::places);
        if places.any(|place| place.gpus.iter().any(|gpu| gpus.contains(gpu))) {
            let refused = ServiceError::new(ErrorCode::Conflict, "what it would take is reserved");
            return Err(self.or_who_has_them(refused, &gpus).await);
        }
        with.expect(Reservations::KIND, known.id(), revision);
        Ok(())
    }
}

/// Two of one request can't have the same GPU.
fn each_once(wish: &Wish, gpus: &[GpuId], before: &[Part]) -> Result<(), ServiceError> {
    let twice = before.iter().find_map(|part| {
        let mut has = part.places.iter().flat_map(|place| &place.gpus);
        Some((has.find(|gpu| gpus.contains(gpu))?, part))
    });
    let Some((gpu, part)) = twice else {
        return Ok(());
    };
    let text = format!(
        "{gpu} can't be given to {}: {} of the same request would have it",
        wish.stanza, part.stanza
    );
    let hint = format!("name another one for {} or for {}", wish.stanza, part.stanza);
    Err(ServiceError::new(ErrorCode::Conflict, text).with_hint(hint))
}

fn who_reserved(open: &[Reservation], gpus: &[GpuId]) -> Option<String> {
    open.iter().find_map(|one| {
        let mut reserved = one.places().flat_map(|place| &place.gpus);
        let gpu = reserved.find(|gpu| gpus.contains(gpu))?;
        let Reservation { id, by, until, .. } = one;
        Some(format!(
            "{gpu} is reserved for {by} until {until} (reservation {id})"
        ))
    })
}

fn no_such_reservation(id: &str) -> ServiceError {
    ServiceError::new(ErrorCode::NotFound, format!("there is no reservation {id}"))
        .with_hint("it may be over: each binds for 10 minutes; preview and reserve anew")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::composer::stand_ins::{Hands, Nobody};
    use poolwright_store::{SqliteStore, Store};
    use std::sync::Arc;

    fn reservation(id: &str, gpu: &str, until: Timestamp) -> Reservation {
        let place = Place {
            unit: UnitId::from_lossy(gpu),
            gpus: vec![GpuId::from_lossy(gpu)],
            host_port: None,
        };
        Reservation {
            id: id.to_owned(),
            by: "kim".to_owned(),
            account: None,
            since: Timestamp::UNIX_EPOCH,
            until,
            parts: vec![Part {
                stanza: "one".to_owned(),
                label: "farm".to_owned(),
                host: HostId::from_lossy("host-1"),
                places: vec![place],
                composed: false,
            }],
            asked: None,
        }
    }

    /// Fault 82: a reservation.
    #[test]
    fn a_reservation_is_not_of_a_later_account_of_the_same_name() {
        let account = |id: &str| AccountVersion {
            id: id.to_owned(),
            generation: 0,
        };
        let mut reserved = reservation("a", "gpu-1", Timestamp::UNIX_EPOCH);
        assert!(reserved.is_of("kim", &account("1")), "of an earlier version");
        reserved.account = Some("1".to_owned());
        assert!(reserved.is_of("kim", &account("1")));
        assert!(!reserved.is_of("kim", &account("2")));
    }

    #[test]
    fn of_two_that_want_one_gpu_the_second_is_told_of_the_first() {
        let before = reservation("a", "gpu-1", Timestamp::UNIX_EPOCH).parts;
        let wish = Wish {
            stanza: "two".to_owned(),
            label: "other".to_owned(),
            what: Wished::Named {
                gpus: Vec::new(),
                host: HostId::from_lossy("host-1"),
            },
        };
        let named = |gpu: &str| each_once(&wish, &[GpuId::from_lossy(gpu)], &before);
        let refused = named("gpu-1").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        let told = "gpu-1 can't be given to two: one of the same request would have it";
        assert_eq!(refused.message, told);
        assert_eq!(named("gpu-2"), Ok(()));
    }

    #[tokio::test]
    async fn a_reservation_binds_others_until_it_is_over_also_after_a_restart() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let clock = Arc::new(Hands::default());
        let long = Timestamp::UNIX_EPOCH + RESERVED;
        let all = vec![
            reservation("a", "gpu-1", long),
            reservation("b", "gpu-2", long + RESERVED),
        ];
        let mut batch = Batch::new();
        batch.put(&Reservations { all }).unwrap();
        store.commit(batch).await.unwrap();
        let started = || Composer::new(store.clone(), Arc::new(Nobody), clock.clone(), Options::default());
        let composer = started();
        let units = async |ours| {
            let reserved = composer.reserved_beside(ours).await.unwrap();
            let units = reserved.iter().map(|one| one.unit.to_string());
            units.collect::<Vec<_>>()
        };
        assert_eq!(units(None).await, ["gpu-1", "gpu-2"]);
        assert_eq!(units(Some("a")).await, ["gpu-2"]);
        let gpu = [GpuId::from_lossy("gpu-1")];
        let refused = ServiceError::new(ErrorCode::Conflict, "it is taken");
        let told = composer.or_who_has_them(refused.clone(), &gpu).await;
        assert!(told.message.contains("reserved for kim"), "{}", told.message);

        *clock.0.lock().unwrap() = long;
        let again = started();
        let open = again.reservations().await.unwrap();
        assert_eq!(open.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(again.or_who_has_them(refused.clone(), &gpu).await, refused);
        let gone = again.compose_reserved("a", "one", "kim", &How::default()).await;
        assert_eq!(gone.unwrap_err().code, ErrorCode::NotFound);
        again.end_reservation("b").await.unwrap();
        assert_eq!(again.reservations().await.unwrap(), []);
        assert_eq!(
            again.end_reservation("b").await.unwrap_err().code,
            ErrorCode::NotFound
        );
    }
}
