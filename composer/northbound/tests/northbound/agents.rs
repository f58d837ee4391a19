//! Enrolling agents at the API's door: who may make tokens, and what is done without one. What a token allows is tested
//! where it lives, and with a whole manager.

use crate::support::{client, manager, password};
use poolwright_northbound::Running;
use reqwest::Client;
use serde_json::{Value, json};

const UUID: &str = "4c4c4544-0042-3510-8052-b4c04f4d3732";

struct Door {
    running: Running,
    client: Client,
    password: String,
}

impl Door {
    async fn ask(&self, method: &str, path: &str, as_whom: Option<&str>, body: &Value) -> (u16, Value) {
        let url = format!("https://{}/api/v1/{path}", self.running.address);
        let mut request = self.client.request(method.parse().unwrap(), url).json(body);
        if let Some(name) = as_whom {
            request = request.basic_auth(name, Some(&self.password));
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn enrol(&self, token: &str) -> (u16, Value) {
        let asked = json!({ "token": token, "uuid": UUID, "address": "127.0.0.1:8444", "csr": "none" });
        self.ask("POST", "agents", None, &asked).await
    }

    async fn audit(&self) -> String {
        let (_, entries) = self.ask("GET", "audit", Some("admin"), &json!({})).await;
        entries.to_string()
    }
}

async fn door(dir: &tempfile::TempDir) -> Door {
    let running = manager(dir.path()).await;
    Door {
        client: client(&running),
        password: password(dir.path()),
        running,
    }
}

#[tokio::test]
async fn tokens_are_made_by_who_may_and_open_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(&dir).await;
    let wanted = json!({ "uuids": [UUID] });
    assert_eq!(door.ask("POST", "agent-tokens", None, &wanted).await.0, 401);
    let kim = json!({ "name": "kim", "role": "Operator", "password": door.password });
    assert_eq!(door.ask("POST", "accounts", Some("admin"), &kim).await.0, 201);
    assert_eq!(
        door.ask("POST", "agent-tokens", Some("kim"), &wanted).await.0,
        403
    );
    let (status, made) = door.ask("POST", "agent-tokens", Some("admin"), &wanted).await;
    assert_eq!((status, &made["uses"]), (201, &json!(1)), "{made}");
    let token = made["token"].as_str().unwrap();

    let one = format!("agent-tokens/{}", &token[..32]);
    for (method, path) in [("GET", "agent-tokens"), ("DELETE", one.as_str())] {
        assert_eq!(
            door.ask(method, path, Some("kim"), &json!({})).await.0,
            403,
            "{path}"
        );
    }
    let (status, open) = door.ask("GET", "agent-tokens", Some("admin"), &json!({})).await;
    assert_eq!(
        (status, &open[0]["id"], &open[0]["uses_left"]),
        (200, &json!(token[..32]), &json!(1))
    );
    assert_eq!(open[0]["by"], "admin");
    assert!(!open.to_string().contains(&token[32..]), "{open}");

    // It is a good one, and no host has that UUID.
    let (status, refused) = door.enrol(token).await;
    let said = refused["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, 404, "{refused}");
    assert!(said.contains(UUID), "{refused}");
    assert_eq!(
        door.ask("GET", "agents", Some("admin"), &json!({})).await,
        (200, json!([]))
    );
    for (method, path) in [
        ("GET", "agents"),
        ("GET", "gpus"),
        ("POST", "agents/host-1/revoke"),
    ] {
        assert_eq!(door.ask(method, path, None, &json!({})).await.0, 401, "{path}");
    }
    let (status, refused) = door
        .ask("POST", "agents/host-1/revoke", Some("admin"), &json!({}))
        .await;
    assert_eq!(status, 404, "{refused}");
    assert_eq!(door.ask("DELETE", &one, Some("admin"), &json!({})).await.0, 204);
    assert_eq!(door.ask("DELETE", &one, Some("admin"), &json!({})).await.0, 404);
    assert_eq!(door.enrol(token).await.0, 401, "nobody knows it any more");
    let audit = door.audit().await;
    assert!(audit.contains(&format!("/api/v1/{one}")), "{audit}");
    assert!(!audit.contains(token) && !audit.contains(&token[32..]), "{audit}");
    assert!(audit.contains("/api/v1/agent-tokens"), "{audit}");
    door.running.stop().await;
}

#[tokio::test]
async fn wrong_tokens_are_delayed_a_right_one_is_not_and_little_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(&dir).await;
    let (status, _) = door.enrol(&"x".repeat(5000)).await;
    assert_eq!(status, 413, "more than 4 KiB");
    for wrong in ["", "x", &"0".repeat(96), &"0".repeat(96), &"é".repeat(48)] {
        let (status, refused) = door.enrol(wrong).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (401, &json!("unauthenticated")),
            "{refused}"
        );
    }
    let (status, refused) = door.enrol(&"0".repeat(96)).await;
    assert_eq!(status, 503, "{refused}");
    assert!(refused.to_string().contains("too many wrong tokens"), "{refused}");
    let (_, made) = door.ask("POST", "agent-tokens", Some("admin"), &json!({})).await;
    let (status, admitted) = door.enrol(made["token"].as_str().unwrap()).await;
    assert_eq!(status, 404, "only no host has that UUID: {admitted}");
    let audit = door.audit().await;
    assert!(audit.contains(r#""kind":"denied""#), "{audit}");
    door.running.stop().await;
}
