//! Clients that ask any manager that lives, and another one where that dies, and write down what they hear.

use super::history::{Act, History, Owners};
use super::managers::Managers;
use super::{Plant, Setup};
use fastrand::Rng;
use poolwright_model::id::{DemandId, GpuId};
use poolwright_service::demand::DemandSpec;
use poolwright_service::{
    Change, Composer, Composition, ErrorCode, How, Operation, OperationState, Release, ServiceError,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENT: &str = "client";
/// Eight of it are in the rack, for as many clients that want one to three.
const KIND: &str = "l40s-48gb";
/// How often a client asks the same again before it gives up.
const TRIES: u32 = 40;
/// From one try to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// How old a planted cache is.
const STALE: Duration = Duration::from_secs(3);

/// Where clients meet managers.
pub struct Ring {
    pub managers: Managers,
    pub history: History,
    pause: Duration,
    bad_pause: Duration,
    plant: Option<Plant>,
    bad: AtomicBool,
    over: AtomicBool,
}

impl Ring {
    pub fn new(managers: Managers, setup: &Setup) -> Self {
        Self {
            managers,
            history: History::default(),
            pause: setup.pause,
            bad_pause: setup.bad_pause,
            plant: setup.plant,
            bad: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// From now on nobody hurries: much of the time nobody is in charge.
    pub fn times_are_bad(&self) {
        self.bad.store(true, Ordering::Relaxed);
    }

    /// Everybody ends what it is at.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn pause(&self, rng: &mut Rng) {
        let longest = match self.bad.load(Ordering::Relaxed) {
            true => self.bad_pause.max(self.pause),
            false => self.pause,
        };
        tokio::time::sleep(longest.mul_f64(rng.f64())).await;
    }
}

/// Looks who owns what, again and again.
pub async fn reads(ring: Arc<Ring>, client: usize, mut rng: Rng) {
    let mut cached: Option<(tokio::time::Instant, Owners)> = None;
    while !ring.is_over() {
        ring.pause(&mut rng).await;
        let Some(manager) = ring.managers.any(&mut rng) else {
            continue;
        };
        let asked = ring.history.asks();
        let answer = manager.answers(manager.composer.compositions()).await;
        let Some(Ok(compositions)) = answer else { continue };
        let mut owners = owners(&compositions);
        if ring.plant == Some(Plant::StaleReads) {
            match &cached {
                Some((since, old)) if since.elapsed() < STALE => owners = old.clone(),
                _ => cached = Some((tokio::time::Instant::now(), owners.clone())),
            }
        }
        ring.history.hears(client, asked, Act::Read(owners));
    }
}

fn owners(compositions: &[Composition]) -> Owners {
    let mut owners = Owners::new();
    for composition in compositions {
        let gpus = composition.held.iter().flat_map(|held| &held.gpus);
        if let Some(owner) = &composition.demand {
            owners.extend(gpus.map(|gpu| (gpu.clone(), owner.clone())));
        }
    }
    owners
}

/// Composes, holds for a moment, and releases, again and again.
pub async fn takes(ring: Arc<Ring>, client: usize, rng: Rng) {
    let mut taker = Taker { ring, client, rng };
    let mut number = 0;
    while !taker.ring.is_over() {
        number += 1;
        let owner = DemandId::from_lossy(&format!("c{client}-{number}"));
        if taker.compose(&owner).await {
            taker.ring.pause(&mut taker.rng).await;
            taker.release(&owner).await;
        }
        taker.ring.pause(&mut taker.rng).await;
    }
}

struct Taker {
    ring: Arc<Ring>,
    client: usize,
    rng: Rng,
}

/// What a client knows after a try.
enum Heard {
    Done(Box<Change>),
    /// Everything is as it was.
    Undone,
    Refused(ErrorCode),
    /// The manager died, or could not tell: the same is asked again, of any.
    Nothing,
}

impl Taker {
    /// Whether it may hold something now.
    async fn compose(&mut self, owner: &DemandId) -> bool {
        let spec = json!({"id": owner, "kind": KIND, "gpus": self.rng.u32(1..4)});
        let Ok(spec) = serde_json::from_value::<DemandSpec>(spec) else {
            panic!("a demand can't be said");
        };
        let how = with_key(format!("compose-{owner}"));
        let asked = self.ring.history.asks();
        for _ in 0..TRIES {
            let (spec, how) = (spec.clone(), how.clone());
            let heard = self
                .ask(async |manager| manager.compose(spec, CLIENT, &how).await)
                .await;
            match heard {
                Heard::Done(change) => {
                    let gpus = Some(self.granted(gpus(&change.plan.composes, owner)));
                    let owner = owner.clone();
                    self.hears(asked, Act::Grant { owner, gpus });
                    return true;
                }
                Heard::Undone | Heard::Refused(_) => return false,
                Heard::Nothing => tokio::time::sleep(AGAIN).await,
            }
        }
        let owner = owner.clone();
        self.gives_up(asked, Act::Grant { owner, gpus: None });
        true
    }

    async fn release(&mut self, owner: &DemandId) {
        let asked = self.ring.history.asks();
        let mut begun = 0;
        for _ in 0..TRIES {
            let (what, how) = (
                Release::Demand(owner.clone()),
                with_key(format!("release-{owner}-{begun}")),
            );
            let heard = self
                .ask(async |manager| manager.release(what, CLIENT, &how).await)
                .await;
            match heard {
                Heard::Done(change) => {
                    let gpus = Some(gpus(&change.plan.releases, owner));
                    let owner = owner.clone();
                    return self.hears(asked, Act::Release { owner, gpus });
                }
                // Perhaps by a try whose answer was lost: that one is written down, too.
                Heard::Refused(ErrorCode::NotFound) => {
                    let owner = owner.clone();
                    self.gives_up(
                        asked,
                        Act::Release {
                            owner: owner.clone(),
                            gpus: None,
                        },
                    );
                    return self.hears(asked, Act::Gone { owner });
                }
                // Under the same key it would be the same again.
                Heard::Undone | Heard::Refused(_) => begun += 1,
                Heard::Nothing => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
        let owner = owner.clone();
        self.gives_up(asked, Act::Release { owner, gpus: None });
    }

    /// Asks any manager, and waits until the operation is over.
    async fn ask(&mut self, question: impl AsyncFnOnce(&Composer) -> Result<Change, ServiceError>) -> Heard {
        let Some(manager) = self.ring.managers.any(&mut self.rng) else {
            return Heard::Nothing;
        };
        let composer = &manager.composer;
        let answer = manager.answers(async {
            let change = question(composer).await?;
            let ended = match &change.operation {
                Some(operation) => Some(composer.wait(&operation.id, Duration::MAX).await?),
                None => None,
            };
            Ok((change, ended))
        });
        match answer.await {
            Some(Ok((change, ended))) => heard(change, ended.as_ref()),
            Some(Err(error)) if is_refusal(error.code) => Heard::Refused(error.code),
            Some(Err(_)) | None => Heard::Nothing,
        }
    }

    fn hears(&self, asked: u64, act: Act) {
        self.ring.history.hears(self.client, asked, act);
    }

    fn gives_up(&self, asked: u64, act: Act) {
        self.ring.history.gives_up(self.client, asked, act);
    }

    /// What it was given; with the planted bug sometimes what somebody else was given before.
    fn granted(&mut self, gpus: BTreeSet<GpuId>) -> BTreeSet<GpuId> {
        let doubled = self.ring.plant == Some(Plant::DoubleGrants) && self.rng.u32(0..4) == 0;
        let others = self.ring.history.last_grant().filter(|_| doubled);
        others.unwrap_or(gpus)
    }
}

fn with_key(key: String) -> How {
    How {
        key: Some(key),
        ..How::default()
    }
}

fn heard(change: Change, ended: Option<&Operation>) -> Heard {
    match ended.map(|operation| operation.state) {
        None | Some(OperationState::Completed) => Heard::Done(Box::new(change)),
        Some(state) if state.has_ended() => Heard::Undone,
        Some(_) => Heard::Nothing,
    }
}

/// Whether nothing was begun, and nothing will be.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::BadRequest
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::Stale
            | ErrorCode::Unplaced
    )
}

fn gpus(compositions: &[Composition], owner: &DemandId) -> BTreeSet<GpuId> {
    let own = compositions.iter().filter(|it| it.demand.as_ref() == Some(owner));
    let held = own.flat_map(|composition| &composition.held);
    held.flat_map(|held| held.gpus.iter().cloned()).collect()
}
