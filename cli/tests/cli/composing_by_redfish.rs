//! Composing as a client that speaks Redfish alone does it: what takes long, what can't be, and two that want one block.

use crate::by_redfish::{Answer, Client, PATIENCE, message};
use crate::support::{Manager, slow_rack};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const SYSTEMS: &str = "/redfish/v1/Systems";
const COMPOSITION: &str = "/redfish/v1/CompositionService";
/// At a task.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A manager of a rack, a client of it, and the free blocks of hosts and of GPUs.
struct Composable {
    /// Serves for as long as this lives.
    _manager: Manager,
    client: Client,
    hosts: Vec<String>,
    gpus: Vec<String>,
}

impl Composable {
    async fn new(folder: &Path, rack: &str) -> Self {
        let manager = Manager::start(folder, &["--rack", rack]).await;
        let client = Client::of(&manager);
        Self {
            hosts: free(&client, "ComputerSystem").await,
            gpus: free(&client, "Processor").await,
            client,
            _manager: manager,
        }
    }
}

fn links(of: &Value) -> Vec<String> {
    let all = of.as_array().cloned().unwrap_or_default().into_iter();
    all.map(|link| link["@odata.id"].as_str().unwrap().to_owned())
        .collect()
}

/// Free blocks of a kind.
async fn free(client: &Client, kind: &str) -> Vec<String> {
    let place = format!("{COMPOSITION}/ResourceBlocks?$expand=.&$filter=Pool%20eq%20'Free'");
    let mut blocks = client.get(&place).await.body["Members"].take();
    let of_kind = |block: &&mut Value| block["ResourceBlockType"][0] == kind;
    let blocks = blocks.as_array_mut().unwrap().iter_mut().filter(of_kind);
    links(&Value::Array(blocks.map(Value::take).collect()))
}

fn system(name: &str, blocks: &[&String]) -> Value {
    let blocks: Vec<Value> = blocks.iter().map(|block| json!({"@odata.id": block})).collect();
    json!({"Name": name, "Links": {"ResourceBlocks": blocks}})
}

async fn post(client: &Client, preference: &str, body: &Value) -> Answer {
    client
        .ask_preferring(preference, Method::POST, SYSTEMS, Some(body))
        .await
}

/// The same, and what came of it: where the machine is slow it is answered with a task first.
async fn composed(client: &Client, body: &Value) -> Answer {
    let answer = post(client, "", body).await;
    match answer.status {
        202 => what_came_of_it(client, answer.location.as_deref().unwrap()).await,
        _ => answer,
    }
}

