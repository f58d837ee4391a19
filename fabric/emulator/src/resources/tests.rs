//! The resources as they are served: complete, linked, and changed only as the standard allows.

use super::*;
use crate::access::{Account, secret};
use crate::rack::{GpuIx, PortIx};
use crate::state::{Change, Course};
use poolwright_redfish_model::check::check_create;
use poolwright_redfish_model::schema;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A rack with one binding of ours, one bound host in style resource blocks.
fn rack(name: &str) -> State {
    let now = Timestamp::UNIX_EPOCH;
    let mut state = State::new(Arc::new(Rack::builtin(name).unwrap()), now);
    state.bind_by_others(GpuIx(0), PortIx(0), now).unwrap();
    state
}

fn door() -> Access {
    let account = Account::new("admin", &secret().unwrap()).unwrap();
    Access::new(Arc::new(account), 4, Duration::from_secs(60))
}

/// Everything that can be reached from the root, by address.
fn walk(view: &View<'_>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut open = vec!["/redfish/v1/".to_owned()];
    while let Some(uri) = open.pop() {
        if found.contains_key(&uri) {
            continue;
        }
        let resource = find_uri(view, &uri).unwrap_or_else(|| panic!("{uri} is published, and not there"));
        let Content::Json(body) = resource.content else {
            panic!("{uri} is no document")
        };
        links_in(&body, &mut open);
        found.insert(uri, body);
    }
    found
}

fn links_in(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            into.extend(
                members
                    .get("@odata.id")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            members.values().for_each(|value| links_in(value, into));
        }
        Value::Array(elements) => elements.iter().for_each(|value| links_in(value, into)),
        _ => {}
    }
}

/// Looks at every service of a rack, some time after it was switched on.
fn each_service(name: &str, look: impl Fn(&View<'_>)) {
    let (state, access) = (rack(name), door());
    let rack = Arc::clone(state.rack());
    for service in Service::all(&rack) {
        let now = Timestamp::from_second(60).unwrap();
        look(&View {
            rack: &rack,
            state: &state,
            now,
            service,
            access: &access,
        });
    }
}

#[test]
fn every_published_link_leads_somewhere_and_says_so() {
    for name in ["zones", "connections", "blocks", "demo"] {
        each_service(name, |view| {
            let all = walk(view);
            assert!(all.len() > 15, "{name} {:?}: {}", view.service, all.len());
            for (uri, body) in &all {
                assert_eq!(body["@odata.id"], *uri);
            }
        });
    }
}

#[test]
fn every_document_is_as_its_schema_says() {
    for name in ["zones", "connections", "blocks", "demo"] {
        each_service(name, |view| {
            for (uri, body) in walk(view) {
                let odata_type = body["@odata.type"].as_str().unwrap();
                let known = schema::by_odata_type(odata_type).unwrap_or_else(|| panic!("{odata_type}"));
                assert_eq!(known.odata_type, Some(odata_type), "{uri}");
                let mut wrong = check_create(known, &body);
                // What a request that creates one must hold is no business of an answer.
                wrong.retain(|violation| violation.message != "PropertyMissing");
                assert_eq!(wrong, [], "{uri}");
                for property in known.properties.iter().filter(|property| property.required) {
                    assert!(body.get(property.name).is_some(), "{uri} lacks {}", property.name);
                }
            }
        });
    }
}

#[test]
fn counts_and_members_agree_and_nothing_is_null() {
    fn no_null(value: &Value, at: &str) {
        match value {
            Value::Null => panic!("null at {at}"),
            Value::Object(members) => members
                .iter()
                .for_each(|(name, value)| no_null(value, &format!("{at}/{name}"))),
            Value::Array(elements) => elements.iter().for_each(|value| no_null(value, at)),
            _ => {}
        }
    }
    each_service("zones", |view| {
        for (uri, body) in walk(view) {
            no_null(&body, &uri);
            if let Some(members) = body.get("Members").and_then(Value::as_array) {
                assert_eq!(body["Members@odata.count"], members.len(), "{uri}");
                let distinct: BTreeSet<&str> =
                    members.iter().filter_map(|m| m["@odata.id"].as_str()).collect();
                assert_eq!(distinct.len(), members.len(), "{uri}");
            }
        }
    });
}

#[test]
fn the_box_and_the_host_tell_the_same_gpu_by_its_serial_number() {
    let serials = |view: &View<'_>| -> BTreeSet<String> {
        let all = walk(view);
        let gpus = all.into_values().filter(|body| body["ProcessorType"] == "GPU");
        gpus.map(|gpu| gpu["SerialNumber"].as_str().unwrap().to_owned())
            .collect()
    };
    let (state, access) = (rack("blocks"), door());
    let rack = Arc::clone(state.rack());
    let now = Timestamp::from_second(60).unwrap();
    let view = |service| View {
        rack: &rack,
        state: &state,
        now,
        service,
        access: &access,
    };
    let in_box = serials(&view(Service::Box(BoxIx(0))));
    let on_host = serials(&view(Service::Bmc(HostIx(0))));
    assert_eq!((in_box.len(), on_host.len()), (6, 1));
    assert!(on_host.is_subset(&in_box));
    let gpu = find_uri(
        &view(Service::Box(BoxIx(0))),
        "/redfish/v1/Chassis/box-1/Processors/gpu-1",
    )
    .unwrap();
    let Content::Json(gpu) = gpu.content else { panic!() };
    assert!(gpu.get("UUID").is_none(), "this box does not know it: {gpu}");
}

