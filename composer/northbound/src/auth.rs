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
use poolwright_service::ServiceError;

/// Redfish's header for a session's token.
pub const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The account that asks, for handlers behind [`require`].
#[derive(Clone)]
pub struct Asker(pub String);

/// Why nobody is let in.
pub enum Denied {
    /// It is not known who asks; what is missing, in words.
    Unknown(String),
    /// It can't be looked up now.
    Failed(ServiceError),
}

impl From<ServiceError> for Denied {
    fn from(error: ServiceError) -> Self {
        Self::Failed(error)
    }
}

/// Lets a request through whose password or token is right; the rest are told nothing but that.
pub async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match who_asks(&api, request.headers()).await {
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(denied) => denied.into_response(),
    }
}

/// The account that a request shows the password or a token of.
pub async fn who_asks(api: &Api, headers: &HeaderMap) -> Result<Asker, Denied> {
    if let Some(token) = headers.get(TOKEN) {
        let session = api.sessions.of(token.to_str().unwrap_or_default()).await?;
        let over = "there is no such session, or it is over: open another one with name and password";
        return match session {
            Some(session) => Ok(Asker(session.account)),
            None => Err(Denied::Unknown(over.to_owned())),
        };
    }
    let Some((name, password)) = credentials(headers) else {
        let missing = "give a name and a password (HTTP Basic), or the token of a session (X-Auth-Token)";
        return Err(Denied::Unknown(missing.to_owned()));
    };
    match api.accounts.verify(&name, &password).await? {
        true => Ok(Asker(name)),
        false => Err(wrong_password(&name)),
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
pub fn wrong_password(name: &str) -> Denied {
    tracing::warn!(account = %name, "refused: wrong name or password");
    Denied::Unknown("the name or the password is wrong".to_owned())
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let why = match self {
            Self::Unknown(why) => why,
            Self::Failed(error) => return Problem(error).into_response(),
        };
        let body = serde_json::json!({ "error": { "code": "unauthenticated", "message": why } });
        let mut response = (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response();
        let challenge = HeaderValue::from_static("Basic realm=\"Poolwright\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}
