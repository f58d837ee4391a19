//! One table a kind of property: what is read, and that what was read is written back.

use crate::common;
use poolwright_redfish_model::{
    ComputerSystem, EnvironmentMetrics, Event, Fabric, FabricCollection, Manager, Port, Processor,
    ProcessorType, Protocol, Ref, Resource, ResourceBlock, SensorExcerpt, State, Zone,
};
use serde_json::{Value, json};

/// Reads, and asserts that writing gives the same again.
fn read<T: Resource + PartialEq + std::fmt::Debug>(document: &Value) -> T {
    let read: T = serde_json::from_str(&document.to_string()).expect("no property may cost the resource");
    assert_eq!(serde_json::to_value(&read).expect("it can be written"), *document);
    let from_value: T = serde_json::from_value(document.clone()).expect("from a value as from text");
    assert_eq!(from_value, read);
    read
}

#[test]
fn integers() {
    for (given, seen) in [
        (json!(16), Some(16)),
        (json!("16"), Some(16)),
        (json!(" 16 "), Some(16)),
        (json!(16.0), Some(16)),
        (json!(-1), Some(-1)),
        (json!(i64::MAX), Some(i64::MAX)),
        (json!(u64::MAX), None),
        (json!(16.5), None),
        (json!(1e300), None),
        (json!("sixteen"), None),
        (json!(""), None),
        (json!(true), None),
        (json!(null), None),
        (json!([16]), None),
        (json!({"Value": 16}), None),
    ] {
        let fabric: Fabric = read(&json!({"Id": "PCIe", "MaxZones": given}));
        assert_eq!(
            (fabric.max_zones, fabric.id.as_deref()),
            (seen, Some("PCIe")),
            "{given}"
        );
    }
}

#[test]
fn decimals() {
    for (given, seen) in [
        ("711", Some("711")),
        ("711.0", Some("711.0")),
        ("0.1", Some("0.1")),
        ("-273.15", Some("-273.15")),
        ("386406.09862634965", Some("386406.09862634965")),
        ("18446744073709551615", Some("18446744073709551615")),
        ("\"711\"", Some("711")),
        ("\"71.5\"", Some("71.5")),
        ("\"cold\"", None),
        ("true", None),
        ("null", None),
        ("{}", None),
    ] {
        let text = format!("{{\"Reading\":{given}}}");
        let sensor: SensorExcerpt = serde_json::from_str(&text).expect("no property may cost the whole");
        assert_eq!(
            sensor.reading.as_ref().map(ToString::to_string).as_deref(),
            seen,
            "{given}"
        );
        assert_eq!(serde_json::to_string(&sensor).expect("it can be written"), text);
    }
}

#[test]
fn booleans() {
    for (given, seen) in [
        (json!(true), Some(true)),
        (json!("True"), Some(true)),
        (json!("false"), Some(false)),
        (json!("Enabled"), None),
        (json!(1), None),
        (json!(null), None),
        (json!([]), None),
        (json!({}), None),
    ] {
        let port: Port = read(&json!({"Enabled": given, "PortId": "1"}));
        assert_eq!(
            (port.enabled, port.port_id.as_deref()),
            (seen, Some("1")),
            "{given}"
        );
    }
}

#[test]
fn texts() {
    for (given, seen) in [
        (json!("H200"), Some("H200")),
        (json!(""), Some("")),
        (json!("GPU-6d1c"), Some("GPU-6d1c")),
        (json!(200), Some("200")),
        (json!(1.5), Some("1.5")),
        (json!(true), Some("true")),
        (json!(null), None),
        (json!(["H200"]), None),
        (json!({"Name": "H200"}), None),
    ] {
        let processor: Processor = read(&json!({"Model": given, "UUID": given, "Id": "GPU0"}));
        let both = (processor.model.as_deref(), processor.uuid.as_deref());
        assert_eq!(
            (both, processor.id.as_deref()),
            ((seen, seen), Some("GPU0")),
            "{given}"
        );
    }
}

