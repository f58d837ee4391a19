//! Requests that are made to be misread: bodies with two meanings, bodies without an end, headers that claim, paths written
//! in other ways.

use super::{client, manager, password};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Headers by which proxies and frameworks say who asks, from where, for what. None is believed here.
const CLAIMS: [(&str, &str); 40] = [
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Forwarded-Host", "spoofed.example"),
    ("X-Forwarded-Server", "spoofed.example"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Scheme", "http"),
    ("X-Forwarded-Port", "1"),
    ("X-Forwarded-Prefix", "/spoofed"),
    ("X-Forwarded-Path", "/livez"),
    ("X-Forwarded-Uri", "/livez"),
    ("X-Forwarded-User", "admin"),
    ("X-Forwarded-Email", "admin@spoofed.example"),
    ("X-Forwarded-Groups", "Administrator"),
    ("X-Forwarded-Client-Cert", "Subject=\"CN=admin\""),
    ("Forwarded", "for=127.0.0.1;host=spoofed.example;proto=http"),
    ("X-Real-IP", "127.0.0.1"),
    ("X-Client-IP", "127.0.0.1"),
    ("Client-IP", "127.0.0.1"),
    ("True-Client-IP", "127.0.0.1"),
    ("X-Cluster-Client-IP", "127.0.0.1"),
    ("CF-Connecting-IP", "127.0.0.1"),
    ("Fastly-Client-IP", "127.0.0.1"),
    ("X-Originating-IP", "127.0.0.1"),
    ("X-Remote-IP", "127.0.0.1"),
    ("X-Remote-Addr", "127.0.0.1"),
    ("X-Server-Addr", "127.0.0.1"),
    ("X-ProxyUser-Ip", "127.0.0.1"),
    ("X-Remote-User", "admin"),
    ("Remote-User", "admin"),
    ("X-User", "admin"),
    ("X-Auth-User", "admin"),
    ("X-WEBAUTH-USER", "admin"),
    ("X-SSL-Client-Verify", "SUCCESS"),
    ("X-SSL-Client-S-DN", "CN=admin"),
    ("X-Original-URL", "/livez"),
    ("X-Original-Method", "GET"),
    ("X-Rewrite-URL", "/livez"),
    ("X-HTTP-Method-Override", "GET"),
    ("X-HTTP-Method", "DELETE"),
    ("X-Method-Override", "DELETE"),
    ("X-Host", "spoofed.example"),
];

/// What was decided, without what differs from one answer to the next.
async fn decided(request: reqwest::RequestBuilder) -> (u16, BTreeMap<String, String>, String) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let headers = answer.headers().iter();
    let headers = headers.filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    (status, headers.collect(), answer.text().await.unwrap())
}

