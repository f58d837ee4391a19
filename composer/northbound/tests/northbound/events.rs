//! What happens, told to whoever listens at the Redfish service.

use crate::support::{Manager, Stream};
use serde_json::{Value, json};

#[tokio::test]
async fn whoever_listens_hears_what_happens_in_order_and_each_what_was_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    manager.operation("pending").await;
    let mut all = manager.listen("").await;
    let mut tasks = manager.listen("?$filter=RegistryPrefix%20eq%20'TaskEvent'").await;
    let mut one = manager
        .listen("?$filter=OriginResource%20eq%20'/redfish/v1/TaskService/Tasks/op-1'%20and%20not%20(MessageId%20eq%20'TaskEvent.1.0.TaskStarted')")
        .await;

    manager.operation("running").await;
    manager.test_event("ResourceEvent.1.4.TestMessage").await;
    manager.operation("cancelled").await;

    let started = "TaskEvent.1.0.TaskStarted";
    let cancelled = "TaskEvent.1.0.TaskCancelled";
    let (first, event) = all.next().await.unwrap();
    assert_eq!(
        event["@odata.type"].as_str().unwrap().rsplit('.').next(),
        Some("Event")
    );
    let record = &event["Events"][0];
    assert_eq!(
        (
            &record["MessageId"],
            &record["OriginOfCondition"]["@odata.id"],
            &record["MessageArgs"]
        ),
        (
            &json!(started),
            &json!("/redfish/v1/TaskService/Tasks/op-1"),
            &json!(["op-1"])
        )
    );
    assert_eq!(all.message().await, "ResourceEvent.1.4.TestMessage");
    assert_eq!(all.message().await, cancelled);
    assert_eq!(
        [tasks.message().await, tasks.message().await],
        [started, cancelled]
    );
    assert_eq!(one.message().await, cancelled);

    // Whoever was away hears what it missed, and nothing twice.
    let again = manager
        .ask("GET", "EventService/SSE")
        .header("Last-Event-ID", first);
    let mut again = Stream::of(again.send().await.unwrap());
    manager.operation("running").await;
    let heard = [
        again.message().await,
        again.message().await,
        again.message().await,
    ];
    assert_eq!(heard, ["ResourceEvent.1.4.TestMessage", cancelled, started]);
    manager.running.stop().await;
    assert!(again.next().await.is_none(), "no stream is left");
}

#[tokio::test]
async fn a_stream_is_an_event_destination_for_as_long_as_it_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let members = async || {
        let (_, all) = manager.get("EventService/Subscriptions").await;
        let members = all["Members"].as_array().unwrap().clone();
        members
            .iter()
            .map(|member| member["@odata.id"].as_str().unwrap()["/redfish/v1/".len()..].to_owned())
            .collect::<Vec<_>>()
    };
    assert!(members().await.is_empty());
    let mut deleted = manager.listen("").await;
    let destination = members().await.pop().unwrap();
    let (_, shown) = manager.get(&destination).await;
    assert_eq!(
        (&shown["SubscriptionType"], &shown["Protocol"]),
        (&json!("SSE"), &json!("Redfish"))
    );
    assert!(shown["Context"].is_string(), "{shown}");
    let removed = manager.ask("DELETE", &destination).send().await.unwrap();
    assert_eq!(removed.status(), 204);
    assert!(deleted.next().await.is_none(), "it is closed");
    assert_eq!(manager.get(&destination).await.0, 404);

    let closed = manager.listen("").await;
    assert_eq!(members().await.len(), 1);
    drop(closed);
    while !members().await.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    manager.running.stop().await;
}

