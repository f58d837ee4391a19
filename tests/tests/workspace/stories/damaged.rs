//! Flipped bits in the store: no change rests on a damaged document, and an operator is shown the recovery.

use crate::stories::kit::{Bindings, ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_executor::GpuRecord;
use poolwright_model::id::OperationId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::audit::{KEPT, Kind, Record};
use poolwright_service::{
    Change, Check, CheckResult, Composition, ErrorCode, How, OperationState, Paused, Resolution, ServiceError,
};
use poolwright_store::{Batch, SqliteStore, Store, read};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A pool whose store can be damaged.
struct Rotten {
    pool: Pool,
    store: Arc<SqliteStore>,
}

/// The pause for a damaged document.
fn damaged(kind: &str, id: &str) -> Paused {
    Paused::Damaged(format!("{kind}/{id}"))
}

impl Rotten {
    async fn new() -> Self {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let mut pool = Pool::bare(Rack::builtin("zones").unwrap(), store.clone());
        pool.open().await;
        pool.add_all_endpoints().await;
        Self { pool, store }
    }

    fn flip_one(&self, kind: &str, id: &str) {
        self.store.flip_bit(kind, id, 317).unwrap();
    }

    /// More than is repaired.
    fn flip_two(&self, kind: &str, id: &str) {
        self.flip_one(kind, id);
        self.store.flip_bit(kind, id, 338).unwrap();
    }

    async fn checked(&self, name: &str) -> Check {
        let checks = self.pool.composer().doctor().await.unwrap();
        checks.into_iter().find(|check| check.name == name).unwrap()
    }

    async fn documents_checked(&self) -> Check {
        self.checked("documents").await
    }

    async fn is_ready(&self) -> bool {
        let checks = self.pool.composer().readiness().await;
        checks.iter().all(|check| check.result == CheckResult::Ok)
    }

    /// It is named, nothing can be begun, and nothing was sent.
    async fn is_held(&self, kind: &str, id: &str, truth: &Bindings) {
        let name = format!("damaged document {kind}/{id}");
        assert!(!self.is_ready().await);
        let check = self.documents_checked().await;
        assert_eq!(check.result, CheckResult::Problem);
        assert!(check.message.contains(&name), "{}", check.message);
        let hint = check.hint.unwrap();
        for part in [
            "restore a backup",
            &format!("poolwright resume --damaged {kind}/{id}"),
        ] {
            assert!(hint.contains(part), "{part}: {hint}");
        }
        let refusals: [ServiceError; 2] = [
            self.pool
                .compose(gpus("more", "a100-pcie-80gb", 1))
                .await
                .unwrap_err(),
            self.pool.release("chat").await.unwrap_err(),
        ];
        for refused in refusals {
            assert!(refused.message.contains(&name), "{refused}");
        }
        assert_eq!(self.pool.truth(), *truth, "nothing was sent");
    }

    async fn repair(&self, kind: &str, id: &str) {
        let what = damaged(kind, id);
        let paused = self.pool.composer().resume(&what, ME).await.unwrap();
        assert!(paused.is_empty(), "{paused:?}");
        assert_eq!(self.documents_checked().await.result, CheckResult::Ok);
        assert!(self.is_ready().await);
    }

    /// Discards it. Returns the pauses after that.
    async fn discard(&self, kind: &str, id: &str) -> Vec<Paused> {
        let (composer, name) = (self.pool.composer(), format!("{kind}/{id}"));
        let refused = composer.resume(&damaged(kind, id), ME).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
        let hint = refused.hint.unwrap();
        assert!(
            hint.contains(&format!("poolwright resume --damaged {name} --discard")),
            "{hint}"
        );
        self.discard_without_repair(kind, id).await
    }

    async fn discard_without_repair(&self, kind: &str, id: &str) -> Vec<Paused> {
        let name = format!("{kind}/{id}");
        let paused = self.pool.composer().discard(&name, ME).await.unwrap();
        assert_eq!(self.documents_checked().await.result, CheckResult::Ok);
        assert!(self.is_ready().await);
        paused.into_iter().map(|pause| pause.what).collect()
    }

    async fn composition(&self) -> Composition {
        let compositions = self.pool.composer().compositions().await.unwrap();
        let of_chat = |found: &Composition| found.demand.as_ref().is_some_and(|id| id.as_str() == "chat");
        compositions.into_iter().find(of_chat).unwrap()
    }
}

/// A manager that was killed while it composed `chat`.
async fn killed_while_composing() -> (Rotten, Change, OperationId) {
    let mut rotten = Rotten::new().await;
    let change = rotten
        .pool
        .compose(gpus("chat", "a100-pcie-80gb", 1))
        .await
        .unwrap();
    let id = change.operation.as_ref().unwrap().id.clone();
    rotten.pool.crash().await;
    (rotten, change, id)
}

/// Faults 98 and 99: one bit.
#[tokio::test(start_paused = true)]
async fn a_document_with_one_flipped_bit_holds_every_change_until_it_is_repaired() {
    let mut rotten = Rotten::new().await;
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 2)).await;
    let held = rotten.composition().await;
    let truth = rotten.pool.truth();
    for (kind, id) in [("composition", held.id.as_str()), ("demand", "chat")] {
        rotten.flip_one(kind, id);
        rotten.pool.restart().await;
        rotten.is_held(kind, id, &truth).await;
        assert_eq!(rotten.checked("pauses").await.result, CheckResult::Problem);
        // Whether a demand that can't be read exists is unknown: its GPUs are not to be released.
        let orphaned = rotten.pool.composer().orphaned_compositions().await.unwrap();
        assert_eq!(orphaned, vec![]);
        let owners = rotten.checked("owners").await;
        let expected = match kind {
            "demand" => (CheckResult::Warning, "unknown while demand/chat is damaged"),
            _ => (CheckResult::Ok, "every composition has its owner"),
        };
        assert_eq!((owners.result, owners.message.as_str()), expected);
        rotten.repair(kind, id).await;
        assert_eq!(rotten.composition().await, held);
    }
    rotten.pool.released("chat").await;
}

