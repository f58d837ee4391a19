//! Damaged documents: those whose content does not match their checksum.
//!
//! The store leaves a damaged document out of all lists, so a change that rests on a list could give a GPU to two hosts. Its
//! kind and id may be damaged, too, and then do not tell which GPUs it is about. Therefore one damaged document pauses
//! everything, unless no change of hardware rests on its kind. The executor leaves an operation alone whose document or plan is
//! damaged, with its claims; that pauses nothing else.
//!
//! Recovery: repair it, if one bit flipped; restore a backup; or discard it and write it again from the hardware's state.

use super::Composer;
use super::asking::Check;
use super::documents;
use super::looking::naming::Ids;
use super::recording::TurnedAway;
use super::silence::ToldLost;
use crate::access::AccessRules;
use crate::accounts::lockout::{AccountFailures, SourceFailures};
use crate::accounts::{ADMIN, Account};
use crate::audit::{Head, Page};
use crate::demand::DemandRecord;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, ServiceError};
use crate::host::HostHistory;
use crate::job::JobRun;
use crate::leases::Lease;
use crate::quarantine::{GpuHistory, Light};
use crate::runner::ScheduleRun;
use crate::sessions::{Logins, Session};
use crate::subscription::Subscription;
use crate::wants::Wants;
use jiff::Timestamp;
use poolwright_executor::{Claim, CompositionRecord, GpuRecord, Operation, Pause, Paused, PlanRecord};
use poolwright_model::id::{GpuId, OperationId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_planner::Composition;
use poolwright_store::{Batch, Damaged, INDEX, JOURNAL, Stored, read, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Kinds on which no change of hardware rests, or whose damage the executor holds by itself.
const HOLD_NOTHING: &[&str] = &[
    Operation::KIND,
    PlanRecord::KIND,
    poolwright_executor::documents::UNREADABLE,
    AccessRules::KIND,
    Account::KIND,
    AccountFailures::KIND,
    SourceFailures::KIND,
    Page::KIND,
    Head::KIND,
    GpuHistory::KIND,
    HostHistory::KIND,
    JobRun::KIND,
    Light::KIND,
    Logins::KIND,
    ScheduleRun::KIND,
    Session::KIND,
    Subscription::KIND,
    ToldLost::KIND,
    TurnedAway::KIND,
    Wants::KIND,
];
/// Most documents that a message names.
const NAMED: usize = 3;
/// Most documents that the check of all documents names.
const NAMED_BY_CHECK: usize = 50;
/// Interval at which this manager looks whether another one has recovered a damaged document.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// The name of the pause after an incomplete start.
const START: &str = "start/incomplete";

/// Damage, beside what the store knows of it.
#[derive(Default)]
pub(super) struct Damage {
    /// When each document was found damaged, by its name: the beginning of its pause.
    found: Mutex<BTreeMap<String, Timestamp>>,
    /// Why the start is incomplete.
    start: Mutex<Option<String>>,
    read_again: Mutex<Option<Instant>>,
}

fn name(damaged: &Damaged) -> String {
    format!("{}/{}", damaged.kind, damaged.id)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Composer {
    fn damaged_that_hold(&self) -> Vec<Damaged> {
        let mut damaged = self.store.damaged();
        damaged.retain(|damaged| !HOLD_NOTHING.contains(&damaged.kind.as_str()));
        damaged
    }

    /// A pause of everything for each damaged document on which a change could rest.
    pub(super) fn pauses_for_damage(&self) -> Vec<Pause> {
        let damaged = self.damaged_that_hold();
        let mut reasons: BTreeMap<String, String> =
            damaged.iter().map(|one| (name(one), described(one))).collect();
        if let Some(why) = &*lock(&self.damage.start) {
            let reason =
                format!("the start is incomplete: {why}; restart the manager once that is recovered");
            reasons.insert(START.to_owned(), reason);
        }
        let mut found = lock(&self.damage.found);
        found.retain(|name, _| reasons.contains_key(name));
        let pause = |(name, reason): (String, String)| {
            let since = *found.entry(name.clone()).or_insert_with(|| self.clock.now());
            Pause::new(Paused::Damaged(name), "the manager", &reason, since)
        };
        reasons.into_iter().map(pause).collect()
    }

    /// Refuses a change while a document is damaged on which it could rest: also one that is no operation.
    pub(super) fn refuse_while_damaged(&self) -> Result<(), ServiceError> {
        match self.pauses_for_damage().first() {
            None => Ok(()),
            Some(pause) => Err(super::pausing::held_by(pause)),
        }
    }

    /// A step of the start. One that fails because of a damaged document pauses everything and does not end the start: the
    /// manager must run for `doctor` and for the recovery.
    pub(super) fn despite_damage(&self, step: Result<(), ServiceError>) -> Result<(), ServiceError> {
        match step {
            Err(error) if error.code == ErrorCode::Internal && !self.store.damaged().is_empty() => {
                tracing::error!(%error, "the start is incomplete");
                lock(&self.damage.start).get_or_insert(error.message);
                self.executor.set_pauses(self.pauses_for_damage());
                Ok(())
            }
            step => step,
        }
    }

    /// For the probe: reads nothing.
    pub fn damage_readiness(&self) -> Check {
        let pauses = self.pauses_for_damage();
        if pauses.is_empty() {
            return Check::ok("documents", "no change rests on a damaged document");
        }
        let reasons: Vec<&str> = pauses.iter().map(|pause| pause.reason.as_str()).collect();
        let damaged = self.damaged_that_hold();
        let hint = damaged
            .first()
            .map_or_else(|| "restart the manager".to_owned(), recovery);
        Check::problem("documents", first_of(&reasons, NAMED), hint)
    }

    /// A document without which it is unknown which demands exist.
    pub(super) fn hides_demands(&self) -> Option<String> {
        let hides = |damaged: &Damaged| {
            damaged.kind == DemandRecord::KIND || documents::kinds().all(|known| known != damaged.kind)
        };
        let damaged = self.store.damaged();
        damaged.iter().find(|damaged| hides(damaged)).map(name)
    }

    /// Verifies every document.
    pub(super) async fn damage_check(&self) -> Check {
        let damaged = match self.store.verify().await {
            Ok(damaged) => damaged,
            Err(error) => return Check::problem("documents", error.to_string(), "retry: poolwright doctor"),
        };
        let start = lock(&self.damage.start);
        let start = start.iter().map(|why| format!("the start is incomplete: {why}"));
        let reasons: Vec<String> = start.chain(damaged.iter().map(described)).collect();
        if reasons.is_empty() {
            return Check::ok("documents", "all match their checksums");
        }
        let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
        let next = damaged
            .first()
            .map_or_else(|| "restart the manager".to_owned(), recovery);
        Check::problem("documents", first_of(&reasons, NAMED_BY_CHECK), next)
    }

    /// Verifies all documents from time to time while one is damaged: another manager may have recovered it.
    pub(super) async fn poll_damage(&self) -> Result<(), ServiceError> {
        if self.store.damaged().is_empty() {
            return Ok(());
        }
        {
            let mut last = lock(&self.damage.read_again);
            if last.is_some_and(|last| last.elapsed() < READ_AGAIN) {
                return Ok(());
            }
            *last = Some(Instant::now());
        }
        self.store.verify().await?;
        Ok(())
    }

    async fn damaged(&self, named: &str) -> Result<Damaged, ServiceError> {
        let mut all = self.store.verify().await?.into_iter();
        all.find(|damaged| name(damaged) == named).ok_or_else(|| {
            let hint = match named {
                START => "restart the manager",
                _ => "poolwright doctor names damaged documents",
            };
            let message = format!("{named} is not a damaged document");
            ServiceError::new(ErrorCode::NotFound, message).with_hint(hint)
        })
    }

    /// Writes a damaged document as it was before one bit of it flipped. Claims are written again from the open operations:
    /// one that is damaged may have outlived its operation.
    pub(super) async fn repair_damaged(&self, named: &str, by: &str) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let damaged = &self.damaged(named).await?;
        let (kind, id) = (damaged.kind.as_str(), damaged.id.as_str());
        let mut batch = Batch::new();
        match kind {
            INDEX => drop(batch.discard(kind, id)),
            Claim::KIND => {
                batch.discard(kind, id);
                self.rebuild_claims(damaged, &mut batch).await?;
            }
            _ => match self.store.before_flip(kind, id).await? {
                Some(originals) if kind == Page::KIND => {
                    // The entries after it may have been forgotten meanwhile, and then it is, too.
                    match self.audit().has_forgotten(id).await? {
                        true => drop(batch.discard(kind, id)),
                        false => drop(batch.restore_in_order(kind, id, originals)),
                    }
                }
                Some(originals) => drop(batch.restore(kind, id, originals)),
                None => {
                    // A document with another name, and a long one, are not searched.
                    let message = format!("{named} can't be repaired: no single flipped bit was found");
                    let error = ServiceError::new(ErrorCode::Conflict, message);
                    let next = recovery_by_discarding(damaged);
                    return Err(error.with_hint(format!("nothing was changed; {next}")));
                }
            },
        }
        self.store.commit(batch).await?;
        tracing::warn!(document = named, by, "damaged document repaired");
        Ok(())
    }

    /// Deletes a damaged document, and writes it again from the rest of the store and the hardware's state.
    pub(super) async fn discard_damaged(&self, named: &str, by: &str) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let damaged = &self.damaged(named).await?;
        self.can_be_discarded(damaged).await?;
        let mut batch = Batch::new();
        batch.discard(&damaged.kind, &damaged.id);
        let is_known = documents::kinds().chain([INDEX]).any(|kind| kind == damaged.kind);
        let pausing = self.pausing.lock().await;
        self.pause_after_discard(damaged, &mut batch).await?;
        if damaged.kind == GpuRecord::KIND || !is_known {
            self.rebuild_gpus(damaged, &mut batch).await?;
        }
        if damaged.kind == Claim::KIND || !is_known {
            self.rebuild_claims(damaged, &mut batch).await?;
        }
        self.store.commit(batch).await?;
        drop(pausing);
        tracing::warn!(document = named, by, "damaged document discarded");
        Ok(())
    }

    /// Pauses all that could rest on the absence of the document, until an operator has replaced it: GPUs of a composition
    /// are adopted before its demand gets others, and a quarantine is set again before its GPU is used.
    async fn pause_after_discard(&self, discarded: &Damaged, batch: &mut Batch) -> Result<(), ServiceError> {
        let adopt = (
            Paused::Automation,
            "adopt its GPUs: poolwright endpoint adopt NAME",
        );
        let due = match after_discard(&discarded.kind) {
            AfterDiscard::Nothing => vec![],
            AfterDiscard::Adopt => vec![adopt],
            AfterDiscard::SetAgain => vec![(Paused::All, "set it again, if it was a setting")],
            AfterDiscard::AddAgain => vec![(
                Paused::All,
                "add it again: poolwright endpoint add NAME --url URL",
            )],
            AfterDiscard::Unknown => vec![
                (
                    Paused::All,
                    "set pauses, quarantines, closures and limits again that are gone",
                ),
                adopt,
            ],
        };
        for (what, next) in due {
            let reason = format!("{} was discarded: first {next}", name(discarded));
            let pauses = self.pauses().await?;
            let pause = match pauses.into_iter().find(|pause| pause.what == what) {
                Some(mut pause) => {
                    pause.reason = format!("{}; {reason}", pause.reason);
                    pause
                }
                None => {
                    expect_none::<Pause>(discarded, &what.to_string(), batch);
                    Pause::new(what, "the manager", &reason, self.clock.now())
                }
            };
            batch.put(&pause)?;
        }
        Ok(())
    }

    /// Refuses to discard a document that can't be written again, and one that still protects requests.
    async fn can_be_discarded(&self, damaged: &Damaged) -> Result<(), ServiceError> {
        let refused = |message: String, hint: String| {
            Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint))
        };
        match damaged.kind.as_str() {
            Ids::KIND => refused(
                "the names of GPUs and hosts can't be written again".to_owned(),
                "stop the manager and restore a backup: poolwright restore FILE --data-dir DIR".to_owned(),
            ),
            // Its claims would stay.
            Operation::KIND | PlanRecord::KIND | JOURNAL => {
                let open = self.store.open_operations().await?;
                match open.iter().find(|open| open.as_str() == damaged.id) {
                    Some(open) => refused(
                        format!("operation {open} is open"),
                        format!(
                            "{}; if that is refused: restart the manager, or {RESTORE}",
                            end(open)
                        ),
                    ),
                    None => Ok(()),
                }
            }
            // The next manager does not wait for the requests of the one that had it.
            Lease::KIND => {
                let name = name(damaged);
                let found = lock(&self.damage.found).get(&name).copied();
                let sharing = self.options.sharing.as_ref();
                let wait = sharing.map_or(Duration::ZERO, |sharing| sharing.term + sharing.write_deadline);
                let now = self.clock.now();
                let ends = found
                    .unwrap_or(now)
                    .saturating_add(jiff::SignedDuration::try_from(wait).unwrap_or_default());
                match ends {
                    Ok(ends) if ends > now => refused(
                        format!("the manager that had {name} may send requests until {ends}"),
                        "try again then".to_owned(),
                    ),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Writes the records of GPUs that have none: as memory has them, or as compositions hold them. Any other GPU counts as
    /// not reset. If no GPU without a record has the damaged id, the record may be that of any of them.
    async fn rebuild_gpus(&self, damaged: &Damaged, batch: &mut Batch) -> Result<(), ServiceError> {
        let sound = read_all::<GpuRecord>(self.store.as_ref()).await?;
        let sound: BTreeSet<GpuId> = sound.into_iter().map(|found| found.value.gpu).collect();
        let mut gpus = self.known_gpus();
        gpus.retain(|gpu| !sound.contains(&gpu.id));
        if gpus.iter().any(|gpu| gpu.id.as_str() == damaged.id) {
            gpus.retain(|gpu| gpu.id.as_str() == damaged.id);
        }
        let pages = self.books.pages();
        for gpu in &gpus {
            expect_none::<GpuRecord>(damaged, gpu.id.as_str(), batch);
            match pages.records.get(&gpu.id) {
                Some(known) => batch.put(&known.value)?,
                None => batch.put(&presumed(gpu, &pages.compositions, self.clock.now()))?,
            };
        }
        Ok(())
    }

    /// Writes the claims that open operations lack. An operation that ends meanwhile has none: its document is expected as it
    /// was read.
    async fn rebuild_claims(&self, damaged: &Damaged, batch: &mut Batch) -> Result<(), ServiceError> {
        let sound = read_all::<Claim>(self.store.as_ref()).await?;
        let sound: BTreeSet<_> = sound.into_iter().map(|found| found.value.unit).collect();
        let mut others = self.store.damaged();
        others.retain(|other| other.kind == Claim::KIND && name(other) != name(damaged));
        for operation in self.executor.unfinished().await? {
            let unreadable = || {
                let message = format!("operation {} can't be read, so its claims can't be", operation.id);
                ServiceError::new(ErrorCode::Conflict, message).with_hint(end(&operation.id))
            };
            let plan = self.plan_underway(&operation.id).await?;
            let plan = plan.ok_or_else(unreadable)?;
            let id = operation.id.as_str();
            match read::<Operation>(self.store.as_ref(), id).await {
                Ok(Some(found)) if !found.value.state.has_ended() => {
                    batch.expect(Operation::KIND, id, Some(found.revision));
                }
                Ok(Some(_)) => continue,
                Ok(None) => return Err(unreadable()),
                // It is left alone until it is resolved.
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error.into()),
            }
            for (unit, goes_to) in plan.moves() {
                // Each damaged one has its turn.
                let is_other_damaged = others.iter().any(|other| other.id == unit.as_str());
                if sound.contains(unit) || is_other_damaged {
                    continue;
                }
                expect_none::<Claim>(damaged, unit.as_str(), batch);
                batch.put(&Claim::of(&operation, unit, goes_to))?;
            }
        }
        Ok(())
    }
}

/// Another manager may write the document first. The damaged one is there until it is replaced.
fn expect_none<T: Stored>(damaged: &Damaged, id: &str, batch: &mut Batch) {
    if (damaged.kind.as_str(), damaged.id.as_str()) != (T::KIND, id) {
        batch.expect(T::KIND, id, None);
    }
}

fn described(damaged: &Damaged) -> String {
    format!("damaged document {}: {}", name(damaged), damaged.reason)
}

fn first_of(reasons: &[&str], most: usize) -> String {
    let named = reasons[..reasons.len().min(most)].join("; ");
    match reasons.len().saturating_sub(most) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

fn end(operation: &OperationId) -> String {
    format!(
        "look at the hardware, then end it: poolwright ops resolve {operation} --with accept --reason WHY"
    )
}

/// The next step of an operator.
fn recovery(damaged: &Damaged) -> String {
    let repair = format!("poolwright resume --damaged {}", quoted(&name(damaged)));
    match (damaged.kind.as_str(), damaged.id.as_str()) {
        (INDEX, _) => format!("rebuild it from the documents: {repair}; or {RESTORE}"),
        (Head::KIND, _) => format!("make any change: the manager then writes it again; or {RESTORE}"),
        (Account::KIND, ADMIN) => format!(
            "repair it, as another administrator: {repair}; or restart the manager with --new-admin-password; or {RESTORE}"
        ),
        _ => format!("repair it, if one bit flipped: {repair}; or {RESTORE}"),
    }
}

const RESTORE: &str = "restore a backup (poolwright restore)";

/// The next steps if it can't be repaired.
fn recovery_by_discarding(damaged: &Damaged) -> String {
    let (kind, id) = (damaged.kind.as_str(), damaged.id.as_str());
    let discard = format!("poolwright resume --damaged {} --discard", quoted(&name(damaged)));
    let otherwise = match (after_discard(kind), kind) {
        (_, Ids::KIND) => return RESTORE.to_owned(),
        (_, Head::KIND) => return recovery(damaged),
        (_, Account::KIND) if id == ADMIN => {
            return format!("restart the manager with --new-admin-password; or {RESTORE}");
        }
        (_, GpuRecord::KIND) => {
            format!("write it again from the compositions and the hardware's state: {discard}")
        }
        (_, Operation::KIND | PlanRecord::KIND | JOURNAL) => format!(
            "while the operation is open: poolwright ops resolve {} --with accept --reason WHY; after its end: {discard}",
            quoted(id)
        ),
        (AfterDiscard::Nothing, _) => format!("discard it: {discard}"),
        (AfterDiscard::Adopt, _) => format!("discard it, which pauses automation: {discard}; {ADOPT}"),
        (AfterDiscard::Unknown, _) => format!(
            "discard it, which pauses everything: {discard}; set pauses, quarantines, closures and limits again that are \
             gone; then: poolwright resume --all; then {ADOPT}"
        ),
        (AfterDiscard::SetAgain, _) => format!(
            "discard it, which pauses everything: {discard}; set it again, if it was a setting, such as with poolwright apply \
             -f FILE; then: poolwright resume --all"
        ),
        (AfterDiscard::AddAgain, _) => format!(
            "discard it, which pauses everything: {discard}; add it again: poolwright endpoint add NAME --url URL; then: \
             poolwright resume --all; then: poolwright endpoint adopt NAME --yes"
        ),
    };
    format!("{RESTORE}; or {otherwise}")
}

const ADOPT: &str = "compare with the hardware (poolwright diff), adopt foreign GPUs (poolwright endpoint adopt NAME --yes), \
                     then: poolwright resume --automation";

/// The next step before changes go on.
enum AfterDiscard {
    /// It is written again by itself, or no change of hardware rests on it.
    Nothing,
    /// It held GPUs.
    Adopt,
    SetAgain,
    /// An endpoint. Its GPUs are unknown until it is added again.
    AddAgain,
    /// Its kind is damaged.
    Unknown,
}

fn after_discard(kind: &str) -> AfterDiscard {
    match kind {
        GpuRecord::KIND | Claim::KIND | Lease::KIND | INDEX | JOURNAL => AfterDiscard::Nothing,
        kind if HOLD_NOTHING.contains(&kind) => AfterDiscard::Nothing,
        CompositionRecord::KIND => AfterDiscard::Adopt,
        Endpoint::KIND => AfterDiscard::AddAgain,
        kind if documents::kinds().all(|known| known != kind) => AfterDiscard::Unknown,
        _ => AfterDiscard::SetAgain,
    }
}

/// A name for a shell: the damaged part of it may be any character.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:@+=,".contains(c);
    match name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// The record of a GPU that lost it, by the compositions.
fn presumed(gpu: &Gpu, compositions: &[Composition], since: Timestamp) -> GpuRecord {
    let holder = compositions.iter().find_map(|composition| {
        let mut held = composition.held.iter();
        let held = held.find(|held| held.gpus.contains(&gpu.id))?;
        Some((composition, held))
    });
    GpuRecord {
        gpu: gpu.id.clone(),
        unit: gpu.unit.clone(),
        state: match holder {
            Some(_) => GpuState::Bound,
            None => GpuState::Dirty,
        },
        was_attached: false,
        clean: false,
        host: holder.map(|(composition, _)| composition.host.clone()),
        host_port: holder.map(|(_, held)| held.host_port.clone()),
        composition: holder.map(|(composition, _)| composition.id.clone()),
        tenant: holder.and_then(|(composition, _)| composition.tenant.clone()),
        operation: None,
        since,
        learned: None,
        learned_before: None,
        left: Vec::new(),
    }
}
