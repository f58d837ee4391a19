//! The plan over time says what then happens: it is held against the pool as its moments come.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, demand_id, gpus};
use jiff::Timestamp;
use poolwright_service::Ahead;
use serde_json::json;
use std::collections::BTreeMap;

/// GPUs by demand that the plan has at a moment.
fn planned(ahead: &Ahead, at: Timestamp) -> BTreeMap<String, u32> {
    let mut planned = BTreeMap::new();
    for held in ahead
        .held
        .iter()
        .filter(|held| (held.from..held.until).contains(&at))
    {
        let demand = held.demand.as_ref().unwrap().to_string();
        *planned.entry(demand).or_default() += held.gpus.len() as u32;
    }
    planned
}

#[tokio::test(start_paused = true)]
async fn what_is_planned_for_the_night_and_the_morning_is_what_comes() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    let clockwork = Clockwork::of(&pool);
    pool.schedule(night()).await;
    // From noon: the evening, the morning, and the next evening.
    let ahead = pool.composer().plan_ahead(36).await.unwrap();
    let at: Vec<String> = ahead.moments.iter().map(|moment| moment.at.to_string()).collect();
    assert_eq!(
        at,
        [
            "2026-03-02T20:00:00Z",
            "2026-03-03T07:30:00Z",
            "2026-03-03T20:00:00Z"
        ]
    );
    let (evening, morning) = (&ahead.moments[0], &ahead.moments[1]);
    assert_eq!(
        (evening.detaches, evening.attaches, evening.open.len()),
        (8, 24, 1)
    );
    assert_eq!(
        (morning.detaches, morning.attaches, morning.open.len()),
        (24, 8, 0)
    );
    assert_eq!(planned(&ahead, ahead.from), holds(&[("chat", 8)]));
    for (after, shortly) in [
        (NIGHT, "2026-03-02T20:30:00Z"),
        ("2026-03-03T07:30:00Z", "2026-03-03T08:00:00Z"),
    ] {
        pool.pass_until(shortly).await;
        assert_eq!(
            pool.holders().await,
            planned(&ahead, after.parse().unwrap()),
            "{after}"
        );
    }
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_will_not_be_served_is_known_before_with_its_reason() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    pool.schedule(json!({
        "id": "night", "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
        "demands": [gpus("training", "h100-pcie-80gb", 24)],
    }))
    .await;
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    let [evening] = &ahead.moments[..] else {
        panic!("{:?}", ahead.moments)
    };
    assert_eq!(evening.unserved[0].demand, demand_id("training"));
    assert!(!evening.unserved[0].reason.is_empty());
    assert_eq!(planned(&ahead, NIGHT.parse().unwrap()), holds(&[("chat", 8)]));
}

#[tokio::test(start_paused = true)]
async fn a_pool_in_which_nothing_changes_is_planned_as_it_is_and_absurd_spans_are_refused() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    assert!(ahead.moments.is_empty(), "{:?}", ahead.moments);
    assert!(
        ahead
            .held
            .iter()
            .all(|held| (held.from, held.until) == (ahead.from, ahead.until))
    );
    assert_eq!(planned(&ahead, ahead.from), holds(&[("chat", 8)]));
    for hours in [0, 100_000] {
        let refused = pool.composer().plan_ahead(hours).await.unwrap_err();
        assert!(refused.message.contains("1 to 744"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_being_attached_is_planned_with_as_what_it_becomes() {
    let pool = Pool::of("demo").await;
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 8)).await.unwrap();
    let gpu = pool.gpu("box-2/gpu-8").await.id;
    let host = pool.host_id("host-4").await;
    let by_name = pool
        .composer()
        .attach(
            std::slice::from_ref(&gpu),
            &host,
            crate::stories::kit::ME,
            &Default::default(),
        )
        .await
        .unwrap();
    let mut lend = night();
    lend["demands"] = json!([gpus("training", "h100-pcie-80gb", 23)]);
    pool.schedule(lend).await;
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    let named = ahead.held.iter().find(|held| held.demand.is_none()).unwrap();
    assert!(named.gpus.contains(&gpu), "{named:?}");
    let of_demands = Ahead {
        held: ahead
            .held
            .iter()
            .filter(|held| held.demand.is_some())
            .cloned()
            .collect(),
        ..ahead.clone()
    };
    assert_eq!(planned(&of_demands, ahead.from), holds(&[("chat", 8)]));
    let night = planned(&of_demands, NIGHT.parse().unwrap());
    assert_eq!(
        night,
        holds(&[("training", 23)]),
        "beside what is attached by name"
    );
    assert_eq!(ahead.moments[0].unserved, []);
    pool.done(&change).await;
    pool.done(&by_name).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_asked_for_is_not_attached_by_the_clock_and_said_so() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composer()
        .add_demand(crate::stories::kit::spec(gpus("chat", "h100-pcie-80gb", 8)))
        .await
        .unwrap();
    let mut lend = night();
    lend["suspends"] = json!([]);
    lend["demands"] = json!([gpus("training", "h100-pcie-80gb", 20)]);
    pool.schedule(lend).await;
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    let [now, evening, morning] = &ahead.moments[..] else {
        panic!("{:?}", ahead.moments)
    };
    assert_eq!((now.attaches, &now.unserved[0].demand), (0, &demand_id("chat")));
    assert!(
        now.unserved[0]
            .help
            .as_deref()
            .unwrap()
            .contains("poolwright apply")
    );
    assert_eq!((evening.attaches, evening.unserved.len()), (20, 0));
    assert_eq!(morning.detaches, 20);
    for shortly in ["2026-03-02T12:30:00Z", NIGHT] {
        pool.pass_until(shortly).await;
        assert_eq!(
            pool.holders().await,
            planned(&ahead, shortly.parse().unwrap()),
            "{shortly}"
        );
    }
    clockwork.stop().await;
}

/// Openings that are decided about when they come, and runs that end before their windows close, are foreseen as they will be.
#[tokio::test(start_paused = true)]
async fn nights_that_bring_back_by_morning_what_they_lend_are_foreseen() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    let clockwork = Clockwork::of(&pool);
    let mut lend = night();
    lend["back_by_close"] = json!(true);
    pool.schedule(lend).await;
    let mut rival = night();
    (rival["id"], rival["overlap"]) = ("rival".into(), "skip".into());
    rival["demands"] = json!([gpus("others", "h100-pcie-80gb", 4)]);
    pool.schedule(rival).await;
    let ahead = pool.composer().plan_ahead(36).await.unwrap();
    let told: Vec<_> = ahead
        .moments
        .iter()
        .map(|moment| {
            (
                moment.at.to_string(),
                moment.attaches,
                moment.detaches,
                moment.open.len(),
            )
        })
        .collect();
    let moment = |at: &str, attaches, detaches, open| (at.to_owned(), attaches, detaches, open);
    assert_eq!(
        told,
        [
            moment("2026-03-02T20:00:00Z", 24, 8, 1),
            moment("2026-03-03T07:25:00Z", 8, 24, 0),
            moment("2026-03-03T20:00:00Z", 24, 8, 1),
        ]
    );
    for shortly in ["2026-03-02T20:30:00Z", "2026-03-03T07:28:00Z"] {
        pool.pass_until(shortly).await;
        assert_eq!(
            pool.holders().await,
            planned(&ahead, shortly.parse().unwrap()),
            "{shortly}"
        );
    }
    clockwork.stop().await;
}