#[tokio::test]
async fn forty_headers_that_claim_something_change_no_decision_and_come_back_in_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let request = |method: &str, path: &str, known: bool| {
        let url = format!("https://{}{path}", running.address);
        let request = client.request(method.parse().unwrap(), url);
        match known {
            true => request.basic_auth("admin", Some(&password)),
            false => request,
        }
    };
    for (method, path, known) in [
        ("GET", "/api/v1/gpus", false),
        ("POST", "/api/v1/pause", false),
        ("GET", "/api/v1/demands/nobody", true),
        ("DELETE", "/api/v1/demands/nobody", true),
        ("PUT", "/api/v1/demands", true),
        ("GET", "/redfish/v1/Systems", false),
        ("GET", "/redfish/v1/Systems/nobody", true),
        ("GET", "/redfish/v1", false),
        ("DELETE", "/redfish/v1/AccountService/Accounts/admin", false),
    ] {
        let plain = decided(request(method, path, known)).await;
        for (name, value) in CLAIMS {
            let claimed = decided(request(method, path, known).header(name, value)).await;
            assert_eq!(claimed, plain, "{method} {path} with {name}: {value}");
        }
        // Where it is sent to is believed no more than the rest.
        let elsewhere = decided(request(method, path, known).header("Host", "spoofed.example")).await;
        assert_eq!(elsewhere, plain, "{method} {path} to another host");
        assert!(!format!("{plain:?}").contains("spoofed"));
    }
    running.stop().await;
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let post = async |path: &str, body: String| {
        let request = client
            .post(format!("https://{}{path}", running.address))
            .basic_auth("admin", Some(&password))
            .header("content-type", "application/json")
            .body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for (path, body) in [
        (
            "/api/v1/demands",
            r#"{"id": "one", "gpus": 1, "set": {"twin": 1, "twin": 2}}"#,
        ),
        (
            "/api/v1/compose",
            r#"{"demand": {"id": "one", "gpus": 1}, "how": {}, "twin": 1, "twin": 1}"#,
        ),
        (
            "/redfish/v1/Systems",
            r#"{"Name": "one", "twin": 1, "tw\u0069n": 2}"#,
        ),
        (
            "/redfish/v1/SessionService/Sessions",
            r#"{"UserName": "admin", "twin": "a", "twin": "b"}"#,
        ),
        (
            "/redfish/v1/AccountService/Accounts",
            r#"{"UserName": "a", "Oem": [{"twin": 1, "twin": 2}]}"#,
        ),
    ] {
        let (status, said) = post(path, body.to_owned()).await;
        assert_eq!(status, 400, "{path}: {said}");
        assert!(
            said.contains("twin") && said.contains("stands twice"),
            "{path}: {said}"
        );
    }
    for path in ["/api/v1/demands", "/api/v1/compose", "/redfish/v1/Systems"] {
        let (status, said) = post(path, format!("{}{}", "[".repeat(50_000), "]".repeat(50_000))).await;
        assert!(
            status == 400 && said.contains("recursion"),
            "{path}: {status} {said}"
        );
    }
    let (status, said) = post("/api/v1/limits", "[null, 3]".to_owned()).await;
    assert!(status == 400 && said.contains("object"), "{status} {said}");
    let get = async |path: &str| {
        let request = client.get(format!("https://{}{path}", running.address));
        let answer = request.basic_auth("admin", Some(&password)).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for path in [
        "/api/v1/audit?most=1&most=2",
        "/api/v1/audit?most=1&%6dost=1",
        "/redfish/v1/Systems?$top=1&$top=2",
        "/redfish/v1/Systems?$top=1&%24top=1",
    ] {
        let (status, said) = get(path).await;
        assert_eq!(status, 400, "{path}: {said}");
    }
    assert_eq!(get("/api/v1/demands").await, (200, json!([])));
    running.stop().await;
}

/// Whoever has an account may change it, so that much may come from anybody.
#[tokio::test]
async fn of_a_body_that_is_wrong_all_through_the_first_is_told_and_how_much_more_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, admin) = (client(&running), password(dir.path()));
    let url = |path: &str| format!("https://{}{path}", running.address);
    let secret = "a password for a reader";
    let reader = json!({ "name": "reader", "role": "ReadOnly", "password": secret });
    let made = client.post(url("/api/v1/accounts")).json(&reader);
    let made = made.basic_auth("admin", Some(&admin)).send().await.unwrap();
    assert_eq!(made.status(), 201);
    // As many as a body can hold: unknown ones, and such as are written otherwise where they stand.
    for (before, count) in [("", 100_000), ("/", 90_000)] {
        let names: Vec<String> = (0..count).map(|nth| format!("\"{before}{nth:x}\":1")).collect();
        let change = client
            .patch(url("/redfish/v1/AccountService/Accounts/reader"))
            .basic_auth("reader", Some(secret))
            .header("content-type", "application/json")
            .body(format!("{{{}}}", names.join(",")));
        let answer = change.send().await.unwrap();
        assert_eq!(answer.status(), 400);
        let told = answer.json::<Value>().await.unwrap()["error"]["@Message.ExtendedInfo"].take();
        let told = told.as_array().unwrap();
        assert_eq!(told.len(), 21, "{told:?}");
        let rest = format!("{} more are wrong", count - 20);
        assert!(told[20]["Message"].to_string().contains(&rest), "{}", told[20]);
    }
    running.stop().await;
}

#[tokio::test]
async fn who_sends_a_body_slowly_holds_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let client = client(&running);
    let url = format!("https://{}", running.address);
    // A body that never ends, from somebody who is not known; the answer must not wait for it for ever.
    let drip = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Some((Ok::<_, std::io::Error>("a"), ()))
    });
    let slow = client
        .post(format!("{url}/api/v1/demands"))
        .body(reqwest::Body::wrap_stream(drip));
    let slow = tokio::spawn(tokio::time::timeout(Duration::from_secs(60), slow.send()));
    let alive = client.get(format!("{url}/livez")).send().await.unwrap();
    assert_eq!(alive.status(), 200);
    let answered = slow.await.unwrap().expect("it is answered, or cut off");
    assert!(answered.is_err() || answered.unwrap().status() == 401);
    running.stop().await;
}

