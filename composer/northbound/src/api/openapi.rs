//! The committed OpenAPI document, and the check of bodies against its schemas.

use super::Shared;
use super::shape::misplaced;
use axum::http::Method;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// `cargo run -p poolwright-tests --bin openapi` writes it, from the types of the handlers.
static DOCUMENT: LazyLock<Arc<Value>> = LazyLock::new(|| {
    let text = include_str!("../../openapi.json");
    Arc::new(serde_json::from_str(text).unwrap_or_default())
});

pub(super) async fn get() -> Shared<Value> {
    Shared(Arc::clone(&DOCUMENT))
}

/// The schema of a type, by its name.
pub(crate) fn schema(name: &str) -> &'static Value {
    &DOCUMENT["components"]["schemas"][name]
}

/// Where in the body of a request an array stands that can't be one, such as `how` or `demands[2].task`: serde reads a
/// struct from an array, too, by the order of its fields.
pub(super) fn misplaced_array(method: &Method, pattern: &str, body: &[u8]) -> Option<String> {
    // Most bodies have none.
    if !body.contains(&b'[') {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let path = pattern.strip_prefix("/api/v1")?;
    let request = &DOCUMENT["paths"][path][method.as_str().to_ascii_lowercase()]["requestBody"];
    misplaced(
        &DOCUMENT,
        &request["content"]["application/json"]["schema"],
        &body,
    )
}
