//! What chassis are called where several endpoints call theirs the same.

use jiff::Timestamp;
use poolwright_inventory::{Knowledge, PciNames, View, merge, remember};
use poolwright_model::id::ControlEndpointId;
use poolwright_model::profile::Profiles;
use poolwright_model::topology::Topology;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A chassis as one endpoint shows it.
#[derive(Debug, Clone)]
struct Shown {
    endpoint: &'static str,
    chassis: &'static str,
    gpus: usize,
    switch: bool,
}

impl Shown {
    /// Serial numbers and names that nothing else has.
    fn things(&self) -> BTreeSet<String> {
        let of = format!("{}-{}", self.endpoint, self.chassis);
        let gpus = (0..self.gpus).map(|n| format!("gpu-{of}-{n}"));
        gpus.chain(self.switch.then(|| format!("switch-{of}"))).collect()
    }
}

fn view(endpoint: &str, shown: &[Shown]) -> View {
    let mut topology = json!({ "gpus": [], "hosts": [], "fabrics": [], "switches": [] });
    for (shown, thing) in shown
        .iter()
        .flat_map(|shown| shown.things().into_iter().map(move |thing| (shown, thing)))
    {
        let (list, one): (_, Value) = match thing.starts_with("gpu-") {
            true => (
                "gpus",
                json!({
                    "id": thing, "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": thing,
                    "pci_ids": null, "chassis": shown.chassis, "slot": thing, "functions": [], "partitions": [],
                    "ports": [], "unit": thing, "composable": true, "why_not": null, "host": null, "host_port": null,
                    "state": "free", "health": "ok",
                }),
            ),
            false => (
                "switches",
                json!({
                    "id": thing, "fabric": "PCIe", "model": null, "chassis": shown.chassis, "ports": [],
                }),
            ),
        };
        topology[list].as_array_mut().unwrap().push(one);
    }
    View {
        source: ControlEndpointId::new(endpoint).unwrap(),
        at: Timestamp::UNIX_EPOCH,
        topology: serde_json::from_value(topology).unwrap(),
        faults: vec![],
    }
}

fn joined(shown: &[Shown], last: &Topology) -> Topology {
    let endpoints: BTreeSet<&str> = shown.iter().map(|shown| shown.endpoint).collect();
    let view = |endpoint: &&str| {
        let of_it: Vec<Shown> = shown
            .iter()
            .filter(|s| s.endpoint == *endpoint)
            .cloned()
            .collect();
        view(endpoint, &of_it)
    };
    let names = PciNames::builtin();
    let profiles = Profiles::builtin();
    let knowledge = Knowledge {
        profiles,
        names: &names,
    };
    merge(endpoints.iter().map(view).collect(), Some(last), knowledge).topology
}

/// The contents of each chassis.
fn contents(topology: &Topology) -> BTreeMap<String, BTreeSet<String>> {
    let gpus = topology
        .gpus
        .iter()
        .map(|gpu| (&gpu.chassis, gpu.serial.clone().unwrap()));
    let switches = topology
        .switches
        .iter()
        .map(|switch| (&switch.chassis, switch.id.to_string()));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (chassis, thing) in gpus.chain(switches) {
        let id = chassis.as_ref().unwrap().to_string();
        found.entry(id).or_default().insert(thing);
    }
    found
}

const FIRST: Shown = Shown {
    endpoint: "box-b",
    chassis: "Self",
    gpus: 2,
    switch: true,
};

#[test]
fn a_box_that_calls_its_chassis_as_the_first_one_does_takes_it_no_name_away() {
    let second = Shown {
        endpoint: "box-a",
        gpus: 1,
        ..FIRST
    };
    let mut known = Topology::default();
    let alone = joined(&[FIRST], &known);
    let only = BTreeMap::from([("Self".to_owned(), FIRST.things())]);
    assert_eq!(contents(&alone), only);
    remember(&mut known, &alone);

    let both = joined(&[FIRST, second.clone()], &known);
    let mut expected = only;
    expected.insert("box-a:Self".to_owned(), second.things());
    assert_eq!(
        contents(&both),
        expected,
        "each with its switch, and none beside them"
    );
    remember(&mut known, &both);

    assert_eq!(joined(&[FIRST], &known), alone, "the second is gone again");
    // Nor does it take the name where the first one is silent.
    assert!(contents(&joined(&[second], &known)).contains_key("box-a:Self"));
}

/// The format of earlier versions: without the endpoint of a chassis.
#[test]
fn a_chassis_whose_endpoint_was_not_kept_is_called_as_it_was() {
    let mut known = Topology::default();
    let seen = joined(&[FIRST], &known);
    remember(&mut known, &seen);
    known.chassis.clear();
    let again = joined(&[FIRST], &known);
    assert!(contents(&again).contains_key("Self"));
    assert!(
        remember(&mut known, &again),
        "from now on it is known whose it is"
    );
    assert!(!remember(&mut known, &again));
}

const ENDPOINTS: [&str; 4] = ["a", "b", "c", "d"];
const NAMES: [&str; 3] = ["1", "Self", "box"];

fn any_chassis() -> impl Strategy<Value = Vec<Shown>> {
    let one = (0usize..3, any::<bool>());
    proptest::collection::vec(one, ENDPOINTS.len() * NAMES.len()).prop_map(|all| {
        let places = ENDPOINTS
            .iter()
            .flat_map(|endpoint| NAMES.iter().map(move |name| (endpoint, name)));
        let shown = places
            .zip(all)
            .map(|((endpoint, chassis), (gpus, switch))| Shown {
                endpoint,
                chassis,
                gpus,
                switch,
            });
        shown.filter(|shown| !shown.things().is_empty()).collect()
    })
}

proptest! {
    /// Endpoints come, become unreachable and come back: the topology has exactly the chassis that an endpoint shows,
    /// each with its contents, and their ids never change.
    #[test]
    fn no_chassis_appears_that_nobody_shows(all in any_chassis(), seen in proptest::collection::vec(0usize..16, 1..8)) {
        let mut known = Topology::default();
        let mut called: BTreeMap<BTreeSet<String>, String> = BTreeMap::new();
        for answer in seen {
            let answers = |endpoint: &str| {
                let place = ENDPOINTS.iter().position(|one| *one == endpoint).unwrap();
                answer >> place & 1 == 1
            };
            let shown: Vec<Shown> = all.iter().filter(|shown| answers(shown.endpoint)).cloned().collect();
            let merged = joined(&shown, &known);
            let found = contents(&merged);
            let expected: BTreeSet<_> = shown.iter().map(Shown::things).collect();
            prop_assert_eq!(found.len(), expected.len(), "{:?}", found);
            prop_assert_eq!(found.values().cloned().collect::<BTreeSet<_>>(), expected);
            let told: BTreeSet<String> = merged.chassis.iter().map(|chassis| chassis.id.to_string()).collect();
            prop_assert_eq!(told, found.keys().cloned().collect::<BTreeSet<_>>());
            for (id, things) in found {
                let first = called.entry(things).or_insert_with(|| id.clone());
                prop_assert_eq!(&*first, &id);
            }
            remember(&mut known, &merged);
        }
    }
}
