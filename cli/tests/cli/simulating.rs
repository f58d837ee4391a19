//! `simulate` and `capacity`, of traces and of what a manager recorded.

use crate::by_redfish::Client;
use crate::support::{Manager, run};
use reqwest::Method;
use serde_json::{Value, json};

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
async fn a_policy_that_is_named_twice_is_replayed_once() {
    let line = format!("simulate --trace {SMALL} --scenario {SCENARIO} --policy fifo,sjf,fifo -o json");
    let done = run(&line).await.expect(0, &[]);
    assert!(
        done.err
            .contains("fifo is named more than once, and replayed once"),
        "{done:?}"
    );
    let once = run(&line.replace(",fifo ", " ")).await.expect(0, &[]);
    let replayed = |answer: serde_json::Value| -> Vec<_> {
        let policies = answer["policies"].as_array().unwrap().iter();
        policies.map(|policy| policy["policy"].clone()).collect()
    };
    assert_eq!(replayed(done.json()), replayed(once.json()));
}

/// Nothing is wrong with a manager of which nothing was asked yet.
#[tokio::test]
async fn a_manager_that_is_new_says_that_nothing_is_recorded_yet() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    for (line, empty, said) in [
        ("forecast", "tenants", "no forecast can be made yet"),
        ("capacity", "options", "nothing is recorded yet"),
    ] {
        let done = manager.run(&format!("{line} -o json")).await.expect(0, &[]);
        assert!(done.err.contains(said), "{done:?}");
        assert_eq!(done.json()[empty], serde_json::json!([]), "{done:?}");
        manager.run(line).await.expect(0, &[]);
    }
}

#[tokio::test]
async fn what_can_not_be_replayed_is_refused_with_its_place() {
    let with = |rest: &str| format!("simulate --trace {SMALL} --scenario {SCENARIO} {rest}");
    for (line, words) in [
        (with("--policy nope"), ["no such policy", "static-shared-easy"]),
        // Not the scenario's file, which has nothing to do with it.
        (with("--policy fifo --load 9e9"), ["--load", "0.01 to 10"]),
        (with("--policy fifo --load 0"), ["--load", "0.01 to 10"]),
        (with("--policy fifo --load abc"), ["--load", "such as 0.65"]),
        (with("--policy fifo --seeds x"), ["--seeds", "a whole number"]),
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
    // What records demand, and no jobs, is for another command.
    let folder = tempfile::tempdir().unwrap();
    let demand = folder.path().join("demand.csv");
    std::fs::write(&demand, "time,tenant,gpus\n0,red,4\n").unwrap();
    run(&format!("simulate --trace {} --policy fifo", demand.display()))
        .await
        .refused(2, &["no column of", "poolwright forecast --from"]);
}

#[tokio::test]
async fn what_a_replay_changes_or_leaves_out_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("jobs.csv");
    let jobs =
        "submit_s,duration_s,gpus,min_gpu_mem_gb\n0,600,0.5,\n100,600,2,\n200,600,1,1000\n900,600,1,\n";
    std::fs::write(&trace, jobs).unwrap();
    let line = format!(
        "simulate --trace {} --policy fifo,sjf --load 0.65",
        trace.display()
    );
    let load = "the load is 0.417 and not 0.65: whole servers that hold the widest job have 8 GPUs";
    run(&line).await.expect(
        0,
        &[
            "ask for a fraction of a GPU, replayed on whole GPUs: 1;",
            load,
            "0.42",
        ],
    );
    let classes = folder.path().join("classes.toml");
    let scenario = std::fs::read_to_string(SCENARIO).unwrap();
    let class = |name: &str, gib: u32| {
        format!("\n[[class]]\nname = \"{name}\"\nmemory_gib = {gib}\nshare_of_jobs = 0.5\n")
    };
    std::fs::write(&classes, scenario + &class("40gb", 40) + &class("80gb", 80)).unwrap();
    run(&format!("{line} --scenario {}", classes.display()))
        .await
        .expect(0, &["1 of 4 jobs could never run on this hardware"]);
}

