//! Resources as they are sent: written once, in one pass, with their tag, and sent again as they are for as long as what
//! they are of is the same.
//!
//! Invariant: a resource is the same byte for byte, be it written anew or kept.

use super::message::Refusal;
use super::wire::{self, unwritable};
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A resource in JSON.
#[derive(Debug)]
pub(super) struct Written {
    pub bytes: Bytes,
    pub tag: String,
    described: OnceLock<Option<String>>,
}

/// What a resource is turned into.
pub(super) trait Form: Sized {
    fn of(resource: &impl Serialize) -> Result<Self, Refusal>;
}

/// To be looked into.
impl Form for Value {
    fn of(resource: &impl Serialize) -> Result<Self, Refusal> {
        wire::shown(resource)
    }
}

/// To be sent. Not for what tells the time, which is no part of a tag.
impl Form for Written {
    fn of(resource: &impl Serialize) -> Result<Self, Refusal> {
        let mut bytes = serde_json::to_vec(resource).map_err(unwritable)?;
        let tag = wire::tag_of(&bytes, 0);
        let quoted = serde_json::to_string(&tag).map_err(unwritable)?;
        if bytes.pop() != Some(b'}') {
            return Err(unwritable("it is no object"));
        }
        bytes.extend_from_slice(format!(",\"@odata.etag\":{quoted}}}").as_bytes());
        Ok(Self::tagged(bytes, tag))
    }
}

impl Written {
    fn tagged(bytes: Vec<u8>, tag: String) -> Self {
        Self {
            bytes: bytes.into(),
            tag,
            described: OnceLock::new(),
        }
    }

    /// What has its tag already.
    pub fn of_value(resource: &Value) -> Result<Self, Refusal> {
        let tag = resource["@odata.etag"].as_str().unwrap_or_default().to_owned();
        Ok(Self::tagged(
            serde_json::to_vec(resource).map_err(unwritable)?,
            tag,
        ))
    }

    /// Where its schema is published.
    pub fn described(&self) -> Option<&str> {
        let described = self.described.get_or_init(|| wire::described_by(&self.bytes));
        described.as_deref()
    }
}

/// A collection with its members in place of links to them; `members` are what stands there.
pub(super) fn collection(of: &Map<String, Value>, members: &[Bytes]) -> Result<Bytes, Refusal> {
    let all: usize = members.iter().map(|member| member.len() + 1).sum();
    let mut bytes = Vec::with_capacity(all + 4096);
    for (nth, (name, value)) in of.iter().enumerate() {
        bytes.push(if nth == 0 { b'{' } else { b',' });
        serde_json::to_writer(&mut bytes, name).map_err(unwritable)?;
        bytes.push(b':');
        match name.as_str() {
            "Members" => {
                bytes.push(b'[');
                for (nth, member) in members.iter().enumerate() {
                    bytes.extend((nth > 0).then_some(b','));
                    bytes.extend_from_slice(member);
                }
                bytes.push(b']');
            }
            _ => serde_json::to_writer(&mut bytes, value).map_err(unwritable)?,
        }
    }
    bytes.push(b'}');
    Ok(bytes.into())
}

/// An answer in JSON.
pub(super) fn response(bytes: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], bytes).into_response()
}

/// Resources of one pool that were asked for, by their places below the root.
#[derive(Default)]
pub(super) struct Kept(Mutex<Resources>);

#[derive(Default)]
struct Resources {
    by_place: HashMap<String, Arc<Written>>,
    bytes: usize,
}

impl Kept {
    /// More bytes are not kept: what is beyond is written each time.
    const MOST: usize = 16 << 20;

