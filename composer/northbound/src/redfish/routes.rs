//! Every place of the service, as a table: what is there, and what may be done.

use super::tasks;
use std::sync::LazyLock;

/// What is at the places that a pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// Segments below `/redfish/v1`; `{}` stands for any one.
    pub pattern: &'static str,
    /// The resource's type, by which privileges are looked up.
    pub entity: &'static str,
    /// In the form of the header `Allow`.
    pub allow: &'static str,
    /// Whether it may be read by anybody (DSP0266: what a client must see before it logs in).
    pub open: bool,
}

pub(crate) const READ: &str = "GET, HEAD";
const CREATE: &str = "GET, HEAD, POST";
const ACT: &str = "POST";
const SET: &str = "GET, HEAD, PATCH";
const CHANGE: &str = "GET, HEAD, PATCH, DELETE";
pub(crate) const DELETE: &str = "GET, HEAD, DELETE";

const fn route(pattern: &'static str, entity: &'static str, allow: &'static str) -> Route {
    Route {
        pattern,
        entity,
        allow,
        open: false,
    }
}

const fn open(pattern: &'static str, entity: &'static str) -> Route {
    Route {
        open: true,
        ..route(pattern, entity, READ)
    }
}

/// The table.
pub(crate) const ROUTES: &[Route] = &[
    open("", "ServiceRoot"),
    open("odata", "ServiceRoot"),
    open("$metadata", "ServiceRoot"),
    open("Schemas/{}", "ServiceRoot"),
    open("openapi.yaml", "ServiceRoot"),
    route("Systems", "ComputerSystemCollection", CREATE),
    route("Systems/Capabilities", "ComputerSystem", READ),
    route("Systems/ConstrainedCapabilities", "ComputerSystem", READ),
    route("Systems/{}", "ComputerSystem", CHANGE),
    route("Systems/{}/Actions/{}", "ComputerSystem", ACT),
    route("Systems/{}/Processors", "ProcessorCollection", READ),
    route("Systems/{}/Processors/{}", "Processor", READ),
    route(
        "Systems/{}/Processors/{}/ProcessorMetrics",
        "ProcessorMetrics",
        READ,
    ),
    route(
        "Systems/{}/Processors/{}/EnvironmentMetrics",
        "EnvironmentMetrics",
        READ,
    ),
    route("Chassis", "ChassisCollection", READ),
    route("Chassis/{}", "Chassis", READ),
    route("Chassis/{}/PCIeSlots", "PCIeSlots", READ),
    route("Chassis/{}/PCIeDevices", "PCIeDeviceCollection", READ),
    route("Chassis/{}/PCIeDevices/{}", "PCIeDevice", READ),
    route(
        "Chassis/{}/PCIeDevices/{}/PCIeFunctions",
        "PCIeFunctionCollection",
        READ,
    ),
    route("Chassis/{}/PCIeDevices/{}/PCIeFunctions/{}", "PCIeFunction", READ),
    route("Fabrics", "FabricCollection", READ),
    route("Fabrics/{}", "Fabric", READ),
    route("Fabrics/{}/Switches", "SwitchCollection", READ),
    route("Fabrics/{}/Switches/{}", "Switch", READ),
    route("Fabrics/{}/Switches/{}/Ports", "PortCollection", READ),
    route("Fabrics/{}/Switches/{}/Ports/{}", "Port", READ),
    route("Fabrics/{}/Endpoints", "EndpointCollection", READ),
    route("Fabrics/{}/Endpoints/{}", "Endpoint", READ),
    route("Fabrics/{}/Zones", "ZoneCollection", READ),
    route("Fabrics/{}/Zones/{}", "Zone", READ),
    route("Fabrics/{}/Connections", "ConnectionCollection", READ),
    route("Fabrics/{}/Connections/{}", "Connection", READ),
    route("Managers", "ManagerCollection", READ),
    route("Managers/{}", "Manager", READ),
    route("Managers/{}/NetworkProtocol", "ManagerNetworkProtocol", READ),
    route(
        "Managers/{}/NetworkProtocol/HTTPS/Certificates",
        "CertificateCollection",
        READ,
    ),
    route(
        "Managers/{}/NetworkProtocol/HTTPS/Certificates/{}",
        "Certificate",
        READ,
    ),
    route("Managers/{}/LogServices", "LogServiceCollection", READ),
    route("Managers/{}/LogServices/{}", "LogService", READ),
    route("Managers/{}/LogServices/{}/Entries", "LogEntryCollection", READ),
    route("Managers/{}/LogServices/{}/Entries/{}", "LogEntry", READ),
    route("CompositionService", "CompositionService", READ),
    route("CompositionService/Actions/{}", "CompositionService", ACT),
    route(
        "CompositionService/CompositionReservations",
        "CompositionReservationCollection",
        READ,
    ),
    route(
        "CompositionService/CompositionReservations/{}",
        "CompositionReservation",
        DELETE,
    ),
    route(
        "CompositionService/ResourceBlocks",
        "ResourceBlockCollection",
        READ,
    ),
    route("CompositionService/ResourceBlocks/{}", "ResourceBlock", READ),
    route(
        "CompositionService/ResourceBlocks/{}/Processors/{}",
        "Processor",
        READ,
    ),
    route("CompositionService/ResourceZones", "ZoneCollection", READ),
    route("CompositionService/ResourceZones/{}", "Zone", READ),
    route("CompositionService/ActivePool", "ResourceBlockCollection", READ),
    route("CompositionService/FreePool", "ResourceBlockCollection", READ),
    route("TaskService", "TaskService", READ),
    route("TaskService/Tasks", "TaskCollection", READ),
    route("TaskService/Tasks/{}", "Task", DELETE),
    route(tasks::MONITOR, "Task", DELETE),
    route("JobService", "JobService", READ),
    route("JobService/Jobs", "JobCollection", READ),
    route("JobService/Jobs/{}", "Job", DELETE),
    route("JobService/Jobs/{}/Actions/{}", "Job", ACT),
    route("EventService", "EventService", READ),
    route("EventService/SSE", "EventService", "GET"),
    route("EventService/Actions/{}", "EventService", ACT),
    route("EventService/Subscriptions", "EventDestinationCollection", CREATE),
    route("EventService/Subscriptions/{}", "EventDestination", CHANGE),
    route(
        "EventService/Subscriptions/{}/Actions/{}",
        "EventDestination",
        ACT,
    ),
    route("TelemetryService", "TelemetryService", READ),
    route(
        "TelemetryService/MetricDefinitions",
        "MetricDefinitionCollection",
        READ,
    ),
    route("TelemetryService/MetricDefinitions/{}", "MetricDefinition", READ),
    route(
        "TelemetryService/MetricReportDefinitions",
        "MetricReportDefinitionCollection",
        READ,
    ),
    route(
        "TelemetryService/MetricReportDefinitions/{}",
        "MetricReportDefinition",
        READ,
    ),
    route("TelemetryService/MetricReports", "MetricReportCollection", READ),
    route("TelemetryService/MetricReports/{}", "MetricReport", READ),
    route("AggregationService", "AggregationService", READ),
    route(
        "AggregationService/AggregationSources",
        "AggregationSourceCollection",
        CREATE,
    ),
    route(
        "AggregationService/AggregationSources/{}",
        "AggregationSource",
        DELETE,
    ),
    route(
        "AggregationService/AggregationSources/{}/Actions/Oem/{}",
        "AggregationSource",
        ACT,
    ),
    route("CertificateService", "CertificateService", READ),
    route("CertificateService/Actions/{}", "CertificateService", ACT),
    route(
        "CertificateService/CertificateLocations",
        "CertificateLocations",
        READ,
    ),
    route("UpdateService", "UpdateService", READ),
    route(
        "UpdateService/FirmwareInventory",
        "SoftwareInventoryCollection",
        READ,
    ),
    route("UpdateService/FirmwareInventory/{}", "SoftwareInventory", READ),
    route(
        "UpdateService/SoftwareInventory",
        "SoftwareInventoryCollection",
        READ,
    ),
    route("UpdateService/SoftwareInventory/{}", "SoftwareInventory", READ),
    route("SessionService", "SessionService", SET),
    route("SessionService/Sessions", "SessionCollection", CREATE),
    route("SessionService/Sessions/{}", "Session", DELETE),
    route("AccountService", "AccountService", SET),
    route("AccountService/Accounts", "ManagerAccountCollection", CREATE),
    route("AccountService/Accounts/{}", "ManagerAccount", CHANGE),
    route("AccountService/PrivilegeMap", "PrivilegeRegistry", READ),
    route("AccountService/Roles", "RoleCollection", READ),
    route("AccountService/Roles/{}", "Role", READ),
    route("JsonSchemas", "JsonSchemaFileCollection", READ),
    route("JsonSchemas/{}", "JsonSchemaFile", READ),
    route("Registries", "MessageRegistryFileCollection", READ),
    route("Registries/{}", "MessageRegistryFile", READ),
];

/// The segments of a pattern, and what is there.
type Segmented = (Vec<&'static str>, &'static Route);

/// The table by how many segments a pattern has: an expanded collection looks up the place of each member.
static BY_LENGTH: LazyLock<Vec<Vec<Segmented>>> = LazyLock::new(|| {
    let mut by_length: Vec<Vec<Segmented>> = Vec::new();
    for route in ROUTES {
        let segments: Vec<&str> = route.pattern.split('/').filter(|part| !part.is_empty()).collect();
        if by_length.len() <= segments.len() {
            by_length.resize_with(segments.len() + 1, Vec::new);
        }
        by_length[segments.len()].push((segments, route));
    }
    by_length
});

/// What is at a place: of several that fit the first of the table.
pub(crate) fn find(path: &[&str]) -> Option<&'static Route> {
    let fits = |pattern: &[&str]| {
        let mut both = pattern.iter().zip(path);
        both.all(|(wanted, part)| *wanted == "{}" || *wanted == *part)
    };
    let of_length = BY_LENGTH.get(path.len())?;
    let found = of_length.iter().find(|(pattern, _)| fits(pattern));
    found.map(|(_, route)| *route)
}