/// Fault 98: a composition. Fault 99: its GPUs are taken over again.
#[tokio::test(start_paused = true)]
async fn a_damaged_composition_holds_every_change_until_it_is_discarded_and_adopted() {
    let mut rotten = Rotten::new().await;
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 2)).await;
    let held = rotten.composition().await;
    let id = held.id.as_str();
    let truth = rotten.pool.truth();
    rotten.flip_two("composition", id);
    rotten.pool.restart().await;
    rotten.is_held("composition", id, &truth).await;
    let composer = rotten.pool.composer();
    let error = composer.composition(&held.id).await.unwrap_err();
    assert!(error.message.contains("damaged document"), "{error}");
    let pause = composer
        .pause(damaged("composition", id), ME, "")
        .await
        .unwrap_err();
    assert_eq!(pause.code, ErrorCode::BadRequest);
    let unknown = composer
        .resume(&damaged("composition", "other"), ME)
        .await
        .unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);

    // Its demand gets no other GPUs meanwhile.
    assert_eq!(rotten.discard("composition", id).await, [Paused::Automation]);
    let endpoints: BTreeSet<_> = held
        .held
        .iter()
        .map(|held| held.unit_at.endpoint.clone())
        .collect();
    for endpoint in endpoints {
        let composer = rotten.pool.composer();
        let adopting = composer
            .adopt_endpoint(&endpoint, ME, &How::default(), None)
            .await
            .unwrap();
        rotten.pool.done(&adopting.change).await;
    }
    let again = rotten.pool.composer().compositions().await.unwrap();
    let again: BTreeSet<_> = again.iter().flat_map(Composition::gpus).collect();
    assert!(held.gpus().all(|gpu| again.contains(gpu)), "{again:?}");
    assert_eq!(rotten.pool.truth(), truth, "nothing was moved");
}

/// Fault 98: the record of a GPU. Fault 99: it is written again, from its composition.
#[tokio::test(start_paused = true)]
async fn a_damaged_gpu_record_is_made_again_from_its_composition() {
    let mut rotten = Rotten::new().await;
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 1)).await;
    let held = rotten.composition().await;
    let gpu = held.gpus().next().unwrap().to_string();
    let truth = rotten.pool.truth();
    rotten.flip_two("gpu-state", &gpu);
    rotten.pool.restart().await;
    rotten.is_held("gpu-state", &gpu, &truth).await;
    assert_eq!(rotten.discard("gpu-state", &gpu).await, []);
    let record = read::<GpuRecord>(&*rotten.store, &gpu).await.unwrap().unwrap();
    assert_eq!(record.value.composition.as_ref(), Some(&held.id));
    rotten.pool.released("chat").await;
    let left = rotten.pool.truth();
    assert_eq!(left.len() + 1, truth.len(), "{left:?}");
}

/// Fault 99: a GPU whose endpoint does not answer. It is not given to another tenant before its reset.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_is_not_visible_counts_as_not_reset_once_its_record_is_discarded() {
    let mut rotten = Rotten::new().await;
    let before = rotten.pool.truth();
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 1)).await;
    let mut bound = rotten.pool.truth();
    bound.retain(|gpu, _| !before.contains_key(gpu));
    let gpu = rotten.composition().await.gpus().next().unwrap().to_string();
    rotten.pool.released("chat").await;
    rotten.flip_two("gpu-state", &gpu);
    let emulation = &rotten.pool.emulation;
    let pulled = emulation.rack().gpu_named(bound.keys().next().unwrap()).unwrap();
    emulation.with(|state, now| state.vanish(pulled, now));
    rotten.pool.restart().await;
    assert_eq!(rotten.discard("gpu-state", &gpu).await, []);
    let record = read::<GpuRecord>(&*rotten.store, &gpu).await.unwrap().unwrap();
    assert_eq!((record.value.state, record.value.clean), (GpuState::Dirty, false));
}

