//! Ports of devices that are no switches: how many there are, not what each is like. That costs one request a
//! device, and what they are cabled to is told by the switches.

use super::gpu;
use super::walk::Walk;
use crate::southbound::links;
use futures_util::future::join_all;
use poolwright_model::topology::DeviceKind;
use poolwright_redfish_model as redfish;
use std::collections::BTreeSet;

/// A device, and how many ports it lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DevicePortsSeen {
    pub(crate) path: String,
    pub(crate) kind: DeviceKind,
    pub(crate) ports: usize,
}

/// Of processors that have ports: GPUs with NVLinks, FPGAs.
pub(crate) async fn of_processors(
    walk: &Walk<'_>,
    processors: &[(String, redfish::Processor)],
) -> Vec<DevicePortsSeen> {
    let with_ports = processors
        .iter()
        .filter_map(|(path, processor)| Some((path, processor, links::to(processor.ports.as_ref())?)));
    let seen = with_ports.map(async |(path, processor, ports)| DevicePortsSeen {
        path: path.clone(),
        kind: match gpu::is_of_type(processor, "GPU") {
            true => DeviceKind::Gpu,
            false => DeviceKind::Processor,
        },
        ports: walk.member_paths(ports).await.len(),
    });
    join_all(seen).await
}

/// Of network adapters. What an adapter's controllers list need not be asked for.
pub(crate) async fn of_adapters(walk: &Walk<'_>, collection: Option<&str>) -> Vec<DevicePortsSeen> {
    let Some(collection) = collection else {
        return Vec::new();
    };
    let adapters = walk.leaves::<redfish::NetworkAdapter>(collection).await.read;
    let seen = adapters.iter().map(async |(path, adapter)| {
        let ports = match (
            listed(adapter),
            adapter.ports.as_ref().or(adapter.network_ports.as_ref()),
        ) {
            (0, Some(ports)) => match links::to(Some(ports)) {
                Some(ports) => walk.member_paths(ports).await.len(),
                None => 0,
            },
            (listed, _) => listed,
        };
        DevicePortsSeen {
            path: path.clone(),
            kind: DeviceKind::NetworkAdapter,
            ports,
        }
    });
    join_all(seen).await
}

/// The ports of all its controllers, each once. Those of older services are called network ports.
fn listed(adapter: &redfish::NetworkAdapter) -> usize {
    let links = adapter
        .controllers
        .iter()
        .flatten()
        .filter_map(|controller| controller.links.as_deref());
    let ports = links.flat_map(|links| match links::all(links.ports.as_ref()) {
        ports if ports.is_empty() => links::all(links.network_ports.as_ref()),
        ports => ports,
    });
    ports.collect::<BTreeSet<String>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_adapters_ports_are_those_of_its_controllers_each_once() {
        let port = |name: &str| json!({"@odata.id": format!("/a/Ports/{name}")});
        let adapter = json!({"Controllers": [
            {"Links": {"Ports": [port("1"), port("2")]}},
            {"Links": {"Ports": [port("2"), port("3")]}},
        ]});
        assert_eq!(listed(&serde_json::from_value(adapter).unwrap()), 3);
        let older = json!({"Controllers": [{"Links": {"NetworkPorts": [port("1")]}}]});
        assert_eq!(listed(&serde_json::from_value(older).unwrap()), 1);
        assert_eq!(listed(&serde_json::from_value(json!({})).unwrap()), 0);
    }
}
