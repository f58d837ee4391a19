//! Reading, with what goes wrong kept as faults: nothing that is read here ends an observation.
//!
//! The walk has a fixed shape (service root → collection → member → its collections), so no loop of links can
//! be followed, and a bounded time: what is not read by then is a fault.

use crate::client::{self, Client, Collection, Error, Member, Message};
use crate::southbound::links;
use crate::southbound::{errors, quirks};
use poolwright_driver::{Progress, Quirk};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_redfish_model::resource::Resource;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest look. A BMC that answers in half a second, four at a time, is read in about one minute; the
/// bound lies below the collector's, so that what was read until then is not lost.
const LONGEST_LOOK: Duration = Duration::from_secs(240);

/// So many faults of one kind below one address are told one by one; more become one fault.
const FAULTS_TOLD_SINGLY: usize = 4;

/// One look at one endpoint.
pub(crate) struct Walk<'a> {
    client: &'a Client,
    pub(crate) endpoint: &'a ControlEndpointId,
    progress: &'a dyn Progress,
    until: Instant,
    findings: Mutex<Findings>,
}

/// What was noticed on the way.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    faults: Vec<(String, FaultKind, String)>,
    quirks: BTreeMap<&'static str, Quirk>,
}

/// The members of a collection.
pub(crate) struct Members<T> {
    /// How many it lists, those that can't be read included.
    pub(crate) listed: usize,
    /// Address and resource of those that could be read.
    pub(crate) read: Vec<(String, T)>,
}

