//! The service as an OpenAPI document (DSP0266, "OpenAPI"), written from the table of places: what is not there is not in
//! it. Tags are entities, as the privilege registry has them. Bodies are DMTF's schemas, where DMTF publishes them.

use super::events;
use super::root::PUBLISHED;
use super::routes::{ROUTES, Route};
use super::uri;
use poolwright_redfish_model::RESOURCES;

const HEAD: &str = "\
openapi: 3.0.3
info:
  title: Poolwright, the Redfish service
  description: Servers composed of pooled GPUs. Long operations are answered with 202 and a task.
  version: ";
const SECURITY: &str = "
security:
  - basic: []
  - session: []
components:
  securitySchemes:
    basic: {type: http, scheme: basic}
    session: {type: apiKey, in: header, name: X-Auth-Token}
paths:
";

/// The document, as YAML.
pub(crate) fn document() -> String {
    let paths: String = ROUTES.iter().map(path).collect();
    format!("{HEAD}{}{SECURITY}{paths}", env!("CARGO_PKG_VERSION"))
}

/// A place, with a name for each part of it that is open.
fn path(route: &Route) -> String {
    let (mut place, mut parameters) = (String::new(), String::new());
    for (number, part) in route.pattern.split("{}").enumerate() {
        if number > 0 {
            place += &format!("{{Id{number}}}");
            parameters += &format!(
                "      - {{name: Id{number}, in: path, required: true, schema: {{type: string}}}}\n"
            );
        }
        place += part;
    }
    if !parameters.is_empty() {
        parameters.insert_str(0, "    parameters:\n");
    }
    // What is asked for by HEAD is as by GET.
    let methods = route.allow.split(", ").filter(|method| *method != "HEAD");
    let operations: String = methods.map(|method| operation(route, method)).collect();
    format!("  \"{}\":\n{parameters}{operations}", uri::at(&place))
}

fn operation(route: &Route, method: &str) -> String {
    let security = match (route.open && method == "GET") || logs_in(route, method) {
        true => "      security: []\n",
        false => "",
    };
    let request = match method {
        "POST" | "PATCH" => "      requestBody: {content: {application/json: {schema: {type: object}}}}\n",
        _ => "",
    };
    let done = match method {
        "GET" => format!(
            "\"200\": {{description: {}, content: {}}}",
            route.entity,
            content(route)
        ),
        _ => "\"2XX\": {description: Done; 202 where a task goes on}".to_owned(),
    };
    let method = method.to_lowercase();
    format!(
        "    {method}:\n      tags: [{}]\n{security}{request}      responses:\n        {done}\n        \
         default: {{description: An error with @Message.ExtendedInfo}}\n",
        route.entity
    )
}

/// Who has no session yet gets one.
fn logs_in(route: &Route, method: &str) -> bool {
    method == "POST" && route.pattern == "SessionService/Sessions"
}

/// What is read at a place.
fn content(route: &Route) -> String {
    match (route.pattern, schema(route.entity)) {
        ("$metadata" | "Schemas/{}", _) => "{application/xml: {}}".to_owned(),
        ("openapi.yaml", _) => "{application/yaml: {}}".to_owned(),
        (events::STREAM, _) => "{text/event-stream: {}}".to_owned(),
        ("odata", _) | (_, None) => "{application/json: {schema: {type: object}}}".to_owned(),
        (_, Some(at)) => format!("{{application/json: {{schema: {{$ref: \"{at}\"}}}}}}"),
    }
}

/// Where DMTF publishes the schema of a type: `#Fabric.v1_3_2.Fabric` is `Fabric_v1_3_2_Fabric` of `Fabric.v1_3_2.yaml`.
fn schema(entity: &str) -> Option<String> {
    let types = RESOURCES.iter().filter_map(|schema| schema.odata_type);
    let mut types = types.map(|text| text.trim_start_matches('#'));
    let found = types.find(|text| text.rsplit_once('.').is_some_and(|(_, name)| name == entity))?;
    let (versioned, _) = found.rsplit_once('.')?;
    let component = found.replace('.', "_");
    Some(format!(
        "{PUBLISHED}/{versioned}.yaml#/components/schemas/{component}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_in_it_once_with_its_methods() {
        let text = document();
        let places = text.lines().filter(|line| line.starts_with("  \"/redfish/v1/"));
        assert_eq!(places.count(), ROUTES.len());
        let of = |place: &str| {
            let rest = text.split_once(&format!("  \"{place}\":\n")).unwrap().1;
            rest.split("\n  \"").next().unwrap().to_owned()
        };
        let system = of("/redfish/v1/Systems/{Id1}");
        assert!(
            system.contains("    get:\n") && system.contains("    delete:\n"),
            "{system}"
        );
        assert!(
            !system.contains("    post:\n") && system.contains("name: Id1"),
            "{system}"
        );
        assert!(
            system.contains("ComputerSystem.v1_"),
            "DMTF's schema is named: {system}"
        );
        let nested = of("/redfish/v1/Chassis/{Id1}/PCIeDevices/{Id2}");
        assert!(
            nested.contains("name: Id1") && nested.contains("name: Id2"),
            "{nested}"
        );
        assert!(of("/redfish/v1/").contains("security: []"));
    }
}