#[test]
fn enumerations() {
    for (given, seen) in [
        (json!("GPU"), Some(ProcessorType::GPU)),
        (json!("TPU"), Some(ProcessorType::Unrecognized("TPU".into()))),
        (json!("gpu"), Some(ProcessorType::Unrecognized("gpu".into()))),
        (json!(7), None),
        (json!(null), None),
        (json!(["GPU"]), None),
        (json!({}), None),
    ] {
        let processor: Processor = read(&json!({"ProcessorType": given, "TotalCores": 132}));
        assert_eq!(
            (processor.processor_type, processor.total_cores),
            (seen, Some(132)),
            "{given}"
        );
    }
    assert_eq!(ProcessorType::from("TPU").to_string(), "TPU");
    assert_eq!(Protocol::from("PCIe"), Protocol::PCIe);
}

#[test]
fn lists() {
    for (given, seen) in [
        (json!(["Processor", "Memory"]), Some(vec!["Processor", "Memory"])),
        (json!([]), Some(vec![])),
        (json!("Processor"), Some(vec!["Processor"])),
        (
            json!(["Processor", null, 7, {"Type": "Memory"}, "Quantum"]),
            Some(vec!["Processor", "Quantum"]),
        ),
        (json!([null]), Some(vec![])),
        (json!(null), None),
        (json!({"Type": "Processor"}), None),
    ] {
        let block: ResourceBlock = read(&json!({"ResourceBlockType": given, "Id": "B1"}));
        let types = block.resource_block_type.as_ref();
        let types = types.map(|types| types.iter().map(|t| t.as_str()).collect::<Vec<_>>());
        assert_eq!((types, block.id.as_deref()), (seen, Some("B1")), "{given}");
    }
}

#[test]
fn lists_of_coerced_elements() {
    let port: Port = read(&json!({"Ethernet": {"AssociatedMACAddresses": ["a", 5, null]}}));
    let addresses = port.ethernet.expect("the part is there").associated_mac_addresses;
    assert_eq!(addresses, Some(vec!["a".to_owned(), "5".to_owned()]));
}

#[test]
fn objects() {
    for (given, seen) in [
        (
            json!({"State": "Enabled", "Health": "OK"}),
            Some(Some(State::Enabled)),
        ),
        (json!({"State": null}), Some(None)),
        (json!({"State": 7, "Health": "OK"}), Some(None)),
        (json!({}), Some(None)),
        (json!("Enabled"), None),
        (json!(null), None),
        (json!([{"State": "Enabled"}]), None),
    ] {
        let fabric: Fabric = read(&json!({"Status": given, "Id": "PCIe"}));
        assert_eq!(fabric.status.map(|status| status.state), seen, "{given}");
    }
}

#[test]
fn links() {
    for (given, seen) in [
        (
            json!({"@odata.id": "/redfish/v1/Fabrics/1/Zones"}),
            Some(Some("/redfish/v1/Fabrics/1/Zones")),
        ),
        (
            json!("/redfish/v1/Fabrics/1/Zones"),
            Some(Some("/redfish/v1/Fabrics/1/Zones")),
        ),
        (json!({"@odata.id": null}), Some(None)),
        (json!({}), Some(None)),
        (json!(null), None),
        (json!(7), None),
    ] {
        let fabric: Fabric = read(&json!({"Zones": given, "Id": "PCIe"}));
        assert_eq!(fabric.zones.as_ref().map(Ref::uri), seen, "{given}");
    }
}

