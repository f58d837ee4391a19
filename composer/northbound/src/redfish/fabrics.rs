//! Fabrics: switches with their ports, an endpoint for each host port and each GPU, and a zone for each host port with
//! what is bound to it.

use super::pool::{EndpointOf, Pool};
use super::{status, uri};
use poolwright_model::topology::{Gpu, Health, Host, HostPort, PortRole, SwitchPort};
use poolwright_redfish_model::{
    Collection, DurableNameFormat, Endpoint, EndpointCollection, EndpointConnectedEntity, EndpointEntityRole,
    EndpointEntityType, EndpointLinks, Fabric, FabricCollection, FabricLinks, Identifier, Port,
    PortCollection, PortLinkState, PortLinkStatus, PortType, Protocol, Ref, Resource, State, Switch,
    SwitchCollection, SwitchLinks, Zone, ZoneCollection, ZoneLinks, ZoneType,
};

pub(crate) fn all(pool: &Pool) -> FabricCollection {
    let members = uri::links(pool.fabrics.iter().map(uri::fabric));
    FabricCollection::of(uri::at("Fabrics"), "Fabrics", members)
}

pub(crate) fn one(pool: &Pool, name: &str) -> Option<Fabric> {
    let (_, fabric) = pool.fabric(name)?;
    let below = |what: &str| Some(Ref::to(format!("{}/{what}", uri::fabric(name))));
    Some(Fabric {
        id: Some(name.into()),
        name: Some(fabric.id.to_string()),
        fabric_type: Some(protocol(&fabric.kind)),
        status: status::enabled(),
        switches: below("Switches"),
        endpoints: below("Endpoints"),
        zones: below("Zones"),
        connections: below("Connections"),
        links: Some(Box::new(FabricLinks {
            managed_by: Some(uri::links([uri::at("Managers/Poolwright")])),
            ..FabricLinks::default()
        })),
        ..Fabric::at(uri::fabric(name))
    })
}

/// What the fabric's own manager calls it; PCIe where that is no word of Redfish's.
fn protocol(kind: &str) -> Protocol {
    match Protocol::from(kind) {
        Protocol::Unrecognized(_) => Protocol::PCIe,
        known => known,
    }
}

pub(crate) fn switches(pool: &Pool, fabric: &str) -> Option<SwitchCollection> {
    let (index, _) = pool.fabric(fabric)?;
    let members = pool
        .switches
        .get(index)?
        .0
        .iter()
        .map(|name| uri::switch(fabric, name));
    let place = format!("{}/Switches", uri::fabric(fabric));
    Some(SwitchCollection::of(
        place,
        format!("Switches of {fabric}"),
        uri::links(members),
    ))
}

pub(crate) fn switch(pool: &Pool, fabric: &str, name: &str) -> Option<Switch> {
    let (index, of) = pool.fabric(fabric)?;
    let switch = pool.switch(index, name)?;
    let chassis = switch.chassis.as_ref().and_then(|id| pool.chassis_name(id));
    Some(Switch {
        id: Some(name.into()),
        name: Some(switch.name.clone().unwrap_or_else(|| switch.id.to_string())),
        model: switch.model.clone(),
        switch_type: Some(protocol(&of.kind)),
        status: status::enabled(),
        ports: Some(Ref::to(format!("{}/Ports", uri::switch(fabric, name)))),
        links: Some(Box::new(SwitchLinks {
            chassis: chassis.map(|name| Ref::to(uri::chassis(name))),
            managed_by: Some(uri::links([uri::at("Managers/Poolwright")])),
            ..SwitchLinks::default()
        })),
        ..Switch::at(uri::switch(fabric, name))
    })
}

pub(crate) fn ports(pool: &Pool, fabric: &str, switch: &str) -> Option<PortCollection> {
    let (index, _) = pool.fabric(fabric)?;
    let found = pool.switch(index, switch)?;
    let place = format!("{}/Ports", uri::switch(fabric, switch));
    let members = names_of(&found.ports)
        .iter()
        .map(|name| format!("{place}/{name}"))
        .collect::<Vec<_>>();
    Some(PortCollection::of(
        place,
        format!("Ports of {switch}"),
        uri::links(members),
    ))
}

fn names_of(ports: &[SwitchPort]) -> super::names::Names {
    super::names::Names::of(ports.iter().map(|port| port.id.as_str()))
}

pub(crate) fn port(pool: &Pool, fabric: &str, switch: &str, name: &str) -> Option<Port> {
    let (index, of) = pool.fabric(fabric)?;
    let ports = &pool.switch(index, switch)?.ports;
    let port = ports.get(names_of(ports).find(name)?)?;
    let up = |up: PortLinkStatus, down: PortLinkStatus| port.up.map(|is| if is { up } else { down });
    Some(Port {
        id: Some(name.into()),
        name: Some(format!("Port {} of {switch}", port.id)),
        port_id: Some(port.id.to_string()),
        port_protocol: Some(protocol(&of.kind)),
        port_type: match port.role {
            PortRole::Upstream => Some(PortType::UpstreamPort),
            PortRole::Downstream => Some(PortType::DownstreamPort),
            PortRole::Interswitch => Some(PortType::InterswitchPort),
            PortRole::Management => Some(PortType::ManagementPort),
            PortRole::Unknown => None,
        },
        active_width: status::lanes(port.link),
        link_state: Some(PortLinkState::Enabled),
        link_status: up(PortLinkStatus::LinkUp, PortLinkStatus::LinkDown),
        status: status::status(
            State::Enabled,
            port.up.map(|_| poolwright_redfish_model::Health::OK),
        ),
        ..Port::at(format!("{}/Ports/{name}", uri::switch(fabric, switch)))
    })
}