/// What the request would have answered, once its task is over.
async fn what_came_of_it(client: &Client, monitor: &str) -> Answer {
    let follow = async {
        loop {
            let answer = client.get(monitor).await;
            if answer.status != 202 {
                return answer;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    };
    tokio::time::timeout(PATIENCE, follow)
        .await
        .expect("the task ends in time")
}

#[tokio::test]
async fn what_takes_long_is_answered_with_a_task_and_sooner_where_that_is_preferred() {
    let folder = tempfile::tempdir().unwrap();
    let rack = folder.path().join("slow.toml");
    std::fs::write(&rack, slow_rack("25s")).unwrap();
    let Composable {
        client, hosts, gpus, ..
    } = &Composable::new(folder.path(), rack.to_str().unwrap()).await;

    let wanted = system("preferred", &[&hosts[0], &gpus[0]]);
    let preferred = post(client, "respond-async", &wanted).await;
    assert_eq!(
        (preferred.status, preferred.preference.as_str()),
        (202, "respond-async"),
        "{}",
        preferred.body
    );
    assert!(preferred.body["EndTime"].is_null(), "{}", preferred.body);
    let by_itself = post(client, "", &system("patient", &[&hosts[1], &gpus[1]])).await;
    assert_eq!(
        (by_itself.status, by_itself.preference.as_str()),
        (202, ""),
        "{}",
        by_itself.body
    );
    for answer in [preferred, by_itself] {
        let monitor = answer.location.unwrap();
        assert_eq!(Some(monitor.as_str()), answer.body["TaskMonitor"].as_str());
        let made = what_came_of_it(client, &monitor).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let place = made.location.unwrap();
        let blocks = links(&client.get(&place).await.body["Links"]["ResourceBlocks"]);
        assert_eq!(blocks.len(), 2, "{place}: {blocks:?}");
    }
}

#[tokio::test]
async fn zones_have_all_blocks_and_what_can_not_be_added_or_removed_is_refused_by_its_message() {
    let folder = tempfile::tempdir().unwrap();
    let Composable {
        client, hosts, gpus, ..
    } = &Composable::new(folder.path(), "zones").await;
    let one = composed(client, &system("one", &[&hosts[0], &gpus[0]])).await;
    let other = composed(client, &system("other", &[&hosts[1], &gpus[1]])).await;
    assert_eq!(
        (one.status, other.status),
        (201, 201),
        "{} {}",
        one.body,
        other.body
    );
    let (one, other) = (one.location.unwrap(), other.location.unwrap());

    // A zone has each block that is in its fabric, free or composed, and the block says so; a host with a baseboard of its
    // own is in none.
    let members = async |of: &str| links(&client.get(&format!("{COMPOSITION}/{of}")).await.body["Members"]);
    let (mut has, mut says) = (BTreeSet::new(), BTreeSet::new());
    for zone in members("ResourceZones").await {
        let shown = client.get(&zone).await.body;
        assert_eq!(shown["ZoneType"], "ZoneOfResourceBlocks", "{shown}");
        let blocks = links(&shown["Links"]["ResourceBlocks"]);
        has.extend(blocks.into_iter().map(|block| (block, zone.clone())));
    }
    for block in members("ResourceBlocks").await {
        let zones = links(&client.get(&block).await.body["Links"]["Zones"]);
        says.extend(zones.into_iter().map(|zone| (block.clone(), zone)));
    }
    assert_eq!(has, says);
    let joined: BTreeSet<&String> = has.iter().map(|(block, _)| block).collect();
    let composed = [&hosts[0], &hosts[1], &gpus[0], &gpus[1]];
    assert!(composed.iter().all(|block| joined.contains(block)), "{joined:?}");
    assert!(joined.contains(&gpus[2]), "a free one: {joined:?}");
    for taken in [&gpus[0], &gpus[1]] {
        let shown = client.get(taken).await.body;
        assert_eq!(shown["Pool"], "Active", "{shown}");
    }

    let block = |place: &str| json!({"ResourceBlock": {"@odata.id": place}});
    let with = |mut body: Value, field: &str, value: &str| {
        body[field] = json!(value);
        body
    };
    let (add, remove) = ("AddResourceBlock", "RemoveResourceBlock");
    for (action, body, status, id) in [
        (add, json!({}), 400, "ActionParameterMissing"),
        (remove, json!({}), 400, "ActionParameterMissing"),
        (add, json!([]), 400, "UnrecognizedRequestBody"),
        (
            add,
            json!({"ResourceBlock": 5}),
            400,
            "ActionParameterValueTypeError",
        ),
        (
            add,
            with(block(&gpus[2]), "Colour", "red"),
            400,
            "ActionParameterUnknown",
        ),
        (
            add,
            block(&format!("{COMPOSITION}/ResourceBlocks/none")),
            400,
            "ResourceBlockNotFound",
        ),
        (remove, block(&one), 400, "ResourceBlockNotFound"),
        (add, block(&hosts[1]), 400, "ActionParameterValueConflict"),
        (remove, block(&hosts[0]), 400, "ActionParameterValueConflict"),
        (remove, block(&gpus[1]), 409, "ActionParameterValueConflict"),
        (add, block(&gpus[1]), 409, "ResourceInUse"),
        (
            add,
            with(block(&gpus[2]), "ResourceBlockETag", "\"old\""),
            412,
            "PreconditionFailed",
        ),
        (
            remove,
            with(block(&gpus[0]), "ComputerSystemETag", "\"old\""),
            412,
            "PreconditionFailed",
        ),
    ] {
        let target = format!("{one}/Actions/ComputerSystem.{action}");
        let answer = client.ask(Method::POST, &target, Some(&body)).await;
        assert_eq!(
            (answer.status, message(&answer)),
            (status, id),
            "{action} {body}: {}",
            answer.body
        );
    }
    let nowhere = format!("{SYSTEMS}/none/Actions/ComputerSystem.{add}");
    let answer = client.ask(Method::POST, &nowhere, Some(&block(&gpus[2]))).await;
    assert_eq!(
        (answer.status, message(&answer)),
        (404, "ResourceMissingAtURI"),
        "{}",
        answer.body
    );
    // Nothing was changed by any of them.
    for (place, gpu) in [(&one, &gpus[0]), (&other, &gpus[1])] {
        let blocks = links(&client.get(place).await.body["Links"]["ResourceBlocks"]);
        assert!(blocks.len() == 2 && blocks.contains(gpu), "{place}: {blocks:?}");
    }
}

#[tokio::test]
async fn of_two_clients_that_want_one_block_one_has_it_and_the_other_is_told_who() {
    let folder = tempfile::tempdir().unwrap();
    let Composable {
        client, hosts, gpus, ..
    } = &Composable::new(folder.path(), "zones").await;
    let (left, right) = (
        system("left", &[&hosts[0], &gpus[0]]),
        system("right", &[&hosts[1], &gpus[0]]),
    );
    let (left, right) = tokio::join!(composed(client, &left), composed(client, &right));
    let (winner, loser) = match left.status {
        201 => (left, right),
        _ => (right, left),
    };
    assert_eq!(
        (winner.status, loser.status, message(&loser)),
        (201, 409, "ResourceInUse"),
        "{} {}",
        winner.body,
        loser.body
    );
    let place = winner.location.unwrap();
    let holders = links(&client.get(&gpus[0]).await.body["Links"]["ComputerSystems"]);
    assert_eq!(holders, [place]);
    let told = loser.body.to_string();
    let name = winner.body["Id"].as_str().unwrap();
    assert!(
        told.contains(name) || told.contains("of admin has it in hand"),
        "{told}"
    );
}

/// Sends a request about a host to the API, and returns the state of its block afterwards.
async fn is_free_once(client: &Client, host: &str, asked: &str, body: &Value) -> (bool, Value) {
    let place = format!("/api/v1/hosts/{host}/{asked}");
    let answer = client.ask(Method::POST, &place, Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let block = format!("{COMPOSITION}/ResourceBlocks/{host}");
    let free = client.get(&format!("{COMPOSITION}/FreePool")).await.body;
    let block = client.get(&block).await.body;
    (
        links(&free["Members"]).contains(&block["@odata.id"].as_str().unwrap().to_owned()),
        block,
    )
}

#[tokio::test]
async fn a_host_that_is_closed_is_no_free_block() {
    let folder = tempfile::tempdir().unwrap();
    let Composable { client, hosts, .. } = &Composable::new(folder.path(), "small").await;
    let host = hosts[0].rsplit('/').next().unwrap();
    let why = json!({"reason": "new fans"});
    let (is_free, block) = is_free_once(client, host, "close", &why).await;
    assert!(!is_free, "{block}");
    let state = &block["CompositionStatus"]["CompositionState"];
    assert_eq!(
        (state, &block["Status"]["State"]),
        (&json!("Unavailable"), &json!("Disabled"))
    );
    assert_eq!(block["Pool"], "Unassigned");
    let (is_free, block) = is_free_once(client, host, "open", &json!({})).await;
    assert!(
        is_free && block["CompositionStatus"]["CompositionState"] == "Unused",
        "{block}"
    );
}