#[test]
fn lists_of_links() {
    for (given, seen) in [
        (
            json!([{"@odata.id": "/a"}, {"@odata.id": "/b"}]),
            Some(vec!["/a", "/b"]),
        ),
        (json!([]), Some(vec![])),
        (json!({"@odata.id": "/a"}), Some(vec!["/a"])),
        (json!({"@odata.id": "/a", "Name": 5}), Some(vec!["/a"])),
        (
            json!(["/a", {"@odata.id": "/b"}, null, 5]),
            Some(vec!["/a", "/b"]),
        ),
        (json!(null), None),
    ] {
        let zone: Zone = read(&json!({"Links": {"Endpoints": given}, "Id": "1"}));
        let endpoints = zone.links.and_then(|links| links.endpoints);
        let uris = endpoints
            .as_ref()
            .map(|refs| refs.iter().filter_map(Ref::uri).collect::<Vec<_>>());
        assert_eq!(uris, seen, "{given}");
    }
}

#[test]
fn expanded_members_are_kept_and_given() {
    let gpu = json!({"@odata.id": "/p/1", "ProcessorType": "GPU", "TotalCores": "132", "Vendor": {"X": [1]}});
    let document = json!({"@odata.id": "/z", "Members": [gpu, {"@odata.id": "/p/2"}]});
    let collection: FabricCollection = read(&document);
    let members = collection.members.as_deref().unwrap_or_default();
    assert_eq!(
        members.iter().map(Ref::is_expanded).collect::<Vec<_>>(),
        [true, false]
    );
    let processor: Processor = members[0].expanded().expect("it was expanded");
    assert_eq!(processor.processor_type, Some(ProcessorType::GPU));
    assert_eq!(processor.total_cores, Some(132));
    assert_eq!(serde_json::to_value(&processor).expect("it can be written"), gpu);
    assert_eq!(members[1].expanded::<Processor>(), None);
}

#[test]
fn unknown_members_and_nulls_survive() {
    let document = json!({
        "@odata.id": "/f", "@odata.type": "#Fabric.v1_3_2.Fabric", "@odata.etag": "W/\"1\"",
        "@Redfish.Settings": {"SettingsObject": {"@odata.id": "/f/s"}},
        "Status@Redfish.AllowableValues": ["a"],
        "Description": null, "VendorThing": {"q": [1, {"r": null}]}, "Oem": {"Contoso": {"X": 1.50}},
        "Ünïcode \"quoted\" name": true,
    });
    let mut fabric: Fabric = read(&document);
    assert_eq!(fabric.odata_etag.as_deref(), Some("W/\"1\""));
    assert_eq!(
        fabric.extra.get::<Value>("VendorThing"),
        Some(json!({"q": [1, {"r": null}]}))
    );
    assert_eq!(
        fabric.extra.get::<Vec<String>>("Status@Redfish.AllowableValues"),
        Some(vec!["a".to_owned()])
    );
    assert_eq!(fabric.extra.get::<Vec<String>>("Missing"), None);
    assert!(fabric.extra.is_null("Description") && !fabric.extra.is_null("VendorThing"));
    assert!(fabric.extra.remove("VendorThing") && !fabric.extra.remove("VendorThing"));
    assert_eq!(
        serde_json::to_value(&fabric)
            .expect("it can be written")
            .get("VendorThing"),
        None
    );
}

#[test]
fn a_changed_property_wins_over_what_was_read() {
    let mut fabric: Fabric = read(&json!({"MaxZones": "16", "Description": null, "Status": "OK"}));
    fabric.max_zones = Some(17);
    fabric.description = Some("now set".to_owned());
    assert_eq!(
        serde_json::to_value(&fabric).expect("it can be written"),
        json!({"MaxZones": 17, "Description": "now set", "Status": "OK"})
    );
    fabric.max_zones = None;
    assert_eq!(
        serde_json::to_value(&fabric).expect("it can be written"),
        json!({"Description": "now set", "Status": "OK"})
    );
}

#[test]
fn a_null_can_be_asked_for() {
    let mut patch = ComputerSystem::default();
    patch.extra.set("AssetTag", &()).expect("null has a form in JSON");
    assert_eq!(
        serde_json::to_value(&patch).expect("it can be written"),
        json!({"AssetTag": null})
    );
}

