//! What the schemas say and the compiler does not pass on: the newest version of each type, the ranges of numbers,
//! what can be given at creation alone, and enumerations whose members are no identifiers.

use std::collections::{HashMap, HashSet};

use nv_redfish_csdl_compiler::edmx::property::PropertyAttrs;
use nv_redfish_csdl_compiler::edmx::{Annotation, Edmx, Schema, Type};

/// Facts by schema (without version) and type.
#[derive(Debug, Default)]
pub struct Facts {
    newest: HashMap<(String, String), (Vec<u32>, String)>,
    ranges: HashMap<(String, String, String), Range>,
    create_only: HashSet<(String, String, String)>,
    enumerations: HashMap<(String, String), Vec<String>>,
}

/// The bounds of a number, both inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    pub least: Option<i64>,
    pub most: Option<i64>,
}

impl Facts {
    pub fn gather(docs: &[Edmx]) -> Self {
        let mut facts = Self::default();
        for schema in docs.iter().flat_map(|doc| &doc.data_services.schemas) {
            facts.versions(schema);
            facts.annotations(schema);
            facts.enumerations(schema);
        }
        facts
    }

    /// The newest `@odata.type` of a type: the compiler stops at the last version that adds a property.
    pub fn newest(&self, schema: &str, name: &str) -> Option<&str> {
        self.newest
            .get(&(schema.to_owned(), name.to_owned()))
            .map(|(_, odata_type)| odata_type.as_str())
    }

    /// The range of a property of a type, or of a parameter of an action.
    pub fn range(&self, schema: &str, owner: &str, name: &str) -> Range {
        let key = (schema.to_owned(), owner.to_owned(), name.to_owned());
        self.ranges.get(&key).copied().unwrap_or_default()
    }

    /// Whether a property can neither be read nor be changed, only be given at creation: a session's password.
    pub fn create_only(&self, schema: &str, owner: &str, name: &str) -> bool {
        self.create_only
            .contains(&(schema.to_owned(), owner.to_owned(), name.to_owned()))
    }

    /// The members of a text type that is an enumeration in all but name, for they are no identifiers: `x86-64`.
    pub fn enumeration(&self, schema: &str, name: &str) -> Option<&[String]> {
        self.enumerations
            .get(&(schema.to_owned(), name.to_owned()))
            .map(Vec::as_slice)
    }

    fn versions(&mut self, schema: &Schema) {
        let namespace = schema.namespace.to_string();
        let (family, version) = namespace.split_once('.').unwrap_or((&namespace, ""));
        let version: Vec<u32> = version
            .trim_start_matches('v')
            .split('_')
            .filter_map(|n| n.parse().ok())
            .collect();
        for name in schema.entity_types.keys() {
            let entry = self
                .newest
                .entry((family.to_owned(), name.to_string()))
                .or_default();
            if entry.1.is_empty() || version > entry.0 {
                *entry = (version.clone(), format!("#{namespace}.{name}"));
            }
        }
    }

    fn annotations(&mut self, schema: &Schema) {
        let namespace = schema.namespace.to_string();
        let family = namespace.split('.').next().unwrap_or(&namespace);
        let complex = schema.types.iter().filter_map(|(name, found)| match found {
            Type::ComplexType(complex) => Some((name.to_string(), &complex.properties)),
            _ => None,
        });
        let entities = schema
            .entity_types
            .iter()
            .map(|(name, found)| (name.to_string(), &found.properties));
        for (owner, properties) in entities.chain(complex) {
            for property in properties {
                if let PropertyAttrs::StructuralProperty(found) = &property.attrs {
                    self.annotated(family, &owner, property.name.to_string(), &found.annotations);
                }
            }
        }
        for action in &schema.actions {
            for parameter in &action.parameters {
                self.annotated(
                    family,
                    &action.name.to_string(),
                    parameter.name.to_string(),
                    &parameter.annotations,
                );
            }
        }
    }

    fn annotated(&mut self, family: &str, owner: &str, name: String, annotations: &[Annotation]) {
        let find = |term: &str| annotations.iter().find(|a| a.term.to_string() == term);
        let key = (family.to_owned(), owner.to_owned(), name);
        let bound = |term: &str| find(term)?.int_value;
        let range = Range {
            least: bound("Validation.Minimum"),
            most: bound("Validation.Maximum"),
        };
        if range != Range::default() {
            self.ranges.insert(key.clone(), range);
        }
        let permissions = find("OData.Permissions")
            .into_iter()
            .flat_map(Annotation::enum_members);
        if permissions
            .map(|permission| permission.mname.to_string())
            .any(|permission| permission == "None")
        {
            self.create_only.insert(key);
        }
    }

    fn enumerations(&mut self, schema: &Schema) {
        let family = schema
            .namespace
            .to_string()
            .split('.')
            .next()
            .unwrap_or_default()
            .to_owned();
        for (name, found) in &schema.types {
            let Type::TypeDefinition(definition) = found else {
                continue;
            };
            let listed = definition
                .annotations
                .iter()
                .find(|a| a.term.to_string() == "Redfish.Enumeration");
            let records = listed
                .and_then(|a| a.collection.as_ref())
                .map(|collection| &collection.record);
            let members: Vec<String> = records
                .into_iter()
                .flatten()
                .filter_map(|record| record.property_value("Member")?.string_value.clone())
                .collect();
            if !members.is_empty() {
                self.enumerations
                    .insert((family.clone(), name.to_string()), members);
            }
        }
    }
}
