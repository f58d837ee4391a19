//! What of a request's body is written down: values under names that are listed here, and none other. A secret is under
//! none of them.

use serde_json::{Map, Value};

/// Names whose values say what a request is about.
const LISTED: [&str; 35] = [
    "id",
    "Id",
    "name",
    "Name",
    "UserName",
    "RoleId",
    "Scope",
    "role",
    "scope",
    "Enabled",
    "Locked",
    "PasswordChangeRequired",
    "demand",
    "composition",
    "tenant",
    "gpus",
    "host",
    "kind",
    "count",
    "all",
    "endpoint",
    "schedule",
    "reason",
    "fingerprint",
    "@odata.id",
    "@Redfish.RequestedCount",
    "lit",
    "RequestType",
    "ReservationId",
    "Adopted",
    "SessionTimeout",
    "AbsoluteSessionTimeout",
    "AccountLockoutThreshold",
    "AccountLockoutDuration",
    "AccountLockoutCounterResetAfter",
];

/// Members of a body that are looked at, and the longest text that is kept.
const MOST: usize = 32;
const LONGEST: usize = 128;
const DEEPEST: usize = 8;

/// The names in a body, by their place.
pub fn said(body: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    within(&mut kept, String::new(), "", body, 0);
    kept
}

fn within(kept: &mut Map<String, Value>, place: String, name: &str, value: &Value, depth: usize) {
    if kept.len() >= MOST || depth > DEEPEST {
        return;
    }
    let below = |step: &str| match place.is_empty() {
        true => step.to_owned(),
        false => format!("{place}.{step}"),
    };
    match value {
        Value::Object(members) => {
            for (step, value) in members {
                within(kept, below(&shortened(step)), step, value, depth + 1);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate().take(MOST) {
                within(kept, below(&at.to_string()), name, value, depth + 1);
            }
        }
        Value::Null => {}
        _ if !LISTED.contains(&name) => {}
        Value::String(text) => drop(kept.insert(place, shortened(text).into())),
        other => drop(kept.insert(place, other.clone())),
    }
}

/// At most so much of a text; an address may have a password in it.
fn shortened(text: &str) -> String {
    match text.contains("://") {
        true => "…".to_owned(),
        false => text.chars().take(LONGEST).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_kept_and_nothing_else() {
        let kept = said(&json!({
            "UserName": "kim", "Password": "correct horse", "RoleId": "Operator",
            "spec": {"id": "box-1", "url": "https://u:hidden@box-1", "username": "root", "password": {"inline": "calvin"}},
            "Links": {"ResourceBlocks": [{"@odata.id": "/redfish/v1/a"}, {"@odata.id": "/redfish/v1/b"}]},
            "gpus": ["gpu-1", "gpu-2"], "Name": "https://u:hidden@x", "HttpHeaders": [{"Authorization": "Bearer t"}],
        }));
        let text = serde_json::to_string(&kept).unwrap();
        for secret in ["correct horse", "hidden", "calvin", "Bearer", "root"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert_eq!(kept["UserName"], "kim");
        assert_eq!(kept["spec.id"], "box-1");
        assert_eq!(kept["gpus.1"], "gpu-2");
        assert_eq!(kept["Links.ResourceBlocks.1.@odata.id"], "/redfish/v1/b");
    }

    #[test]
    fn however_large_a_body_is_little_of_it_is_kept() {
        let many: Vec<String> = (0..10_000).map(|n| format!("gpu-{n}")).collect();
        let mut deep = json!({ "id": "x" });
        for _ in 0..100 {
            deep = json!({ "in": deep });
        }
        let kept = said(&json!({ "gpus": many, "name": "x".repeat(10_000), "deep": deep }));
        assert!(kept.len() <= MOST);
        assert!(serde_json::to_string(&kept).unwrap().len() < MOST * 3 * LONGEST);
    }
}