#[test]
fn of_members_of_one_name_the_last_counts() {
    for (text, zones, again) in [
        (r#"{"MaxZones":1,"MaxZones":2}"#, Some(2), json!({"MaxZones": 2})),
        (
            r#"{"MaxZones":"1","MaxZones":2}"#,
            Some(2),
            json!({"MaxZones": 2}),
        ),
        (
            r#"{"MaxZones":1,"MaxZones":null}"#,
            None,
            json!({"MaxZones": null}),
        ),
        (
            r#"{"MaxZones":"1","MaxZones":"2"}"#,
            Some(2),
            json!({"MaxZones": "2"}),
        ),
        (r#"{"X":1,"Y":2,"X":3}"#, None, json!({"X": 3, "Y": 2})),
    ] {
        let fabric: Fabric = serde_json::from_str(text).expect("no property may cost the resource");
        assert_eq!(fabric.max_zones, zones, "{text}");
        assert_eq!(
            serde_json::to_value(&fabric).expect("it can be written"),
            again,
            "{text}"
        );
    }
}

#[test]
fn what_is_no_object_is_an_error() {
    for text in [
        "",
        "[]",
        "\"Fabric\"",
        "null",
        "<html>",
        "{\"Id\":",
        "{\"Id\": tru}",
        "{\"X\": [1,}",
    ] {
        assert!(serde_json::from_str::<Fabric>(text).is_err(), "{text}");
    }
    let why = serde_json::from_str::<Fabric>("[]")
        .expect_err("a list is no resource")
        .to_string();
    assert!(why.contains("Fabric.Fabric"), "{why}");
}

#[test]
fn depth_costs_no_stack() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for name in ["Unknown", "MaxZones", "Zones", "Name"] {
        let text = format!("{{\"{name}\":{deep}}}");
        let fabric: Fabric = serde_json::from_str(&text).expect("it is kept as text");
        assert_eq!(
            serde_json::to_string(&fabric).expect("it can be written"),
            text,
            "{name}"
        );
        assert_eq!(fabric, fabric.clone());
        assert_ne!(fabric, Fabric::default());
        assert_eq!(fabric.extra.get::<Value>(name), None, "too deep for a tree");
    }
}

#[test]
fn many_unknown_members_cost_no_more_than_their_number() {
    let members = (0..200_000)
        .map(|n| format!("\"X{}\":{n}", 200_000 - n))
        .collect::<Vec<_>>()
        .join(",");
    let fabric: Fabric =
        serde_json::from_str(&format!("{{{members}}}")).expect("unknown members are welcome");
    assert_eq!(fabric.extra.len(), 200_000);
}

#[test]
fn embedded_entities_and_excerpts_are_typed() {
    let event: Event =
        read(&json!({"Events": [{"MessageId": "ResourceEvent.1.4.ResourceChanged", "EventId": 5}]}));
    assert_eq!(event.events.unwrap_or_default()[0].event_id.as_deref(), Some("5"));
    let metrics: EnvironmentMetrics = read(&json!({"PowerWatts": {"Reading": 711, "DataSourceUri": "/s"}}));
    let power = metrics.power_watts.expect("the excerpt is there");
    assert_eq!(
        (power.reading, power.data_source_uri.as_deref()),
        (Some(711.into()), Some("/s"))
    );
}

#[test]
fn resources_know_their_type() {
    let manager = Manager {
        service_entry_point_uuid: Some("u".to_owned()),
        ..Manager::at("/redfish/v1/Managers/1")
    };
    let written = serde_json::to_value(&manager).expect("it can be written");
    assert_eq!(written["@odata.type"], Manager::ODATA_TYPE);
    assert_eq!(written["@odata.id"], "/redfish/v1/Managers/1");
    assert_eq!(common::typed_view(&manager), written);
    let shown = format!("{manager:?}");
    assert!(
        shown.starts_with("Manager.Manager {") && shown.contains("ServiceEntryPointUUID"),
        "{shown}"
    );
}
