//! What is wanted, declared in files; and windows, told before they come.

use crate::support::{Manager, run, run_with, slow_rack};
use poolwright_executor::{Clock, SystemClock};

const WANTED: &str = r#"
[[demands]]
id = "chat"
gpus = 4
kind = "h100-pcie-80gb"
priority = 1

[[demands]]
id = "weekend"
gpus = 2
window = { weekly = ["SAT,SUN 00:00-24:00"], zone = "Europe/Berlin" }

[[demands]]
id = "lab"
gpus = 2

[[schedules]]
id = "nights"
suspends = ["lab"]
window = { opens = "0 20 * * *", closes = "30 7 * * *", zone = "Asia/Tokyo" }
demands = [{ id = "train", gpus = 8, kind = "h100-pcie-80gb" }]
"#;

#[tokio::test]
async fn what_a_file_declares_is_kept_and_told_apart_from_what_there_is() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    let file = data.path().join("wanted.toml");
    let say = |text: &str| std::fs::write(&file, text).unwrap();
    say(WANTED);
    let apply = format!("apply -f {}", file.display());
    let differences = |declared: serde_json::Value| -> Vec<String> {
        let entries = declared["entries"].as_array().unwrap().clone();
        let entries = entries.iter();
        entries
            .map(|entry| {
                format!(
                    "{} {}",
                    entry["id"].as_str().unwrap(),
                    entry["difference"].as_str().unwrap()
                )
            })
            .collect()
    };

    let dry = manager.run(&format!("{apply} --dry-run -o json")).await;
    let dry = dry.expect(0, &["nothing was kept"]).json();
    assert_eq!(
        differences(dry),
        ["chat new", "lab new", "nights new", "weekend new"]
    );
    let listed = manager.run("demand list -o csv").await.expect(0, &[]);
    assert!(!listed.out.contains("chat"), "{listed:?}");

    manager
        .run(&format!("{apply} -o json"))
        .await
        .expect(0, &["kept"]);
    let due = manager.run("schedule next nights --count 2 -o json").await;
    let due = due.expect(0, &[]).json();
    assert!(
        due[0]["opens_there"]
            .as_str()
            .unwrap()
            .contains("T20:00:00+09:00[Asia/Tokyo]"),
        "{due}"
    );
    assert_eq!(due.as_array().unwrap().len(), 2);

    // One field is changed, one demand can't be, and the rest is as it was.
    say(&WANTED
        .replace("gpus = 4", "gpus = 4000")
        .replace("priority = 1", "priority = 7"));
    let changed = manager.run(&format!("{apply} --dry-run")).await;
    changed.expect(
        8,
        &[
            "chat: gpus: 4000, was 4",
            "chat: priority: 7, was 1",
            "chat does not fit",
            "would help",
        ],
    );
    say(WANTED);
    let again = manager
        .run(&format!("{apply} -o json"))
        .await
        .expect(0, &[])
        .json();
    assert_eq!(
        differences(again),
        ["chat same", "lab same", "nights same", "weekend same"]
    );

    // A part of it that can't be keeps all of it from being kept.
    for (from, to, said) in [
        ("Asia/Tokyo", "Asia/Atlantis", "is not an IANA time zone"),
        ("0 20 * * *", "30 7 * * *", "never opens"),
        ("\"lab\"]", "\"nobody\"]", "nobody"),
        (
            "SAT,SUN 00:00-24:00",
            "SAT 10:00-09:00\", \"SUN 08:00-10:00",
            "both are open",
        ),
        (
            "id = \"train\"",
            "id = \"weekend\"",
            "demand weekend is declared twice",
        ),
        (
            "id = \"nights\"",
            "id = \"weekend\"",
            "schedule weekend is declared twice",
        ),
    ] {
        say(&WANTED.replace(from, to).replace("priority = 1", "priority = 9"));
        let refused = manager.run(&apply).await;
        assert_ne!(refused.code, 0, "{to}: {refused:?}");
        assert!(refused.err.contains(said), "{to}: {refused:?}");
        assert!(refused.err.contains("wanted.toml, line "), "{to}: {refused:?}");
    }
    // What the manager refuses is told with its place, too, in each form.
    for (name, text, said) in [
        (
            "b.toml",
            "[[demands]]\nid = \"zero\"\ngpus = 0\n",
            "b.toml, line 3, gpus = 0: demand zero",
        ),
        (
            "b.yaml",
            "demands:\n  - id: zero\n    gpus: 0\n",
            "b.yaml, line 3, gpus = 0: demand zero",
        ),
        (
            "b.json",
            "{\"demands\": [{\"id\": \"zero\",\n\"gpus\": 0}]}",
            "b.json, line 2, gpus = 0: demand zero",
        ),
        (
            "c.yaml",
            "demands:\n  - id: serve\n    model: 8B\n    task: infer\n    context: 0\n",
            "c.yaml, line 5, context = 0: demand serve: context is 0; the least is 1",
        ),
    ] {
        let file = data.path().join(name);
        std::fs::write(&file, text).unwrap();
        let line = format!("apply -f {}", file.display());
        manager.run(&line).await.expect(2, &[said]);
    }
    say(WANTED);
    let kept = manager.run("get demands -o json").await.expect(0, &[]).json();
    let chat = kept
        .as_array()
        .unwrap()
        .iter()
        .find(|demand| demand["spec"]["id"] == "chat");
    assert_eq!(chat.unwrap()["spec"]["priority"], 1);

    manager
        .run(&format!("{apply} --serve"))
        .await
        .expect(0, &["chat is as it was", "completed"]);
}

