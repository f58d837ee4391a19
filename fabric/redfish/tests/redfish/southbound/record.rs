//! A recording of a whole tree: nothing of the machine that identifies it gets into the folder, neither in a
//! document nor in the name of a file, and its links still lead somewhere.

use crate::southbound::service::{DONE, Documents, Service, links};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// A rack whose addresses, ids and texts are made of its names, as services make them.
fn tree() -> Documents {
    let mut documents = Documents::default();
    let system = "/redfish/v1/Systems/web-01";
    let chassis = "/redfish/v1/Chassis/WEB-01_sled:QX7731PL09";
    let port = "/redfish/v1/Chassis/WEB-01_sled:QX7731PL09/NetworkAdapters/nic-b83fd2001122";
    documents.collection("/redfish/v1/Systems", "ComputerSystem", &[system]);
    documents.collection("/redfish/v1/Chassis", "Chassis", &[chassis]);
    documents.put(
        system,
        json!({"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": "web-01", "HostName": "web-01",
            "UUID": "9DAD5BFD-A732-23FE-40AD-465D0CBE5F95", "SerialNumber": "QX7731PL09", "AssetTag": "Aisle 7, rack Q",
            "Description": "web-01.corp.internal, see https://alice.w:pa55word@wiki.corp.internal/web-01?x=1",
            "Model": "PS-9000", "Status": {"State": "Enabled", "Conditions": [
                {"Message": "GPU-9dad5bfda73223fe40ad465d0cbe5f95 at 10.31.7.9: fan of web-01-bmc is slow"}]},
            "Links": {"Chassis": links(&[chassis])}}),
    );
    documents.put(
        chassis,
        json!({"@odata.type": "#Chassis.v1_25_0.Chassis", "Id": "WEB-01_sled:QX7731PL09", "Name": "Sled SN-QX7731PL09",
            "Description": "PSU of web-01-bmc (saturn, 10-31-7-9)", "Location": {"PostalAddress": {"City": "Aisle 7, rack Q"}},
            "Oem": {"Maker": {"web-01": {"Fan": "web-01_fan", "Contact": "alice.w"}}},
            "NetworkAdapters": {"@odata.id": port}}),
    );
    documents.put(
        port,
        json!({"@odata.type": "#EthernetInterface.v1_12_0.EthernetInterface", "MACAddress": "B8:3F:D2:00:11:22",
            "Id": "nic-b83fd2001122", "FQDN": "web-01-bmc.corp.internal", "HostName": "saturn",
            "IPv4Addresses": [{"Address": "10.31.7.9"}], "IPv6Addresses": [{"Address": "fe80::ba3f:d2ff:fe00:1122"}],
            "Name": "web-01-bmc b8-3f-d2-00-11-22", "Owner": {"UserName": "alice.w", "Password": "pa55word"},
            "UefiDevicePath": "PciRoot(0x0)/Pci(0x10,0x0)/MAC(3A289732197E,0x0)/IPv4(0.0.0.0)",
            "Links": {"Chassis": {"@odata.id": chassis}}}),
    );
    documents
}

/// Everything in that tree that identifies, in lower case.
const NAMES: [&str; 18] = [
    "3a2897",
    "web-01",
    "saturn",
    "corp.internal",
    "corp",
    "qx7731pl09",
    "9dad5bfd",
    "40ad",
    "b83fd2",
    "b8:3f",
    "b8-3f",
    "10.31.7.9",
    "10-31-7-9",
    "ba3f:d2ff",
    "alice",
    "pa55word",
    "aisle",
    "rack q",
];

fn everything_below(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            everything_below(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.display().to_string(), text));
        }
    }
}

#[tokio::test]
async fn nothing_that_identifies_gets_into_a_recording() {
    let service = Service::start(tree(), |_, _| DONE).await;
    let dir = tempfile::tempdir().unwrap();
    let date = jiff::civil::date(2026, 1, 2);
    let manifest = service.driver.record(dir.path(), date, &()).await.unwrap();
    assert_eq!(manifest.documents, 6, "{manifest:?}");
    assert_eq!(manifest.models, ["PS-9000"]);

    let mut files = Vec::new();
    everything_below(dir.path(), &mut files);
    assert_eq!(files.len(), 7);
    for (path, text) in &files {
        let path = path.strip_prefix(&*dir.path().to_string_lossy()).unwrap();
        for shown in [path, text] {
            for name in NAMES {
                assert!(!shown.to_lowercase().contains(name), "{name} in {path}: {text}");
            }
        }
    }

    // Each document lies where it says that it is, and each link leads to one.
    let at = |address: &str| {
        let file = dir.path().join(&address[1..]).join("index.json");
        serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap()
    };
    let mut reached = BTreeSet::new();
    let mut next = vec!["/redfish/v1".to_owned()];
    while let Some(address) = next.pop() {
        if address.ends_with("/Fabrics") || !reached.insert(address.clone()) {
            continue;
        }
        let document = at(&address);
        assert_eq!(document["@odata.id"], address);
        links_in(&document, &mut next);
    }
    assert_eq!(reached.len(), 6);
}

fn links_in(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("@odata.id", Value::String(link)) => found.push(link.clone()),
                    _ => links_in(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| links_in(item, found)),
        _ => {}
    }
}
