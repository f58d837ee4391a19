//! What GPUs and host ports are called at their box, in each style: the same addresses as over Redfish.

use crate::rack::{BoxIx, GpuIx, PortIx, Rack, Style};
use crate::resources::{composition, endpoints, zones};
use http::Method;
use poolwright_model::control::ControlStyle;

pub(super) fn style(rack: &Rack) -> ControlStyle {
    match rack.style {
        Style::ResourceBlocks => ControlStyle::ResourceBlocks,
        Style::Zones => ControlStyle::Zones,
        Style::Connections => ControlStyle::Connections,
    }
}

pub(super) fn of_gpu(rack: &Rack, gpu: GpuIx) -> String {
    match rack.style {
        Style::ResourceBlocks => composition::gpu_block_uri(rack, gpu),
        Style::Zones | Style::Connections => endpoints::gpu_uri(rack, gpu),
    }
}

pub(super) fn of_port(rack: &Rack, port: PortIx) -> String {
    match rack.style {
        Style::ResourceBlocks => composition::host_block_uri(rack, port),
        Style::Zones => zones::zone_uri(rack, port),
        Style::Connections => endpoints::host_uri(rack, port),
    }
}

pub(super) fn gpu_at(rack: &Rack, of_box: BoxIx, address: &str) -> Option<GpuIx> {
    rack.gpus_of_box(of_box).find(|&gpu| of_gpu(rack, gpu) == address)
}

pub(super) fn port_at(rack: &Rack, of_box: BoxIx, address: &str) -> Option<PortIx> {
    rack[of_box]
        .ports
        .iter()
        .copied()
        .find(|&port| of_port(rack, port) == address)
}

/// The request by which a GPU is bound to a port.
pub(super) fn bind_request(rack: &Rack, port: PortIx) -> (Method, String) {
    match rack.style {
        Style::ResourceBlocks => (
            Method::PATCH,
            format!("/redfish/v1/Systems/{}", endpoints::port_id(rack, port)),
        ),
        Style::Zones => (Method::PATCH, zones::zone_uri(rack, port)),
        Style::Connections => (Method::POST, crate::resources::fabrics::below_uri("Connections")),
    }
}

/// The request by which it is unbound.
pub(super) fn unbind_request(rack: &Rack, port: PortIx, gpu: GpuIx) -> (Method, String) {
    match rack.style {
        Style::Connections => (
            Method::DELETE,
            crate::resources::connections::connection_uri(rack, port, gpu),
        ),
        Style::ResourceBlocks | Style::Zones => bind_request(rack, port),
    }
}

/// What carries the light of a GPU in a box.
pub(super) fn light(rack: &Rack, gpu: GpuIx) -> String {
    let name = rack.gpu_name(gpu);
    let (home, gpu) = name.split_once('/').unwrap_or_default();
    format!("/redfish/v1/Chassis/{home}/PCIeDevices/{gpu}")
}

/// The request by which a GPU is reset.
pub(super) fn reset_request(rack: &Rack, gpu: GpuIx) -> (Method, String) {
    let name = rack.gpu_name(gpu);
    let (home, gpu) = name.split_once('/').unwrap_or_default();
    (
        Method::POST,
        format!("/redfish/v1/Chassis/{home}/Processors/{gpu}/Actions/Processor.Reset"),
    )
}
