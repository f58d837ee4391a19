//! A manager's calendar as a problem over time, and its own plan as a solution.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, gpus, spec};
use poolwright_planner::horizon::file::File;
use poolwright_planner::horizon::{Assignment, Cost, check};
use poolwright_service::ProblemAhead;
use poolwright_service::closure::Close;
use serde_json::{Value, json};

const H100: &str = "h100-pcie-80gb";

/// The cost of the manager's plan, computed from the files.
fn costs(posed: &ProblemAhead) -> Cost {
    let file: File = serde_json::from_value(posed.problem.clone()).unwrap();
    let own: Assignment = serde_json::from_value(posed.solution["assignment"].clone()).unwrap();
    let cost = check(&file.problem().unwrap(), &own).unwrap_or_else(|broken| panic!("{broken}: {posed:#?}"));
    assert_eq!(posed.objective, Some(cost as f64 / 1000.0));
    cost
}

/// Whether all of it is served, which stands in several places.
fn served(posed: &ProblemAhead, demand: &str) -> bool {
    let demands = posed.solution["assignment"]["demands"].as_array().unwrap();
    let is_of = |served: &&Value| {
        let name = served["demand"].as_str().unwrap();
        name == demand
            || name
                .strip_prefix(demand)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    let mut parts = demands.iter().filter(is_of).peekable();
    assert!(parts.peek().is_some(), "{demand}: {demands:#?}");
    parts.all(|served| !served["host"].is_null())
}

#[tokio::test(start_paused = true)]
async fn nights_that_overlap_phases_and_what_stands_are_one_problem() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", H100, 8)).await;
    pool.schedule(night()).await;
    let mut rival = night();
    (rival["id"], rival["suspends"]) = (json!("rival"), json!([]));
    rival["window"] = json!({"opens": "30 22 * * *", "closes": "0 4 * * *"});
    rival["demands"] = json!([gpus("others", H100, 4), gpus("lab", "l40s-48gb", 6)]);
    pool.schedule(rival).await;
    let run = json!({"id": "run", "model": "8B", "kind": "l40s-48gb", "starts": "2026-03-02T14:00:00Z", "phase": [
        {"kind": "main", "hours": 2, "gpus": 4}, {"kind": "evaluation", "hours": 1}]});
    pool.composer().add_demand(spec(run)).await.unwrap();
    let posed = pool.composer().problem_ahead(24, None).await.unwrap();
    assert_eq!(
        (posed.slot_s, posed.problem["horizon_slots"].as_u64()),
        (600, Some(145))
    );
    costs(&posed);
    // All H100s are the night's, so the rival has none of them; the manager says the same of its calendar.
    let told = ["chat", "chat (2)", "training", "lab", "run"].map(|demand| served(&posed, demand));
    assert_eq!((told, served(&posed, "others")), ([true; 5], false));
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    let unserved = ahead.moments.iter().flat_map(|moment| &moment.unserved);
    assert!(
        unserved
            .into_iter()
            .all(|unserved| unserved.demand.as_str() == "others")
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_closes_and_a_demand_that_nobody_has_served_are_in_it() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", H100, 4)).await;
    let host = pool.composer().compositions().await.unwrap()[0].host.clone();
    let evening = Close {
        from: Some(EVENING.parse().unwrap()),
        until: Some(NIGHT.parse().unwrap()),
        reason: "new fans".to_owned(),
    };
    for id in pool.snapshot().await.topology.hosts.iter().map(|host| &host.id) {
        pool.composer()
            .close_host(id, &evening, crate::stories::kit::ME)
            .await
            .unwrap();
    }
    let asked = pool.composer().add_demand(spec(gpus("asked", H100, 2))).await;
    asked.unwrap();
    let posed = pool.composer().problem_ahead(12, Some(900)).await.unwrap();
    costs(&posed);
    assert_eq!((served(&posed, "chat"), served(&posed, "asked")), (true, false));
    let closed = |id: &str| -> Value {
        let hosts = posed.problem["hosts"].as_array().unwrap();
        hosts.iter().find(|host| host["id"] == id).unwrap()["closed"].clone()
    };
    // Existing placements stay on their host; the host is closed to all other demands.
    assert_eq!(closed(host.as_str()), Value::Null);
    let other = pool.host_id("host-6").await;
    assert_ne!(other, host);
    assert_eq!(closed(other.as_str()), json!([{"start": 32, "end": 44}]));
    let demands = posed.problem["demands"].as_array().unwrap();
    let asked = demands.iter().find(|demand| demand["id"] == "asked").unwrap();
    assert_eq!(asked["hosts"].as_array().unwrap().len(), 5);
    for (hours, slot) in [(0, None), (745, None), (12, Some(1)), (744, Some(60))] {
        pool.composer().problem_ahead(hours, slot).await.unwrap_err();
    }
}
