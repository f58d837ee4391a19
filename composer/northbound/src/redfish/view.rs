//! A resource as a client wants to see it: with links expanded, members chosen, and properties selected.

use super::message::Refusal;
use super::query::{Expand, Query};
use super::tree::Reader;
use super::uri;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use std::pin::Pin;

/// Resources that one answer may hold: more are a mistake, or no good will.
const MOST_EXPANDED: usize = 20_000;
/// Members on one page, unless fewer are asked for.
pub(crate) const PAGE: usize = 5_000;

impl Reader<'_> {
    /// What a query makes of a resource.
    pub async fn viewed(&self, path: &str, mut resource: Value, query: &Query) -> Result<Value, Refusal> {
        let is_collection = resource.get("Members").is_some_and(Value::is_array);
        if query.only {
            if !is_collection {
                return Err(no_collection("only", path));
            }
            return self.only(resource).await;
        }
        if !is_collection && (query.has_paging() || query.filter.is_some()) {
            return Err(no_collection("$filter, $top or $skip", path));
        }
        if is_collection {
            self.page(path, &mut resource, query).await?;
        }
        if let Some(expand) = query.expand {
            let mut left = MOST_EXPANDED;
            self.expanded(&mut resource, expand, expand.levels, &mut left)
                .await?;
        }
        if !query.select.is_empty() {
            match (is_collection, query.expand) {
                // Of expanded members their properties are selected (DSP0266).
                (true, Some(_)) => {
                    for member in resource["Members"].as_array_mut().into_iter().flatten() {
                        *member = selected(member, &query.select);
                    }
                }
                _ => resource = selected(&resource, &query.select),
            }
        }
        Ok(resource)
    }

    /// The member of a collection of one.
    async fn only(&self, collection: Value) -> Result<Value, Refusal> {
        match collection["Members"].as_array().map(Vec::as_slice) {
            Some([member]) => Ok(self.linked(member).await?.unwrap_or(collection)),
            _ => Ok(collection),
        }
    }

    /// Leaves the members that are asked for.
    async fn page(&self, path: &str, collection: &mut Value, query: &Query) -> Result<(), Refusal> {
        let members = collection["Members"].take();
        let Value::Array(mut members) = members else {
            return Ok(());
        };
        if let Some(filter) = &query.filter {
            let mut kept = Vec::new();
            for member in members {
                let resource = self.linked(&member).await?;
                if resource.is_some_and(|resource| filter.takes(&resource)) {
                    kept.push(member);
                }
            }
            members = kept;
            collection["Members@odata.count"] = json!(members.len());
        }
        let (total, size) = (members.len(), query.top.unwrap_or(PAGE).min(PAGE));
        let shown: Vec<Value> = members.into_iter().skip(query.skip).take(size).collect();
        let next = query.skip.saturating_add(shown.len());
        // Who asked for so many has them; who did not is told where the rest is.
        if next < total && query.top.is_none_or(|top| top > PAGE) && !shown.is_empty() {
            collection["Members@odata.nextLink"] = json!(format!("{path}?$skip={next}"));
        }
        collection["Members"] = Value::Array(shown);
        Ok(())
    }

    /// Puts resources in place of links to them.
    fn expanded<'a>(
        &'a self,
        resource: &'a mut Value,
        expand: Expand,
        levels: u32,
        left: &'a mut usize,
    ) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>> {
        Box::pin(async move {
            let Value::Object(members) = resource else {
                return Ok(());
            };
            for (name, value) in members {
                let is_links = name == "Links";
                let wanted = match is_links {
                    true => expand.links,
                    false => expand.subordinate,
                };
                if !wanted || name.starts_with('@') {
                    continue;
                }
                self.expanded_within(value, expand, levels, left).await?;
            }
            Ok(())
        })
    }

    fn expanded_within<'a>(
        &'a self,
        value: &'a mut Value,
        expand: Expand,
        levels: u32,
        left: &'a mut usize,
    ) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>> {
        Box::pin(async move {
            match value {
                Value::Array(values) => {
                    for value in values {
                        self.expanded_within(value, expand, levels, left).await?;
                    }
                }
                Value::Object(members) if is_link(members) => {
                    *left = left.checked_sub(1).ok_or_else(too_much)?;
                    if let Some(mut resource) = self.linked(value).await? {
                        if levels > 1 {
                            self.expanded(&mut resource, expand, levels - 1, left).await?;
                        }
                        *value = resource;
                    }
                }
                Value::Object(members) => {
                    for value in members.values_mut() {
                        self.expanded_within(value, expand, levels, left).await?;
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// What a link leads to, if that is here.
    async fn linked(&self, link: &Value) -> Result<Option<Value>, Refusal> {
        let Some(path) = link["@odata.id"]
            .as_str()
            .and_then(|path| path.strip_prefix(uri::ROOT))
        else {
            return Ok(None);
        };
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // Who may not read it by itself does not get it within something else.
        match self.may_follow(&path).await? {
            true => Box::pin(self.read(&path)).await,
            false => Ok(None),
        }
    }
}

fn is_link(members: &Map<String, Value>) -> bool {
    members.len() == 1 && members.contains_key("@odata.id")
}

fn no_collection(parameter: &str, path: &str) -> Refusal {
    let text = format!("{parameter} is for collections, and {path} is none.");
    let next = "Leave it out.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "QueryNotSupportedOnResource", &[], text, next)
}

fn too_much() -> Refusal {
    let text = format!("More than {MOST_EXPANDED} resources would be in the answer.");
    let next = "Expand less, or fewer members at a time with $top and $skip.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "QueryParameterOutOfRange", &["$expand"], text, next)
}

/// The selected properties, and those that every answer has.
fn selected(resource: &Value, select: &[Vec<String>]) -> Value {
    let mut kept = Map::new();
    for name in ["@odata.id", "@odata.type", "@odata.etag", "@odata.context"] {
        if let Some(value) = resource.get(name) {
            kept.insert(name.to_owned(), value.clone());
        }
    }
    for path in select {
        keep(&mut kept, resource, path);
    }
    Value::Object(kept)
}

fn keep(kept: &mut Map<String, Value>, from: &Value, path: &[String]) {
    let [name, rest @ ..] = path else { return };
    let Some(value) = from.get(name.as_str()) else {
        return;
    };
    match (rest.is_empty(), value) {
        (false, Value::Object(_)) => {
            let inner = kept.entry(name.clone()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                keep(inner, value, rest);
            }
        }
        (false, _) => {}
        (true, _) => {
            kept.insert(name.clone(), value.clone());
        }
    }
    // How many there are goes with them.
    for note in ["@odata.count", "@odata.nextLink"] {
        let note = format!("{name}{note}");
        if let Some(value) = from.get(&note) {
            kept.insert(note, value.clone());
        }
    }
}
