//! `POST /simulations`, as docs/API.md has it: what `poolwright simulate -o json` prints, within bounds. What a manager
//! recorded is replayed by the tests of the command line, which have a rack.

use super::{client, manager, password};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SMALL: &str = include_str!("../../../../simulator/tests/data/small.csv");

/// More than any machine replays within a minute.
fn endless() -> Value {
    let job = |n: u32| format!("{},{},{},{}\n", n % 50, n, 500 + n % 7_000, 1 + n % 16);
    let jobs: String = (0..40_000).map(job).collect();
    json!({
        "policies": ["fifo", "sjf", "pool-easy", "has", "poolwright"], "loads": [0.9, 1.5],
        "seeds": (1..=13).collect::<Vec<u32>>(), "runtimes": ["known", "loose", "predicted"], "deadline_s": 60,
        "trace": format!("tenant,submit_s,duration_s,gpus\n{jobs}"),
    })
}

#[tokio::test]
async fn jobs_are_replayed_as_on_the_command_line_and_what_can_not_be_is_refused_with_what_can() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let url = format!("https://{}/api/v1/simulations", running.address);
    let ask = async |body: &Value| {
        let request = client.post(&url).basic_auth("admin", Some(&password));
        let answer = request.json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let asked = json!({
        "policies": ["static-shared-easy", "poolwright", "poolwright"], "trace": SMALL, "seeds": [1, 2],
        "loads": [0.5], "as_fast_as": "static-shared-easy",
    });
    let (status, simulated) = ask(&asked).await;
    assert_eq!(status, 200, "{simulated}");
    let members: BTreeSet<&str> = simulated
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let wanted = "decomposition equivalence left_out policies scenario synthetic trace";
    assert_eq!(members, wanted.split(' ').collect());
    let policies = simulated["policies"].as_array().unwrap();
    let names: Vec<&Value> = policies.iter().map(|one| &one["policy"]).collect();
    assert_eq!(names, ["static-shared-easy", "poolwright"], "each once");
    for policy in policies {
        assert_eq!(
            (&policy["jobs"], &policy["load"]),
            (&simulated["trace"]["jobs"], &json!(0.5))
        );
        assert_eq!(policy["seeds"].as_array().unwrap().len(), 2);
        assert!(policy["jct_mean_s"].as_f64().unwrap() > 0.0, "{policy}");
    }
    let rows = ["jobs", "rows_without_gpus", "rows_without_run_time"];
    let rows = rows.map(|of| simulated["trace"][of].as_u64().unwrap());
    assert_eq!(rows.iter().sum::<u64>() as usize, SMALL.lines().count() - 1);
    assert_eq!(simulated["equivalence"][0]["reference"], "static-shared-easy");
    assert_eq!(simulated["scenario"]["replay"]["loads"], json!([0.5]));
    // The same asked once more is the same, but for how long decisions took.
    let mut scenario = simulated["scenario"].clone();
    scenario["name"] = json!("mine");
    let again = json!({"policies": ["poolwright"], "trace": SMALL, "scenario": scenario});
    let (status, once_more) = ask(&again).await;
    assert_eq!(
        (
            status,
            &once_more["policies"][0]["seeds"],
            &once_more["scenario"]["name"]
        ),
        (200, &policies[1]["seeds"], &json!("mine"))
    );

    let with = |field: &str, value: Value| {
        let mut body = json!({"policies": ["fifo"], "trace": SMALL, "seeds": [1]});
        body[field] = value;
        body
    };
    let many = format!("tenant,submit_s,duration_s,gpus\n{}", "a,1,1,1\n".repeat(50_001));
    let row = |row: &str| json!(format!("submit_s,duration_s,gpus\n0,1,1\n{row}\n"));
    for (body, status, says) in [
        (json!({"policies": ["fifo"]}), 404, "nothing is recorded yet"),
        (json!({}), 400, "policies"),
        (with("policies", json!([])), 400, "names none"),
        (with("policies", json!(["best"])), 400, "\\\"best\\\""),
        (with("as_fast_as", json!("sjf")), 400, "not among the policies"),
        (with("deadline_s", json!(0)), 400, "1 to 60"),
        (with("loads", json!([99.0])), 400, "replay.loads"),
        (
            with("seeds", json!((0..21).collect::<Vec<u32>>())),
            400,
            "21 seeds; at most 20",
        ),
        (with("loads", json!(vec![0.5; 401])), 400, "401 runs"),
        (with("runtimes", json!(["guessed"])), 400, "runtimes"),
        (with("scenario", json!({"name": "half"})), 400, "description"),
        (with("trace", row("1,1,70000")), 400, "at most 65536"),
        (
            with("trace", row("1,1e9,1000")),
            400,
            "GPUs that the trace asks for",
        ),
        (with("trace", row("1,1,many")), 400, "line 3, column gpus"),
        (with("trace", row("0,1,1")), 400, "replay.gpus"),
        (with("trace", json!("")), 400, "trace"),
        (with("trace", json!(many)), 400, "50001 jobs"),
        (with("html", json!(true)), 400, "html"),
    ] {
        let (found, error) = ask(&body).await;
        let text = error.to_string();
        assert!(found == status && text.contains(says), "{says}: {found} {text}");
        assert!(error["error"]["hint"].is_string(), "{says}: {text}");
    }
    let (status, error) = ask(&with("trace", json!("x".repeat(8 << 20)))).await;
    assert!(
        status == 413 && error.to_string().contains("8388608 bytes"),
        "{status} {error}"
    );
    let mut short = endless();
    short["deadline_s"] = json!(1);
    let (status, error) = ask(&short).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (504, &json!("timeout")),
        "{error}"
    );
    assert!(
        error.to_string().contains("not over within 1s, and was stopped"),
        "{error}"
    );

    // It is no change, so the audit log has none of it.
    let audit = client.get(url.replace("/simulations", "/audit?after=0&most=1000"));
    let audit = audit.basic_auth("admin", Some(&password)).send().await.unwrap();
    let audit = audit.text().await.unwrap();
    assert!(
        audit.contains("entries") && !audit.contains("/simulations"),
        "{audit}"
    );
    running.stop().await;
}

#[tokio::test]
async fn two_are_worked_out_at_a_time_and_those_whose_client_went_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let url = format!("https://{}/api/v1/simulations", running.address);
    let ask = |body: &Value| {
        let request = client.post(&url).basic_auth("admin", Some(&password));
        let sent = request.json(body).send();
        async { sent.await.unwrap() }
    };
    let long = [ask(&endless()), ask(&endless())].map(tokio::spawn);
    let short = json!({"policies": ["fifo"], "trace": SMALL, "seeds": [1]});
    // Until both have their turns there is one for it, too; then none becomes free while it waits.
    let refused = loop {
        let answer = ask(&short).await;
        if answer.status() != 200 {
            break answer;
        }
    };
    assert_eq!(refused.status(), 503);
    let error: Value = refused.json().await.unwrap();
    let told = error["error"]["message"].as_str().unwrap();
    assert!(told.contains("2 simulations are being worked out"), "{error}");
    for one in long {
        assert!(!one.is_finished(), "they go on");
        one.abort();
    }
    let answer = ask(&short).await;
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    running.stop().await;
}
