//! What the manager can tell of what was asked of its pool.

use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use poolwright_service::{Asked, How, OperationKind};
use serde_json::json;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

async fn asked(pool: &Pool) -> Vec<Asked> {
    pool.composer().asked().await.unwrap()
}

fn named<'a>(asked: &'a [Asked], name: &str) -> &'a Asked {
    let found: Vec<&Asked> = asked.iter().filter(|one| one.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {asked:#?}");
    found[0]
}

#[tokio::test(start_paused = true)]
async fn who_held_what_from_when_to_when_follows_from_the_operations() {
    let pool = Pool::of("small").await;
    assert_eq!(asked(&pool).await, []);
    pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    pool.composed(json!({"id": "any", "gpus": 1, "min_memory": 42_949_672_960u64}))
        .await;
    tokio::time::sleep(HOUR).await;
    pool.released("chat").await;

    let told = asked(&pool).await;
    let chat = named(&told, "chat");
    let (served, ended) = (chat.served.unwrap(), chat.ended.unwrap());
    assert!(chat.asked <= served, "{chat:?}");
    assert!(ended.duration_since(served).as_secs() >= 3600, "{chat:?}");
    assert_eq!(
        (chat.gpus, chat.kind.as_deref(), chat.hosts.len()),
        (2, Some("h100-pcie-80gb"), 1)
    );
    assert!(chat.operation.is_some() && chat.refused.is_none());
    let any = named(&told, "any");
    assert_eq!(
        (any.gpus, &any.kind, any.min_memory.map(|least| least.gib())),
        (1, &None, Some(40.0))
    );
    assert!(any.served.is_some() && any.ended.is_none(), "it runs: {any:?}");

    // Under the same name again, for a second stay.
    pool.composed(gpus("chat", "h100-pcie-80gb", 1)).await;
    let told = asked(&pool).await;
    let stays: Vec<_> = told.iter().filter(|one| one.name == "chat").collect();
    assert_eq!(stays.len(), 2);
    assert!(stays[1].asked >= ended && stays[1].gpus == 1, "{stays:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_waited_or_was_withdrawn_is_told_too() {
    let mut pool = Pool::of("small").await;
    pool.composed(gpus("all", "h100-pcie-80gb", 8)).await;
    let late = || spec(gpus("late", "h100-pcie-80gb", 4));
    pool.compose(gpus("late", "h100-pcie-80gb", 4)).await.unwrap_err();
    tokio::time::sleep(HOUR / 2).await;
    pool.compose(gpus("late", "h100-pcie-80gb", 4)).await.unwrap_err();
    let dry = How {
        dry_run: true,
        ..How::default()
    };
    let tried = spec(gpus("tried", "h100-pcie-80gb", 1));
    pool.composer().compose(tried, ME, &dry).await.unwrap_err();
    let giant = json!({"id": "giant", "model": "400B", "task": "full"});
    pool.compose(giant).await.unwrap_err();
    for name in ["waits", "gone"] {
        pool.composer()
            .add_demand(spec(gpus(name, "h100-pcie-80gb", 1)))
            .await
            .unwrap();
    }
    pool.composer().remove_demand(&demand_id("gone")).await.unwrap();

    // What a stop writes down is there after the next start.
    pool.composer().close().await;
    pool.restart().await;
    let told = asked(&pool).await;
    let refused = named(&told, "late");
    assert!(
        refused
            .refused
            .as_deref()
            .is_some_and(|why| why.contains("8 held")),
        "{refused:?}"
    );
    let tried_for = refused.ended.unwrap().duration_since(refused.asked);
    assert!(tried_for.as_secs() >= 1800, "two tries, one wish: {refused:?}");
    assert_eq!(
        (refused.gpus, refused.kind.as_deref()),
        (4, Some("h100-pcie-80gb"))
    );
    assert_eq!(named(&told, "giant").gpus, 0, "nobody can say how many");
    let gone = named(&told, "gone");
    assert!(
        gone.withdrawn && gone.refused.is_none() && gone.ended.is_some(),
        "there was room, and nobody refused it: {gone:?}"
    );
    let waits = named(&told, "waits");
    assert!(waits.served.is_none() && waits.refused.is_none(), "{waits:?}");
    assert!(
        !told.iter().any(|one| one.name == "tried"),
        "a dry run asks for nothing"
    );

    // Served at last: it has waited since the first refusal.
    let first = refused.asked;
    pool.released("all").await;
    pool.done(
        &pool
            .composer()
            .compose(late(), ME, &How::default())
            .await
            .unwrap(),
    )
    .await;
    let told = asked(&pool).await;
    let served = named(&told, "late");
    assert_eq!(
        (served.asked, served.refused.is_none()),
        (first, true),
        "{served:?}"
    );
    assert!(served.served.unwrap().duration_since(first).as_secs() >= 1800);
}

#[tokio::test(start_paused = true)]
async fn what_any_kind_would_have_done_for_is_so_told_when_demand_and_schedule_are_gone() {
    let mut pool = Pool::of("small").await;
    let any = |id: &str| json!({"id": id, "gpus": 1, "min_memory": 21_474_836_480u64});
    let manager = pool.composer();
    manager.add_demand(spec(any("standing"))).await.unwrap();
    tokio::time::sleep(HOUR).await;
    let apply = async || {
        let plan = pool.composer().plan().await.unwrap();
        let change = pool
            .composer()
            .apply(plan, OperationKind::Apply, ME, &How::default())
            .await
            .unwrap();
        pool.done(&change).await;
    };
    apply().await;
    tokio::time::sleep(HOUR).await;
    pool.released("standing").await;
    pool.restart().await;
    let told = asked(&pool).await;
    let over = named(&told, "standing");
    assert!(over.ended.is_some() && !over.withdrawn, "{over:?}");
    assert_eq!(
        (&over.kind, over.min_memory.map(|least| least.gib())),
        (&None, Some(20.0)),
        "it got one kind, and asked for none: {over:?}"
    );
    let waited = over.served.unwrap().duration_since(over.asked).as_secs();
    assert!(waited >= 3600, "it waited for a plan for an hour: {over:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_turned_away_is_forgotten_with_the_operations() {
    let pool = Pool::of("small").await;
    for n in 0..3 {
        pool.compose(gpus(&format!("huge-{n}"), "h100-pcie-80gb", 80))
            .await
            .unwrap_err();
    }
    assert_eq!(asked(&pool).await.len(), 3);
    let manager = pool.composer();
    manager.close().await;
    let later = |days: i64| manager.clock().now() + jiff::SignedDuration::from_hours(24 * days);
    manager.prune(later(80)).await.unwrap();
    assert_eq!(asked(&pool).await.len(), 3);
    manager.prune(later(100)).await.unwrap();
    assert_eq!(asked(&pool).await, []);
}