pub(crate) fn endpoints(pool: &Pool, fabric: &str) -> Option<EndpointCollection> {
    let (index, _) = pool.fabric(fabric)?;
    let members = pool
        .endpoints
        .get(index)?
        .names
        .iter()
        .map(|name| uri::endpoint(fabric, name));
    let place = format!("{}/Endpoints", uri::fabric(fabric));
    Some(EndpointCollection::of(
        place,
        format!("Endpoints of {fabric}"),
        uri::links(members),
    ))
}

pub(crate) fn endpoint(pool: &Pool, fabric: &str, name: &str) -> Option<Endpoint> {
    let (index, of) = pool.fabric(fabric)?;
    let endpoints = pool.endpoints.get(index)?;
    let base = Endpoint {
        id: Some(name.into()),
        endpoint_protocol: Some(protocol(&of.kind)),
        ..Endpoint::at(uri::endpoint(fabric, name))
    };
    let zone = |port: Option<&str>| {
        let port = port.and_then(|id| endpoints.names.name(id));
        port.map(|port| uri::links([zone_at(fabric, port)]))
    };
    Some(match *endpoints.of.get(endpoints.names.find(name)?)? {
        EndpointOf::Port(host, port) => {
            let host = pool.topology().hosts.get(host)?;
            let port = host.ports.get(port)?;
            Endpoint {
                name: Some(format!("{} in {fabric}", host.name)),
                connected_entities: Some(vec![host_entity(pool, host)]),
                identifiers: port.uuid.as_ref().map(|uuid| vec![uuid_of(uuid)]),
                links: links(zone(Some(port.id.as_str()))),
                status: status::enabled(),
                ..base
            }
        }
        EndpointOf::Gpu(gpu) => {
            let gpu = pool.topology().gpus.get(gpu)?;
            Endpoint {
                name: Some(gpu.model.clone().unwrap_or_else(|| gpu.id.to_string())),
                connected_entities: Some(vec![gpu_entity(pool, gpu)]),
                links: links(zone(gpu.host_port.as_ref().map(|port| port.as_str()))),
                status: status::status(State::Enabled, status::health(gpu.health)),
                ..base
            }
        }
    })
}

fn links(zones: Option<Vec<Ref>>) -> Option<Box<EndpointLinks>> {
    Some(Box::new(EndpointLinks {
        zones,
        ..EndpointLinks::default()
    }))
}

fn uuid_of(uuid: &str) -> Identifier {
    Identifier {
        durable_name: Some(uuid.to_owned()),
        durable_name_format: Some(DurableNameFormat::UUID),
        ..Identifier::default()
    }
}

fn host_entity(pool: &Pool, host: &Host) -> EndpointConnectedEntity {
    EndpointConnectedEntity {
        entity_type: Some(EndpointEntityType::RootComplex),
        entity_role: Some(EndpointEntityRole::Initiator),
        entity_link: pool.system_of(&host.id).map(|name| Ref::to(uri::system(name))),
        ..EndpointConnectedEntity::default()
    }
}

fn gpu_entity(pool: &Pool, gpu: &Gpu) -> EndpointConnectedEntity {
    let device = || {
        let chassis = pool.chassis_name(gpu.chassis.as_ref()?)?;
        Some(Ref::to(uri::device(chassis, pool.gpus.name(gpu.id.as_str())?)))
    };
    EndpointConnectedEntity {
        entity_type: Some(EndpointEntityType::Processor),
        entity_role: Some(EndpointEntityRole::Target),
        entity_link: device(),
        ..EndpointConnectedEntity::default()
    }
}

fn zone_at(fabric: &str, port: &str) -> String {
    format!("{}/Zones/{port}", uri::fabric(fabric))
}

/// A zone has the name of its host port's endpoint.
pub(crate) fn zones(pool: &Pool, fabric: &str) -> Option<ZoneCollection> {
    let (index, _) = pool.fabric(fabric)?;
    let endpoints = pool.endpoints.get(index)?;
    let is_port = |(_, of): &(&str, &EndpointOf)| matches!(of, EndpointOf::Port(..));
    let ports = endpoints.names.iter().zip(&endpoints.of).filter(is_port);
    let members = uri::links(ports.map(|(name, _)| zone_at(fabric, name)));
    let place = format!("{}/Zones", uri::fabric(fabric));
    Some(ZoneCollection::of(place, format!("Zones of {fabric}"), members))
}

pub(crate) fn zone(pool: &Pool, fabric: &str, name: &str) -> Option<Zone> {
    let (index, _) = pool.fabric(fabric)?;
    let endpoints = pool.endpoints.get(index)?;
    let EndpointOf::Port(host, port) = *endpoints.of.get(endpoints.names.find(name)?)? else {
        return None;
    };
    let host = pool.topology().hosts.get(host)?;
    let port: &HostPort = host.ports.get(port)?;
    let bound = pool
        .gpus_at(&host.id)
        .filter(|gpu| gpu.host_port.as_ref() == Some(&port.id));
    let bound = bound.filter_map(|gpu| endpoints.names.name(gpu.id.as_str()));
    let members = std::iter::once(name)
        .chain(bound)
        .map(|name| uri::endpoint(fabric, name));
    Some(Zone {
        id: Some(name.into()),
        name: Some(format!("What {} has in {fabric}", host.name)),
        zone_type: Some(ZoneType::ZoneOfEndpoints),
        status: status::status(State::Enabled, status::health(Health::Ok)),
        links: Some(Box::new(ZoneLinks {
            endpoints: Some(uri::links(members)),
            ..ZoneLinks::default()
        })),
        ..Zone::at(zone_at(fabric, name))
    })
}