#[tokio::test]
async fn a_file_that_is_wrong_is_refused_with_its_line_and_its_field() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, said) in [
        (
            "a.toml",
            "[[demands]]\nid = \"a\"\ngpu = 4\n",
            "a.toml, line 3, gpu = 4: demands[0] has no field `gpu`: did you mean gpus",
        ),
        (
            "b.toml",
            "[[demands]]\nid = \"a\"\ngpus = \"many\"\n",
            "b.toml, line 3: demands[0].gpus is \"many\"; what belongs there: a whole number from 0 to",
        ),
        (
            "a.yaml",
            "demands:\n  - id: a\n    gpus: many\n",
            "a.yaml, line 3: demands[0].gpus is \"many\"; what belongs there: a whole number from 0 to",
        ),
        (
            "a.json",
            "{\"demands\": [{\"id\": \"a\",\n\"gpus\": -1}]}",
            "a.json, line 2: demands[0].gpus is -1; what belongs there: a whole number from 0 to",
        ),
        (
            "c.yaml",
            "demands:\n  - id: a\n    gpus: 1\n    starts: tomorrow\n",
            "c.yaml, line 4, starts = tomorrow: demands[0].starts: ",
        ),
        (
            "c.toml",
            "[[demands]]\nid = \"a\"\nset = { optimizer = [1] }\n",
            "optimizer = [1]: demands[0].set.optimizer: what belongs there: text, a number, or true or false",
        ),
        ("b.yaml", "demands: [", "line "),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let refused = run_with(["apply", "-f", file, "--password-file", file]).await;
        refused.refused(2, &[said, name]);
    }
    run("apply").await.refused(2, &["FILE"]);
    run("apply plan.json -f wanted.toml")
        .await
        .refused(2, &["cannot be used with"]);
}

/// Fault 54: told before it comes, in three zones, without a manager.
#[tokio::test]
async fn a_window_is_told_by_the_clocks_of_its_zone() {
    for (zone, from, opens, lasts) in [
        (
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "Sat 2026-03-28 20:00 +01:00",
            "10 h 30 min",
        ),
        (
            "America/New_York",
            "2026-10-31T12:00:00Z",
            "Sat 2026-10-31 20:00 -04:00",
            "12 h 30 min",
        ),
        (
            "Australia/Sydney",
            "2026-10-03T02:00:00Z",
            "Sat 2026-10-03 20:00 +10:00",
            "10 h 30 min",
        ),
    ] {
        let next = [
            "schedule",
            "next",
            "--weekly",
            "SAT 20:00-07:30",
            "--zone",
            zone,
            "--from",
            from,
        ];
        run_with(next).await.expect(0, &[opens, lasts]);
    }
    let wrong = ["schedule", "next", "--weekly", "SAT", "--zone", "Europe/Berlin"];
    run_with(wrong)
        .await
        .refused(2, &["is no range of the week", "MON-FRI 20:00-07:30"]);
    let never = [
        "schedule",
        "next",
        "--opens",
        "0 8 * * *",
        "--closes",
        "0 8 * * *",
    ];
    run_with(never).await.refused(2, &["never opens"]);
    run("schedule next --count 0 --weekly x")
        .await
        .refused(2, &["1 to 1000"]);
}

/// An hour of the day, in UTC, from which on nothing of seven hours is open before two hours have passed.
fn later_today_or_tomorrow() -> i64 {
    match SystemClock.now().as_second() / 3600 % 24 {
        ..9 => 12,
        _ => 2,
    }
}

