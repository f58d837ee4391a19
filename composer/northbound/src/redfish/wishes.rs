//! What a request to compose says: the blocks to compose of, or what is wanted, and the planner chooses.

use super::body;
use super::message::Refusal;
use crate::api::openapi;
use axum::http::StatusCode;
use poolwright_model::id::DemandId;
use poolwright_model::units::Bytes;
use poolwright_redfish_model::ComputerSystem;
use poolwright_redfish_model::check::Violation;
use poolwright_service::demand::{DemandSpec, profile_name};
use poolwright_service::misread::{located, sentence};
use poolwright_service::{ServiceError, size};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// What may be said of a system that is to be composed.
pub(super) const UNDERSTOOD: [&str; 8] = [
    "Name",
    "Links/ResourceBlocks/*/@odata.id",
    "Processors/Members/*/@Redfish.RequestedCount",
    "Processors/Members/*/@Redfish.AllowOverprovisioning",
    "Processors/Members/*/ProcessorType",
    "Processors/Members/*/Model",
    "Processors/Members/*/MemorySummary/TotalMemorySizeMiB",
    "Oem/Poolwright",
];

/// Settings of a demand that Redfish has a word for.
const OF_REDFISH: [(&str, &str); 4] = [
    ("id", "Name"),
    ("gpus", "Processors/Members/0/@Redfish.RequestedCount"),
    ("kind", "Processors/Members/0/Model"),
    ("min_memory", "Processors/Members/0/MemorySummary"),
];

/// Settings of a demand, as the JSON API has them.
static SETTINGS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let properties = openapi::schema("DemandSpec")["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
});

/// The blocks that a request names, if it names some.
pub(super) fn blocks(request: &Value) -> Option<&[Value]> {
    Some(request["Links"]["ResourceBlocks"].as_array()?.as_slice())
}

/// Whether a request to compose says nothing but what is understood.
pub(super) fn check(request: &Value) -> Result<(), Refusal> {
    body::create(ComputerSystem::SCHEMA, &UNDERSTOOD, request)?;
    let wishes = [
        ("Processors", &request["Processors"]),
        ("Oem/Poolwright", &request["Oem"]["Poolwright"]),
    ];
    match wishes.into_iter().find(|(_, said)| !said.is_null()) {
        Some((name, _)) if blocks(request).is_some() => Err(conflict(name, "Links/ResourceBlocks")),
        _ => Ok(()),
    }
}

fn conflict(one: &str, other: &str) -> Refusal {
    let text = format!("{one} and {other} are both said, and one would be left undone.");
    let next = "Name blocks, or say what is wanted, each of it once.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "PropertyValueConflict", &[one, other], text, next).related(one)
}

/// What a request wants that names no blocks: `Processors.Members` with `@Redfish.RequestedCount`, or
/// `Oem.Poolwright` with a model and its task.
pub(super) fn wishes(request: &Value) -> Result<DemandSpec, Refusal> {
    let mut spec = Map::new();
    spec.insert("id".to_owned(), json!(demand_name(request["Name"].as_str())));
    spec.extend(of_gpus(request)?);
    let ours = of_model(request)?;
    for (name, theirs) in OF_REDFISH {
        if spec.contains_key(name) && ours.iter().any(|setting| setting.name == name) {
            return Err(conflict(&format!("Oem/Poolwright/{}", pascal_case(name)), theirs));
        }
    }
    let is_empty = spec.len() == 1 && ours.is_empty();
    spec.extend(ours.into_iter().map(|setting| (setting.name, setting.value)));
    if is_empty {
        let next = "Say Links.ResourceBlocks, or Processors.Members with @Redfish.RequestedCount and ProcessorType GPU, \
                    or Oem.Poolwright with a Model and a Task.";
        let status = StatusCode::BAD_REQUEST;
        return Err(Refusal::new(
            status,
            "PropertyMissing",
            &["Links"],
            "Nothing is wanted.",
            next,
        ));
    }
    located(&Value::Object(spec)).map_err(|wrong| {
        let place = pascal_case(&wrong.place);
        body::misread(&place, &sentence(&place, &wrong.error.to_string()))
    })
}

