//! The demonstration, as a newcomer runs it.

use crate::support::{run, run_until};
use serde_json::{Value, json};

/// Fault 103: no warning in its output.
#[tokio::test]
async fn the_main_job_is_done_and_counted_by_a_second_client() {
    let ran = run("demo -o json")
        .await
        .expect(0, &["Discovered", "Sized", "Planned", "Scheduled", "Releasing"]);
    // Nothing in it is unusual: hosts without an agent are not.
    for word in ["WARN", "ERROR", "use not checked"] {
        assert!(!ran.err.contains(word), "{ran:?}");
    }
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["gpus"], &last["hosts"]), (&json!(32), &json!(6)));
    let models: Vec<&str> = last["compositions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|composed| composed["model"].as_str().unwrap())
        .collect();
    assert_eq!(models, ["8B", "70B", "400B"]);
    assert!(
        last["compositions"][2]["hosts"].as_u64().unwrap() >= 2,
        "too big for one host: {last}"
    );
    assert!(last["recompositions"].as_u64().unwrap() >= 2, "{last}");
    assert!(last["operations"].as_u64().unwrap() >= 4, "{last}");
    assert_eq!((&last["double_owned"], &last["leaked"]), (&json!(0), &json!(0)));
    assert!(last["looks"].as_u64().unwrap() >= 10, "{last}");
}

#[tokio::test]
async fn on_a_small_rack_it_says_what_does_not_fit() {
    let ran = run("demo --rack small -o json")
        .await
        .expect(8, &["400B", "hint: "]);
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["gpus"], &last["double_owned"], &last["leaked"]),
        (&json!(8), &json!(0), &json!(0))
    );
}

#[tokio::test]
async fn one_that_is_interrupted_leaves_no_session_and_says_so_in_a_line() {
    let ran = run_until("demo", "Scheduled", "-INT").await;
    let last: Vec<&str> = ran.err.lines().rev().take(2).collect();
    assert_eq!(
        last,
        ["hint: nothing is left behind", "error: interrupted"],
        "{ran:?}"
    );
    assert!(!ran.err.contains("WARN"), "{ran:?}");
    assert_eq!(ran.code, 130);
}
