//! `simulate`, which needs no manager.

use crate::support::run;

const SMALL: &str = "../composer/simulator/tests/data/small.csv";
const SCENARIO: &str = "../hw-profiles/scenarios/pool-k16.toml";

#[tokio::test]
async fn recorded_jobs_are_replayed_against_policies() {
    let line =
        format!("simulate --trace {SMALL} --scenario {SCENARIO} --policy static-shared-easy,poolwright");
    let answer = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(
        (&policies[0]["policy"], &policies[1]["policy"]),
        (&"static-shared-easy".into(), &"poolwright".into())
    );
    for policy in policies {
        for figure in [
            "jct_mean_s",
            "jct_p50_s",
            "jct_p95_s",
            "jct_p99_s",
            "wait_mean_s",
            "wait_p95_s",
            "utilization",
            "stranded_gpu_h",
            "attaches",
            "energy_kwh",
        ] {
            assert!(policy[figure].is_number(), "{figure}: {policy}");
        }
        assert!(!policy["by_width"].as_array().unwrap().is_empty());
    }
    run(&line)
        .await
        .expect(0, &["POLICY", "poolwright", "assumed or synthetic"]);
}

#[tokio::test]
async fn what_can_not_be_replayed_is_refused_with_its_place() {
    let with = |rest: &str| format!("simulate --trace {SMALL} --scenario {SCENARIO} {rest}");
    for (line, words) in [
        (with("--policy nope"), ["no such policy", "static-shared-easy"]),
        (with("--policy fifo --load 9e9"), ["replay.loads", "0.01 to 10"]),
        (
            format!("simulate --trace Cargo.toml --scenario {SCENARIO} --policy fifo"),
            ["Cargo.toml", "line"],
        ),
        (
            format!("simulate --trace {SMALL} --scenario Cargo.toml --policy fifo"),
            ["Cargo.toml", "unknown field"],
        ),
    ] {
        run(&line).await.expect(2, &words);
    }
}
