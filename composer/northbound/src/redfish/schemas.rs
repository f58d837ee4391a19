//! The schemas of what is served, where DMTF publishes them: none is kept here.

use super::root::PUBLISHED;
use super::routes::ROUTES;
use super::uri;
use poolwright_redfish_model::RESOURCES;
use serde_json::{Value, json};

fn place(name: &str) -> String {
    uri::at(&format!("JsonSchemas/{name}"))
}

/// The newest type of each kind that is served, such as `Fabric.v1_3_2.Fabric`, or `FabricCollection.FabricCollection`.
fn types() -> impl Iterator<Item = &'static str> {
    let types = RESOURCES.iter().filter_map(|schema| schema.odata_type);
    let types = types.map(|text| text.trim_start_matches('#'));
    types.filter(|text| ROUTES.iter().any(|route| route.entity == name_of(text)))
}

fn name_of(odata_type: &str) -> &str {
    odata_type.rsplit('.').next().unwrap_or(odata_type)
}

pub(super) fn all() -> Value {
    let members: Vec<_> = types()
        .map(|text| uri::link(&format!("JsonSchemas/{}", name_of(text))))
        .collect();
    json!({
        "@odata.id": uri::at("JsonSchemas"),
        "@odata.type": "#JsonSchemaFileCollection.JsonSchemaFileCollection",
        "Name": "Schemas",
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

pub(super) fn one(name: &str) -> Option<Value> {
    let odata_type = types().find(|text| name_of(text) == name)?;
    let (file, _) = odata_type.rsplit_once('.')?;
    Some(json!({
        "@odata.id": place(name),
        "@odata.type": "#JsonSchemaFile.v1_1_5.JsonSchemaFile",
        "Id": name,
        "Name": format!("Schema of {name}"),
        "Schema": format!("#{odata_type}"),
        "Languages": ["en"],
        "Location": [{ "Language": "en", "PublicationUri": format!("{PUBLISHED}/{file}.json") }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::wire::described_by;

    #[test]
    fn each_leads_to_where_resources_of_its_kind_say_that_they_are_described() {
        let all = all();
        let members = all["Members"].as_array().unwrap();
        assert!(members.len() > 40, "{all}");
        for member in members {
            let name = member["@odata.id"].as_str().unwrap().rsplit('/').next().unwrap();
            let file = one(name).unwrap();
            let resource = json!({ "@odata.type": file["Schema"] });
            let described = described_by(resource.to_string().as_bytes()).unwrap();
            let published = file["Location"][0]["PublicationUri"].as_str().unwrap();
            assert_eq!(described, format!("<{published}>; rel=describedby"));
        }
        assert!(one("ComputerSystem").is_some() && one("Nothing").is_none());
    }
}
