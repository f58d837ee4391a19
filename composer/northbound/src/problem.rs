//! Errors on the wire: `{"error": {"code", "message", "hint", "operation"}}` with the fitting status.

use crate::audit::Lacks;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_service::{ErrorCode, ServiceError};
use serde_json::json;

/// An error as an answer.
pub struct Problem(pub ServiceError);

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        Self(error)
    }
}

/// The HTTP status of an error.
pub fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::Conflict | ErrorCode::Unplaced | ErrorCode::Indeterminate => StatusCode::CONFLICT,
        ErrorCode::Stale => StatusCode::PRECONDITION_FAILED,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        // 401 would say that the manager's own password is wrong.
        ErrorCode::CredentialsRefused | ErrorCode::Untrusted => StatusCode::BAD_GATEWAY,
        ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = status(self.0.code);
        if status.is_server_error() {
            tracing::warn!(code = ?self.0.code, "{}", self.0.message);
        }
        let mut response = (status, Json(json!({ "error": self.0 }))).into_response();
        if let Some(lacks) = Lacks::of(&self.0) {
            response.extensions_mut().insert(lacks);
        }
        retry_later(response)
    }
}

/// Says when to ask again, where an answer can't be given now.
pub(crate) fn retry_later(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = header::HeaderValue::from_static("5");
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}