/// Whether there are the kind of GPU and the model that are wanted; `kinds`: those of the pool.
pub(super) fn are_known(request: &Value, spec: &DemandSpec, kinds: &BTreeSet<&str>) -> Result<(), Refusal> {
    let unknown = |place: &str, value: &str, why: ServiceError, next: &str| {
        let name = place.rsplit('/').next().unwrap_or(place);
        let hint = why.hint.unwrap_or_default();
        let text = format!("{place}: {}.", why.message);
        let next = format!("{hint}; {next}");
        let (status, args) = (StatusCode::BAD_REQUEST, [value, name]);
        Err(Refusal::new(
            status,
            "PropertyValueNotInList",
            &args,
            text,
            next.trim_start_matches("; "),
        )
        .related(place))
    };
    if let Some(kind) = &spec.kind
        && let Err(why) = profile_name(kind)
    {
        let place = match request["Processors"].is_null() {
            true => "Oem/Poolwright/Kind",
            false => "Processors/Members/0/Model",
        };
        let listed: Vec<&str> = kinds.iter().copied().collect();
        let next = match listed.as_slice() {
            [] => "no kind of GPU is in the pool".to_owned(),
            listed => format!("in the pool are {}", listed.join(", ")),
        };
        return unknown(place, kind, why, &next);
    }
    if let (Some(model), None) = (&spec.model, &spec.config)
        && let Err(why) = size::model(model)
    {
        return unknown(
            "Oem/Poolwright/Model",
            model,
            why,
            "a config.json goes into Config",
        );
    }
    Ok(())
}

/// So many GPUs of a kind, as settings of a demand.
fn of_gpus(request: &Value) -> Result<Map<String, Value>, Refusal> {
    let members = request["Processors"]["Members"].as_array();
    let gpus = match members.map(Vec::as_slice) {
        None | Some([]) => return Ok(Map::new()),
        Some([gpus]) => gpus,
        Some(_) => {
            let text = "GPUs of several kinds are wanted, and a system has one.";
            let (status, args) = (StatusCode::BAD_REQUEST, ["Processors/Members", "1"]);
            let next = "Compose a system of each kind.";
            return Err(Refusal::new(status, "ArraySizeTooLong", &args, text, next).related(args[0]));
        }
    };
    let wrong = |message: &'static str, name: &str, value: &Value| {
        let path = format!("/Processors/Members/0/{name}");
        let said = Some(value).filter(|value| !value.is_null()).map(Value::to_string);
        let args = said.into_iter().chain([path[1..].to_owned()]).collect();
        Refusal::violations(&[Violation { message, path, args }])
    };
    let (count, kind) = (&gpus["@Redfish.RequestedCount"], &gpus["ProcessorType"]);
    let over = &gpus["@Redfish.AllowOverprovisioning"];
    if !over.is_null() && !over.is_boolean() {
        return Err(wrong(
            "PropertyValueTypeError",
            "@Redfish.AllowOverprovisioning",
            over,
        ));
    }
    if kind.as_str().is_some_and(|kind| kind != "GPU") {
        return Err(wrong("PropertyValueNotInList", "ProcessorType", kind));
    }
    let count = match (count.as_u64(), count) {
        (Some(count), _) => count,
        (None, Value::Null) => return Err(wrong("PropertyMissing", "@Redfish.RequestedCount", count)),
        (None, _) => return Err(wrong("PropertyValueTypeError", "@Redfish.RequestedCount", count)),
    };
    let mib = gpus["MemorySummary"]["TotalMemorySizeMiB"].as_u64();
    let memory = mib.map(|mib| json!(Bytes(mib.saturating_mul(1 << 20))));
    let said = [
        ("gpus", Some(json!(count))),
        ("kind", gpus["Model"].as_str().map(Value::from)),
        ("min_memory", memory),
    ];
    let said = said
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(said.collect())
}

