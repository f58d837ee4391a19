//! Endpoints that give no answer, or nothing but errors: what is said of them, and of what they had.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{EndpointSpec, Standing, Trust};
use poolwright_service::{Check, CheckResult, ErrorCode};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;
use tracing_subscriber::util::SubscriberInitExt as _;

const KIND: &str = "l40s-48gb";

/// Fault 23: it is told to be old.
/// Fault 24: the last good data stay.
#[tokio::test(start_paused = true)]
async fn what_is_shown_of_a_silent_endpoint_is_told_to_be_old() {
    let mut pool = Pool::of("demo").await;
    assert!(pool.composer().silent().is_empty());
    let before = pool.snapshot().await.taken_at;
    pool.silence("box-2");
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    for _ in 0..2 {
        pool.composer().discover(&()).await.unwrap();
    }
    let silent = pool.composer().silent();
    assert_eq!(silent.len(), 1, "{silent:?}");
    let since = silent[0].last_answer.unwrap();
    assert!(since <= before, "{since} {before}");
    let told = silent[0].to_string();
    assert!(
        told.starts_with(&format!("box-2 has not answered since {since}: ")),
        "{told}"
    );
    assert_eq!(pool.composer().status().await.unwrap().silent, silent);

    // After a restart nothing is known of it, and that is not said to be an empty pool.
    pool.restart().await;
    let silent = pool.composer().silent();
    assert_eq!(silent[0].last_answer, None);
    assert!(
        silent[0].to_string().contains("since the manager started"),
        "{}",
        silent[0]
    );
    let error = pool.compose(gpus("chat", KIND, 1)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unplaced);
    assert!(
        error.message.contains("1 endpoint does not answer (box-2)"),
        "{error}"
    );
    assert!(error.hint.unwrap().contains("poolwright doctor"));

    pool.emulation.clear_faults();
    pool.composer().discover(&()).await.unwrap();
    assert!(pool.composer().silent().is_empty());
    pool.composed(gpus("chat", KIND, 1)).await;
}

impl Pool {
    /// The check of the GPUs, which is the same in the probe and in `doctor`.
    async fn gpus_check(&self) -> Check {
        let of = |checks: Vec<Check>| checks.into_iter().find(|check| check.name == "gpus");
        let probe = of(self.composer().readiness().await);
        let doctor = of(self.composer().doctor().await.unwrap());
        assert_eq!(probe, doctor);
        probe.unwrap()
    }
}

/// Fault 76: a GPU whose endpoint does not answer is neither composable nor free.
#[tokio::test(start_paused = true)]
async fn gpus_of_an_endpoint_that_does_not_answer_are_not_counted_as_composable() {
    let pool = Pool::of("demo").await;
    let before = pool.composer().status().await.unwrap();
    assert_eq!((before.unreachable, before.unreachable_since), (0, None));
    let counted = format!("{} composable, {} free", before.composable, before.free);
    let check = pool.gpus_check().await;
    assert_eq!((check.result, check.message), (CheckResult::Ok, counted));

    pool.silence("box-2");
    pool.composer().discover(&()).await.unwrap();
    let some = pool.composer().status().await.unwrap();
    let lost = some.unreachable;
    assert!(lost > 0 && some.composable > 0, "{some:?}");
    assert_eq!(some.gpus, before.gpus, "they are shown as they were");
    assert_eq!(some.composable, before.composable - lost);
    assert_eq!(some.free, before.free - lost);
    let since = some.unreachable_since.unwrap();
    assert_eq!(pool.composer().silent()[0].last_answer, Some(since));
    let counted = format!(
        "{} composable, {} free; {lost} unreachable since {since}",
        some.composable, some.free
    );
    let check = pool.gpus_check().await;
    assert_eq!((check.result, check.message), (CheckResult::Warning, counted));

    pool.fault(Fault::new(FaultKind::TimeOutBefore));
    pool.composer().discover(&()).await.unwrap();
    let none = pool.composer().status().await.unwrap();
    assert_eq!(
        (none.composable, none.free, none.unreachable),
        (0, 0, before.composable)
    );
    let check = pool.gpus_check().await;
    assert_eq!(check.result, CheckResult::Problem, "{check:?}");
    assert!(check.message.starts_with("0 composable, 0 free; "), "{check:?}");

    pool.emulation.clear_faults();
    pool.composer().discover(&()).await.unwrap();
    let after = pool.composer().status().await.unwrap();
    assert_eq!(
        (after.composable, after.free, after.unreachable),
        (before.composable, before.free, 0)
    );
}

/// Fault 76: polling logs a lost endpoint once, and its recovery once.
#[tokio::test(start_paused = true)]
async fn an_endpoint_is_logged_once_when_it_is_lost_and_once_when_it_is_recovered() {
    const POLL: Duration = Duration::from_secs(30);
    let file = NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(file.reopen().unwrap())
        .finish();
    let _guard = subscriber.set_default();
    let lines = |message: &str| -> Vec<String> {
        let log = std::fs::read_to_string(file.path()).unwrap();
        let found = log.lines().filter(|line| line.contains(message));
        found.map(str::to_owned).collect()
    };
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    let clockwork = Clockwork::of(&pool);

    pool.silence("box-2");
    tokio::time::sleep(POLL * 20).await;
    let lost = lines("endpoint lost");
    assert_eq!(lost.len(), 1, "{lost:?}");
    for word in ["WARN", "endpoint=box-2", "last_answer=\"2026-03-02T", "reason=\""] {
        assert!(lost[0].contains(word), "{word}: {lost:?}");
    }
    assert!(lines("endpoint recovered").is_empty());

    pool.emulation.clear_faults();
    tokio::time::sleep(POLL * 20).await;
    let recovered = lines("endpoint recovered");
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    for word in ["INFO", "endpoint=box-2"] {
        assert!(recovered[0].contains(word), "{word}: {recovered:?}");
    }
    assert_eq!(lines("endpoint lost").len(), 1);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_answers_with_errors_alone_is_a_problem() {
    let pool = Pool::of("demo").await;
    let refuses = FaultKind::Status {
        code: 503,
        retry_after: None,
    };
    pool.fault(Fault::new(refuses).at("box-2"));
    let checks = pool.composer().doctor().await.unwrap();
    let of = |name: &str| checks.iter().find(|check| check.name == name).unwrap();
    assert_eq!(of("endpoint box-2").result, CheckResult::Problem, "{checks:?}");
    assert_eq!(of("endpoint box-1").result, CheckResult::Ok);
    assert!(!of("endpoint box-2").message.contains("answers at"));
}

#[tokio::test(start_paused = true)]
async fn one_address_is_not_added_under_two_names() {
    let pool = Pool::of("demo").await;
    for url in ["https://box-1", "https://BOX-1:443/", "https://box-1/redfish/v1"] {
        let spec = EndpointSpec {
            id: ControlEndpointId::new("again").unwrap(),
            url: url.to_owned(),
            username: None,
            password: None,
            sealed: None,
            password_file: None,
            trust: Trust::System,
            insecure_http: false,
        };
        let error = pool
            .composer()
            .add_endpoint(spec, Standing::Adopted)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
        assert!(
            error.message.contains("is endpoint box-1 already"),
            "{url}: {error}"
        );
    }
    assert_eq!(pool.composer().endpoints().await.unwrap().len(), 8);
}
