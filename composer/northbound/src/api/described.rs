//! The OpenAPI document: parameters, body and responses of each route, by the types of its handler.

use super::privileges;
use super::schemas::Schemas;
use super::{Begun, Body, Created, Gone, Id, Many, Query, Sent, Shared};
use crate::audit::Trail;
use crate::auth::{Asker, Reach};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Method};
use poolwright_service::ServiceError;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Paths and schemas of the routes so far.
pub(super) struct Document {
    paths: Map<String, Value>,
    schemas: Schemas,
}

/// What is told of one method of one path.
pub(super) struct Told<'a> {
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
    schemas: &'a mut Schemas,
}

/// What a handler takes.
pub(super) trait Takes {
    fn tell(_: &mut Told<'_>) {}
}

/// What a handler answers.
pub(super) trait Gives {
    fn tell(told: &mut Told<'_>);
}

/// A handler, by what it takes and answers.
pub(super) trait Described<Arguments> {
    fn tell(told: &mut Told<'_>);
}

/// The statuses of errors. Any request may meet those of the store and of who asks.
const REFUSALS: [&str; 11] = [
    "400", "401", "403", "404", "409", "412", "413", "500", "502", "503", "504",
];

impl Document {
    pub fn new() -> Self {
        Self {
            paths: Map::new(),
            schemas: Schemas::new(),
        }
    }

    /// Adds what a handler tells of its route.
    pub fn add<H: Described<Y>, Y>(&mut self, verb: &Method, path: &str) {
        let mut told = Told {
            parameters: Vec::new(),
            body: None,
            responses: Map::new(),
            schemas: &mut self.schemas,
        };
        H::tell(&mut told);
        let refused = |status: &str| {
            (
                status.to_owned(),
                json!({ "$ref": "#/components/responses/Refused" }),
            )
        };
        told.responses.extend(REFUSALS.map(refused));
        let method = verb.as_str().to_ascii_lowercase();
        let words = path.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let mut operation = json!({
            "operationId": format!("{method}-{}", words.join("-")),
            "tags": [words.first()],
            "parameters": told.parameters,
            "responses": told.responses,
        });
        if privileges::is_enrolment(verb, path) {
            operation["security"] = json!([]);
        } else {
            let (privilege, reach) = privileges::needed(verb, path);
            operation["x-poolwright-privilege"] = json!(privilege);
            operation["x-poolwright-scoped"] = json!(reach == Reach::Scoped);
        }
        if let Some(body) = told.body {
            operation["requestBody"] = body;
        }
        self.paths.entry(path).or_insert_with(|| json!({}))[&method] = operation;
    }

    pub fn finish(mut self) -> Value {
        let error = self.schemas.answered::<ServiceError>();
        let refused = json!({
            "type": "object", "properties": { "error": error }, "required": ["error"],
        });
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Poolwright",
                "description": "What Redfish has no word for: sizes, demands, plans, schedules, operations, drift.",
                "version": env!("CARGO_PKG_VERSION"),
            },
            "servers": [{ "url": "/api/v1" }],
            "security": [{ "basic": [] }, { "session": [] }],
            "paths": self.paths,
            "components": {
                "responses": { "Refused": answer("What is wrong, and what to do next", refused) },
                "securitySchemes": {
                    "basic": { "type": "http", "scheme": "basic" },
                    "session": { "type": "apiKey", "in": "header", "name": "X-Auth-Token" },
                },
            },
        });
        self.schemas.put_into(&mut document);
        document
    }
}

fn answer(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

impl Told<'_> {
    fn answers(&mut self, status: u16, description: &str, schema: Value) {
        self.responses
            .insert(status.to_string(), answer(description, schema));
    }

    fn parameter(&mut self, place: &str, name: &str, required: bool, schema: &Value) {
        let parameter = json!({ "name": name, "in": place, "required": required, "schema": schema });
        self.parameters.push(parameter);
    }
}

impl<T> Takes for State<T> {}
impl Takes for Extension<Asker> {}
impl Takes for Extension<Arc<Trail>> {}
impl Takes for Extension<super::WrittenSnapshot> {}

/// Of the headers handlers look at the key alone.
impl Takes for HeaderMap {
    fn tell(told: &mut Told<'_>) {
        told.parameter("header", "Idempotency-Key", false, &json!({ "type": "string" }));
    }
}

impl<T> Takes for Id<T> {
    fn tell(told: &mut Told<'_>) {
        let name = json!({ "type": "string", "minLength": 1, "maxLength": 200 });
        told.parameter("path", "id", true, &name);
    }
}

impl<T: JsonSchema> Takes for Query<T> {
    fn tell(told: &mut Told<'_>) {
        let schema = told.schemas.taken_whole::<T>();
        let required = schema.get("required").and_then(Value::as_array).cloned();
        let properties = schema.get("properties").and_then(Value::as_object).cloned();
        for (name, schema) in properties.unwrap_or_default() {
            let required = required.iter().flatten().any(|required| *required == *name);
            told.parameter("query", &name, required, &schema);
        }
    }
}

impl<T: JsonSchema> Takes for Body<T> {
    fn tell(told: &mut Told<'_>) {
        let schema = told.schemas.taken::<T>();
        let content = json!({ "application/json": { "schema": schema } });
        told.body = Some(json!({ "required": true, "content": content }));
    }
}

impl<T: JsonSchema> Gives for Json<T> {
    fn tell(told: &mut Told<'_>) {
        let schema = told.schemas.answered::<T>();
        told.answers(200, "It", schema);
    }
}

impl<T: JsonSchema> Gives for Shared<T> {
    fn tell(told: &mut Told<'_>) {
        Json::<T>::tell(told);
    }
}

impl<T: JsonSchema> Gives for Sent<T> {
    fn tell(told: &mut Told<'_>) {
        Json::<T>::tell(told);
    }
}

impl<T: JsonSchema> Gives for Many<T> {
    fn tell(told: &mut Told<'_>) {
        let items = told.schemas.answered::<T>();
        told.answers(200, "All of them", json!({ "type": "array", "items": items }));
    }
}

impl<T: JsonSchema> Gives for Created<T> {
    fn tell(told: &mut Told<'_>) {
        let schema = told.schemas.answered::<T>();
        told.answers(201, "It is kept", schema);
    }
}

impl<T: JsonSchema> Gives for Begun<T> {
    fn tell(told: &mut Told<'_>) {
        let schema = told.schemas.answered::<T>();
        told.answers(200, "There is nothing to do", schema.clone());
        told.answers(202, "An operation has begun", schema);
    }
}

impl Gives for Gone {
    fn tell(told: &mut Told<'_>) {
        told.responses
            .insert("204".to_owned(), json!({ "description": "It is gone" }));
    }
}

impl<T: Gives, E> Gives for Result<T, E> {
    fn tell(told: &mut Told<'_>) {
        T::tell(told);
    }
}

/// Implements [`Described`] for handlers of so many arguments.
macro_rules! described {
    ($($argument:ident),*) => {
        impl<H, F, $($argument,)*> Described<($($argument,)*)> for H
        where
            H: Fn($($argument),*) -> F,
            F: Future<Output: Gives>,
            $($argument: Takes,)*
        {
            fn tell(told: &mut Told<'_>) {
                $($argument::tell(told);)*
                <F::Output as Gives>::tell(told);
            }
        }
    };
}

described!();
described!(A);
described!(A, B);
described!(A, B, C);
described!(A, B, C, D);
described!(A, B, C, D, E);
