//! `plan` over time: of a problem in a file, which needs no manager, and of a manager's own calendar.

use crate::support::{Manager, run};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// Two GPUs, room for two, and three demands of which only two fit at a time.
fn instance() -> Value {
    let demand = |id: &str, weight: u32| json!({"id": id, "tenant": "t", "start": 0, "end": 4, "gpus": 1, "min_mem_gb": 24, "weight": weight});
    let gpu = |id: &str| json!({"id": id, "type": "T24", "mem_gb": 24, "switch": "s0", "active_w": 150, "idle_w": 25, "attached_to": null});
    json!({"schema": "cps-1", "horizon_slots": 8, "slot_s": 3600,
        "hosts": [{"id": "h0", "slots": 2, "switch": "s0", "host_on_w": 350, "host_idle_w": 150}],
        "gpus": [gpu("g0"), gpu("g1")], "demands": [demand("low", 1), demand("high", 4), demand("middle", 2)],
        "costs": {"unmet_per_gpu_slot": 500, "attach": 60, "detach": 20, "host_fire_up": 100,
            "hop_per_gpu_slot": 2, "energy_per_kwh": 100}})
}

/// Sixty demands of all lengths for six GPUs at two hosts: more than can be proven in a moment.
pub fn crowded() -> Value {
    let mut instance = instance();
    let (host, gpu) = (instance["hosts"][0].clone(), instance["gpus"][0].clone());
    let numbered = |one: &Value, kind: &str, count: u32| -> Value {
        let each = |number| {
            let mut one = one.clone();
            one["id"] = json!(format!("{kind}{number}"));
            one
        };
        (0..count).map(each).collect()
    };
    instance["horizon_slots"] = json!(24);
    instance["hosts"] = numbered(&host, "h", 2);
    instance["gpus"] = numbered(&gpu, "g", 6);
    instance["demands"] = (0..60u32)
        .map(|number| {
            let start = number * 7 % 17;
            json!({"id": format!("d{number}"), "tenant": "t", "start": start, "end": start + 1 + number * 5 % 7,
                "gpus": 1 + number % 2, "min_mem_gb": 24, "weight": 1 + number % 4})
        })
        .collect();
    instance
}

fn saved(folder: &TempDir, name: &str, value: &Value) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, value.to_string()).unwrap();
    file
}

#[tokio::test]
async fn a_problem_over_time_is_planned_and_what_is_not_served_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(&folder, "week.json", &instance());
    let line = format!("plan --instance {} --rounds 50 --seed 3", file.display());
    // What does not go to a terminal is for a program; a table is there for the asking.
    let answer = run(&line).await.expect(0, &[]).json();
    // Unserved 2000; two GPUs attached 120, at work for four slots 120, detached 40 or idle 20; the host on 80 + 100.
    assert_eq!(
        answer["objective"],
        json!(2000.0 + 120.0 + 120.0 + 20.0 + 180.0),
        "{answer}"
    );
    assert_eq!(
        answer["assignment"]["demands"][0]["host"],
        Value::Null,
        "{answer}"
    );
    assert_eq!(answer["unserved"][0]["demand"], "low", "{answer}");
    assert!(
        answer["bound"].as_f64() <= answer["objective"].as_f64(),
        "{answer}"
    );
    run(&format!("{line} -o table")).await.expect(
        0,
        &["2 of 3 demands served", "low is not served", "h0    2222····"],
    );

    let solution = saved(&folder, "solution.json", &answer);
    let again = format!(
        "plan --instance {} --previous {} --rounds 0",
        file.display(),
        solution.display()
    );
    let again = run(&again).await.expect(0, &[]).json();
    assert_eq!(again["assignment"], answer["assignment"]);
}

