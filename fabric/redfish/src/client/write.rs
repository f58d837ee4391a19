//! Writes: POST, PATCH and DELETE, conditional where an ETag is given, followed through their task.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;

use super::Client;
use super::deadline::Deadline;
use super::document::{self, Annotations, Answer};
use super::error::{Error, LinkFault, NotSent, Result};
use super::exchange::{Reply, Request, link_error};
use super::path::Place;

/// How to write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Write only if the resource still has this ETag (`If-Match`); 412 where it has not.
    pub if_match: Option<String>,
    /// Longest wait for the write and its task together; [`Limits::task`](super::Limits) where not given.
    pub deadline: Option<Duration>,
}

impl WriteOptions {
    /// Only if the resource still has this ETag; unconditional where the service gave none.
    #[must_use]
    pub fn if_match(mut self, etag: Option<String>) -> Self {
        self.if_match = etag;
        self
    }

    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl Client {
    /// Creates a member of a collection, or runs an action: `path` is the collection, or the action's `target` as
    /// the resource gives it.
    pub async fn post<B: Serialize + ?Sized>(
        &self,
        path: &str,
        body: &B,
        options: WriteOptions,
    ) -> Result<Answer> {
        self.write(Method::POST, path, Some(json(Method::POST, path, body)?), options)
            .await
    }

    pub async fn patch<B: Serialize + ?Sized>(
        &self,
        path: &str,
        body: &B,
        options: WriteOptions,
    ) -> Result<Answer> {
        self.write(
            Method::PATCH,
            path,
            Some(json(Method::PATCH, path, body)?),
            options,
        )
        .await
    }

    pub async fn delete(&self, path: &str, options: WriteOptions) -> Result<Answer> {
        self.write(Method::DELETE, path, None, options).await
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        options: WriteOptions,
    ) -> Result<Answer> {
        let place = self.place(path, method.as_str())?;
        let name = format!("{method} {}", place.url());
        let if_match = options
            .if_match
            .map(|etag| HeaderValue::from_str(&etag))
            .transpose()
            .map_err(|_| {
                Error::harmless(
                    name,
                    NotSent::BadRequest("the ETag can't be put in a header".into()),
                )
            })?;
        let request = Request {
            method,
            place: &place,
            body,
            if_match,
            cap: self.limits().answer_bytes,
            changes: true,
        };
        let deadline = Deadline::after(options.deadline.unwrap_or(self.limits().task));
        let reply = self.send(&request, Some(deadline)).await?;
        if reply.status == StatusCode::ACCEPTED {
            return self.follow(&request, reply, deadline).await;
        }
        self.answer(&request, &reply)
    }

    /// A good reply as the answer to a write.
    pub(super) fn answer(&self, write: &Request<'_>, reply: &Reply) -> Result<Answer> {
        if !reply.body.is_empty() {
            document::looks_like_json_object(&reply.body).map_err(|why| write.unusable(why))?;
        }
        let location = if reply.status == StatusCode::CREATED || reply.headers.contains_key(LOCATION) {
            self.created(write, reply)?
        } else {
            None
        };
        Ok(Answer {
            status: reply.status.as_u16(),
            location,
            etag: reply.header(ETAG).map(str::to_owned),
            task: None,
            body: reply.body.clone(),
            request: write.name(),
        })
    }

    /// The resource that was made: by `Location`, or where that leads elsewhere (a service behind a tunnel names
    /// itself by an address that we don't use), by the body's own path.
    fn created(&self, write: &Request<'_>, reply: &Reply) -> Result<Option<String>> {
        let link = reply.header(LOCATION);
        let by_header = link.map(|link| Place::resolve(self.base(), link));
        if let Some(Ok(place)) = &by_header {
            return Ok(Some(place.as_str().to_owned()));
        }
        let by_body = Annotations::of(&reply.body)
            .ok()
            .and_then(|annotations| annotations.id);
        if let Some(place) = by_body.and_then(|link| Place::resolve(self.base(), &link).ok()) {
            return Ok(Some(place.as_str().to_owned()));
        }
        match by_header {
            Some(Err(why)) => Err(link_error(write.name(), link.unwrap_or_default(), why).after_the_write()),
            // Created, and nobody says where: reading back has to find it.
            _ => {
                tracing::debug!(fault = %LinkFault::Missing, request = write.name(), "created without Location");
                Ok(None)
            }
        }
    }
}

fn json<B: Serialize + ?Sized>(method: Method, path: &str, body: &B) -> Result<Bytes> {
    let bytes = serde_json::to_vec(body)
        .map_err(|e| Error::harmless(format!("{method} {path}"), NotSent::BadRequest(e.to_string())))?;
    Ok(bytes.into())
}