/// One of `Oem.Poolwright`.
struct Setting {
    name: String,
    value: Value,
}

/// What `Oem.Poolwright` says, as settings of a demand.
fn of_model(request: &Value) -> Result<Vec<Setting>, Refusal> {
    let said: Map<String, Value> = body::ours(request)?;
    let one = |(pascal, value): (String, Value)| {
        let name = snake_case(&pascal);
        // Written in another way it would be another word of Redfish.
        match SETTINGS.contains(&name) && pascal_case(&name) == pascal {
            true => Ok(Setting {
                value: in_tokens(&name, value),
                name,
            }),
            false => {
                let path = format!("/Oem/Poolwright/{pascal}");
                let args = vec![pascal];
                let message = "PropertyUnknown";
                Err(Refusal::violations(&[Violation { message, path, args }]))
            }
        }
    };
    said.into_iter().map(one).collect()
}

/// Parses a context length with a unit: `8k` is 8192 tokens. Leaves any other text for the later parser to refuse.
fn in_tokens(name: &str, value: Value) -> Value {
    let Some(text) = value.as_str().filter(|_| name == "context") else {
        return value;
    };
    let units = [('k', 1 << 10), ('K', 1 << 10), ('m', 1 << 20), ('M', 1 << 20)];
    let given = units
        .iter()
        .find_map(|(letter, unit)| Some((text.strip_suffix(*letter)?, *unit)));
    let (digits, unit) = given.unwrap_or((text, 1));
    let tokens = digits
        .parse::<u64>()
        .ok()
        .and_then(|tokens| tokens.checked_mul(unit));
    tokens.map_or_else(|| value.clone(), Value::from)
}

/// A name as Redfish writes it as ours: `MicroBatch` is `micro_batch`.
fn snake_case(pascal: &str) -> String {
    let mut snake = String::new();
    for c in pascal.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// And the other way round.
fn pascal_case(snake: &str) -> String {
    let words = snake.split('_').flat_map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters)
    });
    words.collect()
}

/// The id of the demand that a request becomes: its `Name` where that is a valid id, and a random id without one. Any
/// other name gets a digest of itself, so that two names that differ only in special characters are two demands.
fn demand_name(name: Option<&str>) -> DemandId {
    /// The longest name of a demand, and the digest with its dash.
    const LONGEST: usize = 63;
    const DIGEST: usize = 9;
    let name = name.unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(LONGEST)
        .collect();
    let plain = plain.trim_start_matches(['.', '-']);
    if plain.is_empty() {
        return DemandId::from_lossy(&format!("redfish-{}", uuid::Uuid::new_v4().simple()));
    }
    if plain == name {
        return DemandId::from_lossy(plain);
    }
    let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).simple();
    let digest: String = digest.to_string().chars().take(DIGEST - 1).collect();
    let plain: String = plain.chars().take(LONGEST - DIGEST).collect();
    DemandId::from_lossy(&format!("{plain}-{digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_called_as_its_request_says() {
        assert_eq!(demand_name(Some("chat-7_b.2")).as_str(), "chat-7_b.2");
        let long = "x".repeat(63);
        assert_eq!(demand_name(Some(&long)).as_str(), long);
    }

    /// Fault 96: as two requests.
    #[test]
    fn names_that_differ_only_in_special_characters_are_two_demands() {
        let names =
            ["my box", "my-box", "my/box", "my\u{e9}box", "-my-box"].map(|name| demand_name(Some(name)));
        for (at, name) in names.iter().enumerate() {
            assert!(name.as_str().starts_with("my-"), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
        assert_eq!(names[0], demand_name(Some("my box")), "it is the same each time");
        let longer = "x".repeat(64);
        let cut = demand_name(Some(&longer));
        assert!(
            cut.as_str().len() == 63 && cut != demand_name(Some(&longer[..63])),
            "{cut}"
        );
        assert_ne!(demand_name(None), demand_name(Some("!")));
    }
}
