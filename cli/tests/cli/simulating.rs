//! `simulate` and `capacity`, of traces and of what a manager recorded.

use crate::support::{Manager, run};

const SMALL: &str = "../composer/simulator/tests/data/small.csv";
const SCENARIO: &str = "../hw-profiles/scenarios/pool-k16.toml";
const DESCRIBED: &str = "../hw-profiles/scenarios/described.toml";

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

#[tokio::test]
async fn capacity_is_judged_against_buying_nothing() {
    let line = format!("capacity --trace {SMALL} --scenario {DESCRIBED} --price host=24000");
    let options = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    let named: Vec<&str> = options["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["option"].as_str().unwrap())
        .collect();
    assert_eq!(named[..3], ["buy nothing", "3 x h100-pcie-80gb", "1 x l40s-48gb"]);
    assert!(
        named.contains(&"1 host") && named.contains(&"16 slots a host"),
        "{named:?}"
    );
    let costs = |name: &str| {
        let option = options["options"].as_array().unwrap().iter();
        option.clone().find(|option| option["option"] == name).unwrap()["cost_usd"].clone()
    };
    assert_eq!(
        (costs("buy nothing"), costs("1 host")),
        (0.0.into(), 24000.0.into())
    );
    for figure in [
        "wait_mean_s",
        "wait_p95_s",
        "refused",
        "waited_too_long",
        "energy_kwh",
        "utilization",
    ] {
        assert!(options["options"][0][figure].is_number(), "{figure}");
    }
    run(&line)
        .await
        .expect(0, &["OPTION", "buy nothing", "no price of"]);
}

#[tokio::test]
async fn capacity_is_told_in_one_file_that_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let line = format!("capacity --trace {SMALL} --scenario {DESCRIBED} --price host=24000");
    run(&format!("{line} --html {}", file.display()))
        .await
        .expect(0, &["buy nothing"]);
    let html = std::fs::read_to_string(&file).unwrap();
    for word in [
        "buy nothing",
        "16 slots a host",
        "24000",
        "Mean wait (h)",
        "What is assumed",
        "<rect",
    ] {
        assert!(html.contains(word), "{word}");
    }
    assert!(
        !html.contains("http") && !html.contains("<script"),
        "nothing is loaded"
    );
}

#[tokio::test]
async fn an_option_that_can_not_be_bought_is_refused() {
    let with = |rest: &str| format!("capacity --trace {SMALL} --scenario {DESCRIBED} {rest}");
    for (line, words) in [
        (with("--option nonsense"), ["nonsense", "N x KIND"]),
        (with("--option 3+voodoo2"), ["is no option", "N x KIND"]),
        (with("--price host=dear"), ["host=dear", "WHAT=USD"]),
        (with("--patience forever"), ["forever", "hours"]),
        (with("--policy static-partition"), ["static servers", "pool-easy"]),
    ] {
        run(&line).await.expect(2, &words);
    }
}

#[tokio::test]
async fn capacity_is_judged_by_what_the_manager_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "zones"]).await;
    manager
        .run("capacity")
        .await
        .expect(1, &["nothing can be replayed", "--trace FILE"]);
    manager.run("compose --gpus 2 --name web").await.expect(0, &[]);
    manager.run("release web --yes").await.expect(0, &[]);
    manager.run("compose --gpus 1 --name chat").await.expect(0, &[]);
    let refused = manager.run("compose --gpus 500 --name huge").await;
    assert_ne!(refused.code, 0, "{refused:?}");

    let file = folder.path().join("asked.csv");
    let line = format!("capacity --record {}", file.display());
    let answer = manager
        .run(&format!("{line} -o json"))
        .await
        .expect(0, &[])
        .json();
    let recorded = &answer["recorded"];
    let count = |what: &str| recorded[what].as_u64();
    assert_eq!(
        (
            count("ended"),
            count("running"),
            count("waiting"),
            count("refused")
        ),
        (Some(1), Some(1), Some(0), Some(1)),
        "{recorded}"
    );
    assert_eq!(answer["options"][0]["option"], "buy nothing");
    assert_eq!(
        answer["options"][0]["refused"], 1,
        "no pool of that size holds it"
    );
    assert!(
        answer["pool"]["kinds"][0]["gpus"].as_u64() > Some(0),
        "{}",
        answer["pool"]
    );
    manager
        .run(&line)
        .await
        .expect(0, &["1 ended, 1 running, 0 waiting, 1 refused", "buy nothing"]);

    let trace = std::fs::read_to_string(&file).unwrap();
    assert!(
        trace
            .lines()
            .any(|row| row.starts_with("huge,") && row.contains(",refused,")),
        "{trace}"
    );
    run(&format!(
        "capacity --trace {} --scenario {DESCRIBED}",
        file.display()
    ))
    .await
    .expect(0, &["buy nothing"]);
}
