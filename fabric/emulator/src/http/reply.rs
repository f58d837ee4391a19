//! What goes back: status, headers, body.

use crate::resources::document::{ROOT, etag};
use crate::resources::{Content, Problem, Resource};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use poolwright_redfish_model::ODataType;
use serde_json::Value;

const JSON: HeaderValue = HeaderValue::from_static("application/json;charset=utf-8");
const XML: HeaderValue = HeaderValue::from_static("application/xml;charset=utf-8");
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// A whole answer, before it is put on the wire (or spoilt on the way).
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn empty(status: StatusCode) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ODATA_VERSION, HeaderValue::from_static("4.0"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Self {
            status,
            headers,
            body: Bytes::new(),
        }
    }

    pub fn json(status: StatusCode, body: &Value) -> Self {
        let mut reply = Self::empty(status);
        reply.headers.insert(header::CONTENT_TYPE, JSON);
        reply.body = body.to_string().into();
        reply
    }

    /// A document whose text is there already.
    pub fn raw_json(text: Vec<u8>) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, JSON);
        reply.body = text.into();
        reply
    }

    pub fn xml(text: String) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, XML);
        reply.body = text.into();
        reply
    }

    pub fn problem(problem: &Problem) -> Self {
        let mut reply = Self::json(problem.status, &problem.body());
        if let Some(seconds) = problem.retry_after {
            reply
                .headers
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if problem.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"Poolwright emulator\"");
            reply.headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        reply
    }

    /// `allow`: the methods that are.
    pub fn not_allowed(allow: &str) -> Self {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed", &[]);
        Self::problem(&problem).with(header::ALLOW, allow)
    }

    /// A resource as it is read: with its entity tag, in the header and in the body.
    pub fn resource(resource: Resource) -> Self {
        let allow = resource.allow();
        let (status, location) = (resource.status, resource.location);
        let reply = match resource.content {
            Content::Json(body) => Self::tagged(status, &body),
            Content::Xml(text) => Self::xml(text),
            Content::Nothing if status == StatusCode::METHOD_NOT_ALLOWED => return Self::not_allowed(&allow),
            Content::Nothing => Self::empty(status),
        };
        let reply = reply.with(header::ALLOW, &allow);
        match location {
            Some(location) => reply.with(header::LOCATION, &location),
            None => reply,
        }
    }

    fn tagged(status: StatusCode, body: &Value) -> Self {
        let mut reply = Self::json(status, body);
        let Some(odata_type) = body.get("@odata.type").and_then(Value::as_str) else {
            return reply;
        };
        let tag = etag(&reply.body);
        let tagged = with_etag(&reply.body, &tag);
        reply.body = tagged;
        reply
            .with(header::ETAG, &tag)
            .with(header::LINK, &described_by(odata_type))
    }

    /// An expanded resource: it has no entity tag of its own, its members have.
    pub fn expanded(body: &Value, allow: &str) -> Self {
        let odata_type = body
            .get("@odata.type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Self::json(StatusCode::OK, body)
            .with(header::LINK, &described_by(odata_type))
            .with(header::ALLOW, allow)
    }

    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// As the answer of a HEAD, or of what has not changed.
    pub fn without_body(mut self) -> Self {
        self.body = Bytes::new();
        self
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Puts the tag into the text of a JSON object. The text is what the tag was made of, so it is not made again.
fn with_etag(object: &[u8], tag: &str) -> Bytes {
    let Some((b'}', rest)) = object.split_last() else {
        return Bytes::copy_from_slice(object);
    };
    let member = format!(",\"@odata.etag\":{}}}", Value::from(tag));
    [rest, member.as_bytes()].concat().into()
}

/// Where the schema is, by DMTF's address.
fn described_by(odata_type: &str) -> String {
    let file = match ODataType::parse(odata_type) {
        Some(ODataType {
            namespace,
            version: Some((major, minor, errata)),
            ..
        }) => {
            format!("{namespace}.v{major}_{minor}_{errata}")
        }
        Some(ODataType { namespace, .. }) => namespace.to_owned(),
        None => return format!("<{ROOT}/$metadata>; rel=describedby"),
    };
    format!("<http://redfish.dmtf.org/schemas/v1/{file}.json>; rel=describedby")
}