/// Fault 98: a claim. Fault 99: it is written again from its operation, which waits meanwhile.
#[tokio::test(start_paused = true)]
async fn an_operation_waits_while_a_claim_is_damaged_and_ends_once_it_is_made_again() {
    for discards in [false, true] {
        let (mut rotten, change, id) = killed_while_composing().await;
        let unit = change.plan.steps[0].target.unit.to_string();
        rotten.flip_two("claim", &unit);
        rotten.pool.open().await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let truth = rotten.pool.truth();
        let operation = rotten.pool.composer().operation(&id).await.unwrap();
        assert!(!operation.state.has_ended(), "{:?}", operation.state);
        let waits = operation.waits().join("; ");
        assert!(
            waits.contains(&format!("damaged document claim/{unit}")),
            "{waits}"
        );
        assert_eq!(rotten.pool.truth(), truth);
        match discards {
            true => assert_eq!(rotten.discard_without_repair("claim", &unit).await, []),
            false => rotten.repair("claim", &unit).await,
        }
        rotten.pool.done(&change).await;
        rotten.pool.released("chat").await;
    }
}

/// Fault 100: its document. Everything else goes on.
#[tokio::test(start_paused = true)]
async fn an_operation_with_a_damaged_document_is_left_alone_until_it_is_resolved() {
    let (mut rotten, _, id) = killed_while_composing().await;
    rotten.flip_two("operation", id.as_str());
    rotten.pool.open().await;
    let operation = rotten.pool.composer().operation(&id).await.unwrap();
    assert_eq!(operation.state, OperationState::Quarantined);
    let alarm = operation.alarm.unwrap().message;
    assert!(
        alarm.contains(&format!("damaged document operation/{id}")),
        "{alarm}"
    );
    let check = rotten.documents_checked().await;
    assert_eq!(check.result, CheckResult::Problem);
    assert!(rotten.is_ready().await, "no other change rests on it");
    rotten.pool.composed(gpus("more", "a100-pcie-80gb", 1)).await;
    let composer = rotten.pool.composer();
    let open = composer
        .discard(&format!("operation/{id}"), ME)
        .await
        .unwrap_err();
    assert_eq!(open.code, ErrorCode::Conflict, "it is ended, and not discarded");
    assert!(open.hint.unwrap().contains(&format!("ops resolve {id}")));
    let resolve = |how| composer.resolve(&id, how, ME, "looked at it");
    let retried = resolve(Resolution::Retry).await.unwrap_err();
    assert_eq!(
        retried.code,
        ErrorCode::Conflict,
        "a retry reads no more: {retried}"
    );
    assert!(retried.hint.unwrap().contains(&format!("ops resolve {id}")));

    // The holder of its GPUs could be a composition that can't be read.
    let other = composer.compositions().await.unwrap().remove(0).id;
    rotten.flip_one("composition", other.as_str());
    let unknown = resolve(Resolution::Accept).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::Conflict);
    assert!(
        unknown.message.contains(&format!("composition/{other}")),
        "{unknown}"
    );
    composer
        .resume(&damaged("composition", other.as_str()), ME)
        .await
        .unwrap();
    let ended = composer
        .resolve(&id, Resolution::Accept, ME, "looked at it")
        .await
        .unwrap();
    assert_eq!(ended.state, OperationState::Failed);
    assert_eq!(rotten.documents_checked().await.result, CheckResult::Ok);
}

/// Fault 100: one bit of it, or of its journal. The operation goes on.
#[tokio::test(start_paused = true)]
async fn an_operation_goes_on_once_its_document_or_journal_is_repaired() {
    for kind in ["operation", "journal"] {
        let (mut rotten, change, id) = killed_while_composing().await;
        rotten.flip_one(kind, id.as_str());
        assert_eq!(rotten.store.verify().await.unwrap().len(), 1);
        rotten.pool.open().await;
        assert_eq!(rotten.is_ready().await, kind == "operation");
        rotten.repair(kind, id.as_str()).await;
        rotten.pool.done(&change).await;
        rotten.pool.released("chat").await;
    }
}

