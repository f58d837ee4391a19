//! What each operation needs, as a table that is both enforced and served (DSP0266, "Redfish service
//! operation-to-privilege mapping"). Reading needs Login wherever nothing else is said.

use super::events::news;
use super::{shown, uri};
use crate::auth::{self, Asker, Denied, Reach};
use axum::http::Method;
use poolwright_service::accounts::Privilege::{
    self, ConfigureComponents, ConfigureManager, ConfigureSelf, ConfigureUsers, Login, ReadAudit,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What reading and changing a kind of resource needs: any one of these. [`ConfigureSelf`] is for one's own.
struct Mapping {
    entity: &'static str,
    read: &'static [Privilege],
    change: &'static [Privilege],
}

const fn mapping(entity: &'static str, read: &'static [Privilege], change: &'static [Privilege]) -> Mapping {
    Mapping { entity, read, change }
}

/// Those that are not as [`OTHERS`].
const MAPPINGS: [Mapping; 18] = [
    mapping("ComputerSystem", &[Login], &[ConfigureComponents]),
    mapping("ComputerSystemCollection", &[Login], &[ConfigureComponents]),
    mapping("AccountService", &[Login], &[ConfigureUsers]),
    mapping("ManagerAccountCollection", &[Login], &[ConfigureUsers]),
    mapping(
        "ManagerAccount",
        &[ConfigureManager, ConfigureUsers, ConfigureSelf],
        &[ConfigureUsers, ConfigureSelf],
    ),
    mapping(
        "Session",
        &[ConfigureManager, ConfigureSelf],
        &[ConfigureManager, ConfigureSelf],
    ),
    mapping("SessionCollection", &[Login], &[Login]),
    mapping(
        "EventDestinationCollection",
        &[Login],
        &[ConfigureManager, ConfigureComponents],
    ),
    mapping("EventDestination", &[Login], &[ConfigureManager, ConfigureSelf]),
    mapping("Task", &[Login], &[ConfigureComponents]),
    mapping("Job", &[Login], &[ConfigureComponents]),
    mapping("CompositionService", &[Login], &[ConfigureComponents]),
    mapping("CompositionReservation", &[Login], &[ConfigureComponents]),
    mapping("Certificate", &[ConfigureManager], &[ConfigureManager]),
    mapping("CertificateCollection", &[ConfigureManager], &[ConfigureManager]),
    mapping("CertificateLocations", &[ConfigureManager], &[ConfigureManager]),
    mapping("LogEntry", &[ReadAudit], &[ConfigureManager]),
    mapping("LogEntryCollection", &[ReadAudit], &[ConfigureManager]),
];

const OTHERS: Mapping = mapping("", &[Login], &[ConfigureManager]);

fn needed(entity: &str, method: &Method) -> &'static [Privilege] {
    let found = MAPPINGS.iter().find(|mapping| mapping.entity == entity);
    let mapping = found.unwrap_or(&OTHERS);
    match *method {
        Method::GET | Method::HEAD => mapping.read,
        _ => mapping.change,
    }
}

/// Whether one's own may be something that others' may not.
pub(crate) fn hangs_on_whose_it_is(entity: &str, method: &Method) -> bool {
    needed(entity, method).contains(&ConfigureSelf)
}

/// Whether an account may do this. `own`: whether the resource is its own.
pub(crate) fn may(asker: &Asker, entity: &str, method: &Method, own: bool) -> Result<(), Denied> {
    let needed = needed(entity, method);
    // Who must change the password may look at the account, change it, and log out.
    let patient = own && needed.contains(&ConfigureSelf);
    let asker = &Asker {
        must_change_password: asker.must_change_password && !patient,
        ..asker.clone()
    };
    let mut refused = None;
    for privilege in needed {
        if *privilege == ConfigureSelf && !own {
            continue;
        }
        match auth::may(asker, *privilege, reach(entity)) {
            Ok(()) => return Ok(()),
            Err(denied) => refused = refused.or(Some(denied)),
        }
    }
    Err(refused.unwrap_or_else(|| Denied::Forbidden("that is somebody else's".to_owned())))
}