impl<T> Members<T> {
    pub(crate) fn none() -> Self {
        Self {
            listed: 0,
            read: Vec::new(),
        }
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        client: &'a Client,
        endpoint: &'a ControlEndpointId,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            client,
            endpoint,
            progress,
            until: Instant::now() + LONGEST_LOOK,
            findings: Mutex::default(),
        }
    }

    /// One resource; `None` where it can't be read, which is then a fault.
    pub(crate) async fn read<T: Resource>(&self, path: &str) -> Option<T> {
        self.progress.advanced(0, 1);
        let answer = tokio::time::timeout_at(self.until, self.client.read::<T>(path)).await;
        self.progress.advanced(1, 0);
        match answer {
            Ok(Ok(resource)) => self.sound(path, resource.value),
            Ok(Err(error)) => self.failed(path, &error),
            Err(_) => self.out_of_time(path),
        }
    }

    /// Whether a resource can be read at all; it is a fault if it can't.
    pub(crate) async fn check(&self, path: &str) {
        self.progress.advanced(0, 1);
        let answer = tokio::time::timeout_at(self.until, self.client.get(path)).await;
        self.progress.advanced(1, 0);
        match answer {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                self.failed::<()>(path, &error);
            }
            Err(_) => {
                self.out_of_time::<()>(path);
            }
        }
    }

    /// All members of a collection, each read.
    pub(crate) async fn members<T: Resource>(&self, path: &str) -> Members<T> {
        self.all_of(path, self.client.read_members::<T>(path)).await
    }

    /// The same where no link of the members is followed: what leads on to others goes first.
    pub(crate) async fn leaves<T: Resource>(&self, path: &str) -> Members<T> {
        self.all_of(path, self.client.read_leaves::<T>(path)).await
    }

    async fn all_of<T: Resource>(
        &self,
        path: &str,
        read: impl Future<Output = client::Result<Collection<Member<T>>>>,
    ) -> Members<T> {
        self.progress.advanced(0, 1);
        let before = self.client.requests();
        let answer = tokio::time::timeout_at(self.until, read).await;
        let mut members = Members::none();
        let collection = match answer {
            Ok(Ok(collection)) => collection,
            Ok(Err(error)) => {
                self.progress.advanced(1, 0);
                self.failed::<T>(path, &error);
                return members;
            }
            Err(_) => {
                self.progress.advanced(1, 0);
                self.out_of_time::<T>(path);
                return members;
            }
        };
        // One request where the service expands; other branches of the walk may be counted in, never more than all.
        let asked = (self.client.requests() - before)
            .min(collection.members.len() as u64 + 1)
            .max(1);
        self.progress.advanced(asked, asked - 1);
        for error in &collection.faults {
            self.failed::<T>(path, error);
        }
        self.note_count(collection.claimed, collection.members.len());
        members.listed = collection.members.len();
        for member in collection.members {
            let path = links::address(&member.path).to_owned();
            let resource = match member.outcome {
                Ok(resource) => self.sound(&path, resource.value),
                Err(error) => self.failed(&path, &error),
            };
            members.read.extend(resource.map(|resource| (path, resource)));
        }
        members
    }

    /// The addresses of a collection's members, not read.
    pub(crate) async fn member_paths(&self, path: &str) -> Vec<String> {
        self.progress.advanced(0, 1);
        let answer = tokio::time::timeout_at(self.until, self.client.collection_members(path)).await;
        self.progress.advanced(1, 0);
        match answer {
            Ok(Ok(collection)) => {
                for error in &collection.faults {
                    self.failed::<()>(path, error);
                }
                self.note_count(collection.claimed, collection.members.len());
                collection
                    .members
                    .iter()
                    .map(|member| links::address(member).to_owned())
                    .collect()
            }
            Ok(Err(error)) => {
                self.failed::<()>(path, &error);
                Vec::new()
            }
            Err(_) => {
                self.out_of_time::<()>(path);
                Vec::new()
            }
        }
    }

    pub(crate) fn fault(&self, path: &str, kind: FaultKind, message: impl Into<String>) {
        self.findings().fault(path, kind, message);
    }

    pub(crate) fn quirk(&self, quirk: Quirk) {
        self.findings().quirk(quirk);
    }

    pub(crate) fn into_findings(self) -> Findings {
        if self.client.expand_is_a_lie() {
            self.quirk(quirks::EXPAND_NOT_HONOURED);
        }
        if self.client.refuses_its_etags() {
            self.quirk(quirks::ETAG_REFUSED);
        }
        self.findings.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what came with status 200 and is an error all the same.
    fn sound<T: Resource>(&self, path: &str, resource: T) -> Option<T> {
        // An expanded member; where it was read by itself, the client tells.
        let error = Resource::extra(&resource).raw("error");
        if let Some(error) = error.filter(|_| resource.odata_type().is_none()) {
            let message = Message::of_error(error.get());
            let told = format!("an error in place of the resource: {message}");
            self.fault(path, errors::of_error_body(&message), told);
            return None;
        }
        let own = resource.odata_id().map(links::address);
        if own.is_some_and(|own| own != links::address(path)) {
            self.quirk(quirks::ADDRESS_OF_ANOTHER);
        }
        Some(resource)
    }

    fn note_count(&self, claimed: Option<u64>, listed: usize) {
        if claimed.is_some_and(|claimed| claimed != listed as u64) {
            self.quirk(quirks::MEMBERS_COUNT_LIES);
        }
    }

    fn failed<T>(&self, path: &str, error: &Error) -> Option<T> {
        let fault = errors::fault(self.endpoint, path, error);
        self.fault(path, fault.kind, fault.message);
        None
    }

    fn out_of_time<T>(&self, path: &str) -> Option<T> {
        let message = format!("not read: a whole look may take {} s", LONGEST_LOOK.as_secs());
        self.fault(path, FaultKind::Timeout, message);
        None
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Findings {
    pub(crate) fn fault(&mut self, path: &str, kind: FaultKind, message: impl Into<String>) {
        self.faults.push((path.to_owned(), kind, message.into()));
    }

    pub(crate) fn quirk(&mut self, quirk: Quirk) {
        self.quirks.insert(quirk.name, quirk);
    }

    /// The faults, with many of one kind below one address told as one, and the quirks.
    pub(crate) fn told(self, endpoint: &ControlEndpointId) -> (Vec<Fault>, Vec<Quirk>) {
        let mut alike: BTreeMap<(String, FaultKind), BTreeMap<String, String>> = BTreeMap::new();
        for (path, kind, message) in self.faults {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
            alike
                .entry((above, kind))
                .or_default()
                .entry(path)
                .or_insert(message);
        }
        let mut faults = Vec::new();
        for ((above, kind), told) in alike {
            let count = told.len();
            for (path, message) in told {
                if count > FAULTS_TOLD_SINGLY {
                    let message = format!("{count} of its members, such as {path}: {message}");
                    faults.push(Fault::new(format!("{endpoint} {above}"), kind, message));
                    break;
                }
                faults.push(Fault::new(format!("{endpoint} {path}"), kind, message));
            }
        }
        (faults, self.quirks.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_faults_of_one_kind_are_told_as_one() {
        let endpoint = ControlEndpointId::from_lossy("box-1");
        let mut findings = Findings::default();
        for n in 0..1000 {
            let path = format!("/redfish/v1/Chassis/{n}");
            findings.fault(&path, FaultKind::DanglingLink, format!("404: nothing at {path}"));
        }
        findings.fault("/redfish/v1/Systems/1", FaultKind::DanglingLink, "404");
        findings.fault("/redfish/v1/Chassis/7", FaultKind::Malformed, "no JSON");
        let (faults, _) = findings.told(&endpoint);
        assert_eq!(faults.len(), 3);
        let many = faults
            .iter()
            .find(|fault| fault.source == "box-1 /redfish/v1/Chassis")
            .unwrap();
        assert!(
            many.message.starts_with("1000 of its members"),
            "{}",
            many.message
        );
        assert!(
            faults
                .iter()
                .any(|fault| fault.source == "box-1 /redfish/v1/Chassis/7")
        );
    }
}
