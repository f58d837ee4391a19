//! The second client before racks that are right, and before files that are wrong.

use super::*;
use poolwright_emulator::rack::{GpuIx, PortIx};
use poolwright_emulator::{Rack, ServeOptions, Served, serve, serve_recording};
use serde_json::{Value, json};

fn seen(gpu: &str, host: &str, group: &str) -> Seen {
    (gpu.to_owned(), host.to_owned(), (0, group.to_owned()))
}

#[test]
fn a_gpu_at_two_hosts_is_noticed() {
    let sights = [
        seen("a", "host-1", "zone-1"),
        seen("b", "host-1", "zone-1"),
        seen("a", "host-2", "zone-2"),
        // Two ports of one host.
        seen("b", "host-1", "zone-3"),
    ];
    assert_eq!(twice_seen(&sights), BTreeSet::from([&sights[0]]));
    assert!(twice_seen(&sights[..2]).is_empty());
}

#[tokio::test]
async fn it_sees_what_is_bound_in_each_of_the_three_ways() {
    // Whoever was first installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    for name in ["zones", "connections", "blocks"] {
        let rack = serve(Rack::builtin(name).unwrap(), ServeOptions::default())
            .await
            .unwrap();
        let auditor = Auditor::begin(&rack).await.unwrap();
        let parts = rack.emulation().rack().clone();
        assert_eq!(
            (auditor.gpus(), auditor.hosts()),
            (parts.gpus.len(), parts.hosts.len()),
            "{name}"
        );

        let truth = || {
            rack.emulation().with(|state, _| {
                let named = state.bindings().map(|(gpu, at)| {
                    let host = &parts[parts[at.port].host];
                    (parts[gpu].serial.clone(), host.uuid.to_string())
                });
                named.collect::<BTreeSet<Binding>>()
            })
        };
        assert_eq!(auditor.look().await.unwrap(), truth(), "{name}");
        assert_eq!((auditor.foreign(), auditor.moved()), (&truth(), 0), "{name}");
        let before = truth().len();
        let bound = rack.emulation().with(|state, now| {
            let places =
                (0..parts.gpus.len()).flat_map(|gpu| (0..parts.ports.len()).map(move |port| (gpu, port)));
            places
                .into_iter()
                .any(|(gpu, port)| state.bind_by_others(GpuIx(gpu), PortIx(port), now).is_ok())
        });
        assert!(bound, "{name}");
        assert_eq!(truth().len(), before + 1);
        assert_eq!(auditor.look().await.unwrap(), truth(), "{name}");
        assert_eq!((auditor.moved(), auditor.moved()), (1, 0), "{name}");
        assert!(auditor.double_owned().is_empty());
        auditor.end().await.unwrap();
        rack.stop().await;
    }
}

/// A fabric of two hosts and two GPUs, as files that can be changed under a server that reads them.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write("", json!({ "Fabrics": link("Fabrics") }));
        tree.write("Fabrics", members(&["Fabrics/F"]));
        tree.write(
            "Fabrics/F",
            json!({ "Endpoints": link("Endpoints"), "Zones": link("Zones") }),
        );
        tree.write(
            "Endpoints",
            members(&["Endpoints/h1", "Endpoints/h2", "Endpoints/g1", "Endpoints/g2"]),
        );
        tree.write("Zones", members(&["Zones/z1", "Zones/z2"]));
        for number in [1, 2] {
            let host = json!({ "EntityRole": "Initiator", "Identifiers": [{ "DurableName": format!("u{number}") }] });
            tree.write(
                &format!("Endpoints/h{number}"),
                json!({ "ConnectedEntities": [host] }),
            );
            let gpu = json!({ "EntityRole": "Target", "EntityLink": link(&format!("Processors/{number}")) });
            tree.write(
                &format!("Endpoints/g{number}"),
                json!({ "ConnectedEntities": [gpu] }),
            );
            tree.write(
                &format!("Processors/{number}"),
                json!({ "SerialNumber": format!("s{number}") }),
            );
            tree.zone(number, &[]);
        }
        tree
    }

    /// Says which GPUs are in a host's zone.
    fn zone(&self, host: u8, gpus: &[u8]) {
        let gpus = gpus.iter().map(|gpu| link(&format!("Endpoints/g{gpu}")));
        let ends: Vec<Value> = [link(&format!("Endpoints/h{host}"))]
            .into_iter()
            .chain(gpus)
            .collect();
        self.write(
            &format!("Zones/z{host}"),
            json!({ "Links": { "Endpoints": ends } }),
        );
    }

    /// Whole or not at all: the client may be reading.
    fn write(&self, below: &str, document: Value) {
        let folder = self.0.path().join("redfish/v1").join(below);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("new"), document.to_string()).unwrap();
        std::fs::rename(folder.join("new"), folder.join("index.json")).unwrap();
    }

    async fn serve(&self) -> Served {
        // Whoever was first installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        serve_recording(self.0.path(), ServeOptions::default())
            .await
            .unwrap()
    }
}

