//! CSDL schemas of Poolwright's OEM types. DMTF publishes none of them, so the service does.

use super::uri;

/// A schema that is served: its file, and the namespaces in it.
pub(super) struct Schema {
    pub file: &'static str,
    pub namespaces: [&'static str; 2],
    pub text: &'static str,
}

/// All of them.
pub(super) const SCHEMAS: [Schema; 2] = [
    Schema {
        file: "PoolwrightAggregationSource_v1.xml",
        namespaces: [
            "PoolwrightAggregationSource",
            "PoolwrightAggregationSource.v1_0_0",
        ],
        text: include_str!("oem/PoolwrightAggregationSource_v1.xml"),
    },
    Schema {
        file: "PoolwrightManagerAccount_v1.xml",
        namespaces: ["PoolwrightManagerAccount", "PoolwrightManagerAccount.v1_0_0"],
        text: include_str!("oem/PoolwrightManagerAccount_v1.xml"),
    },
];

pub(super) fn place(file: &str) -> String {
    uri::at(&format!("Schemas/{file}"))
}

/// The schema in a file.
pub(super) fn text(file: &str) -> Option<&'static str> {
    let found = SCHEMAS.iter().find(|schema| schema.file == file)?;
    Some(found.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::{aggregation, bindings};
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// The fields that a type has by serde, which names them where there is another one.
    fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
        let Err(error) = serde_json::from_value::<T>(json!({ "": null })) else {
            panic!("what is strange is taken");
        };
        let error = error.to_string();
        let quoted = error.split('`').skip(1).step_by(2);
        quoted
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The properties of a type in a schema.
    fn properties(file: &str, name: &str) -> BTreeSet<String> {
        let start = format!("<ComplexType Name=\"{name}\"");
        let (_, rest) = text(file).unwrap().split_once(&start).unwrap();
        let (inside, _) = rest.split_once("</ComplexType>").unwrap();
        let named = inside.split("<Property Name=\"").skip(1);
        named
            .filter_map(|rest| rest.split('"').next())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn each_has_all_that_may_be_written_and_nothing_else() {
        let account = "PoolwrightManagerAccount_v1.xml";
        assert_eq!(properties(account, "ManagerAccount"), fields::<bindings::Ours>());
        assert_eq!(properties(account, "Binding"), fields::<bindings::Said>());
        let source = "PoolwrightAggregationSource_v1.xml";
        assert_eq!(
            properties(source, "AggregationSource"),
            fields::<aggregation::Ours>()
        );
    }

    #[test]
    fn the_namespaces_are_those_in_the_file() {
        for schema in &SCHEMAS {
            for namespace in schema.namespaces {
                assert!(
                    schema.text.contains(&format!("Namespace=\"{namespace}\"")),
                    "{namespace}"
                );
            }
        }
        assert!(text("Nothing_v1.xml").is_none());
    }
}
