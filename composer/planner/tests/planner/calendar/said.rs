//! The contents of a problem made of a calendar, and the list of facts that it can't express.

use crate::calendar::week::{Week, closure, wish};
use crate::support::{Rack, need, set};
use jiff::SignedDuration;
use poolwright_planner::calendar::Posed;
use poolwright_planner::horizon::Broken;
use poolwright_planner::{Composition, Share};
use poolwright_sizing::need::Need;
use serde_json::{Value, json};

fn red(count: u32) -> Need {
    Need::of_kind("red", count)
}

/// Eight GPUs on one switch, and two hosts with room for four each.
fn rack() -> Rack {
    Rack::new()
        .gpus("f/s", "red", 80.0, 8)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
}

/// A demand as the file has it.
fn demand(posed: &Posed, id: &str) -> Value {
    let found = posed.file.demands.iter().find(|demand| demand.is.id == id);
    serde_json::to_value(found.unwrap_or_else(|| panic!("{id}: {:#?}", posed.file.demands))).unwrap()
}

fn told(posed: &Posed, what: &str) {
    assert!(
        posed.not_said.iter().any(|line| line.contains(what)),
        "{what}: {:#?}",
        posed.not_said
    );
}

#[test]
fn what_stands_runs_and_what_comes_back_is_wanted_again() {
    let week = Week::of(
        rack(),
        480,
        vec![
            wish("chat", red(4), 0..120),
            wish("night", red(8).spanning(true), 120..360),
            wish("chat", red(4), 360..480),
        ],
    );
    let posed = week.running().posed();
    assert_eq!((posed.file.horizon_slots, posed.file.slot_s), (32, 900.0));
    let chat = demand(&posed, "chat");
    assert_eq!(
        (&chat["start"], &chat["end"], &chat["gpus"]),
        (&json!(0), &json!(8), &json!(4))
    );
    assert_eq!(chat["running"], json!({"host": "a", "gpus": {"red@f/s": 4}}));
    let again = demand(&posed, "chat (2)");
    assert_eq!(
        (&again["start"], &again["end"], &again["running"]),
        (&json!(24), &json!(32), &Value::Null)
    );
    let night = demand(&posed, "night");
    assert_eq!(
        (&night["gpus"], &night["parts"]),
        (&json!(1), &json!({"least": 8, "same_host_ok": true}))
    );
    // All is served: four are attached twice, and detached once; two hosts are on, one of them twice.
    let attached: usize = posed
        .own
        .attached
        .values()
        .flat_map(|rows| rows.values())
        .map(Vec::len)
        .sum();
    assert_eq!(attached, 64, "{:#?}", posed.own.attached);
    assert!(
        posed.own.demands.iter().all(|served| served.host.is_some()),
        "{:#?}",
        posed.own
    );
    posed.judged.unwrap();
}

#[test]
fn phases_follow_each_other_from_where_the_run_is() {
    let mut wishes = vec![
        wish("run", red(4), 60..180),
        wish("run", red(1), 180..240),
        wish("run", red(2), 240..300),
    ];
    wishes.iter_mut().for_each(|wish| wish.phase = true);
    let posed = Week::of(rack(), 480, wishes.clone()).posed();
    let run = demand(&posed, "run");
    let slots: Vec<(i64, i64)> = (run["phases"].as_array().unwrap().iter())
        .map(|phase| (phase["slots"].as_i64().unwrap(), phase["gpus"].as_i64().unwrap()))
        .collect();
    assert_eq!(
        (run["start"].as_i64(), slots),
        (Some(4), vec![(8, 4), (4, 1), (4, 2)])
    );
    posed.judged.unwrap();
    // A run that has begun continues; its remaining phases come after.
    wishes[0].from = crate::calendar::week::at(0);
    let posed = Week::of(rack(), 480, wishes).running().posed();
    assert_eq!(demand(&posed, "run")["running"]["host"], "a");
    assert_eq!(demand(&posed, "run (2)")["phases"].as_array().unwrap().len(), 2);
    posed.judged.unwrap();
}

