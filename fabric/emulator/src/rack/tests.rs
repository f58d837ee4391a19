//! Rack files: what they come to, and how wrong ones are refused.

use super::*;
use std::collections::BTreeSet;

const SMALL: &str = r#"
name = "t"
style = "zones"
[[box]]
gpus = [{ kind = "l40s-48gb", count = 4 }]
[[host]]
count = 2
slots = 2
"#;

#[test]
fn the_built_in_racks_have_the_sizes_that_they_promise() {
    let size = |name: &str| {
        let rack = Rack::builtin(name).unwrap();
        (rack.boxes.len(), rack.hosts.len(), rack.gpus.len())
    };
    assert_eq!(size("small"), (1, 1, 8));
    assert_eq!(size("demo"), (2, 6, 32));
    assert_eq!(size("pod-4096"), (128, 1024, 4096));
    for name in Rack::builtin_names() {
        Rack::builtin(name).unwrap();
    }
    let error = Rack::builtin("no-such").unwrap_err().to_string();
    assert!(error.contains("no-such") && error.contains("demo"), "{error}");
}

#[test]
fn every_identity_is_unique_and_the_same_every_time() {
    for name in Rack::builtin_names() {
        let (rack, again) = (Rack::builtin(name).unwrap(), Rack::builtin(name).unwrap());
        let uuids = |rack: &Rack| -> Vec<Uuid> {
            let gpus = rack.gpus.iter().map(|gpu| gpu.uuid);
            let ports = rack.ports.iter().map(|port| port.uuid);
            let hosts = rack.hosts.iter().map(|host| host.uuid);
            gpus.chain(ports)
                .chain(hosts)
                .chain(rack.boxes.iter().map(|b| b.uuid))
                .collect()
        };
        assert_eq!(uuids(&rack), uuids(&again));
        assert_eq!(
            uuids(&rack).into_iter().collect::<BTreeSet<_>>().len(),
            uuids(&rack).len(),
            "{name}"
        );
        let serials: BTreeSet<&str> = rack.gpus.iter().map(|gpu| gpu.serial.as_str()).collect();
        assert_eq!(serials.len(), rack.gpus.len(), "{name}");
    }
    let seeded = Rack::from_toml("t", &SMALL.replace("style", "seed = 1\nstyle")).unwrap();
    assert_ne!(
        seeded.gpus[0].uuid,
        Rack::from_toml("t", SMALL).unwrap().gpus[0].uuid
    );
}

#[test]
fn hosts_are_spread_over_the_boxes() {
    let pod = Rack::builtin("pod-4096").unwrap();
    assert!(pod.boxes.iter().all(|b| b.ports.len() == 8 && b.gpus.len() == 32));
    let demo = Rack::builtin("demo").unwrap();
    for host in demo.host_ixs() {
        let reached: BTreeSet<BoxIx> = demo.ports_of_host(host).map(|port| demo[port].gpu_box).collect();
        assert_eq!(reached.len(), 2, "each host reaches both boxes");
    }
}

#[test]
fn names_lead_back_to_what_they_name() {
    for name in Rack::builtin_names() {
        let rack = Rack::builtin(name).unwrap();
        for gpu in (0..rack.gpus.len()).step_by(7).map(GpuIx) {
            assert_eq!(rack.gpu_named(&rack.gpu_name(gpu)), Some(gpu));
        }
        for port in (0..rack.ports.len()).step_by(7).map(PortIx) {
            assert_eq!(rack.port_named(&rack.port_name(port)), Some(port));
        }
    }
}

#[test]
fn every_switch_is_cabled_as_asked() {
    let cabled = |cabling: &str| {
        let switches = format!("[[box]]\nswitches = 4\ncabling = \"{cabling}\"");
        Rack::from_toml("t", &SMALL.replace("[[box]]", &switches))
            .unwrap()
            .boxes[0]
            .cables
            .clone()
    };
    assert_eq!(cabled("line"), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(cabled("ring"), [(0, 1), (1, 2), (2, 3), (0, 3)]);
    assert_eq!(cabled("star"), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(cabled("mesh").len(), 6);
}

#[test]
fn errors_name_file_key_found_and_allowed() {
    for (from, to, expected) in [
        (
            "count = 4",
            "count = 4, colour = 1",
            vec!["colour", "kind", "display"],
        ),
        (
            "style = \"zones\"",
            "style = \"strings\"",
            vec!["strings", "resource-blocks", "connections"],
        ),
        ("style = \"zones\"", "", vec!["style"]),
        ("l40s-48gb", "l40z", vec!["box.gpus.kind", "l40z", "l40s-48gb"]),
        (
            "l40s-48gb",
            "h100-sxm5-80gb",
            vec!["box.gpus.kind", "a card", "h100-pcie-80gb"],
        ),
        ("count = 4", "count = 0", vec!["gpus.count", "0", "1 to"]),
        ("slots = 2", "slots = 0", vec!["host.slots", "0", "1 to 256"]),
        (
            "slots = 2",
            "boxes = [\"box-9\"]",
            vec!["host.boxes", "box-9", "box-1"],
        ),
        (
            "slots = 2",
            "soldered = { kind = \"l40s-48gb\", count = 1 }",
            vec!["soldered.kind", "a module"],
        ),
        ("name = \"t\"", "name = \"a b\"", vec!["name", "a b", "letters"]),
        (
            "[[box]]",
            "[latency]\nbind = \"soon\"\n[[box]]",
            vec!["soon", "20ms"],
        ),
        (
            "[[box]]",
            "[latency]\nbind = \"2h\"\n[[box]]",
            vec!["latency.bind", "7200s", "1h"],
        ),
        (
            "[[box]]",
            "[[box]]\ngpu_link = { generation = 9, lanes = 16 }",
            vec!["generation", "9", "1 to 6"],
        ),
        (
            "[[box]]",
            "[[prebound]]\ngpu = \"box-1/gpu-9\"\nport = \"host-1/port-1\"\n[[box]]",
            vec!["prebound.gpu", "box-1/gpu-9"],
        ),
        (
            "[[box]]",
            "[[prebound]]\ngpu = \"box-1/gpu-1\"\nport = \"host-1/port-2\"\n[[box]]",
            vec!["prebound.port", "host-1/port-2"],
        ),
        (
            "[[box]]",
            "[[fault]]\ndoes = \"explode\"\n[[box]]",
            vec!["explode", "time-out-before"],
        ),
        (
            "[[box]]",
            "[[fault]]\nendpoint = \"box-7\"\ndoes = \"html\"\n[[box]]",
            vec!["fault.endpoint", "box-7", "host-1-bmc"],
        ),
        (
            "[[box]]",
            "[[fault]]\ndoes = { vanish = { gpu = \"gpu-1\" } }\n[[box]]",
            vec!["vanish", "gpu-1", "box-1/gpu-3"],
        ),
        (
            "[[box]]",
            "[options]\nsession_idle = \"1s\"\n[[box]]",
            vec!["session_idle", "30s to 24h"],
        ),
    ] {
        let error = Rack::from_toml("my.toml", &SMALL.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("my.toml: "), "{error}");
        for part in expected {
            assert!(error.contains(part), "{part} in: {error}");
        }
    }
}

#[test]
fn a_card_runs_no_faster_than_its_slot() {
    let text = SMALL.replace("[[box]]", "[[box]]\ngpu_link = { generation = 3, lanes = 8 }");
    let rack = Rack::from_toml("t", &text).unwrap();
    let link = rack.gpus[0].link;
    assert_eq!(link.generation.map(|g| g.number()), Some(3));
    assert_eq!(link.lanes.map(|lanes| lanes.0), Some(8));
}