/// The numbers of all attributes of one name.
fn numbers(svg: &str, name: &str) -> Vec<f64> {
    let attribute = format!(" {name}=\"");
    let parts = svg.split(&attribute).skip(1);
    parts
        .map(|part| part.split('"').next().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn a_plan_over_time_is_drawn_with_what_it_uses_and_what_it_draws() {
    let folder = tempfile::tempdir().unwrap();
    let mut value = instance();
    value["demands"][1]["id"] = json!("<script>\"high\"&");
    let file = saved(&folder, "week.json", &value);
    let line = format!("plan --instance {} --rounds 50 --seed 3", file.display());
    let page = run(&format!("{line} -o html")).await.expect(0, &[]).out;
    for word in [
        "<!doctype html>",
        "2 of 3 demands served",
        "<b>low</b>: it wants 1 GPU",
        "would help",
        "1 GPU in slots 0 to 3, 1 T24@s0",
        // Two of two GPUs at work in four of eight slots.
        "of 2; 50 % at work over the horizon",
        // 4 h at two GPUs of 150 W and a host of 350 W, then 4 h at 150 W, and what idle GPUs draw that stay attached.
        "kWh over the horizon",
    ] {
        assert!(page.contains(word), "no {word:?}: {page}");
    }
    assert!(
        !page.contains("<script") && page.contains("&lt;script&gt;"),
        "{page}"
    );
    for elsewhere in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(elsewhere), "it loads something: {elsewhere}");
    }
    let svg = run(&format!("{line} -o svg")).await.expect(0, &[]).out;
    assert!(
        svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert!(page.contains(svg.trim_end()), "the page has the same picture");
    assert!(
        numbers(&svg, "width")
            .iter()
            .all(|width| (0.0..=1000.0).contains(width)),
        "{svg}"
    );
    assert!(
        numbers(&svg, "x").iter().all(|x| (0.0..=1000.0).contains(x)),
        "{svg}"
    );
    // Refused before anything is done.
    run("plan -o svg").await.refused(2, &["no picture"]);
    run("compose 8B --task infer -o html")
        .await
        .refused(2, &["no picture"]);
}

#[tokio::test]
async fn a_problem_may_say_more_in_a_schema_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut value = instance();
    value["tenants"] = json!([{"id": "t", "most_gpus": 1}]);
    let planned = async |value: &Value| {
        let file = saved(&folder, "more.json", value);
        run(&format!(
            "plan --instance {} --rounds 20 -o table",
            file.display()
        ))
        .await
    };
    planned(&value).await.refused(
        2,
        &[
            "tenants: the schema cps-1 has no such key",
            "write \"schema\": \"poolwright-horizon-1\"",
        ],
    );
    value["schema"] = json!("poolwright-horizon-1");
    planned(&value)
        .await
        .expect(0, &["1 of 3 demands served", "tenant t may use 0 more at most"]);
    value["tenants"][0]["most_gpus"] = json!(-1);
    planned(&value)
        .await
        .refused(2, &["is not a problem in the schema"]);
}

#[tokio::test]
async fn a_problem_that_can_t_be_right_is_refused_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let planned = async |value: &Value, more: &str| {
        let file = saved(&folder, "bad.json", value);
        run(&format!("plan --instance {} {more}", file.display())).await
    };
    let mut bad = instance();
    bad["demands"][1]["gpus"] = json!(0);
    planned(&bad, "")
        .await
        .refused(2, &["demands[1] (high).gpus: 0; write 1 to"]);
    planned(&json!({"schema": "cps-1"}), "")
        .await
        .refused(2, &["is not a problem in the schema cps-1", "horizon_slots"]);
    planned(&instance(), "--time-limit soon")
        .await
        .refused(2, &["is not a time"]);
    planned(&instance(), "--time-limit 48h")
        .await
        .refused(2, &["at most 24h"]);
    planned(&instance(), "--time-limit 1s --rounds 5")
        .await
        .refused(2, &["--rounds"]);
    planned(&json!({"assignment": {"demands": []}}), "")
        .await
        .refused(2, &["is a solution, and not the problem", "goes to --previous"]);
    let problem = saved(&folder, "problem.json", &instance());
    planned(&instance(), &format!("--previous {}", problem.display()))
        .await
        .refused(
            2,
            &[
                "is a problem, and not a solution",
                "give the problem to --instance",
            ],
        );
    run("plan --instance nowhere.json")
        .await
        .refused(3, &["nowhere.json can't be read"]);
}