#[tokio::test]
async fn reservations_for_more_than_there_is_are_told_when_they_are_made() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    let never = "the pool has 24 GPUs of kind h100-pcie-80gb, and 33 are needed";
    let add = "demand add wide --gpus 33 --kind h100-pcie-80gb";
    manager
        .run(add)
        .await
        .expect(8, &["wide does not fit", never, "would help"]);
    manager.run("demand remove wide --yes").await.expect(0, &[]);

    // Each has room alone, and not both; one that lies apart does.
    let file = data.path().join("wanted.yaml");
    let begin = later_today_or_tomorrow();
    let daily = |from: i64, to: i64| format!("daily {:02}:00-{:02}:00", begin + from, begin + to);
    let wants = |id: &str, window: String| {
        format!("  - {{ id: {id}, gpus: 20, kind: h100-pcie-80gb, window: {{ weekly: [\"{window}\"] }} }}\n")
    };
    let windows = [("one", daily(0, 4)), ("two", daily(2, 3)), ("apart", daily(4, 6))];
    let wanted: String = windows.map(|(id, window)| wants(id, window)).concat();
    let reservations = format!("demands:\n{wanted}");
    std::fs::write(&file, reservations).unwrap();
    let apply = format!("apply -f {} -o json", file.display());
    let declared = manager.run(&apply).await.expect(8, &[]).json();
    let lacking = |id: &str| {
        let entries = declared["entries"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["id"] == id).unwrap();
        entry["does_not_fit"][0]["reason"].as_str().map(str::to_owned)
    };
    let two = lacking("two").unwrap();
    assert!(
        two.starts_with("while one is open, too, as at 20")
            && two.contains(&format!("T{:02}:00:00Z", begin + 2)),
        "{two}"
    );
    assert!(
        lacking("one").unwrap().starts_with("while two is open"),
        "{declared}"
    );
    assert_eq!(lacking("apart"), None, "{declared}");
    let entries = declared["entries"].as_array().unwrap();
    let of_two = entries.iter().find(|entry| entry["id"] == "two").unwrap();
    let help = of_two["does_not_fit"][0]["help"].as_str().unwrap();
    assert!(
        help.starts_with("another window for two, or for one: one is open until 20")
            && help.contains(&format!("T{:02}:00:00Z", begin + 4)),
        "{help}"
    );
    let add = "schedule add three --gpus 20 --kind h100-pcie-80gb --weekly";
    let told = manager
        .run_with(add.split(' ').chain([daily(5, 6).as_str()]))
        .await;
    told.expect(8, &["does not fit: while apart is open, too"]);

    // None waits for another that waits for it.
    let cycle = "schedules:
  - { id: a, window: { weekly: [\"daily 06:00-07:00\"] }, demands: [{ id: of-a, gpus: 1 }], suspends: [of-b] }
  - { id: b, window: { weekly: [\"daily 06:00-07:00\"] }, demands: [{ id: of-b, gpus: 1 }], suspends: [of-a] }
";
    std::fs::write(&file, cycle).unwrap();
    let said = "schedule a suspends demand of-b of schedule b, which suspends demand of-a of schedule a";
    manager.run(&apply).await.refused(2, &[said]);
    std::fs::write(
        &file,
        cycle
            .replace("suspends: [of-b]", "suspends: [of-a]")
            .replace("  - { id: b", "#"),
    )
    .unwrap();
    manager
        .run(&apply)
        .await
        .refused(2, &["schedule a wants and suspends demand of-a"]);
}

/// What operations have in hand now is not in the way of a window that opens when they are long done.
#[tokio::test]
async fn a_window_is_not_judged_by_what_operations_have_in_hand_now() {
    let data = tempfile::tempdir().unwrap();
    let rack = data.path().join("rack.toml");
    // It is at work for longer than any machine takes for the rest, and ends with the manager.
    std::fs::write(&rack, slow_rack("600s")).unwrap();
    let options = ["--rack", rack.to_str().unwrap(), "--request-deadline", "600s"];
    let manager = Manager::start(data.path(), &options).await;
    manager.run("demand add busy --gpus 6").await.expect(0, &[]);
    let plan = data.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    manager.run(&format!("plan --out {plan}")).await.expect(0, &[]);
    manager
        .run(&format!("apply {plan} --no-wait"))
        .await
        .expect(0, &[]);
    let file = data.path().join("wanted.json");
    let begin = later_today_or_tomorrow();
    let window = format!("daily {begin:02}:00-{:02}:30", begin + 6);
    let declare = async |gpus: u32| {
        let night = serde_json::json!({"schedules": [{"id": "nights", "suspends": ["busy"],
            "window": {"weekly": [window]}, "demands": [{"id": "train", "gpus": gpus}]}]});
        std::fs::write(&file, night.to_string()).unwrap();
        manager
            .run(&format!("apply -f {} --dry-run", file.display()))
            .await
    };
    let fits = declare(8).await;
    fits.expect(0, &["nights"]);
    let too_many = declare(9).await.expect(8, &["train does not fit"]);
    assert!(
        !too_many.out.contains("in use by running operations"),
        "{too_many:?}"
    );
    let open = manager.run("ops list -o json").await.expect(0, &[]).json();
    assert_ne!(
        open[0]["state"], "completed",
        "it was at work all the while: {open}"
    );
}
