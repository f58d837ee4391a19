//! The service root, as far as the protocol needs it: proof that this is Redfish, where sessions are created, and
//! whether `$expand` is offered.

use http::StatusCode;
use serde_json::Value;

use super::deadline::Deadline;
use super::error::{Error, ErrorKind, LinkFault, Result, Unreadable};
use super::exchange::{Credential, Request, Wire, link_error};
use super::path::Place;
use super::{classify, message};

/// Both forms must answer by the standard; some services know only one.
const ROOTS: [&str; 2] = ["/redfish/v1/", "/redfish/v1"];

/// Where DSP0266 puts the sessions, for services whose root does not say.
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

#[derive(Debug)]
pub(crate) struct ServiceRoot {
    pub(crate) sessions: Option<Place>,
    /// The query that expands the members of a collection, where the root advertises it.
    pub(crate) expand: Option<&'static str>,
}

/// Reads the root: without credentials first, so that a stranger gets none.
pub(crate) async fn read(wire: &Wire, credential: Option<&Credential>) -> Result<ServiceRoot> {
    let deadline = Deadline::after(wire.limits.request);
    let mut saw = None;
    for link in ROOTS {
        let place = wire.resolve(link, || format!("GET {}", wire.base))?;
        let request = Request::get(&place, wire.limits.document_bytes);
        let reply = match wire.exchange(&request, credential, deadline).await {
            Ok(reply) => reply,
            Err(error) => match error.kind() {
                ErrorKind::Redirected { .. } => {
                    saw.get_or_insert(error);
                    continue;
                }
                ErrorKind::Unreadable(why @ Unreadable::NotHttp(_)) => {
                    return Err(not_redfish(&request, why.to_string()));
                }
                _ => return Err(error),
            },
        };
        if reply.status == StatusCode::NOT_FOUND {
            saw.get_or_insert(not_redfish(&request, "it has nothing at that path (404)".into()));
            continue;
        }
        if !reply.status.is_success() {
            return Err(request.refused(&reply));
        }
        return parse(wire, &request, &reply.body);
    }
    Err(saw.unwrap_or_else(|| link_error(format!("GET {}", wire.base), SESSIONS, LinkFault::Missing)))
}

/// The sessions collection of a service whose root can't be asked.
pub(crate) fn standard_sessions(wire: &Wire) -> Result<Place> {
    wire.resolve(SESSIONS, || format!("log in at {}", wire.base))
}

fn parse(wire: &Wire, request: &Request<'_>, body: &[u8]) -> Result<ServiceRoot> {
    if let Err(why) = super::document::looks_like_json_object(body) {
        return Err(not_redfish(request, format!("it answers with {why}")));
    }
    // The root is a small document. One that is not would be costly as a tree, and is no root.
    if body.len() > wire.limits.answer_bytes {
        return Err(Error::harmless(
            request.name(),
            Unreadable::TooLarge {
                limit: wire.limits.answer_bytes,
            },
        ));
    }
    let root: Value = serde_json::from_slice(super::document::without_bom(body))
        .map_err(|e| Error::harmless(request.name(), classify::json(&e)))?;
    let is_root_type = |t: &str| t.starts_with("#ServiceRoot.");
    let typed = root
        .get("@odata.type")
        .and_then(Value::as_str)
        .is_some_and(is_root_type);
    if !typed && root.get("RedfishVersion").is_none() {
        return Err(not_redfish(
            request,
            "it answers with JSON that is no ServiceRoot".into(),
        ));
    }
    let sessions = root.pointer("/Links/Sessions/@odata.id").and_then(Value::as_str);
    let sessions = sessions
        .map(|link| wire.resolve(link, || request.name()))
        .transpose()?;
    Ok(ServiceRoot {
        sessions,
        expand: expand_query(&root),
    })
}

fn not_redfish(request: &Request<'_>, saw: String) -> Error {
    Error::harmless(
        request.name(),
        ErrorKind::NotRedfish {
            saw: message::printable(&saw),
        },
    )
}

/// Members are subordinate resources, which both `.` and `*` expand; `.` leaves the links of the members alone.
fn expand_query(root: &Value) -> Option<&'static str> {
    let offers = |what: &str| {
        root.pointer("/ProtocolFeaturesSupported/ExpandQuery")
            .and_then(|e| e.get(what))
            == Some(&Value::Bool(true))
    };
    match (offers("NoLinks"), offers("ExpandAll"), offers("Levels")) {
        (true, _, true) => Some("$expand=.($levels=1)"),
        (true, _, false) => Some("$expand=."),
        (false, true, true) => Some("$expand=*($levels=1)"),
        (false, true, false) => Some("$expand=*"),
        (false, false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_only_as_advertised() {
        let root = |features: &str| {
            let text = format!(r#"{{"ProtocolFeaturesSupported":{{"ExpandQuery":{features}}}}}"#);
            expand_query(&serde_json::from_str(&text).unwrap())
        };
        assert_eq!(
            root(r#"{"NoLinks":true,"Levels":true,"ExpandAll":true}"#),
            Some("$expand=.($levels=1)")
        );
        assert_eq!(root(r#"{"NoLinks":true}"#), Some("$expand=."));
        assert_eq!(
            root(r#"{"ExpandAll":true,"Levels":true}"#),
            Some("$expand=*($levels=1)")
        );
        assert_eq!(root(r#"{"Links":true,"Levels":true}"#), None);
        assert_eq!(root(r#"{"NoLinks":"yes"}"#), None);
        assert_eq!(root("null"), None);
        assert_eq!(expand_query(&Value::Null), None);
    }
}
