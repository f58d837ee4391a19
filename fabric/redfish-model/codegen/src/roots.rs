//! The Redfish types that Poolwright uses. Everything they contain comes along; a link to a type that is not
//! listed stays a plain reference. Adding a root never renames what is there.

/// Resources that have a collection named `<Name>Collection`.
const WITH_COLLECTION: &[&str] = &[
    // composition
    "CompositionReservation",
    "ResourceBlock",
    "Zone",
    // fabric
    "Fabric",
    "Switch",
    "Port",
    "Endpoint",
    "Connection",
    "PCIeDevice",
    "PCIeFunction",
    // machines
    "ComputerSystem",
    "Chassis",
    "Manager",
    "Processor",
    "Memory",
    "NetworkAdapter",
    // work and news
    "Task",
    "Job",
    "EventDestination",
    "LogService",
    "LogEntry",
    "MetricReport",
    "MetricReportDefinition",
    // access
    "Session",
    "ManagerAccount",
    "Role",
    "AggregationSource",
    "MessageRegistryFile",
];

/// Resources that stand alone.
const ALONE: &[&str] = &[
    "ServiceRoot",
    "CompositionService",
    "PCIeSlots",
    "EnvironmentMetrics",
    "ProcessorMetrics",
    "PortMetrics",
    "TaskService",
    "JobService",
    "EventService",
    "Event",
    "SessionService",
    "AccountService",
    "AggregationService",
    "TelemetryService",
    "UpdateService",
];

/// Entities that are never fetched by themselves but lie inside a resource: (schema, type).
const EMBEDDED: &[(&str, &str)] = &[("Event", "EventRecord")];

/// One type to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The schema's name, such as `Fabric`.
    pub schema: String,
    /// The type's name in that schema.
    pub name: String,
    /// Whether it lies inside another resource instead of having an address.
    pub embedded: bool,
}

/// All roots, in the order of the lists above.
pub fn roots() -> Vec<Root> {
    let resource = |name: String| Root {
        schema: name.clone(),
        name,
        embedded: false,
    };
    let mut all = Vec::new();
    for name in WITH_COLLECTION {
        all.push(resource((*name).to_owned()));
        all.push(resource(format!("{name}Collection")));
    }
    all.extend(ALONE.iter().map(|name| resource((*name).to_owned())));
    all.extend(EMBEDDED.iter().map(|(schema, name)| Root {
        schema: (*schema).to_owned(),
        name: (*name).to_owned(),
        embedded: true,
    }));
    all
}