#[tokio::test]
async fn a_key_that_nothing_reads_is_named_with_what_may_have_been_meant() {
    let folder = tempfile::tempdir().unwrap();
    let planned = async |value: &Value| {
        let file = saved(&folder, "keys.json", value);
        run(&format!("plan --instance {} --rounds 5", file.display())).await
    };
    // Whoever writes cps-1 may keep notes in it; what may be a slip is told.
    let mut value = instance();
    value["comment"] = json!("made by hand");
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["tennant"] = json!("t");
    }
    let planned_all_the_same = planned(&value).await.expect(0, &[]);
    for word in [
        "comment is not read: cps-1 has no such key",
        "demands[0] (low).tennant is not read, nor are 2 others of that name",
        "did you mean tenant?",
    ] {
        assert!(
            planned_all_the_same.err.contains(word),
            "{planned_all_the_same:?}"
        );
    }
    // What only the longer schema has would do nothing here.
    for (at, key, to) in [
        ("/demands/0", "priority", json!(3)),
        ("/demands/0", "hosts", json!(["h0"])),
        ("/hosts/0", "closed", json!([{"start": 0, "end": 2}])),
        ("/gpus/0", "pinned", json!(true)),
    ] {
        let mut value = instance();
        value.pointer_mut(at).unwrap()[key] = to;
        planned(&value).await.refused(
            2,
            &[
                &format!(".{key}: the schema cps-1 has no such key"),
                "poolwright-horizon-1",
            ],
        );
    }
    for (at, key, says, hint) in [
        ("", "tenant", "json: tenant: the schema", "did you mean tenants?"),
        (
            "/hosts/0",
            "close",
            "hosts[0] (h0).close:",
            "did you mean closed?",
        ),
        (
            "/hosts/0/closed/0",
            "until",
            "hosts[0] (h0).closed[0].until:",
            "start, end",
        ),
        (
            "/demands/4",
            "priorty",
            "demands[4] (train).priorty:",
            "did you mean priority?",
        ),
        (
            "/demands/2/parts",
            "leest",
            "demands[2] (gang).parts.leest:",
            "did you mean least?",
        ),
        (
            "/costs",
            "atach",
            "costs.atach:",
            "did you mean attach or detach?",
        ),
    ] {
        let mut value: Value = serde_json::from_str(EVERY_KEY).unwrap();
        value.pointer_mut(at).unwrap()[key] = json!(1);
        planned(&value).await.refused(2, &[says, "has no such key", hint]);
    }
}

#[tokio::test]
async fn a_lead_that_is_past_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut value = instance();
    value["schema"] = json!("poolwright-horizon-1");
    value["demands"][1]["lead"] = json!(2);
    let file = saved(&folder, "lead.json", &value);
    let done = run(&format!("plan --instance {} --rounds 5", file.display()))
        .await
        .expect(0, &[]);
    assert!(
        done.err
            .contains("demands[1] (high).lead: 2 slots before its start at 0"),
        "{done:?}"
    );
}

/// A problem with each key that a file of the longer schema may have.
const EVERY_KEY: &str = include_str!("every_key.json");

#[tokio::test]
async fn every_key_of_the_longer_schema_is_planned_by() {
    let folder = tempfile::tempdir().unwrap();
    let value: Value = serde_json::from_str(EVERY_KEY).unwrap();
    let file = saved(&folder, "every.json", &value);
    let line = format!("plan --instance {} --rounds 100", file.display());
    let answer = run(&line).await.expect(0, &[]).json();
    let entries = answer["assignment"]["demands"].as_array().unwrap();
    let of = |id: &str| -> Vec<&Value> { entries.iter().filter(|entry| entry["demand"] == id).collect() };
    let served = |id: &str| of(id).iter().filter(|entry| !entry["host"].is_null()).count();
    // What runs stays, in both of its parts; one of the options; a gang on two hosts; as much as there is; both phases.
    assert_eq!(
        (of("runs").len(), &of("runs")[0]["host"]),
        (2, &json!("h0")),
        "{answer}"
    );
    assert_eq!((of("either").len(), served("either")), (1, 1), "{answer}");
    assert_eq!((of("gang").len(), served("gang")), (2, 2), "{answer}");
    assert_ne!(of("gang")[0]["host"], of("gang")[1]["host"], "{answer}");
    assert_eq!(of("elastic").len(), 9, "{answer}");
    assert!((1..9).contains(&served("elastic")), "{answer}");
    let phases: Vec<&Value> = of("train").iter().map(|entry| &entry["phase"]).collect();
    assert_eq!(
        (phases, served("train")),
        (vec![&json!(1), &json!(2)], 2),
        "{answer}"
    );
    assert_eq!(of("near")[0]["host"], "h0", "{answer}");
    run(&format!("{line} -o table"))
        .await
        .expect(0, &["elastic is served in part"]);
}

