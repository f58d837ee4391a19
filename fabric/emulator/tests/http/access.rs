//! Basic and sessions.

use crate::site::{SESSIONS, Site, header, messages};
use poolwright_emulator::{Rack, ServeOptions};
use reqwest::{Method, StatusCode};
use serde_json::json;

const CHASSIS: &str = "/redfish/v1/Chassis";

async fn log_in(site: &Site, password: &str) -> reqwest::Response {
    let body = json!({ "UserName": site.running.username(), "Password": password });
    site.anonymous(Method::POST, "box-1", SESSIONS)
        .json(&body)
        .send()
        .await
        .unwrap()
}

async fn status(site: &Site, method: Method, path: &str, token: &str) -> StatusCode {
    let request = site
        .anonymous(method, "box-1", path)
        .header("X-Auth-Token", token);
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn a_session_is_opened_used_and_ended() {
    let site = Site::of("small").await;
    let opened = log_in(&site, site.running.password()).await;
    assert_eq!(opened.status(), StatusCode::CREATED);
    let (token, location) = (
        header(&opened, "x-auth-token").to_owned(),
        header(&opened, "location").to_owned(),
    );
    assert!(
        token.len() >= 20 && location.starts_with(SESSIONS),
        "{token} {location}"
    );
    let session: serde_json::Value = opened.json().await.unwrap();
    assert_eq!(session["@odata.id"], location);
    assert!(session.get("Password").is_none());

    assert_eq!(status(&site, Method::GET, CHASSIS, &token).await, StatusCode::OK);
    let other = site
        .anonymous(Method::GET, "host-1-bmc", CHASSIS)
        .header("X-Auth-Token", &token)
        .send()
        .await;
    assert_eq!(
        other.unwrap().status(),
        StatusCode::UNAUTHORIZED,
        "a session is of one endpoint"
    );
    assert_eq!(
        status(&site, Method::DELETE, &location, &token).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        status(&site, Method::GET, CHASSIS, &token).await,
        StatusCode::UNAUTHORIZED
    );
    site.running.stop().await;
}

#[tokio::test]
async fn wrong_credentials_open_nothing() {
    let site = Site::of("small").await;
    let refused = log_in(&site, "wrong").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(messages(refused).await, ["NoValidSession"]);
    assert_eq!(
        status(&site, Method::GET, CHASSIS, "made-up").await,
        StatusCode::UNAUTHORIZED
    );
    let request = site
        .anonymous(Method::GET, "box-1", CHASSIS)
        .basic_auth("admin", Some("wrong"));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    // A right password beside a wrong token does not help: the token says who is asking.
    let request = site
        .request(Method::GET, "box-1", CHASSIS)
        .header("X-Auth-Token", "made-up");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    // Nor do headers of proxies, or odd spellings of an open path.
    for path in [
        "/redfish/v1/%2e%2e/v1/Chassis",
        "/redfish//v1/Chassis",
        "/redfish/v1/Chassis%2F",
    ] {
        let request = site
            .anonymous(Method::GET, "box-1", path)
            .header("X-Forwarded-For", "127.0.0.1");
        let status = request.send().await.unwrap().status();
        assert!(
            [StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND].contains(&status),
            "{path} {status}"
        );
    }
    site.running.stop().await;
}

#[tokio::test]
async fn the_session_table_is_full_at_its_cap() {
    let text = "name = \"t\"\nstyle = \"zones\"\noptions.max_sessions = 2\n\
                [[box]]\ngpus = [{ kind = \"l40s-48gb\", count = 1 }]\n[[host]]\n";
    let site = Site::with(Rack::from_toml("t", text).unwrap(), ServeOptions::default()).await;
    for _ in 0..2 {
        assert_eq!(
            log_in(&site, site.running.password()).await.status(),
            StatusCode::CREATED
        );
    }
    let refused = log_in(&site, site.running.password()).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(messages(refused).await, ["SessionLimitExceeded"]);
    site.running.stop().await;
}

#[tokio::test]
async fn the_idle_time_can_be_set_within_its_range() {
    let site = Site::of("small").await;
    let set = async |seconds: i64| {
        let body = json!({ "SessionTimeout": seconds });
        site.send(Method::PATCH, "box-1", "/redfish/v1/SessionService", body)
            .await
    };
    assert_eq!(set(60).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        site.get("box-1", "/redfish/v1/SessionService").await["SessionTimeout"],
        60
    );
    let refused = set(5).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(messages(refused).await, ["PropertyValueOutOfRange"]);
    site.running.stop().await;
}
