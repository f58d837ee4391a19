//! What reads bytes that anybody may write, as targets for fuzzers (`fuzz/`) and for `tests/tests/workspace/untrusted.rs`, with bytes
//! to begin with. A target tells whether it understood the bytes, and panics where something is wrong with our code.

use poolwright_northbound::untrusted;
use poolwright_redfish_model::{Chassis, ComputerSystem, Fabric, Processor, ResourceBlock, Zone};
use poolwright_service::Declaration;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A reader, and what it is first given: all of it is understood.
pub struct Target {
    pub name: &'static str,
    pub read: fn(&[u8]) -> bool,
    pub seeds: &'static [&'static str],
}

/// All of them; each has a file in `fuzz/fuzz_targets`.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "redfish",
        read: redfish,
        seeds: &[
            r##"{"@odata.id": "/redfish/v1/Systems/1", "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "Id": "1", "Name": "one", "SystemType": "Composed", "MemorySummary": {"TotalSystemMemoryGiB": 512.5}, "Links": {"ResourceBlocks": [{"@odata.id": "/a"}]}, "Oem": {"x": [null, 1e300]}}"##,
            r##"{"@odata.id": "/redfish/v1/Fabrics/f/Zones/z", "ZoneType": "ZoneOfEndpoints", "Status": {"State": "Enabled", "Health": "OK"}, "Links": {"Endpoints": []}}"##,
        ],
    },
    Target {
        name: "body",
        read: untrusted::body,
        seeds: &[
            r#"{"Name": "one", "Links": {"ResourceBlocks": [{"@odata.id": "/redfish/v1/x"}]}, "n": [1, -2.5e3, true, null, "\u00e9"]}"#,
        ],
    },
    Target {
        name: "manifest",
        read: untrusted::manifest,
        seeds: &[
            r#"{"RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": {"Stanzas": [{"StanzaType": "ComposeSystem", "StanzaId": "1", "Request": {"Name": "the night of the training run, with a name long enough to be changed within, over and over again", "Processors": {"Members": [{"@Redfish.RequestedCount": 2, "ProcessorType": "GPU"}]}}}]}}"#,
            r#"{"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": [{"StanzaType": "DecomposeSystem", "StanzaId": "b", "Request": {"@odata.id": "/redfish/v1/Systems/x"}}]}}"#,
        ],
    },
    Target {
        name: "query",
        read: untrusted::query,
        seeds: &[
            "$expand=.($levels=2)&$select=Name,Status/Health&$top=5&$skip=2",
            "$filter=(Name%20eq%20'it''s'%20and%20not%20(Size%20ge%20-2.5))%20or%20Status/Health%20ne%20null",
            "only",
        ],
    },
    Target {
        name: "path",
        read: untrusted::path,
        seeds: &[
            "/redfish/v1/Systems/host-1",
            "//redfish/v1/%41ccountService/Accounts/a%20b/",
        ],
    },
    Target {
        name: "demand-file",
        read: demand_file,
        seeds: &[
            "[[demands]]\nid = \"chat\"\nmodel = \"70B\"\ntask = \"infer\"\nconcurrency = 64\n[[demands]]\nid = \"b\"\ngpus = 8\nwindow = { weekly = [\"SAT,SUN 00:00-24:00\"], zone = \"Europe/Berlin\" }\n",
            "demands:\n  - id: a\n    gpus: 4\n    queue: {runs_for: 6h, may_stop: true}\nschedules:\n  - id: n\n    suspends: [a]\n    window: {opens: '0 20 * * *', closes: '30 7 * * *'}\n",
            r#"{"demands": [{"id": "a", "gpus": 4, "priority": -2, "set": {"optimizer": "adam", "n": 3}}], "schedules": []}"#,
        ],
    },
];

/// Reads with the target of this name.
pub fn read(name: &str, bytes: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.is_some_and(|target| (target.read)(bytes))
}

/// What a management service answers, as each of the types that may be expected. Written again it is read as the same.
fn redfish(bytes: &[u8]) -> bool {
    let read = [
        twice::<ComputerSystem>(bytes),
        twice::<Zone>(bytes),
        twice::<Fabric>(bytes),
        twice::<Chassis>(bytes),
        twice::<Processor>(bytes),
        twice::<ResourceBlock>(bytes),
    ];
    read.contains(&true)
}

fn twice<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> bool {
    let Ok(resource) = serde_json::from_slice::<T>(bytes) else {
        return false;
    };
    // As text: of what is not ours to read, such as a number that no float holds, nothing is lost.
    let written = serde_json::to_string(&resource).expect("what was read can be written");
    let again: T = serde_json::from_str(&written).expect("what was written can be read");
    let again = serde_json::to_string(&again).expect("what was read can be written");
    assert_eq!(written, again, "read again it is another");
    true
}

/// What people declare, in each form in which they write it.
fn demand_file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let read: [Option<Declaration>; 3] = [
        toml::from_str(text).ok(),
        serde_norway::from_str(text).ok(),
        serde_json::from_str(text).ok(),
    ];
    read.iter().any(Option::is_some)
}