/// However a path below `/api/v1` is written, the same is decided: of who may ask for it, and of what is there.
#[test]
fn every_encoding_of_a_path_is_decided_alike() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let running = runtime.block_on(manager(dir.path()));
    let (client, admin) = (client(&running), password(dir.path()));
    let url = |path: &str| format!("https://{}{path}", running.address);
    let reader = json!({ "name": "reader", "role": "ReadOnly", "password": "a password for a reader" });
    let made = client.post(url("/api/v1/accounts")).json(&reader);
    let made = runtime
        .block_on(made.basic_auth("admin", Some(&admin)).send())
        .unwrap();
    assert_eq!(made.status(), 201);
    let known = [("admin", admin.as_str()), ("reader", "a password for a reader")];
    let status = |path: &str, by: Option<(&str, &str)>| {
        let request = client.get(url(path));
        let request = match by {
            Some((name, password)) => request.basic_auth(name, Some(password)),
            None => request,
        };
        runtime.block_on(async { request.send().await.unwrap().status().as_u16() })
    };
    let paths = [
        "/audit",
        "/demands/nobody",
        "/gpus/nobody",
        "/tenants/default",
        "/endpoints/nobody",
    ];
    let plain = known.map(|by| paths.map(|path| status(&format!("/api/v1{path}"), Some(by))));
    assert_eq!(
        (plain[0][0], plain[1][0]),
        (200, 403),
        "who reads may not read the audit log"
    );
    let cases = ProptestConfig::with_cases(60);
    proptest!(cases, |(which in 0..paths.len(), choices in proptest::collection::vec(0..3_u8, 40))| {
        let mut choices = choices.into_iter().cycle();
        let written: String = paths[which].chars().map(|c| match (c, choices.next()) {
            ('/', _) | (_, None | Some(0)) => c.to_string(),
            (c, Some(1)) => format!("%{:02X}", c as u32),
            (c, Some(_)) => format!("%{:02x}", c as u32),
        }).collect();
        let path = format!("/api/v1{written}");
        // Nobody gets in by writing it otherwise, and who may either gets the same or is told that there is no such path.
        prop_assert_eq!(status(&path, None), 401);
        for (by, plain) in known.into_iter().zip(plain) {
            let found = status(&path, Some(by));
            prop_assert!(found == plain[which] || found == 404, "{}: {}: {}", by.0, path, found);
        }
    });
    runtime.block_on(running.stop());
}

/// Cross-site requests from a browser with stored credentials.
#[tokio::test]
async fn what_a_page_of_another_site_would_change_is_refused_and_what_reads_is_let_be() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let own = format!("https://{}", running.address);
    let ask = async |method: &str, path: &str, said: &[(&str, &str)]| {
        let request = client.request(method.parse().unwrap(), format!("{own}{path}"));
        let request = said
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = request.basic_auth("admin", Some(&password)).send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap_or_default(),
        )
    };
    let night = "/redfish/v1/JobService/Jobs/night/Actions/Job.ForceStart";
    let changes = [
        ("POST", night),
        ("DELETE", "/redfish/v1/AccountService/Accounts/nobody"),
        ("POST", "/api/v1/endpoints/box-1/test"),
        ("DELETE", "/api/v1/demands/nobody"),
    ];
    let others: [&[(&str, &str)]; 4] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", own.as_str())],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
    ];
    let ours: [&[(&str, &str)]; 3] = [
        &[],
        &[("sec-fetch-site", "same-origin"), ("origin", own.as_str())],
        &[("sec-fetch-site", "none")],
    ];
    for (method, path) in changes {
        for said in others {
            let (status, told) = ask(method, path, said).await;
            assert_eq!(status, 403, "{method} {path} {said:?}: {told}");
            assert!(told.to_string().contains("a page"), "{told}");
            let is_redfish = told["error"]["@Message.ExtendedInfo"].is_array();
            assert_eq!(is_redfish, path.starts_with("/redfish"), "{told}");
        }
        for said in ours {
            let (status, told) = ask(method, path, said).await;
            assert_ne!(status, 403, "{method} {path} {said:?}: {told}");
        }
    }
    // A wrong password from there counts for nothing, and reading changes nothing.
    let evil = [("origin", "https://evil.example")];
    for _ in 0..6 {
        let login = client.post(format!("{own}/redfish/v1/SessionService/Sessions"));
        let login = login.json(&json!({ "UserName": "admin", "Password": "a wrong one" }));
        let refused = login.header(evil[0].0, evil[0].1).send().await.unwrap();
        assert_eq!(refused.status(), 403);
    }
    for path in ["/redfish/v1/Managers", "/api/v1/demands"] {
        assert_eq!(ask("GET", path, &evil).await.0, 200, "{path}");
    }
    running.stop().await;
}