    /// What is at a place, made where nobody has asked for it before.
    pub fn get(
        &self,
        place: &[&str],
        make: impl FnOnce() -> Result<Option<Written>, Refusal>,
    ) -> Result<Option<Arc<Written>>, Refusal> {
        let place = place.join("/");
        if let Some(kept) = self.lock().by_place.get(&place) {
            return Ok(Some(kept.clone()));
        }
        // Side by side it may be made twice.
        let Some(made) = make()?.map(Arc::new) else {
            return Ok(None);
        };
        let mut resources = self.lock();
        let bytes = resources.bytes + place.len() + made.bytes.len();
        if bytes <= Self::MOST && !resources.by_place.contains_key(&place) {
            resources.bytes = bytes;
            resources.by_place.insert(place, made.clone());
        }
        Ok(Some(made))
    }

    /// Those that are as they were, for the pool that comes after this one.
    pub fn carried(&self, is_the_same: impl Fn(&[&str]) -> bool) -> Self {
        // What is kept is looked through without holding up those who ask for it.
        let kept: Vec<(String, Arc<Written>)> = {
            let resources = self.lock();
            let all = resources.by_place.iter();
            all.map(|(place, written)| (place.clone(), written.clone()))
                .collect()
        };
        let mut carried = Resources::default();
        for (place, written) in kept {
            let segments: Vec<&str> = place.split('/').collect();
            if is_the_same(&segments) {
                carried.bytes += place.len() + written.bytes.len();
                carried.by_place.insert(place, written);
            }
        }
        Self(Mutex::new(carried))
    }

    fn lock(&self) -> MutexGuard<'_, Resources> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_redfish_model::{Collection, ComputerSystem, ComputerSystemCollection, Ref, Resource};
    use serde_json::json;

    fn system(name: &str) -> ComputerSystem {
        ComputerSystem {
            id: Some(name.into()),
            name: Some(format!("host \"{name}\" \u{e9}")),
            ..ComputerSystem::at(format!("/redfish/v1/Systems/{name}"))
        }
    }

    #[test]
    fn a_resource_is_the_same_in_every_form() {
        let value = Value::of(&system("a")).unwrap();
        let written = Written::of(&system("a")).unwrap();
        assert_eq!(written.bytes, value.to_string());
        assert_eq!(written.tag, value["@odata.etag"]);
        let schema = written.described().unwrap();
        assert!(
            schema.contains("/ComputerSystem.v1_") && schema.ends_with(".json>; rel=describedby"),
            "{schema}"
        );
        let again = Written::of_value(&value).unwrap();
        assert_eq!((again.bytes, again.tag), (written.bytes, written.tag));
        assert_ne!(
            Written::of(&system("a")).unwrap().tag,
            Written::of(&system("b")).unwrap().tag
        );
    }

    #[test]
    fn an_expanded_collection_is_as_if_each_link_were_replaced() {
        let links = ["a", "b"].map(|name| Ref::to(format!("/redfish/v1/Systems/{name}")));
        let all = ComputerSystemCollection::of("/redfish/v1/Systems", "Systems", links.to_vec());
        let mut value = Value::of(&all).unwrap();
        let members = ["a", "b"].map(|name| Written::of(&system(name)).unwrap().bytes);
        let written = collection(value.as_object().unwrap(), &members).unwrap();
        value["Members"] = json!([Value::of(&system("a")).unwrap(), Value::of(&system("b")).unwrap()]);
        assert_eq!(written, value.to_string());
    }

    #[test]
    fn what_is_kept_is_made_once_and_does_not_grow_without_end() {
        let kept = Kept::default();
        let large = |tag: &str| Written::tagged(vec![b' '; 1 << 20], tag.to_owned());
        for nth in 0..40 {
            let name = nth.to_string();
            let place = ["Systems", name.as_str()];
            let made = kept.get(&place, || Ok(Some(large("first")))).unwrap().unwrap();
            let again = kept.get(&place, || Ok(Some(large("second")))).unwrap().unwrap();
            assert_eq!(Arc::ptr_eq(&made, &again), nth < 15, "{nth}");
        }
        assert!(kept.lock().bytes <= Kept::MOST);
        assert!(kept.get(&["gone"], || Ok(None)).unwrap().is_none());
    }
}
