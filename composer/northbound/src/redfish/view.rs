//! A resource as a client wants to see it: with links expanded, members chosen, and properties selected.

use super::message::Refusal;
use super::query::{Expand, Query};
use super::tree::Reader;
use super::uri;
use super::written::{self, Written};
use axum::body::Bytes;
use axum::http::StatusCode;
use poolwright_redfish_model::ODataType;
use poolwright_redfish_model::schema::{Type, by_odata_type};
use serde_json::{Map, Value, json};
use std::pin::Pin;

/// Resources that one answer may hold: more are a mistake, or no good will.
const MOST_EXPANDED: usize = 20_000;
/// Members on one page, unless fewer are asked for.
pub(crate) const PAGE: usize = 5_000;

impl Reader<'_> {
    /// What a query makes of what is at a place, as it is sent.
    pub async fn viewed(&self, path: &str, below: &[&str], query: &Query) -> Result<Bytes, Refusal> {
        let Some(mut resource) = self.read(below).await? else {
            return Err(Refusal::nothing_there(path));
        };
        if is_list(&resource) && query.expands_members_alone() {
            self.page(path, &mut resource, query).await?;
            return self.with_members(&resource).await;
        }
        Ok(Written::of_value(&self.changed(path, resource, query).await?)?.bytes)
    }

    /// A collection with its members, each written as it is by itself.
    async fn with_members(&self, collection: &Value) -> Result<Bytes, Refusal> {
        let links = collection["Members"].as_array().map_or(&[][..], Vec::as_slice);
        if links.len() > MOST_EXPANDED {
            return Err(too_much());
        }
        let mut members = Vec::with_capacity(links.len());
        for link in links {
            let member = match self.may_reach(link).await? {
                Some(path) => Box::pin(self.written(&path)).await?,
                None => None,
            };
            members.push(match member {
                Some(member) => member.bytes.clone(),
                None => link.to_string().into(),
            });
        }
        let empty = Map::new();
        written::collection(collection.as_object().unwrap_or(&empty), &members)
    }

    async fn changed(&self, path: &str, mut resource: Value, query: &Query) -> Result<Value, Refusal> {
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
            let schema = of_members(collection);
            if let Some(schema) = schema {
                filter.fits(schema)?;
            }
            let (mut kept, mut strange) = (Vec::new(), Vec::new());
            for member in members {
                let Some(resource) = self.linked(&member).await? else {
                    continue;
                };
                if filter.takes(&resource) {
                    kept.push(member);
                }
                if schema.is_none() {
                    strange.push(resource);
                }
            }
            filter.fits_some(&strange)?;
            members = kept;
            collection["Members@odata.count"] = json!(members.len());
        }
        let (total, size) = (members.len(), query.top.unwrap_or(PAGE).min(PAGE));
        let shown: Vec<Value> = members.into_iter().skip(query.skip).take(size).collect();
        let next = query.skip.saturating_add(shown.len());
        // Who asked for so many has them; who did not is told where the rest is.
        if next < total && query.top.is_none_or(|top| top > PAGE) && !shown.is_empty() {
            collection["Members@odata.nextLink"] = query.next_page(path, shown.len()).into();
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
        match self.may_reach(link).await? {
            Some(path) => Box::pin(self.read(&path)).await,
            None => Ok(None),
        }
    }

    /// Where a link leads, if that is here and whoever asks may read it.
    async fn may_reach<'l>(&self, link: &'l Value) -> Result<Option<Vec<&'l str>>, Refusal> {
        let target = link["@odata.id"].as_str();
        let Some(path) = target.and_then(|path| path.strip_prefix(uri::ROOT)) else {
            return Ok(None);
        };
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // Who may not read it by itself does not get it within something else.
        Ok(self.may_follow(&path).await?.then_some(path))
    }
}

/// The schema of a collection's members, if this service knows it.
fn of_members(collection: &Value) -> Option<&'static Type> {
    let odata_type = ODataType::parse(collection["@odata.type"].as_str()?)?;
    let kind = odata_type.name.strip_suffix("Collection")?;
    by_odata_type(&format!("#{kind}.{kind}"))
}

/// A collection that has nothing but members to be expanded.
fn is_list(resource: &Value) -> bool {
    let Some(properties) = resource.as_object() else {
        return false;
    };
    let others = properties
        .iter()
        .filter(|(name, _)| *name != "Members" && !name.starts_with('@'));
    let links = resource["Members"].as_array();
    links.is_some_and(|links| links.iter().all(|link| link.as_object().is_some_and(is_link)))
        && others
            .map(|(_, value)| value)
            .all(|value| !value.is_array() && !value.is_object())
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
    let (status, args) = (
        StatusCode::BAD_REQUEST,
        [
            "The value",
            "$expand",
            &format!("up to {MOST_EXPANDED} resources"),
        ],
    );
    Refusal::new(status, "QueryParameterOutOfRange", &args, text, next)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The constructor of a message asserts the number of its arguments.
    #[test]
    fn what_is_refused_here_has_the_arguments_of_the_registry() {
        for refused in [too_much(), no_collection("only", "/redfish/v1")] {
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        }
    }
}