/// Fault 99: a setting, and a document of a damaged kind. Changes wait until an operator sets it again.
#[tokio::test(start_paused = true)]
async fn a_discarded_setting_pauses_every_change() {
    let mut rotten = Rotten::new().await;
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 1)).await;
    let held = rotten.composition().await;
    let composition = rotten.store.get("composition", held.id.as_str()).await.unwrap();
    let mut batch = Batch::new();
    batch.put_json("quarantinf", "gpu-9", composition.unwrap().json);
    rotten.store.commit(batch).await.unwrap();
    for (kind, id, automation) in [("demand", "chat", false), ("quarantinf", "gpu-9", true)] {
        rotten.flip_two(kind, id);
        rotten.pool.restart().await;
        let paused = rotten.discard(kind, id).await;
        assert!(paused.contains(&Paused::All), "{kind}: {paused:?}");
        assert_eq!(paused.contains(&Paused::Automation), automation, "{kind}");
        rotten.pool.composer().resume(&Paused::All, ME).await.unwrap();
    }
}

/// Fault 98: a document without which the pool can't be read. Doctor names it all the same.
#[tokio::test(start_paused = true)]
async fn doctor_goes_on_although_a_document_is_damaged_that_it_needs() {
    let mut rotten = Rotten::new().await;
    rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 1)).await;
    let shown = rotten.store.list("shown").await.unwrap().remove(0).id;
    rotten.flip_two("shown", &shown);
    rotten.pool.restart().await;
    let check = rotten.documents_checked().await;
    assert_eq!(check.result, CheckResult::Problem);
    let named = format!("damaged document shown/{shown}");
    assert!(check.message.contains(&named), "{}", check.message);
}

/// Fault 100: its name.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_document_has_another_name_is_left_alone_until_it_is_resolved() {
    let (mut rotten, _, id) = killed_while_composing().await;
    let mut batch = Batch::new();
    batch.delete("operation", id.as_str());
    rotten.store.commit(batch).await.unwrap();
    rotten.pool.open().await;
    let operation = rotten.pool.composer().operation(&id).await.unwrap();
    assert_eq!(operation.state, OperationState::Quarantined);
    let composer = rotten.pool.composer();
    let ended = composer
        .resolve(&id, Resolution::Accept, ME, "looked at it")
        .await
        .unwrap();
    assert_eq!(ended.state, OperationState::Failed);
    assert!(rotten.store.list("claim").await.unwrap().is_empty());
}

/// Fault 100: the list of open operations, which has no checksums.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_not_listed_as_open_is_ended_after_the_next_start() {
    let (mut rotten, change, id) = killed_while_composing().await;
    let mut batch = Batch::new();
    batch.end(&id);
    rotten.store.commit(batch).await.unwrap();
    rotten.pool.open().await;
    rotten.pool.done(&change).await;
    rotten.pool.released("chat").await;
    assert!(rotten.is_ready().await);
}

/// Fault 98: a document of the past.
#[tokio::test(start_paused = true)]
async fn a_damaged_document_on_which_no_change_rests_is_a_problem_and_holds_nothing() {
    let mut rotten = Rotten::new().await;
    let ended = rotten.pool.composed(gpus("chat", "a100-pcie-80gb", 1)).await;
    rotten.flip_one("plan", ended.id.as_str());
    rotten.pool.restart().await;
    assert!(rotten.is_ready().await);
    let check = rotten.documents_checked().await;
    assert_eq!(check.result, CheckResult::Problem);
    assert!(
        check.message.contains(&format!("plan/{}", ended.id)),
        "{}",
        check.message
    );
    rotten.pool.released("chat").await;
    rotten.repair("plan", ended.id.as_str()).await;
}

/// Fault 99: a page of the audit log. It stays where it was.
#[tokio::test(start_paused = true)]
async fn a_repaired_page_of_the_audit_log_stays_in_its_place() {
    let mut rotten = Rotten::new().await;
    for path in ["/first", "/second", "/third"] {
        let record = Record::without_request(Kind::Began, ME, "change".to_owned(), path.to_owned());
        rotten.pool.composer().audit().note(record).await.unwrap();
    }
    let written = rotten.pool.composer().audit().after(0, 100).await.unwrap();
    let pages = rotten.store.list("audit").await.unwrap();
    let [.., first, second, _] = &pages[..] else {
        panic!("{pages:?}")
    };
    let second = &second.id;
    rotten.flip_one("audit", second);
    rotten.pool.restart().await;
    assert!(rotten.is_ready().await, "no change rests on it");
    rotten.repair("audit", second).await;
    let audit = rotten.pool.composer().audit();
    assert!(audit.after(0, 100).await.unwrap().starts_with(&written));
    assert!(audit.latest(100).await.unwrap().starts_with(&written));

    // The entries after another page are forgotten while it is damaged: then it is, too.
    rotten.flip_one("audit", &first.id);
    let long_after = written.last().unwrap().at + 2 * KEPT;
    rotten.pool.composer().audit().prune(long_after).await.unwrap();
    rotten.repair("audit", &first.id).await;
    assert!(rotten.store.get("audit", &first.id).await.unwrap().is_none());
}