#[tokio::test]
async fn whose_account_is_gone_hears_nothing_more_however_much_happens() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let (name, password) = manager.reader().await;
    let url = format!("https://{}/redfish/v1/EventService/SSE", manager.running.address);
    let opened = manager.client.get(url).basic_auth(name, Some(password));
    let mut stream = Stream::of(opened.send().await.unwrap());
    manager.operation("running").await;
    assert_eq!(stream.message().await, "TaskEvent.1.0.TaskStarted");

    let removed = manager.ask("DELETE", "AccountService/Accounts/kim").send().await;
    assert_eq!(removed.unwrap().status(), 204);
    manager.operation("cancelled").await;
    assert!(stream.next().await.is_none(), "it is closed, and tells nothing");
    manager.running.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_the_session_or_the_password_that_opened_it() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let (name, password) = manager.reader().await;
    let at = |path: &str| format!("https://{}/redfish/v1/{path}", manager.running.address);
    let login = manager.client.post(at("SessionService/Sessions"));
    let login = login.json(&json!({ "UserName": name, "Password": password }));
    let opened = login.send().await.unwrap();
    let session = opened.headers()["location"].to_str().unwrap().to_owned();
    let token = opened.headers()["x-auth-token"].clone();
    let by_session = manager
        .client
        .get(at("EventService/SSE"))
        .header("X-Auth-Token", token);
    let mut by_session = Stream::of(by_session.send().await.unwrap());
    let by_password = manager
        .client
        .get(at("EventService/SSE"))
        .basic_auth(name, Some(password));
    let mut by_password = Stream::of(by_password.send().await.unwrap());
    manager.operation("running").await;
    for stream in [&mut by_session, &mut by_password] {
        assert_eq!(stream.message().await, "TaskEvent.1.0.TaskStarted");
    }

    let place = session.split_once("/redfish/v1/").unwrap().1;
    assert_eq!(manager.ask("DELETE", place).send().await.unwrap().status(), 204);
    manager.operation("cancelled").await;
    assert!(by_session.next().await.is_none(), "nobody is logged in there");
    assert_eq!(by_password.message().await, "TaskEvent.1.0.TaskCancelled");

    let other = json!({ "Password": "another lamp, at a closed door" });
    let set = manager.ask("PATCH", "AccountService/Accounts/kim").json(&other);
    assert!(set.send().await.unwrap().status().is_success());
    assert!(
        by_password.next().await.is_none(),
        "that password is none any more"
    );
    manager.running.stop().await;
}

#[tokio::test]
async fn what_can_not_be_streamed_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    for (query, header, status) in [
        ("?$filter=Name%20eq%20'x'", None, 400),
        ("?$filter=MessageId%20like%20'x'", None, 400),
        // No event can match these.
        ("?$filter=MessageId%20eq%20'TaskStarted'", None, 400),
        ("?$filter=ResourceType%20eq%20'Nope'", None, 400),
        ("?$filter=RegistryPrefix%20ne%20'Base'", None, 400),
        ("?$filter=EventType%20eq%201", None, 400),
        ("?$top=1", None, 400),
        ("", Some(("Accept", "application/json")), 406),
        ("", Some(("Last-Event-ID", "yesterday")), 400),
    ] {
        let mut request = manager.ask("GET", &format!("EventService/SSE{query}"));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status, "{query} {header:?}");
        let body: Value = answer.json().await.unwrap();
        assert!(
            body["error"]["@Message.ExtendedInfo"][0]["Resolution"].is_string(),
            "{body}"
        );
    }
    let posted = manager.ask("POST", "EventService/SSE").json(&json!({}));
    assert_eq!(posted.send().await.unwrap().status(), 405);
    let url = format!("https://{}/redfish/v1/EventService/SSE", manager.running.address);
    let nobody = manager.client.get(url).send().await.unwrap();
    assert_eq!(nobody.status(), 401);
    let action = "EventService/Actions/EventService.SubmitTestEvent";
    let wrong = manager.ask("POST", action).json(&json!({ "Message": "x" }));
    assert_eq!(wrong.send().await.unwrap().status(), 400, "it has no MessageId");
    let mut heard = manager.listen("?$filter=EventType%20eq%20'ResourceAdded'").await;
    let whole = json!({
        "MessageId": "ResourceEvent.1.4.TestMessage", "EventType": "ResourceAdded",
        "EventTimestamp": "2020-02-29T12:00:00+02:00",
    });
    let sent = manager.ask("POST", action).json(&whole).send().await.unwrap();
    assert_eq!(sent.status(), 204);
    let (_, event) = heard.next().await.unwrap();
    let record = &event["Events"][0];
    assert_eq!(
        (&record["EventType"], &record["EventTimestamp"]),
        (&json!("ResourceAdded"), &json!("2020-02-29T10:00:00Z"))
    );
    manager.running.stop().await;
}

