//! Answers as bad managers give them.

use super::reply::Reply;
use crate::fault::FaultKind;
use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header};
use std::convert::Infallible;
use std::time::Duration;

/// No client waits longer; then the connection may as well go.
const HANG: Duration = Duration::from_secs(600);
const DRIP: Duration = Duration::from_secs(1);
/// Long enough for the first half to be on its way.
const BREAK: Duration = Duration::from_millis(20);
/// What an endless body consists of: white space, so that it could still become JSON.
const CHUNK: Bytes = Bytes::from_static(&[b' '; 16 * 1024]);

/// Says nothing, for longer than anybody waits.
pub(super) async fn hang() -> Response<Body> {
    tokio::time::sleep(HANG).await;
    Response::new(Body::empty())
}

/// Spoils a good answer as the fault has it.
pub(super) fn spoil(reply: Reply, fault: &FaultKind) -> Response<Body> {
    let body = reply.body.clone();
    let status = reply.status;
    let mut response = reply.into_response();
    match fault {
        FaultKind::Garbage => {
            *response.body_mut() = Body::from(&b"\x00\xff\xfe\x80{{{\xc3\x28"[..]);
            with_body(&mut response, status);
        }
        FaultKind::Truncated => {
            // Half of what the header promises, and then the connection breaks off.
            response
                .headers_mut()
                .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            let half = Ok(body.slice(..body.len() / 2));
            let broken = stream::once(async {
                tokio::time::sleep(BREAK).await;
                Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
            });
            *response.body_mut() = Body::from_stream(stream::iter([half]).chain(broken));
            with_body(&mut response, status);
        }
        FaultKind::Endless => {
            *response.body_mut() = Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(CHUNK)));
            with_body(&mut response, status);
        }
        FaultKind::Drip => {
            *response.body_mut() = Body::from_stream(stream::unfold(body, |mut rest| async move {
                if rest.is_empty() {
                    return None;
                }
                tokio::time::sleep(DRIP).await;
                let first = rest.split_to(1);
                Some((Ok::<_, Infallible>(first), rest))
            }));
        }
        FaultKind::Html => {
            *response.body_mut() = Body::from("<!DOCTYPE html><title>Sign in</title><h1>Welcome</h1>\n");
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            with_body(&mut response, status);
        }
        _ => {}
    }
    response
}

/// 204 has no body to spoil: it becomes 200.
fn with_body(response: &mut Response<Body>, status: StatusCode) {
    if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        *response.status_mut() = StatusCode::OK;
    }
}
