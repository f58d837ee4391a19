//! What may be said of a system that is to be composed, in the terms of DMTF's guide to composability (DSP2050): one object
//! for what names its blocks, one for what only says what it wants. They say what [`super::wishes`] understands.
//!
//! The guide writes processors out within the second. DMTF's service validator takes a link alone there, so they are
//! resources of their own, and `$expand` writes them out.

use super::uri;
use poolwright_redfish_model::{ComputerSystem, Processor, ProcessorCollection};
use serde_json::{Value, json};

const NAMED: &str = "Capabilities";
const WISHED: &str = "ConstrainedCapabilities";

/// Each object with the use that it is for.
pub(super) const ALL: [(&str, &str); 2] = [
    (NAMED, "ComputerSystemComposition"),
    (WISHED, "ComputerSystemConstrainedComposition"),
];

/// What is at a place below the systems, if it is a capability.
pub(super) fn at(path: &[&str]) -> Option<Value> {
    let mut object = match path {
        [NAMED] => named(),
        [WISHED] => wished(),
        [WISHED, "Processors"] => processors(),
        [WISHED, "Processors", "GPU"] => gpu(),
        _ => return None,
    };
    object["@odata.id"] = uri::system(&path.join("/")).into();
    Some(object)
}

fn named() -> Value {
    json!({
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": NAMED,
        "Name": "What may be said of a system of named blocks",
        "Name@Redfish.OptionalOnCreate": true,
        "Name@Redfish.SetOnlyOnCreate": true,
        "Links@Redfish.RequiredOnCreate": true,
        "Links": {
            "ResourceBlocks@Redfish.RequiredOnCreate": true,
            "ResourceBlocks@Redfish.UpdatableAfterCreate": true,
        },
    })
}

fn wished() -> Value {
    json!({
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": WISHED,
        "Name": "What may be said of a system that the planner chooses",
        "Name@Redfish.OptionalOnCreate": true,
        "Name@Redfish.SetOnlyOnCreate": true,
        "Processors@Redfish.OptionalOnCreate": true,
        "Processors@Redfish.SetOnlyOnCreate": true,
        "Processors": uri::link(&format!("Systems/{WISHED}/Processors")),
        "Oem@Redfish.OptionalOnCreate": true,
        "Oem@Redfish.SetOnlyOnCreate": true,
    })
}

fn processors() -> Value {
    json!({
        "@odata.type": ProcessorCollection::ODATA_TYPE,
        "Name": "What may be said of the GPUs of a system",
        "Members@Redfish.RequiredOnCreate": true,
        "Members@odata.count": 1,
        "Members": [uri::link(&format!("Systems/{WISHED}/Processors/GPU"))],
    })
}

fn gpu() -> Value {
    json!({
        "@odata.type": Processor::ODATA_TYPE,
        "Id": "GPU",
        "Name": "What may be said of a kind of GPU",
        "@Redfish.RequestedCountRequired": true,
        "ProcessorType@Redfish.OptionalOnCreate": true,
        "ProcessorType@Redfish.AllowableValues": ["GPU"],
        "Model@Redfish.OptionalOnCreate": true,
        "MemorySummary@Redfish.OptionalOnCreate": true,
        "MemorySummary": { "TotalMemorySizeMiB@Redfish.OptionalOnCreate": true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::wishes::UNDERSTOOD;
    use std::collections::BTreeSet;

    /// What an object says that may be said, below a path.
    fn told(object: &Value, below: &str, found: &mut BTreeSet<String>) {
        for (name, value) in object.as_object().into_iter().flatten() {
            if let Some((name, "RequiredOnCreate" | "OptionalOnCreate")) = name.split_once("@Redfish.") {
                found.insert(format!("{below}{name}"));
            }
            told(value, &format!("{below}{name}/"), found);
        }
        if object["@Redfish.RequestedCountRequired"] == true {
            found.insert(format!("{below}@Redfish.RequestedCount"));
        }
    }

    #[test]
    fn they_say_what_is_understood_and_nothing_else() {
        let mut found = BTreeSet::new();
        for (object, below) in [
            (named(), ""),
            (wished(), ""),
            (processors(), "Processors/"),
            (gpu(), "Processors/Members/*/"),
        ] {
            told(&object, below, &mut found);
        }
        for path in &found {
            let is_understood = UNDERSTOOD.iter().any(|known| {
                known
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            assert!(is_understood, "{path} is told, and not understood");
        }
        for known in UNDERSTOOD {
            let name = known
                .trim_end_matches("/*/@odata.id")
                .trim_end_matches("/Poolwright");
            // It only permits what is not done.
            let may_be_left_out = name.ends_with("AllowOverprovisioning");
            assert!(
                may_be_left_out || found.contains(name),
                "{known} is understood, and not told: {found:?}"
            );
        }
    }
}