/// Changes of these ask by [`Asker::composer`]; a role in a scope is enough there, where it reaches.
fn reach(entity: &str) -> Reach {
    const SCOPED: [&str; 4] = ["ComputerSystem", "ComputerSystemCollection", "Task", "Job"];
    match SCOPED.contains(&entity) {
        true => Reach::Scoped,
        false => Reach::Everywhere,
    }
}

/// Where the table is served.
pub(crate) const REGISTRY: &str = "AccountService/PrivilegeMap";

/// The table as Redfish has it, for every kind of resource that is served.
pub(crate) fn registry() -> Result<Value, super::Refusal> {
    let entities: BTreeSet<&str> = super::routes::ROUTES.iter().map(|route| route.entity).collect();
    let listed = |privileges: &[Privilege]| -> Vec<Value> {
        let one = |privilege: &Privilege| json!({ "Privilege": [privilege] });
        privileges.iter().map(one).collect()
    };
    let mapped = |entity: &str| {
        let of = |method: Method| listed(needed(entity, &method));
        json!({
            "Entity": entity,
            "OperationMap": {
                "GET": of(Method::GET), "HEAD": of(Method::HEAD), "PATCH": of(Method::PATCH),
                "POST": of(Method::POST), "PUT": of(Method::PUT), "DELETE": of(Method::DELETE),
            },
        })
    };
    let (ours, standard): (Vec<Privilege>, Vec<Privilege>) = Privilege::ALL
        .into_iter()
        .partition(|privilege| privilege.is_ours());
    shown(&json!({
        "@odata.id": uri::at(REGISTRY),
        "@odata.type": "#PrivilegeRegistry.v1_1_5.PrivilegeRegistry",
        "Id": "Poolwright_1.0.0_PrivilegeRegistry",
        "Name": "Privileges",
        "PrivilegesUsed": standard,
        "OEMPrivilegesUsed": ours,
        "Mappings": entities.into_iter().map(mapped).collect::<Vec<_>>(),
    }))
}

/// Where registries are found.
pub(crate) fn registries() -> Result<Value, super::Refusal> {
    let members = [
        "Base",
        "Composition",
        "ResourceEvent",
        "TaskEvent",
        "PrivilegeRegistry",
    ]
    .map(|name| json!({ "@odata.id": file_at(name) }));
    shown(&json!({
        "@odata.id": uri::at("Registries"),
        "@odata.type": "#MessageRegistryFileCollection.MessageRegistryFileCollection",
        "Name": "Registries",
        "Members@odata.count": members.len(),
        "Members": members,
    }))
}

fn file_at(name: &str) -> String {
    uri::at(&format!("Registries/{name}"))
}

/// One of them: DMTF's where it is published, ours where we serve it.
pub(crate) fn registry_file(name: &str) -> Result<Option<Value>, super::Refusal> {
    let published = |version: &str, whole: &str| {
        let place = format!("https://redfish.dmtf.org/registries/{name}.{whole}.json");
        (
            format!("{name}.{version}"),
            json!({ "Language": "en", "PublicationUri": place }),
        )
    };
    let of_events = news::REGISTRIES.iter().find(|(known, ..)| *known == name);
    let (registry, location) = match (name, of_events) {
        (_, Some((_, version, whole))) => published(version, whole),
        ("Base", _) => published("1.22", "1.22.0"),
        ("Composition", _) => published("1.1", "1.1.3"),
        ("PrivilegeRegistry", _) => (
            "Poolwright_1.0.0_PrivilegeRegistry".to_owned(),
            json!({ "Language": "en", "Uri": uri::at(REGISTRY) }),
        ),
        _ => return Ok(None),
    };
    let file = json!({
        "@odata.id": file_at(name),
        "@odata.type": "#MessageRegistryFile.v1_1_5.MessageRegistryFile",
        "Id": name,
        "Name": format!("{name} registry"),
        "Registry": registry,
        "Languages": ["en"],
        "Location": [location],
    });
    shown(&file).map(Some)
}
