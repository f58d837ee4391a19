//! Interrupted commands: they end their sessions at services, release their claims, and print their partial results.

use crate::serving::Sessions;
use crate::support::{Rack, begin, until};

/// A rack whose answers take a while, so that there is something to interrupt.
async fn slow_rack() -> (Rack, Sessions) {
    let rack = include_str!("../../../hw-profiles/racks/small.toml");
    let slow = rack.replace(
        "style = \"zones\"",
        "style = \"zones\"\nlatency = { request = \"150ms\" }",
    );
    assert!(slow != rack);
    let rack = Rack::start(&slow).await;
    let sessions = Sessions::of(&rack);
    (rack, sessions)
}

/// Fault 38: nor by a program that is interrupted.
#[tokio::test]
async fn who_interrupts_a_look_leaves_no_session() {
    let (rack, sessions) = slow_rack().await;
    let listing = rack.file("endpoints.json");
    let access = format!(
        "--username admin --password-file {} --ca {}",
        rack.file("password"),
        rack.file("ca.pem")
    );
    let (url, copy) = (&rack.server.url, rack.file("copy"));
    let lines = [
        format!("discover --endpoints {listing} --concurrency 1"),
        format!("endpoint record --endpoint {url} {access} --out {copy} --concurrency 1"),
    ];
    for (line, how) in lines.iter().zip(["-INT", "-TERM"]) {
        let running = begin(line);
        until("it has logged in", async || sessions.open().await > 0).await;
        running.signal(how);
        running.ended().await.refused(130, &["interrupted"]);
        assert_eq!(sessions.open().await, 0, "{line}");
    }
    assert!(
        !std::path::Path::new(&copy).exists(),
        "half of a recording was kept"
    );
}

#[tokio::test]
async fn who_interrupts_a_trial_finds_the_gpu_free() {
    let (rack, sessions) = slow_rack().await;
    let listing = rack.file("endpoints.json");
    let running = begin(&format!("endpoint qualify --endpoints {listing} --yes -o json"));
    until("it is bound", async || !rack.bindings().is_empty()).await;
    running.signal("-INT");
    let report = running
        .ended()
        .await
        .expect(130, &["interrupted", "read back free"])
        .json();
    assert_eq!(report["qualified"], false, "{report}");
    assert_eq!(rack.bindings(), []);
    assert_eq!(sessions.open().await, 0);
}

#[tokio::test]
async fn who_interrupts_a_search_is_given_the_best_plan_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("week.json");
    std::fs::write(&file, crate::planning::crowded().to_string()).unwrap();
    let running = begin(&format!("plan --instance {} --time-limit 10m", file.display()));
    until("it hears signals", async || running.heeds(2)).await;
    running.signal("-INT");
    let plan = running.ended().await.expect(0, &["stopping"]).json();
    assert!(plan["objective"].as_f64() >= plan["bound"].as_f64(), "{plan}");
    assert_eq!(plan["assignment"]["demands"].as_array().unwrap().len(), 60);
}
