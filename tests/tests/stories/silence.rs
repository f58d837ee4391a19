//! Endpoints that give no answer, or nothing but errors: what is said of them, and of what they had.

use crate::kit::{Pool, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{EndpointSpec, Standing, Trust};
use poolwright_service::{CheckResult, ErrorCode};

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
