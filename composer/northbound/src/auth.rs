//! Every request but the probes says who asks: with a name and a password (HTTP Basic), or with the token of a session
//! (`X-Auth-Token`). Over TLS.

use crate::Api;
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Redfish's header for a session's token.
pub const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The account that asks, for handlers behind [`require`].
#[derive(Clone)]
pub struct Asker(pub String);

/// Lets a request through whose password or token is right; the rest are told nothing but that.
pub async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match who_asks(&api, request.headers()).await {
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(refusal) => refusal,
    }
}

async fn who_asks(api: &Api, headers: &HeaderMap) -> Result<Asker, Response> {
    if let Some(token) = headers.get(TOKEN) {
        let session = api.sessions.of(token.to_str().unwrap_or_default()).await;
        return match session.map_err(|error| Problem(error).into_response())? {
            Some(session) => Ok(Asker(session.account)),
            None => Err(refused(
                "there is no such session, or it is over: open another one with name and password",
            )),
        };
    }
    let Some((name, password)) = credentials(headers) else {
        return Err(refused(
            "give a name and a password (HTTP Basic), or the token of a session (X-Auth-Token)",
        ));
    };
    match api.accounts.verify(&name, &password).await {
        Ok(true) => Ok(Asker(name)),
        Ok(false) => Err(refused_password(&name)),
        Err(error) => Err(Problem(error).into_response()),
    }
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// The password is not this account's, or there is no such account: which, is not told.
pub fn refused_password(name: &str) -> Response {
    tracing::warn!(account = %name, "refused: wrong name or password");
    refused("the name or the password is wrong")
}

fn refused(why: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": "unauthenticated", "message": why } });
    let mut response = (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response();
    let challenge = HeaderValue::from_static("Basic realm=\"Poolwright\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}
