//! Many clients at one manager and at three, some of which die meanwhile: ownership is linearizable.

use poolwright_tests::histories::{Plant, Report, Setup, run};
use std::process::Command;
use std::time::Duration;

fn good(report: &Report) {
    assert!(report.wrong.is_empty(), "{report:#?}");
    assert!(report.kills > 0 && report.requests > 500, "{report:#?}");
    assert!(report.disturbed > 0, "the rack did not fail: {report:#?}");
}

#[test]
fn ownership_at_one_manager_is_linearizable() {
    good(&run(&Setup::new(1, 1)));
}

#[test]
fn ownership_at_three_managers_is_linearizable() {
    let report = run(&Setup::new(2, 3));
    good(&report);
    assert!(report.adopted > 0, "{report:#?}");
}

/// In real time, over real connections. What a death hits is left to chance here.
#[test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
fn ownership_at_three_managers_on_postgresql_is_linearizable() {
    let port = std::env::var("POOLWRIGHT_TEST_POSTGRES_PORT").expect("it is set by tests/run postgres");
    let name = format!("histories_{}", std::process::id());
    let mut psql = Command::new("psql");
    psql.args([
        "--quiet",
        "--no-psqlrc",
        "--username",
        "poolwright",
        "--host",
        "127.0.0.1",
    ]);
    psql.args([
        "--port",
        &port,
        "postgres",
        "--command",
        &format!("CREATE DATABASE {name}"),
    ]);
    assert!(psql.status().unwrap().success());
    let url = format!("postgres://poolwright@127.0.0.1:{port}/{name}");
    let report = run(&Setup::on_postgres(5, url));
    assert!(report.wrong.is_empty(), "{report:#?}");
    assert!(report.kills == 3 && report.requests > 500, "{report:#?}");
}

#[test]
fn planted_bugs_are_found() {
    for (plant, found) in [
        (Plant::StaleReads, "and was answered at"),
        (Plant::DoubleGrants, "whatever the order of the others"),
    ] {
        let report = run(&Setup {
            kills: 0,
            plant: Some(plant),
            ..Setup::new(3, 1)
        });
        let all = report.wrong.join("\n");
        assert!(all.contains(found), "{plant:?}: {report:#?}");
    }
}

#[test]
fn a_run_in_which_too_little_is_answered_is_no_good_run() {
    let report = run(&Setup {
        kills: 0,
        pause: Duration::from_secs(2),
        ..Setup::new(4, 1)
    });
    let all = report.wrong.join("\n");
    assert!(
        all.contains("answers a second while all went well"),
        "{report:#?}"
    );
    assert!(all.contains("grants in all"), "{report:#?}");
}
