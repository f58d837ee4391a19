//! What happens, as server-sent events: one stream for as long as a client stays.

use super::endpoint::Endpoint;
use super::request;
use crate::resources::Problem;
use crate::resources::events::{STREAM, event};
use crate::resources::resource::uri;
use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use std::convert::Infallible;

/// Whether it is the stream that is asked for.
pub(super) fn is_wanted(endpoint: &Endpoint, parts: &Parts) -> bool {
    endpoint.emulation.rack().options.events
        && parts.method == Method::GET
        && parts.uri.path().trim_end_matches('/') == uri(STREAM)
}

pub(super) fn open(endpoint: &Endpoint, parts: &Parts) -> Result<Response<Body>, Problem> {
    let now = endpoint.emulation.clock().now();
    if !request::authenticated(&parts.headers, &endpoint.access, now) {
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[]));
    }
    let told = endpoint.emulation.listen(&endpoint.name);
    // The first line shows that somebody is there.
    let begun = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b": listening\n\n")) });
    let events = stream::unfold((told, 1_u64), |(mut told, id)| async move {
        told.next().await?;
        let text = format!("id: {id}\ndata: {}\n\n", event(id));
        Some((Ok(Bytes::from(text)), (told, id + 1)))
    });
    let mut response = Response::new(Body::from_stream(begun.chain(events)));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