#[test]
fn a_job_may_be_stopped_where_it_said_so_and_has_its_gpus_in_one_place() {
    let mut job = wish("job", red(4), 0..240);
    job.stops_after = Some(SignedDuration::from_mins(20));
    let posed = Week::of(rack(), 480, vec![job]).running().posed();
    assert_eq!(
        demand(&posed, "job")["preemptible"],
        json!({"notice": 2, "stop": 0.0})
    );
    // The part that no stop can shorten, and the rest.
    assert_eq!(
        posed
            .own
            .demands
            .iter()
            .map(|served| served.phase)
            .collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    posed.judged.unwrap();

    let mut wide = wish("wide", red(6).spanning(true), 0..240);
    wide.stops_after = Some(SignedDuration::ZERO);
    let posed = Week::of(rack(), 480, vec![wide]).running().posed();
    assert_eq!(demand(&posed, "wide/1")["preemptible"], Value::Null);
    assert_eq!(demand(&posed, "wide/2")["running"]["host"], "b");
    told(&posed, "job wide may be stopped");
    posed.judged.unwrap();
}

#[test]
fn what_is_attached_by_name_is_pinned_and_what_is_kept_may_go() {
    let wishes = vec![wish("named", red(2), 0..480), wish("kept", red(1), 0..480)];
    let mut week = Week::of(rack(), 480, wishes).running();
    let mut held: Vec<Composition> = week.rack.held.clone();
    for composition in &mut held {
        if composition.demand.take().unwrap().as_str() == "kept" {
            let kept = json!({"since": "2026-03-02T11:00:00Z", "by": "2026-03-02T14:00:00Z"});
            composition.kept = Some(serde_json::from_value(kept).unwrap());
        }
    }
    week.rack.held = held;
    week.wishes = vec![wish("late", red(3), 240..480)];
    let posed = week.posed();
    let at = |pinned: bool| {
        let gpus = posed.file.gpus.iter();
        gpus.filter(|gpu| gpu.is.attached_to.is_some() && gpu.more.pinned == pinned)
            .count()
    };
    assert_eq!((at(true), at(false)), (2, 1));
    posed.judged.unwrap();
}

#[test]
fn a_host_that_is_closed_keeps_what_runs_there_and_is_given_nothing() {
    let mut week = Week::of(
        rack(),
        480,
        vec![
            wish("stays", red(2), 0..240),
            wish("early", red(2), 120..240),
            wish("late", red(2), 360..480),
        ],
    )
    .running();
    week.closures = vec![closure("a", 60..420)];
    let posed = week.posed();
    let a = posed.file.hosts.iter().find(|host| host.is.id == "a").unwrap();
    // After the end of the running demand there.
    let closed: Vec<(i64, i64)> = a
        .more
        .closed
        .iter()
        .map(|window| (window.start, window.end))
        .collect();
    assert_eq!(closed, [(16, 28)]);
    assert_eq!(demand(&posed, "early")["hosts"], json!(["b"]));
    assert_eq!(demand(&posed, "late")["hosts"], Value::Null);
    posed.judged.unwrap();
}

/// The manager leaves there what a closure finds; in a problem nothing runs at a closed host.
#[test]
fn what_the_manager_does_and_the_problem_refuses_is_told() {
    let mut week = Week::of(rack(), 480, vec![wish("late", red(4), 60..240)]);
    week.closures = vec![closure("a", 120..180), closure("b", 120..180)];
    let posed = week.posed();
    assert!(
        matches!(posed.judged, Err(Broken::Closed { .. })),
        "{:?}",
        posed.judged
    );
    told(&posed, "is no plan of this problem");
}

#[test]
fn what_ends_within_a_slot_makes_way_there_for_what_begins_after_it() {
    let all = || red(8).spanning(true);
    let week = Week::of(
        rack(),
        120,
        vec![wish("first", all(), 0..50), wish("then", all(), 50..100)],
    );
    let posed = week.posed();
    let windows: Vec<(i64, Option<i64>)> = posed
        .file
        .demands
        .iter()
        .map(|demand| (demand.is.start, demand.is.end))
        .collect();
    assert_eq!(windows, [(0, Some(3)), (3, Some(7))]);
    told(&posed, "begins or ends within a slot");
    posed.judged.unwrap();
    // A wish that ends before its slot shows it is listed.
    let blink = Week::of(
        rack(),
        120,
        vec![wish("blink", red(1), 16..18), wish("then", red(1), 20..60)],
    );
    told(&blink.posed(), "less than a slot, and left out: blink");
}

#[test]
fn a_need_has_its_alternatives_as_options_and_what_suits_nothing_is_left_out() {
    let rack = rack().gpus("f/s", "blue", 40.0, 4);
    let both = need(
        vec![set(Some("red"), 1, 0.0, 1), set(Some("blue"), 2, 0.0, 1)],
        false,
    );
    let spread = need(
        vec![set(Some("red"), 6, 0.0, 2), set(Some("blue"), 12, 0.0, 4)],
        true,
    );
    let wishes = vec![
        wish("both", both, 60..120),
        wish("green", Need::of_kind("green", 1), 60..120),
        wish("pairs", need(vec![set(Some("red"), 6, 0.0, 2)], true), 120..180),
        wish("spread", spread, 180..240),
        wish("elastic", red(12).spanning(true).from_least(2), 240..300),
    ];
    let posed = Week::of(rack, 480, wishes).posed();
    let options = &demand(&posed, "both")["options"];
    assert_eq!((&options[0]["gpus"], &options[1]["gpus"]), (&json!(1), &json!(2)));
    assert_eq!(options[1]["types"], json!(["blue"]));
    let pairs = demand(&posed, "pairs");
    assert_eq!((&pairs["gpus"], &pairs["parts"]["least"]), (&json!(2), &json!(3)));
    told(&posed, "of the kinds that suit: green");
    told(&posed, "only GPUs of the first kind that suits: spread");
    assert_eq!(demand(&posed, "spread")["parts"]["least"], 3);
    let elastic = demand(&posed, "elastic");
    assert_eq!((&elastic["gpus"], &elastic["options"]), (&json!(1), &Value::Null));
    assert_eq!(
        (&elastic["parts"]["least"], &elastic["parts"]["most"]),
        (&json!(2), &json!(12))
    );
    posed.judged.unwrap();
}

#[test]
fn tenants_have_what_they_are_promised_beside_what_they_hold_by_name() {
    let mut rack = rack();
    rack.promises.shares = [(
        "acme".parse().unwrap(),
        Share {
            guaranteed: 2,
            most: Some(3),
            weight: 2,
        },
    )]
    .into();
    let week = Week::of(rack, 480, vec![wish("mine", red(3), 0..480)]).running();
    let posed = week.posed();
    let tenant = &posed.file.tenants[0];
    assert_eq!(
        (tenant.guaranteed_gpus, tenant.most_gpus, tenant.weight),
        (2, Some(3), Some(2))
    );
    posed.judged.unwrap();
    // A later cut of the share does not make the tenant's holdings invalid.
    let mut week = week;
    week.rack.promises.shares = [(
        "acme".parse().unwrap(),
        Share {
            guaranteed: 0,
            most: Some(1),
            weight: 1,
        },
    )]
    .into();
    let posed = week.posed();
    assert_eq!(posed.file.tenants[0].most_gpus, Some(3));
    told(&posed, "have more than they may hold");
}

#[test]
fn what_a_host_does_not_reach_is_not_offered_to_it_and_cables_are_counted() {
    let rack = Rack::new()
        .gpus("f/s1", "red", 80.0, 2)
        .gpus("f/s2", "red", 80.0, 2)
        .gpus("f/s3", "red", 80.0, 2)
        .gpus("g/s", "red", 80.0, 2)
        .cable("f", "s1", "s2")
        .cable("f", "s2", "s3")
        .host("a", "f/s1", 4)
        .host_with("b", &[("f/s1", 2), ("g/s", 2)]);
    let posed = Week::of(rack, 60, vec![wish("one", red(2), 0..60)]).posed();
    let host = |id: &str| posed.file.hosts.iter().find(|host| host.is.id == id).unwrap();
    assert_eq!(
        host("a").more.fabric.reach,
        Some(["f/s1", "f/s2", "f/s3"].map(String::from).to_vec())
    );
    assert_eq!(
        (host("b").more.fabric.reach.as_ref(), host("b").is.slots),
        (None, 4)
    );
    let hops: Vec<(&str, &str, u64)> = posed
        .file
        .hops
        .iter()
        .map(|hops| (hops.from.as_str(), hops.to.as_str(), hops.hops))
        .collect();
    assert!(hops.contains(&("f/s1", "f/s3", 2)), "{hops:?}");
    assert!(hops.contains(&("f/s1", "f/s1 + g/s", 0)), "{hops:?}");
    told(&posed, "the ports of a host are one here");
    posed.judged.unwrap();
}
