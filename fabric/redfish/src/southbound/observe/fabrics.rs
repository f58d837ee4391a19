//! Fabrics: switches with their ports, endpoints, zones and connections.

use super::switches::{self, SwitchSeen};
use super::walk::{Members, Walk};
use super::words;
use crate::southbound::links;
use futures_util::future::join_all;
use poolwright_model::control::ControlStyle;
use poolwright_model::id::FabricId;
use poolwright_redfish_model as redfish;
use poolwright_redfish_model::resource::Resource;

#[derive(Debug, Clone)]
pub(crate) struct FabricSeen {
    pub(crate) id: FabricId,
    /// `PCIe`, `NVLink`, `CXL`…
    pub(crate) kind: String,
    pub(crate) switches: Vec<SwitchSeen>,
    pub(crate) endpoints: Vec<EndpointSeen>,
    pub(crate) zones: Vec<ZoneSeen>,
    pub(crate) connections: Vec<ConnectionSeen>,
    /// Whether there is a collection in which connections can be made.
    pub(crate) offers_connections: bool,
    pub(crate) counts: Counts,
}

/// What the manager publishes, what can't be read included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) switches: usize,
    pub(crate) ports: usize,
    pub(crate) endpoints: usize,
    pub(crate) zones: usize,
    pub(crate) connections: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSeen {
    pub(crate) path: String,
    pub(crate) name: String,
    /// A host's end.
    pub(crate) is_initiator: bool,
    /// Addresses of what it stands for.
    pub(crate) entities: Vec<String>,
    /// Names of what it stands for: the host's UUID, a GPU's UUID.
    pub(crate) entity_uuids: Vec<String>,
    /// Its own durable name: the adapter's.
    pub(crate) uuid: Option<String>,
    pub(crate) ports: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ZoneSeen {
    pub(crate) path: String,
    /// A zone made of endpoints on purpose; the default zone binds nothing.
    pub(crate) is_of_endpoints: bool,
    pub(crate) endpoints: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionSeen {
    pub(crate) initiators: Vec<String>,
    pub(crate) targets: Vec<String>,
}

pub(crate) async fn read(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Vec<FabricSeen> {
    let Some(collection) = links::to(root.fabrics.as_ref()) else {
        return Vec::new();
    };
    let members = walk.members::<redfish::Fabric>(collection).await.read;
    join_all(members.iter().map(|(path, fabric)| read_one(walk, path, fabric))).await
}

async fn read_one(walk: &Walk<'_>, path: &str, fabric: &redfish::Fabric) -> FabricSeen {
    let ((switches, counts), endpoints, zones, connections) = tokio::join!(
        switches::read_switches(walk, fabric.switches.as_ref()),
        leaves::<redfish::Endpoint>(walk, fabric.endpoints.as_ref()),
        leaves::<redfish::Zone>(walk, fabric.zones.as_ref()),
        leaves::<redfish::Connection>(walk, fabric.connections.as_ref()),
    );
    let id = fabric.id.as_deref().unwrap_or_else(|| links::last_part(path));
    FabricSeen {
        id: FabricId::from_lossy(id),
        kind: fabric
            .fabric_type
            .as_ref()
            .map_or("unknown".into(), ToString::to_string),
        counts: Counts {
            endpoints: endpoints.listed,
            zones: zones.listed,
            connections: connections.listed,
            ..counts
        },
        switches,
        endpoints: endpoints
            .read
            .iter()
            .map(|(path, endpoint)| EndpointSeen::of(path, endpoint))
            .collect(),
        zones: zones
            .read
            .iter()
            .map(|(path, zone)| ZoneSeen::of(path, zone))
            .collect(),
        connections: connections
            .read
            .iter()
            .map(|(_, connection)| ConnectionSeen::of(connection))
            .collect(),
        offers_connections: fabric.connections.is_some(),
    }
}

/// What is listed in a fabric and leads to nothing else that is read.
pub(crate) async fn leaves<T: Resource>(walk: &Walk<'_>, link: Option<&redfish::Ref>) -> Members<T> {
    match links::to(link) {
        Some(path) => walk.leaves(path).await,
        None => Members::none(),
    }
}

impl FabricSeen {
    /// How things are bound in it, as far as it can be told from what is there. Only PCIe fabrics are bound:
    /// a zone or connection of another protocol gives a host memory or a network, not a GPU.
    pub(crate) fn style(&self) -> ControlStyle {
        let zone_of_a_host =
            |zone: &ZoneSeen| zone.is_of_endpoints && self.initiators_of(zone).next().is_some();
        match self.kind.as_str() {
            "PCIe" if self.offers_connections && !self.connections.is_empty() => ControlStyle::Connections,
            "PCIe" if self.zones.iter().any(zone_of_a_host) => ControlStyle::Zones,
            "PCIe" if self.offers_connections => ControlStyle::Connections,
            _ => ControlStyle::ReadOnly,
        }
    }

    pub(crate) fn endpoint(&self, path: &str) -> Option<&EndpointSeen> {
        self.endpoints.iter().find(|endpoint| endpoint.path == path)
    }

    /// The hosts' ends in a zone.
    pub(crate) fn initiators_of<'a>(&'a self, zone: &'a ZoneSeen) -> impl Iterator<Item = &'a EndpointSeen> {
        zone.endpoints
            .iter()
            .filter_map(|path| self.endpoint(path))
            .filter(|endpoint| endpoint.is_initiator)
    }
}

impl EndpointSeen {
    pub(crate) fn of(path: &str, endpoint: &redfish::Endpoint) -> Self {
        use redfish::{EndpointEntityRole as Role, EndpointEntityType as Type};
        let links = endpoint.links.as_deref();
        let entities = || endpoint.connected_entities.iter().flatten();
        let mut ports = links::all(links.and_then(|l| l.connected_ports.as_ref()));
        ports.extend(links::all(links.and_then(|l| l.ports.as_ref())));
        Self {
            path: path.to_owned(),
            name: endpoint
                .name
                .as_deref()
                .unwrap_or_else(|| links::last_part(path))
                .to_owned(),
            is_initiator: entities().any(|entity| match &entity.entity_role {
                Some(Role::Initiator) => true,
                Some(Role::Target) => false,
                _ => entity.entity_type == Some(Type::RootComplex),
            }),
            entities: entities()
                .filter_map(|entity| links::to(entity.entity_link.as_ref()).map(str::to_owned))
                .collect(),
            entity_uuids: entities()
                .flat_map(|entity| uuids(entity.identifiers.as_ref()))
                .collect(),
            uuid: uuids(endpoint.identifiers.as_ref()).into_iter().next(),
            ports,
        }
    }
}

/// The durable names that are UUIDs, lower case.
pub(crate) fn uuids(identifiers: Option<&Vec<redfish::Identifier>>) -> Vec<String> {
    identifiers
        .into_iter()
        .flatten()
        .filter(|identifier| {
            matches!(
                identifier.durable_name_format,
                None | Some(redfish::DurableNameFormat::UUID)
            )
        })
        .filter_map(|identifier| {
            let name = identifier.durable_name.as_deref();
            words::uuid(name.map(|name| name.trim_start_matches("GPU-")))
        })
        .collect()
}

impl ZoneSeen {
    pub(crate) fn of(path: &str, zone: &redfish::Zone) -> Self {
        Self {
            path: path.to_owned(),
            is_of_endpoints: matches!(zone.zone_type, None | Some(redfish::ZoneType::ZoneOfEndpoints)),
            endpoints: links::all(zone.links.as_deref().and_then(|l| l.endpoints.as_ref())),
        }
    }
}

impl ConnectionSeen {
    pub(crate) fn of(connection: &redfish::Connection) -> Self {
        let links = connection.links.as_deref();
        Self {
            initiators: links::all(links.and_then(|l| l.initiator_endpoints.as_ref())),
            targets: links::all(links.and_then(|l| l.target_endpoints.as_ref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fabric(kind: &str, zones: Vec<ZoneSeen>, connections: Option<Vec<ConnectionSeen>>) -> FabricSeen {
        let host = EndpointSeen {
            path: "/host".into(),
            is_initiator: true,
            ..EndpointSeen::default()
        };
        let gpu = EndpointSeen {
            path: "/gpu".into(),
            ..EndpointSeen::default()
        };
        FabricSeen {
            id: FabricId::from_lossy("f"),
            kind: kind.into(),
            switches: vec![],
            endpoints: vec![host, gpu],
            zones,
            offers_connections: connections.is_some(),
            connections: connections.unwrap_or_default(),
            counts: Counts::default(),
        }
    }

    #[test]
    fn how_a_fabric_binds_is_told_by_what_is_there() {
        let zone = |of_endpoints, endpoint: &str| ZoneSeen {
            path: "/z".into(),
            is_of_endpoints: of_endpoints,
            endpoints: vec![endpoint.into()],
        };
        let used = vec![ConnectionSeen {
            initiators: vec!["/host".into()],
            targets: vec!["/gpu".into()],
        }];
        for (kind, zones, connections, style) in [
            ("PCIe", vec![zone(true, "/host")], None, ControlStyle::Zones),
            ("PCIe", vec![], Some(vec![]), ControlStyle::Connections),
            // Zones say who may, connections who does.
            (
                "PCIe",
                vec![zone(true, "/host")],
                Some(used.clone()),
                ControlStyle::Connections,
            ),
            (
                "PCIe",
                vec![zone(true, "/host")],
                Some(vec![]),
                ControlStyle::Zones,
            ),
            ("PCIe", vec![zone(true, "/gpu")], None, ControlStyle::ReadOnly),
            ("PCIe", vec![zone(false, "/host")], None, ControlStyle::ReadOnly),
            ("PCIe", vec![], None, ControlStyle::ReadOnly),
            (
                "CXL",
                vec![zone(true, "/host")],
                Some(used),
                ControlStyle::ReadOnly,
            ),
        ] {
            assert_eq!(fabric(kind, zones, connections).style(), style);
        }
    }

    #[test]
    fn a_hosts_end_is_an_initiator_or_a_root_complex() {
        let endpoint = |entity: serde_json::Value| {
            let endpoint = json!({"ConnectedEntities": [entity]});
            EndpointSeen::of("/e", &serde_json::from_value(endpoint).unwrap())
        };
        let uuid = "86D53A7B-D29A-3287-BA23-EF43A27BC6B9";
        let host = endpoint(json!({"EntityType": "RootComplex", "EntityRole": "Initiator",
            "Identifiers": [{"DurableNameFormat": "UUID", "DurableName": uuid}]}));
        assert!(host.is_initiator);
        assert_eq!(host.entity_uuids, [uuid.to_lowercase()]);
        assert!(endpoint(json!({"EntityType": "RootComplex"})).is_initiator);
        assert!(!endpoint(json!({"EntityType": "Processor", "EntityRole": "Target"})).is_initiator);
        assert!(!endpoint(json!({"EntityType": "Processor"})).is_initiator);
    }
}
