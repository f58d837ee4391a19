//! The forecast, as others ask for it.

use super::{client, composer, password, served};
use poolwright_service::clock::{Clock, WallClock};
use poolwright_store::SqliteStore;
use serde_json::{Value, json};
use std::sync::Arc;

/// As docs/API.md has it: who is asked about, how far ahead, and what comes back.
#[tokio::test]
async fn what_tenants_will_want_is_told_once_it_was_noted_for_long_enough() {
    let dir = tempfile::tempdir().unwrap();
    let composer = composer(Arc::new(SqliteStore::open(dir.path()).unwrap()));
    composer.start().await.unwrap();
    let running = served(composer.clone(), dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let url = format!("https://{}/api/v1/forecast", running.address);
    let ask = async |query: &str| {
        let request = client.get(format!("{url}{query}"));
        let response = request.basic_auth("admin", Some(&password)).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.unwrap())
    };
    let (status, refused) = ask("").await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("unavailable")));

    let waits = json!({"id": "later", "gpus": 3, "tenant": "lab"});
    composer
        .add_demand(serde_json::from_value(waits).unwrap())
        .await
        .unwrap();
    let clock: &dyn Clock = &WallClock;
    let since = clock.now() - jiff::SignedDuration::from_hours(90);
    composer.note_wants(since).await.unwrap();
    let (status, all) = ask("").await;
    assert_eq!(status, 200, "{all}");
    let of = |tenant: &Value| (tenant["tenant"].clone(), tenant["wanted"].clone());
    let tenants: Vec<_> = all.as_array().unwrap().iter().map(of).collect();
    assert_eq!(
        tenants,
        [(json!("(all)"), json!(3.0)), (json!("lab"), json!(3.0))]
    );
    assert_eq!(
        all[0]["horizons"].as_array().unwrap().len(),
        6,
        "as many as ahead"
    );
    let (_, one) = ask("?tenant=lab&ahead=1,24").await;
    let horizons = one[0]["horizons"].as_array().unwrap();
    let in_s: Vec<_> = horizons.iter().map(|horizon| horizon["in_s"].clone()).collect();
    assert_eq!(in_s, [json!(3600), json!(86400)]);
    for horizon in horizons {
        assert_eq!((&horizon["p50"], &horizon["p90"]), (&json!(3.0), &json!(3.0)));
        assert_eq!(horizon["measured"]["ours"]["coverage"], json!(1.0), "{horizon}");
    }
    let (_, kinds) = ask("?tenant=lab&by_kind=true").await;
    let kinds: Vec<_> = kinds
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].clone())
        .collect();
    assert_eq!(kinds, [Value::Null, json!("(any)")], "no kind was asked for");
    for (query, status) in [
        ("?kind=none-such", 404),
        ("?ahead=0", 400),
        ("?ahead=169", 400),
        ("?ahead=soon", 400),
        ("?tenants=lab", 400),
        ("?tenant=nobody", 404),
    ] {
        let (found, error) = ask(query).await;
        assert_eq!(found, status, "{query}: {error}");
        assert!(
            error["error"]["message"].as_str().unwrap().len() > 10,
            "{query}: {error}"
        );
    }
    running.stop().await;
}