impl<'a> From<&'a Served> for Door<'a> {
    fn from(served: &'a Served) -> Self {
        Self {
            ca_pem: served.ca_pem(),
            username: served.username(),
            password: served.password(),
            endpoints: served.endpoints(),
        }
    }
}

fn link(below: &str) -> Value {
    json!({ "@odata.id": format!("/redfish/v1/{below}") })
}

fn members(of: &[&str]) -> Value {
    json!({ "Members": of.iter().map(|one| link(one)).collect::<Vec<_>>() })
}

fn binding(gpu: &str, host: &str) -> Binding {
    (gpu.to_owned(), host.to_owned())
}

#[tokio::test]
async fn a_gpu_in_the_zones_of_two_hosts_is_counted_and_never_forgotten() {
    let tree = Tree::new();
    tree.zone(1, &[1, 2]);
    let served = tree.serve().await;
    let auditor = Auditor::begin(&served).await.unwrap();
    assert!(auditor.double_owned().is_empty());

    tree.zone(2, &[1]);
    let both = BTreeSet::from([binding("s1", "u1"), binding("s2", "u1"), binding("s1", "u2")]);
    assert_eq!(auditor.look().await.unwrap(), both);
    assert_eq!(auditor.double_owned(), BTreeSet::from(["s1".to_owned()]));

    tree.zone(1, &[2]);
    auditor.look().await.unwrap();
    assert_eq!(auditor.double_owned(), BTreeSet::from(["s1".to_owned()]));
    auditor.end().await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_gpu_that_moved_during_a_look_had_one_host() {
    let tree = Tree::new();
    tree.zone(2, &[1]);
    let served = tree.serve().await;
    let view = RackView::read(Door::from(&served)).await.unwrap();
    let now = view.bindings().await.unwrap();
    // It was in the first zone when that was read, and in the second when that was.
    let before = (
        "s1".to_owned(),
        "u1".to_owned(),
        (0, "/redfish/v1/Zones/z1".to_owned()),
    );
    let seen = [vec![before], now].concat();
    assert_eq!(twice_seen(&seen).len(), 1);
    assert!(doubly_owned(&view, &seen).await.unwrap().is_empty());
    served.stop().await;
}

#[tokio::test]
async fn what_stays_bound_is_leaked_but_for_what_was_there_before() {
    let tree = Tree::new();
    tree.zone(2, &[2]);
    let served = tree.serve().await;
    let auditor = Auditor::begin(&served).await.unwrap();
    let left = auditor.left().await.unwrap();
    assert!(left.leaked.is_empty() && left.gone.is_empty(), "{left:?}");

    tree.zone(1, &[1]);
    let left = auditor.left().await.unwrap();
    assert_eq!(left.leaked, BTreeSet::from([binding("s1", "u1")]));
    assert!(left.gone.is_empty(), "{left:?}");

    tree.zone(1, &[]);
    tree.zone(2, &[]);
    let left = auditor.left().await.unwrap();
    assert!(left.leaked.is_empty(), "{left:?}");
    assert_eq!(left.gone, BTreeSet::from([binding("s2", "u2")]));
    auditor.end().await.unwrap();
    served.stop().await;
}
