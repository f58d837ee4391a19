//! The service itself: its root, and what OData asks for beside it.

use super::{oem, uri};
use poolwright_redfish_model::{
    RESOURCES, Resource, ServiceRoot, ServiceRootExpand, ServiceRootLinks,
    ServiceRootProtocolFeaturesSupported,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The specification that is followed (DSP0266).
const REDFISH_VERSION: &str = "1.20.0";
/// How deep `$expand` goes.
pub(crate) const MOST_LEVELS: u32 = 2;
/// Where DMTF publishes the schemas.
pub(crate) const PUBLISHED: &str = "http://redfish.dmtf.org/schemas/v1";

/// `GET /redfish`.
pub(crate) fn versions() -> Value {
    json!({ "v1": "/redfish/v1/" })
}

pub(crate) fn root(uuid: &str) -> ServiceRoot {
    ServiceRoot {
        id: Some("RootService".into()),
        name: Some("Poolwright".into()),
        vendor: Some("Poolwright".into()),
        product: Some("Poolwright".into()),
        redfish_version: Some(REDFISH_VERSION.into()),
        uuid: Some(uuid.into()),
        service_identification: Some(uuid.into()),
        systems: Some(uri::link("Systems")),
        chassis: Some(uri::link("Chassis")),
        fabrics: Some(uri::link("Fabrics")),
        managers: Some(uri::link("Managers")),
        composition_service: Some(uri::link("CompositionService")),
        tasks: Some(uri::link("TaskService")),
        job_service: Some(uri::link("JobService")),
        aggregation_service: Some(uri::link("AggregationService")),
        event_service: Some(uri::link("EventService")),
        telemetry_service: Some(uri::link("TelemetryService")),
        update_service: Some(uri::link("UpdateService")),
        certificate_service: Some(uri::link("CertificateService")),
        session_service: Some(uri::link("SessionService")),
        account_service: Some(uri::link("AccountService")),
        registries: Some(uri::link("Registries")),
        json_schemas: Some(uri::link("JsonSchemas")),
        links: Some(Box::new(ServiceRootLinks {
            sessions: Some(uri::link("SessionService/Sessions")),
            manager_providing_service: Some(uri::link("Managers/Poolwright")),
            ..ServiceRootLinks::default()
        })),
        protocol_features_supported: Some(Box::new(ServiceRootProtocolFeaturesSupported {
            expand_query: Some(Box::new(ServiceRootExpand {
                expand_all: Some(true),
                levels: Some(true),
                links: Some(true),
                no_links: Some(true),
                max_levels: Some(i64::from(MOST_LEVELS)),
                ..ServiceRootExpand::default()
            })),
            filter_query: Some(true),
            filter_query_comparison_operations: Some(true),
            filter_query_compound_operations: Some(true),
            only_member_query: Some(true),
            select_query: Some(true),
            top_skip_query: Some(true),
            excerpt_query: Some(false),
            ..ServiceRootProtocolFeaturesSupported::default()
        })),
        ..ServiceRoot::at("/redfish/v1/")
    }
}

/// OData's service document: where to begin.
pub(crate) fn odata() -> Value {
    let entry = |name: &str| json!({ "name": name, "kind": "Singleton", "url": uri::at(name) });
    let service = json!({ "name": "Service", "kind": "Singleton", "url": "/redfish/v1/" });
    let names = [
        "Systems",
        "Chassis",
        "Fabrics",
        "Managers",
        "CompositionService",
        "TaskService",
        "JobService",
        "AggregationService",
        "EventService",
        "TelemetryService",
        "CertificateService",
        "UpdateService",
        "SessionService",
        "AccountService",
    ];
    let entries: Vec<Value> = std::iter::once(service).chain(names.map(entry)).collect();
    json!({ "@odata.context": "/redfish/v1/$metadata", "value": entries })
}

/// OData's metadata document: references to the schemas where DMTF publishes them, and to our own.
pub(crate) fn metadata() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n",
    );
    let mut refer = |place: &str, namespaces: &[&str]| {
        // Writing into a string does not fail.
        let _ = writeln!(text, "  <edmx:Reference Uri=\"{place}\">");
        for namespace in namespaces {
            let _ = writeln!(text, "    <edmx:Include Namespace=\"{namespace}\"/>");
        }
        let _ = writeln!(text, "  </edmx:Reference>");
    };
    for schema in &oem::SCHEMAS {
        refer(&oem::place(schema.file), &schema.namespaces);
    }
    let mut reference = |file: &str, namespaces: &[&str]| refer(&format!("{PUBLISHED}/{file}"), namespaces);
    for schema in RESOURCES {
        // `#Fabric.v1_3_2.Fabric`, or `#FabricCollection.FabricCollection`.
        let namespaces = schema
            .odata_type
            .and_then(|text| text.trim_start_matches('#').rsplit_once('.'));
        let Some((versioned, name)) = namespaces else {
            continue;
        };
        let file = format!("{name}_v1.xml");
        match versioned == name {
            true => reference(&file, &[name]),
            false => reference(&file, &[name, versioned]),
        }
    }
    // What is written without a generated type.
    let single = [
        ("CertificateService", "v1_2_1"),
        ("CertificateLocations", "v1_0_4"),
        ("ManagerNetworkProtocol", "v1_12_0"),
    ];
    for (name, version) in single {
        reference(&format!("{name}_v1.xml"), &[name, &format!("{name}.{version}")]);
    }
    let with_collection = [
        ("Certificate", "v1_11_0"),
        ("JsonSchemaFile", "v1_1_5"),
        ("MetricDefinition", "v1_3_5"),
        ("SoftwareInventory", "v1_13_0"),
    ];
    for (name, version) in with_collection {
        let (collection, versioned) = (format!("{name}Collection"), format!("{name}.{version}"));
        reference(&format!("{collection}_v1.xml"), &[&collection]);
        reference(&format!("{name}_v1.xml"), &[name, &versioned]);
    }
    reference("RedfishExtensions_v1.xml", &["RedfishExtensions.v1_0_0"]);
    text.push_str(
        "  <edmx:DataServices>\n    \
           <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">\n      \
             <EntityContainer Name=\"Service\" Extends=\"ServiceRoot.v1_0_0.ServiceContainer\"/>\n    \
           </Schema>\n  </edmx:DataServices>\n</edmx:Edmx>\n",
    );
    text
}
