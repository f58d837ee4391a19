//! What people read in 80 columns: names, figures and dates are whole, and nothing is wider.

use crate::support::{Manager, Ran, run_in};
use serde_json::json;

const COLUMNS: u16 = 80;

/// A table of which no line is too wide, with these words whole.
#[track_caller]
fn fits(ran: Ran, whole: &[&str]) -> String {
    let out = ran.expect(0, &[]).out;
    let wide = out.lines().find(|line| line.chars().count() > COLUMNS.into());
    assert_eq!(wide, None, "{out}");
    for word in whole {
        assert!(out.contains(word), "no {word:?}: {out}");
    }
    out
}

/// No moment has parts of a second, or stands as programs write it.
#[track_caller]
fn is_told_to_people(out: &str) {
    for word in out.split_whitespace() {
        let is_raw = word.contains("Z") && word.contains('T') && word.matches(':').count() == 2;
        assert!(!is_raw, "{word}: {out}");
    }
}

#[tokio::test]
async fn what_a_row_is_about_is_never_broken() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    for line in [
        "compose --gpus 8 --kind h100-pcie-80gb --name research-and-development",
        "demand add waits-for-its-turn --gpus 24 --kind h100-pcie-80gb --queue --runs-for 6h",
        "schedule add fair --opens 0_23_30_11_* --closes 0_6_1_12_* --zone Australia/Brisbane --gpus 2 --suspends research-and-development --yes",
        "host close host-6 --from 2099-11-30T20:00:00.25Z --until 2099-12-01T20:00:00Z --reason fans",
    ] {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        manager
            .run_with(words.iter().map(String::as_str))
            .await
            .expect(0, &[]);
    }
    manager.run("host token --for 15m").await.expect(0, &[]);

    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    let ids: Vec<&str> = gpus
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| gpu["id"].as_str().unwrap())
        .collect();
    let shown = fits(
        manager.run_in_columns(COLUMNS, "get gpus").await,
        &[
            "CHASSIS",
            "SLOT",
            "STATE",
            "HOLDER",
            "research-and-development",
            "no room for",
        ],
    );
    assert!(ids.len() > 8);
    for id in ids {
        assert!(
            shown.lines().any(|line| line.starts_with(&format!("{id} "))),
            "{id}: {shown}"
        );
    }
    let shown = fits(
        manager.run_in_columns(COLUMNS, "queue").await,
        &["PLACE", "JOB", "GPUS", "STATE", "waits-for-its-turn"],
    );
    is_told_to_people(&shown);
    let shown = fits(
        manager.run_in_columns(COLUMNS, "schedule list").await,
        &["fair", "NEXT CHANGE", "times are "],
    );
    assert!(shown.contains("-11-30 ") || shown.contains("-12-01 "), "{shown}");
    // An entry is a line.
    let shown = fits(
        manager.run_in_columns(COLUMNS, "audit").await,
        &["ENTRY", "AT", "BY", "WHAT", "ON"],
    );
    let entries = manager.run("audit -o json").await.expect(0, &[]).json();
    let first = entries[0]["seq"].as_u64().unwrap();
    let numbered = |line: &&str| {
        line.split_whitespace()
            .next()
            .is_some_and(|word| word.parse::<u64>().is_ok_and(|seq| seq >= first))
    };
    assert!(
        shown.lines().filter(numbered).count() >= entries.as_array().unwrap().len(),
        "{shown}"
    );
    let tokens = manager.run("host tokens -o json").await.expect(0, &[]).json();
    fits(
        manager.run_in_columns(COLUMNS, "host tokens").await,
        &[tokens[0]["id"].as_str().unwrap(), "GOOD UNTIL"],
    );
    // Parts of a second are for programs.
    for line in [
        "get hosts",
        "host close host-5 --from 2099-11-30T20:00:00.25Z --reason fans",
        "doctor",
    ] {
        is_told_to_people(&manager.run(line).await.out);
    }
    let hosts = manager.run("get hosts -o csv").await.expect(0, &[]).out;
    assert!(
        hosts.contains("2099-11-30T20:00:00.25Z until 2099-12-01T20:00:00Z"),
        "{hosts}"
    );
}

#[tokio::test]
async fn a_plan_ahead_has_a_time_axis_and_a_line_for_each_that_a_host_serves_at_once() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    for name in ["chat", "lab"] {
        let line = format!("compose --gpus 2 --kind l40s-48gb --name {name}");
        manager.run(&line).await.expect(0, &["completed"]);
    }
    let shown = fits(
        manager.run_in_columns(COLUMNS, "plan --ahead 36h -o table").await,
        &[
            "who holds GPUs of which host; a column is 3",
            "A chat, B lab",
            "  |",
        ],
    );
    let rows = ["A", "B"].map(|letter| letter.repeat(60));
    for row in rows {
        assert!(shown.lines().any(|line| line.contains(&row)), "{row}: {shown}");
    }
}

#[tokio::test]
async fn a_plan_over_time_tells_placements_and_attachments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("week.json");
    let demand = |id: &str, start: u32, end: u32, gpus: u32| json!({"id": id, "tenant": "t", "start": start, "end": end, "gpus": gpus, "min_mem_gb": 24, "weight": 1});
    let gpu = |id: &str| json!({"id": id, "type": "T24", "mem_gb": 24, "switch": "s0", "active_w": 150, "idle_w": 25, "attached_to": null});
    let problem = json!({"schema": "cps-1", "horizon_slots": 8, "slot_s": 3600,
        "hosts": [{"id": "h0", "slots": 2, "switch": "s0", "host_on_w": 350, "host_idle_w": 150}],
        "gpus": [gpu("g0"), gpu("g1")],
        "demands": [demand("late", 6, 7, 2), demand("early", 0, 3, 1), demand("too-much", 0, 8, 3)],
        "costs": {"unmet_per_gpu_slot": 500, "attach": 1, "detach": 1, "host_fire_up": 100,
            "hop_per_gpu_slot": 2, "energy_per_kwh": 1000}});
    std::fs::write(&file, problem.to_string()).unwrap();
    let line = format!("plan --instance {} --rounds 50 -o table", file.display());
    let shown = fits(run_in(&line, &[("COLUMNS", "80")]).await, &[]);
    let expected = "\
h0    111···2·

Placements over time:
SLOTS  HOST  DEMAND  TENANT  GPUS
0-2    h0    early   t       1 T24@s0
6      h0    late    t       2 T24@s0

Attachments over time:
HOST  SLOTS  ATTACHED
h0    0-2    1 T24@s0
h0    3-5    nothing
h0    6      2 T24@s0
h0    7      nothing

too-much is not served";
    assert!(shown.contains(expected), "{shown}");
}