#[tokio::test]
async fn scenarios_that_come_with_poolwright_are_known_by_name() {
    let line = format!("simulate --trace {SMALL} --policy fifo -o json");
    let of_file = run(&format!("{line} --scenario {SCENARIO}"))
        .await
        .expect(0, &[])
        .json();
    for named in [line.clone(), format!("{line} --scenario pool-k16")] {
        let named = run(&named).await.expect(0, &[]).json();
        assert_eq!(named["scenario"], of_file["scenario"]);
    }
    let folder = std::path::Path::new(SCENARIO).parent().unwrap();
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        run(&format!("{line} --scenario {name}")).await.expect(0, &[]);
    }
    run(&format!("{line} --scenario pool-k17"))
        .await
        .refused(3, &["pool-k17", "one of these: pool-k16, "]);
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
    run(&format!("{line} --price kwh=0.2"))
        .await
        .expect(0, &["KWH USD"]);
    run(&format!("{line} --price hots=24000"))
        .await
        .refused(2, &["--price hots=USD", "no host, slot", "size --list kinds"]);
}

/// What none of the jobs fits in has no waits, rather than none at all.
#[tokio::test]
async fn a_pool_that_could_hold_no_job_is_not_said_to_keep_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wide.csv");
    std::fs::write(&file, "job_id,submit_s,duration_s,gpus\nwide,0,3600,40\n").unwrap();
    let line = format!(
        "capacity --trace {} --scenario {DESCRIBED} -o csv",
        file.display()
    );
    let text = run(&line).await.expect(0, &[]).out;
    let row = text.lines().find(|line| line.starts_with("buy nothing")).unwrap();
    assert!(row.starts_with("buy nothing,0,,,"), "{row}");
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

/// The scenario as an answer has it, with GPUs for the widest job that was asked for.
async fn scenario_with_gpus() -> Value {
    let line = format!("simulate --trace {SMALL} --scenario {SCENARIO} --policy fifo -o json");
    let mut scenario = run(&line).await.expect(0, &[]).json()["scenario"].take();
    scenario["replay"]["gpus"] = json!(512);
    scenario
}

#[tokio::test]
async fn capacity_is_judged_by_what_the_manager_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "zones"]).await;
    manager
        .run("capacity")
        .await
        .expect(0, &["nothing is recorded yet", "--trace FILE"]);
    manager.run("compose --gpus 2 --name web").await.expect(0, &[]);
    manager.run("release web --yes").await.expect(0, &[]);
    manager.run("compose --gpus 1 --name chat").await.expect(0, &[]);
    let refused = manager.run("compose --gpus 500 --name huge").await;
    assert_ne!(refused.code, 0, "{refused:?}");
    manager
        .run("demand add vast --gpus 1 --min-memory 1000TiB")
        .await
        .refused(2, &["min_memory is 1000.00 TiB for each GPU", "up to 16.00 TiB"]);

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
    manager.run(&line).await.expect(
        0,
        &[
            "1 ended, 1 running, 0 waiting, 1 refused, 0 withdrawn",
            "buy nothing",
        ],
    );

    // What other policies would have made of it is asked over HTTPS: of the jobs that this pool could hold.
    let asked =
        json!({"policies": ["fifo", "poolwright"], "scenario": scenario_with_gpus().await, "seeds": [1]});
    let simulated = Client::of(&manager)
        .ask(Method::POST, "/api/v1/simulations", Some(&asked))
        .await;
    let told = &simulated.body;
    assert_eq!(
        (simulated.status, &told["trace"]["file"], &told["trace"]["jobs"]),
        (200, &json!("what the manager recorded"), &json!(2)),
        "{told}"
    );
    assert_eq!(told["policies"][1]["policy"], "poolwright");

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

/// What the manager gave is what the replay gives where nothing is bought: it binds any GPU to any host that reaches it.
#[tokio::test]
async fn uplinks_hold_nothing_back_that_the_manager_gave() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "zones"]).await;
    manager.run("compose --gpus 3 --name wide").await.expect(0, &[]);
    let answer = manager.run("capacity -o json").await.expect(0, &[]).json();
    assert_eq!(answer["pool"].get("switches"), None, "{}", answer["pool"]);
    assert_eq!(answer["options"][0]["refused"], 0, "{}", answer["options"][0]);
    // What uplinks of some width would hold back is asked of a scenario.
    let scenario = folder.path().join("narrow.toml");
    let described = std::fs::read_to_string(DESCRIBED).unwrap();
    let narrow = format!("switches = {{count = 3, uplink_gpus = 0}}\n{described}");
    std::fs::write(&scenario, narrow).unwrap();
    let line = format!("capacity --scenario {} -o json", scenario.display());
    let answer = manager.run(&line).await.expect(0, &[]).json();
    assert_eq!(answer["pool"]["switches"]["uplink_gpus"], 0, "{}", answer["pool"]);
}
