//! What one call has read so far: many units are looked at in one go, and share their zones, systems and
//! connections. Each resource is read once, and a whole collection in one answer where the service can do that.
//!
//! It lives as long as the call, so what it says was read from the service just now.

use crate::client::{Client, Collection, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

type Raw = Result<Resource<Box<RawValue>>, Error>;

#[derive(Default)]
pub(super) struct Known {
    resources: Once<String, Raw>,
    /// The members that came with their collection, by the collection's address.
    expanded: Once<String, HashMap<String, Resource<Box<RawValue>>>>,
    paths: Once<String, Result<Collection<String>, Error>>,
}

/// Values that are each made once, whoever asks for them at the same time.
struct Once<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for Once<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Once<K, V> {
    fn cell(&self, key: K) -> Arc<OnceCell<V>> {
        // Each use leaves it whole.
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.entry(key).or_default().clone()
    }
}

impl Known {
    /// A resource, read at most once.
    pub async fn read<T: DeserializeOwned>(&self, client: &Client, path: &str) -> Result<Resource<T>, Error> {
        let cell = self.resources.cell(path.to_owned());
        let raw = cell.get_or_init(|| self.raw(client, path)).await;
        let Resource { path, etag, value } = raw.as_ref().map_err(Clone::clone)?;
        let value = client.parse(path, value.get().as_bytes())?;
        Ok(Resource {
            path: path.clone(),
            etag: etag.clone(),
            value,
        })
    }

    /// The members of a collection, read at most once.
    pub async fn paths(&self, client: &Client, collection: &str) -> Result<Collection<String>, Error> {
        let cell = self.paths.cell(collection.to_owned());
        cell.get_or_init(|| client.collection_members(collection))
            .await
            .clone()
    }

    async fn raw(&self, client: &Client, path: &str) -> Raw {
        if let Some(collection) = collection_of(path).filter(|_| client.expands()) {
            let cell = self.expanded.cell(collection.to_owned());
            let members = cell.get_or_init(|| expand(client, collection)).await;
            if let Some(member) = members.get(path) {
                return Ok(member.clone());
            }
        }
        client.read(path).await
    }
}

/// All members of a collection that could be read; none where it is no collection.
async fn expand(client: &Client, collection: &str) -> HashMap<String, Resource<Box<RawValue>>> {
    let Ok(found) = client.read_members(collection).await else {
        return HashMap::new();
    };
    let members = found.members.into_iter().filter_map(|member| member.outcome.ok());
    members.map(|member| (member.path.clone(), member)).collect()
}

/// What a resource is a member of, going by its address. The root and what is right below it are none's.
fn collection_of(path: &str) -> Option<&str> {
    let (collection, _) = path.trim_end_matches('/').rsplit_once('/')?;
    (collection.split('/').count() > 3).then_some(collection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_member_of_what() {
        assert_eq!(
            collection_of("/redfish/v1/Fabrics/PCIe/Zones/1"),
            Some("/redfish/v1/Fabrics/PCIe/Zones")
        );
        assert_eq!(
            collection_of("/redfish/v1/Systems/1"),
            Some("/redfish/v1/Systems")
        );
        assert_eq!(collection_of("/redfish/v1/Systems"), None);
        assert_eq!(collection_of("/redfish/v1/"), None);
    }
}
