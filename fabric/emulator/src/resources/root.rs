//! The service root, and what is beside it: `/redfish`, `odata`, `$metadata`.

use super::document::{ROOT, link};
use super::resource::uri;
use super::sessions::are_offered;
use super::{Content, Resource, Service, View};
use crate::rack::{Expand, Style};
use http::StatusCode;
use poolwright_model::driver_label::EMULATOR;
use poolwright_redfish_model::{RESOURCES, ServiceRoot, odata::ODataType};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// How deep `$expand` goes.
pub(crate) const MAX_EXPAND_LEVELS: u8 = 4;

/// `/redfish`: which versions there are.
pub(crate) fn versions() -> Resource {
    Resource::of(json!({ "v1": format!("{ROOT}/") }))
}

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(root(view))),
        ["odata"] => Some(Resource::of(service_document(view))),
        ["$metadata"] => Some(Resource::new(StatusCode::OK, Content::Xml(METADATA.clone()))),
        _ => None,
    }
}

/// What there is below the root: the property and the path.
fn parts(view: &View<'_>) -> Vec<(&'static str, &'static str)> {
    let mut parts = vec![("Chassis", "Chassis"), ("Managers", "Managers")];
    match view.service {
        Service::Bmc(_) => parts.push(("Systems", "Systems")),
        Service::Box(_) => {
            parts.push(("Fabrics", "Fabrics"));
            if view.rack.style == Style::ResourceBlocks {
                parts.push(("Systems", "Systems"));
                parts.push(("CompositionService", "CompositionService"));
            }
        }
    }
    parts.push(("Tasks", "TaskService"));
    if are_offered(view) {
        parts.push(("SessionService", "SessionService"));
    }
    if super::events::are_offered(view) {
        parts.push(("EventService", "EventService"));
    }
    parts.push(("AccountService", "AccountService"));
    parts
}

fn root(view: &View<'_>) -> Value {
    let (product, uuid) = match view.service {
        Service::Box(at) => (&view.rack[at].model, view.rack[at].uuid),
        Service::Bmc(at) => (&view.rack[at].model, view.rack[at].uuid),
    };
    let expands = view.rack.options.expand != Expand::No;
    let mut expand = json!({ "ExpandAll": expands, "Levels": expands, "Links": expands, "NoLinks": expands });
    if expands {
        expand["MaxLevels"] = json!(MAX_EXPAND_LEVELS);
    }
    let mut root = json!({
        "@odata.id": format!("{ROOT}/"),
        "@odata.type": ServiceRoot::ODATA_TYPE,
        "Id": "RootService",
        "Name": format!("Redfish service of {}", view.service.name(view.rack)),
        "RedfishVersion": "1.20.0",
        "UUID": uuid,
        "Vendor": EMULATOR,
        "Product": product,
        "ProtocolFeaturesSupported": {
            "ExpandQuery": expand,
            "SelectQuery": false,
            "FilterQuery": false,
            "OnlyMemberQuery": false,
            "ExcerptQuery": false,
            "TopSkipQuery": false,
        },
        "Links": { "ManagerProvidingService": link(super::managers::own_uri(view)) },
    });
    if are_offered(view) {
        root["Links"]["Sessions"] = link(uri("SessionService/Sessions"));
    }
    if let Some(mark) = super::managers::mark(view) {
        root["ServiceIdentification"] = json!(mark);
    }
    for (property, path) in parts(view) {
        root[property] = link(uri(path));
    }
    root
}

fn service_document(view: &View<'_>) -> Value {
    let entry = |name: &str, url: String| json!({ "name": name, "kind": "Singleton", "url": url });
    let mut value = vec![entry("Service", format!("{ROOT}/"))];
    value.extend(parts(view).into_iter().map(|(name, path)| entry(name, uri(path))));
    if are_offered(view) {
        value.push(entry("Sessions", uri("SessionService/Sessions")));
    }
    json!({ "@odata.context": uri("$metadata"), "value": value })
}

/// Where the schemas are, by DMTF's addresses.
static METADATA: LazyLock<String> = LazyLock::new(|| {
    let mut xml = String::from(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n",
    ));
    for (namespace, version) in RESOURCES
        .iter()
        .filter_map(|resource| namespaces(resource.odata_type?))
    {
        let include = version.map_or(String::new(), |version| {
            format!("    <edmx:Include Namespace=\"{namespace}.{version}\"/>\n")
        });
        // Writing to a string can't fail.
        let _ = write!(
            xml,
            "  <edmx:Reference Uri=\"http://redfish.dmtf.org/schemas/v1/{namespace}_v1.xml\">\n    \
             <edmx:Include Namespace=\"{namespace}\"/>\n{include}  </edmx:Reference>\n"
        );
    }
    let root = ServiceRoot::ODATA_TYPE
        .trim_start_matches('#')
        .trim_end_matches(".ServiceRoot");
    let _ = write!(
        xml,
        "  <edmx:DataServices>\n    <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" \
         Namespace=\"Service\">\n      <EntityContainer Name=\"Service\" \
         Extends=\"{root}.ServiceContainer\"/>\n    </Schema>\n  </edmx:DataServices>\n</edmx:Edmx>\n"
    );
    xml
});

/// `Zone` and `v1_6_3`.
fn namespaces(odata_type: &str) -> Option<(&str, Option<String>)> {
    let parsed = ODataType::parse(odata_type)?;
    let version = parsed
        .version
        .map(|(major, minor, errata)| format!("v{major}_{minor}_{errata}"));
    Some((parsed.namespace, version))
}
