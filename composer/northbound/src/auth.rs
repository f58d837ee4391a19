//! Every request but the probes carries a name and a password (HTTP Basic, over TLS).

use crate::Api;
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Lets a request through whose password is right; the rest are told nothing but that.
pub async fn require(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some((name, password)) = credentials(request.headers()) else {
        return refused("give a name and a password (HTTP Basic)");
    };
    match api.accounts.verify(&name, &password).await {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            tracing::warn!(account = %name, "refused: wrong name or password");
            refused("the name or the password is wrong")
        }
        Err(error) => Problem(error).into_response(),
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

fn refused(why: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": "unauthenticated", "message": why } });
    let mut response = (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response();
    let challenge = HeaderValue::from_static("Basic realm=\"Poolwright\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}
