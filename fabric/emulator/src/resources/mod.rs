//! The Redfish resources, rendered from the truth at the moment they are asked for: no tree is kept.
//!
//! One file a noun. Each has a `find`, which says what an address leads to, and the functions that make its
//! URIs. What a document may look like, and what a request body may hold, is DMTF's schema's business: bodies
//! are checked against its tables before a noun sees them.

pub(crate) mod accounts;
pub(crate) mod chassis;
pub(crate) mod composition;
pub(crate) mod connections;
pub(crate) mod document;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod fabrics;
pub(crate) mod managers;
pub(crate) mod pcie_devices;
pub(crate) mod place;
pub(crate) mod problem;
pub(crate) mod processors;
pub(crate) mod resource;
pub(crate) mod root;
pub(crate) mod sessions;
pub(crate) mod switches;
pub(crate) mod systems;
pub(crate) mod tasks;
pub(crate) mod zones;

use crate::access::Access;
use crate::rack::{BoxIx, HostIx, Rack};
use crate::state::State;
use jiff::Timestamp;

pub(crate) use problem::Problem;
pub(crate) use resource::{Content, Done, Resource, Writing};

/// Who answers: the manager of a box, or the BMC of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Box(BoxIx),
    Bmc(HostIx),
}

impl Service {
    /// Its name as an endpoint: `box-1`, `host-1-bmc`.
    pub fn name(self, rack: &Rack) -> String {
        match self {
            Self::Box(at) => rack[at].name.clone(),
            Self::Bmc(at) => format!("{}-bmc", rack[at].name),
        }
    }

    /// All services of a rack: boxes first.
    pub fn all(rack: &Rack) -> impl Iterator<Item = Service> + use<> {
        rack.box_ixs()
            .map(Self::Box)
            .chain(rack.host_ixs().map(Self::Bmc))
    }
}

/// What a service shows, just now.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub rack: &'a Rack,
    pub state: &'a State,
    pub now: Timestamp,
    pub service: Service,
    pub access: &'a Access,
}

/// What an address leads to; its parts, without empty ones.
pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let [first, rest @ ..] = path else { return None };
    if *first != "redfish" {
        return None;
    }
    let [version, rest @ ..] = rest else {
        return Some(root::versions());
    };
    if *version != "v1" {
        return None;
    }
    match rest {
        [] | ["odata" | "$metadata"] => root::find(view, rest),
        ["Chassis", rest @ ..] => chassis::find(view, rest),
        ["Systems", rest @ ..] => systems::find(view, rest),
        ["Fabrics", rest @ ..] => fabrics::find(view, rest),
        ["CompositionService", rest @ ..] => composition::find(view, rest),
        ["Managers", rest @ ..] => managers::find(view, rest),
        ["TaskService", rest @ ..] => tasks::find(view, rest),
        ["SessionService", rest @ ..] if sessions::are_offered(view) => sessions::find(view, rest),
        ["EventService", rest @ ..] if events::are_offered(view) => events::find(view, rest),
        ["AccountService", rest @ ..] => accounts::find(view, rest),
        _ => None,
    }
}

/// What the URI leads to.
pub(crate) fn find_uri(view: &View<'_>, uri: &str) -> Option<Resource> {
    let path: Vec<&str> = uri.split('/').filter(|part| !part.is_empty()).collect();
    find(view, &path)
}

/// The entity tag that a resource has just now.
pub(crate) fn etag(view: &View<'_>, uri: &str) -> Option<String> {
    match find_uri(view, uri)?.content {
        Content::Json(body) => Some(document::etag(body.to_string().as_bytes())),
        Content::Xml(_) | Content::Nothing => None,
    }
}

#[cfg(test)]
mod tests;