#[tokio::test]
async fn a_key_of_the_longer_schema_that_can_t_be_right_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (at, to, says) in [
        (
            "/hosts/0/closed/0/end",
            json!(7),
            "hosts[0] (h0).closed[0]: slots 7 to 7",
        ),
        (
            "/hosts/0/closed",
            json!([{"start": 1, "end": 4}, {"start": 3, "end": 5}]),
            "windows of one host don't overlap",
        ),
        ("/hosts/0/reach", json!(["s9"]), "hosts[0] (h0).reach: \"s9\""),
        ("/hosts/0/bar_gib", json!(-1), "hosts[0] (h0).bar_gib: -1"),
        ("/hold", json!(9), "hold: 9; write 0 to 8"),
        ("/hops/0/to", json!("s0"), "hops[0].to"),
        ("/hops/0/hops", json!(1_000_000_000), "hops[0].hops: 1000000000"),
        ("/switches/0/id", json!("s9"), "switches[0] (s9).id"),
        (
            "/tenants/0/guaranteed_gpus",
            json!(1_000_000_000),
            "tenants[0] (t).guaranteed_gpus",
        ),
        (
            "/demands/0/running/host",
            json!("h9"),
            "demands[0] (runs).running.host",
        ),
        (
            "/demands/0/preemptible/stop",
            json!(-1),
            "demands[0] (runs).preemptible.stop",
        ),
        ("/demands/1/options", json!([]), "demands[1] (either).options"),
        (
            "/demands/1/options/1/penalty",
            json!(-5),
            "demands[1] (either).options[1].penalty",
        ),
        (
            "/demands/2/parts/least",
            json!(0),
            "demands[2] (gang).parts.least: 0",
        ),
        (
            "/demands/3/parts/most",
            json!(1_000_000_000),
            "demands[3] (elastic).parts.most: 1000000000",
        ),
        (
            "/demands/4/phases/1/slots",
            json!(9),
            "demands[4] (train).phases[1].slots: 9",
        ),
        (
            "/demands/4/priority",
            json!(1001),
            "demands[4] (train).priority: 1001",
        ),
        ("/demands/4/lead", json!(99), "demands[4] (train).lead: 99"),
        (
            "/demands/5/types",
            json!(["A100"]),
            "demands[5] (near).types: \"A100\"",
        ),
        ("/costs/split_per_slot", json!(-1), "costs.split_per_slot: -1"),
        ("/costs/energy_per_kwh", json!(1e300), "costs.energy_per_kwh"),
    ] {
        let mut value: Value = serde_json::from_str(EVERY_KEY).unwrap();
        *value.pointer_mut(at).unwrap() = to;
        let file = saved(&folder, "bad.json", &value);
        run(&format!("plan --instance {}", file.display()))
            .await
            .refused(2, &[says]);
    }
    // Each price may be, and together they would be more than is counted with.
    let mut value: Value = serde_json::from_str(EVERY_KEY).unwrap();
    (value["slot_s"], value["costs"]["energy_per_kwh"]) = (json!(1e7), json!(1e7));
    value["hosts"][0]["host_on_w"] = json!(1e7);
    let file = saved(&folder, "dear.json", &value);
    run(&format!("plan --instance {}", file.display()))
        .await
        .refused(2, &["larger unit of cost"]);
}