#[test]
fn a_service_shows_what_its_options_say() {
    let there = |name: &str, uri: &str| {
        let (state, access) = (rack(name), door());
        let rack = Arc::clone(state.rack());
        let service = Service::Box(BoxIx(0));
        let view = View {
            rack: &rack,
            state: &state,
            now: Timestamp::UNIX_EPOCH,
            service,
            access: &access,
        };
        find_uri(&view, uri).is_some()
    };
    for (name, uri, expected) in [
        ("zones", "/redfish/v1/Fabrics/PCIe/Zones", true),
        ("zones", "/redfish/v1/Fabrics/PCIe/Connections", false),
        ("zones", "/redfish/v1/Systems", false),
        ("connections", "/redfish/v1/Fabrics/PCIe/Connections", true),
        ("connections", "/redfish/v1/Fabrics/PCIe/Zones", false),
        ("connections", "/redfish/v1/Chassis/box-1/Processors", false),
        (
            "blocks",
            "/redfish/v1/CompositionService/ResourceBlocks/gpu-1",
            true,
        ),
        ("blocks", "/redfish/v1/Fabrics/PCIe/Zones", false),
        ("zones", "/redfish/v1/Chassis/box-2", false),
        ("zones", "/redfish/v2", false),
        (
            "zones",
            "/redfish/v1/Fabrics/PCIe/Switches/switch-1/Ports/U01",
            false,
        ),
    ] {
        assert_eq!(there(name, uri), expected, "{name} {uri}");
    }
}

#[test]
fn an_entity_tag_changes_with_what_it_tags() {
    let (mut state, access) = (rack("zones"), door());
    let rack = Arc::clone(state.rack());
    let tag = |state: &State, uri: &str| {
        let service = Service::Box(BoxIx(0));
        etag(
            &View {
                rack: &rack,
                state,
                now: Timestamp::UNIX_EPOCH,
                service,
                access: &access,
            },
            uri,
        )
        .unwrap()
    };
    let (zone, other) = (
        "/redfish/v1/Fabrics/PCIe/Zones/host-1-port-1",
        "/redfish/v1/Fabrics/PCIe/Switches/switch-1",
    );
    let before = (tag(&state, zone), tag(&state, other));
    assert_eq!((tag(&state, zone), tag(&state, other)), before);
    let now = Timestamp::UNIX_EPOCH;
    let (_, due) = state
        .begin(Change::bind(GpuIx(2), PortIx(0)), Course::Real, None, now)
        .unwrap();
    state.settle(due);
    assert_ne!(tag(&state, zone), before.0);
    assert_eq!(tag(&state, other), before.1);
}