#[tokio::test]
async fn the_pool_is_told_in_numbers_each_with_its_definition() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let (_, report) = manager.get("TelemetryService/MetricReports/Pool").await;
    let values = report["MetricValues"].as_array().unwrap();
    assert!(values.len() > 5);
    for value in values {
        let place = value["MetricDefinition"]["@odata.id"].as_str().unwrap();
        let (status, definition) = manager.get(&place["/redfish/v1/".len()..]).await;
        assert_eq!((status, &definition["Id"]), (200, &value["MetricId"]));
        let number: u64 = value["MetricValue"].as_str().unwrap().parse().unwrap();
        match value["MetricId"].as_str() {
            Some("CertificateDays") => assert!((300..=398).contains(&number), "{number} days"),
            _ => assert_eq!(number, 0, "there is nothing in this pool: {value}"),
        }
    }
    // No agent measures anything here.
    let (_, reports) = manager.get("TelemetryService/MetricReports").await;
    assert_eq!(reports["Members"], json!([{ "@odata.id": report["@odata.id"] }]));
    for kind in ["MetricReports", "MetricReportDefinitions"] {
        let place = format!("TelemetryService/{kind}/GPUs-nobody");
        assert_eq!(manager.get(&place).await.0, 404, "{kind}");
    }
    let (_, definition) = manager.get("TelemetryService/MetricReportDefinitions/Pool").await;
    assert_eq!(
        definition["MetricReport"],
        json!({ "@odata.id": report["@odata.id"] })
    );

    let mut numbers = manager
        .listen("?$filter=EventFormatType%20eq%20'MetricReport'")
        .await;
    let (_, told) = numbers.payload().await.unwrap();
    assert_eq!(told["MetricValues"].as_array().unwrap().len(), values.len());
    manager.running.stop().await;
}

/// The first to listen after a while has a report made, and so does who reads the log for it.
#[tokio::test]
async fn whoever_is_first_to_listen_is_given_a_report_once() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start(dir.path()).await;
        let mut heard = manager.listen("").await;
        let (id, report) = heard.payload().await.unwrap();
        assert!(report["MetricValues"].is_array(), "{report}");
        manager.test_event("ResourceEvent.1.4.TestMessage").await;
        let (next, told) = heard.payload().await.unwrap();
        assert!(told["Events"].is_array(), "{id} came again as {next}: {told}");
        manager.running.stop().await;
    }
}

/// Fault 86: a client that was away is sent the pool's numbers before the events that it missed, under a later id.
#[tokio::test]
async fn the_ids_of_a_stream_increase_also_for_a_client_that_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    for _ in 0..3 {
        manager.test_event("ResourceEvent.1.4.TestMessage").await;
    }
    // Nothing of the log is this client's yet.
    let away = manager
        .ask("GET", "EventService/SSE")
        .header("Last-Event-ID", "0.0");
    let mut stream = Stream::of(away.send().await.unwrap());
    let mut missed = Vec::new();
    let report = loop {
        let (id, payload) = stream.payload().await.unwrap();
        match payload["MetricValues"].is_array() {
            true => break id,
            false => missed.push(id),
        }
    };
    assert!(
        missed.len() >= 3,
        "report {report} was sent before the missed events: {missed:?}"
    );
    let (last, _) = missed.last().unwrap().split_once('.').unwrap();
    assert!(
        report.starts_with(&format!("{last}.report-")),
        "{report} after {missed:?}"
    );
    manager.running.stop().await;
}

#[tokio::test]
async fn what_becomes_of_an_account_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let mut heard = manager
        .listen("?$filter=ResourceType%20eq%20'ManagerAccount'")
        .await;
    let kim = json!({"UserName": "kim", "Password": "a horse of one colour", "RoleId": "Operator"});
    let accounts = "AccountService/Accounts";
    let changes = [
        ("POST", accounts.to_owned(), kim),
        ("PATCH", format!("{accounts}/kim"), json!({"RoleId": "ReadOnly"})),
        ("DELETE", format!("{accounts}/kim"), json!({})),
    ];
    for (method, path, body) in changes {
        let answer = manager.ask(method, &path).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{method} {}", answer.status());
    }
    for message in ["ResourceCreated", "ResourceChanged", "ResourceRemoved"] {
        let (_, event) = heard.next().await.unwrap();
        let record = &event["Events"][0];
        assert_eq!(record["MessageId"], format!("ResourceEvent.1.4.{message}"));
        assert_eq!(
            record["OriginOfCondition"]["@odata.id"],
            "/redfish/v1/AccountService/Accounts/kim"
        );
        assert!(!event.to_string().contains("horse"));
    }
    manager.running.stop().await;
}