#[tokio::test]
async fn a_manager_tells_and_draws_who_will_hold_what_as_its_calendar_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    manager
        .run("compose --gpus 8 --kind h100-pcie-80gb --name chat")
        .await
        .expect(0, &["completed"]);
    manager
        .run("plan --ahead 24h -o table")
        .await
        .expect(0, &["nothing changes", "A chat"]);
    let said = manager.run("plan --ahead 2h").await.expect(0, &[]).json();
    assert_eq!(
        (
            &said["held"][0]["demand"],
            said["held"][0]["gpus"].as_array().unwrap().len()
        ),
        (&json!("chat"), 8)
    );
    let page = manager
        .run("plan --ahead 7d -o html")
        .await
        .expect(0, &["<svg", "chat (8)", "GPUs at work"]);
    assert!(page.out.trim_end().ends_with("</html>"), "{}", page.out);
    manager.run("plan --ahead 7d -o svg").await.expect(0, &["<svg"]);
    manager.run("plan --ahead 90d").await.refused(2, &["744h"]);
    manager.run("plan -o svg").await.refused(2, &["plan --ahead"]);
}

/// What the manager will do has a cost in the problem that its calendar is, and the search begins with it.
#[tokio::test]
async fn a_managers_calendar_is_weighed_by_costs() {
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    for compose in [
        "--gpus 4 --kind h100-pcie-80gb --name chat",
        "--gpus 6 --kind l40s-48gb --name lab",
    ] {
        let line = format!("compose {compose}");
        manager.run(&line).await.expect(0, &["completed"]);
    }
    // At any time of day, the window opens within the next day and a half.
    let night = json!({"id": "night", "window": {"weekly": ["daily 01:00-05:00"]}, "suspends": ["chat"],
        "demands": [{"id": "batch", "gpus": 20, "kind": "h100-pcie-80gb"}]});
    let declared = saved(&folder, "night.json", &json!({"schedules": [night]}));
    let line = format!("apply -f {} --yes", declared.display());
    manager.run(&line).await.expect(0, &[]);
    let [week, own, prices] =
        ["week.json", "manager.json", "prices.toml"].map(|name| folder.path().join(name));
    std::fs::write(&prices, "attach = 30\nstop = 7\n").unwrap();
    let line = format!(
        "plan --ahead 36h --slot 30m --problem {} --solution {} --costs {}",
        week.display(),
        own.display(),
        prices.display()
    );
    let written = manager.run(&line).await.expect(0, &[]);
    for said in [
        " demands in 7",
        "at a cost of",
        "hosts count 0 W",
        "the ports of a host are one here",
    ] {
        assert!(written.err.contains(said), "{said}: {}", written.err);
    }
    let problem: Value = serde_json::from_slice(&std::fs::read(&week).unwrap()).unwrap();
    assert_eq!(
        (&problem["costs"]["attach"], &problem["costs"]["detach"]),
        (&json!(30.0), &json!(20.0))
    );
    assert_eq!(problem["slot_s"], 1800.0);
    let line = format!(
        "plan --instance {} --previous {} --rounds 20",
        week.display(),
        own.display()
    );
    let best = run(&line).await.expect(0, &[]).json();
    let [before, found, bound] =
        ["previous_objective", "objective", "bound"].map(|figure| best[figure].as_f64().unwrap());
    assert!(bound <= found && found <= before, "{bound} {found} {before}");
    run(&format!("{line} -o table"))
        .await
        .expect(0, &["at least", "the plan that it began with costs"]);

    std::fs::write(&prices, "atach = 30\n").unwrap();
    let line = format!(
        "plan --ahead 36h --problem {} --costs {}",
        week.display(),
        prices.display()
    );
    manager.run(&line).await.refused(2, &["atach"]);
    let line = format!("plan --ahead 36h --problem {} --slot 1s", week.display());
    manager.run(&line).await.refused(2, &["173 to 86400 seconds"]);
    run("plan --problem week.json").await.refused(2, &["--ahead"]);
}
