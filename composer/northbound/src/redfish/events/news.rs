//! What happened, as Redfish's events: each is written once, for all who listen. Pure.
//!
//! The ids of messages are DMTF's (registries ResourceEvent and TaskEvent); the texts are ours.

use crate::redfish::names::plain;
use crate::redfish::{aggregation, time, uri};
use axum::body::Bytes;
use poolwright_redfish_model::{Event, EventRecord, EventType, Health, Ref};
use poolwright_service::{Became, Happening, OperationState, Severity, TestEvent, Thing, Turn, What};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// The registries that messages are of: name, version as in ids of messages, version as published.
pub(crate) const REGISTRIES: [(&str, &str, &str); 2] =
    [("ResourceEvent", "1.4", "1.4.3"), ("TaskEvent", "1.0", "1.0.5")];

/// The kinds of resources that events tell of.
pub(crate) const RESOURCE_TYPES: [&str; 6] = [
    "AggregationSource",
    "ComputerSystem",
    "ManagerAccount",
    "PCIeDevice",
    "ResourceBlock",
    "Task",
];

/// The messages that events have, and that of a test.
pub(crate) const MESSAGES: [&str; 13] = [
    "ResourceEvent.ResourceChanged",
    "ResourceEvent.ResourceCreated",
    "ResourceEvent.ResourceRemoved",
    "ResourceEvent.ResourceStateChanged",
    "ResourceEvent.ResourceStatusChangedCritical",
    "ResourceEvent.ResourceStatusChangedOK",
    "ResourceEvent.ResourceStatusChangedWarning",
    "ResourceEvent.TestMessage",
    "TaskEvent.TaskAborted",
    "TaskEvent.TaskCancelled",
    "TaskEvent.TaskCompletedOK",
    "TaskEvent.TaskPaused",
    "TaskEvent.TaskStarted",
];

/// Which event it is: the number of the log's entry, and which one of what that entry tells. They grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId {
    pub seq: u64,
    pub part: u32,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.seq, self.part)
    }
}

impl FromStr for EventId {
    type Err = ();

    /// Of a report only the entry that it came after counts.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (seq, part) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self {
            seq: seq.parse().map_err(|_| ())?,
            part: part.parse().unwrap_or(u32::MAX),
        })
    }
}

/// One payload.
#[derive(Debug)]
pub(crate) struct News {
    /// What is looked at to choose, by the names that DSP0266 gives it.
    pub facets: Value,
    pub letter: Letter,
}

/// What is sent: written once, shared by all who are sent it.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub id: EventId,
    /// `Event` or `MetricReport`, as JSON.
    pub payload: Bytes,
    /// The same as a server-sent event.
    pub streamed: Bytes,
}

impl Letter {
    fn new(id: EventId, sent_as: &str, payload: &str) -> Self {
        let head = format!("id: {sent_as}\ndata: ");
        let streamed = Bytes::from(format!("{head}{payload}\n\n"));
        Self {
            id,
            payload: streamed.slice(head.len()..streamed.len() - 2),
            streamed,
        }
    }
}

/// The pool in numbers. It belongs to no entry of the log: each listener puts it behind the entries sent so far, so that
/// the ids of one stream increase.
#[derive(Debug)]
pub(crate) struct Report {
    /// Larger than the number of every earlier report.
    number: u64,
    pub facets: Value,
    payload: String,
}

impl Report {
    pub fn new(number: u64, facets: Value, payload: &Value) -> Self {
        Self {
            number,
            facets,
            payload: payload.to_string(),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Behind an entry of the log.
    pub fn behind(&self, seq: u64) -> Letter {
        let id = EventId { seq, part: u32::MAX };
        Letter::new(id, &format!("{seq}.report-{}", self.number), &self.payload)
    }
}

/// What is told of one resource.
struct Told {
    /// Such as `ResourceEvent.ResourceCreated`.
    message: &'static str,
    args: Vec<String>,
    text: String,
    severity: Health,
    origin: String,
    resource_type: &'static str,
}

/// The events that tell an entry of the log.
pub(crate) fn of(happening: &Happening) -> Vec<News> {
    let records = match &happening.what {
        What::Test(test) => vec![test_record(test)],
        what => told(what).into_iter().map(record).collect(),
    };
    let mut news = Vec::with_capacity(records.len());
    for (part, (record, resource_type)) in (0..).zip(records) {
        let id = EventId {
            seq: happening.seq,
            part,
        };
        let record = EventRecord {
            event_timestamp: record.event_timestamp.or_else(|| Some(time(happening.at))),
            event_id: record.event_id.or(Some(id.to_string())),
            member_id: Some("0".into()),
            ..record
        };
        news.push(one(id, record, resource_type));
    }
    news
}

fn one(id: EventId, record: EventRecord, resource_type: &str) -> News {
    let message = record.message_id.clone().unwrap_or_default();
    let facets = json!({
        "EventFormatType": "Event",
        "EventType": record.event_type.as_ref().map(EventType::as_str),
        "MessageId": message,
        "RegistryPrefix": message.split('.').next(),
        "ResourceType": resource_type,
        "OriginResource": record.origin_of_condition.as_ref().and_then(Ref::uri),
    });
    let event = Event {
        odata_type: Some(Event::ODATA_TYPE.into()),
        id: Some(id.to_string()),
        name: Some("What happened".into()),
        events: Some(vec![record]),
        ..Event::default()
    };
    News {
        facets,
        letter: Letter::new(id, &id.to_string(), &json!(event).to_string()),
    }
}

fn record(told: Told) -> (EventRecord, &'static str) {
    let resource_type = told.resource_type;
    let record = EventRecord {
        event_type: Some(match told.message {
            "ResourceEvent.ResourceCreated" => EventType::ResourceAdded,
            "ResourceEvent.ResourceRemoved" => EventType::ResourceRemoved,
            "ResourceEvent.ResourceChanged" => EventType::ResourceUpdated,
            "ResourceEvent.ResourceStateChanged" => EventType::StatusChange,
            "ResourceEvent.ResourceStatusChangedWarning" | "ResourceEvent.ResourceStatusChangedCritical" => {
                EventType::Alert
            }
            _ => EventType::StatusChange,
        }),
        message_id: Some(versioned(told.message)),
        message_args: Some(told.args),
        message: Some(told.text),
        severity: Some(told.severity.to_string()),
        message_severity: Some(told.severity),
        origin_of_condition: Some(Ref::to(told.origin)),
        ..EventRecord::default()
    };
    (record, resource_type)
}

/// `ResourceEvent.ResourceCreated` with the version of its registry.
pub(crate) fn versioned(message: &str) -> String {
    debug_assert!(MESSAGES.contains(&message), "{message} can be subscribed to");
    let (registry, id) = message.split_once('.').unwrap_or((message, ""));
    let known = REGISTRIES.iter().find(|(name, ..)| *name == registry);
    let version = known.map_or("1.0", |(_, version, _)| version);
    format!("{registry}.{version}.{id}")
}

fn told(what: &What) -> Vec<Told> {
    match what {
        What::Operation {
            operation,
            state,
            compositions,
        } => {
            let task = of_task(operation.as_str(), *state);
            let systems = compositions.iter();
            let systems = systems.map(|(id, became)| of_system(id.as_str(), *became));
            task.into_iter().chain(systems).collect()
        }
        What::Unit { unit, bound } => {
            let name = plain(unit.as_str());
            let state = if *bound { "Composed" } else { "Unused" };
            vec![Told {
                message: "ResourceEvent.ResourceStateChanged",
                text: format!("{name} is {state}."),
                args: vec![name.clone(), state.to_owned()],
                severity: Health::OK,
                origin: uri::block(&name),
                resource_type: "ResourceBlock",
            }]
        }
        What::Alarm {
            operation,
            severity,
            message,
        } => {
            let name = plain(operation.as_str());
            let (id, health) = match severity {
                Severity::Warning => ("ResourceEvent.ResourceStatusChangedWarning", Health::Warning),
                Severity::Critical => ("ResourceEvent.ResourceStatusChangedCritical", Health::Critical),
            };
            vec![Told {
                message: id,
                text: message.clone(),
                args: vec![name.clone(), health.to_string()],
                severity: health,
                origin: uri::task(&name),
                resource_type: "Task",
            }]
        }
        What::Thing { thing, became } => vec![of_thing(thing, became)],
        What::Test(_) => Vec::new(),
    }
}

fn of_thing(thing: &Thing, became: &Turn) -> Told {
    let (what, name, origin, resource_type) = match thing {
        Thing::Gpu { id, chassis } => {
            let name = plain(id.as_str());
            let chassis = chassis.as_ref().map(|chassis| plain(chassis.as_str()));
            let origin = chassis.map_or_else(|| uri::at("Chassis"), |chassis| uri::device(&chassis, &name));
            ("GPU", name, origin, "PCIeDevice")
        }
        Thing::Endpoint(id) => {
            let name = plain(id.as_str());
            let origin = aggregation::place(&name);
            ("Endpoint", name, origin, "AggregationSource")
        }
        Thing::Account(name) => {
            let name = plain(name);
            let origin = uri::at(&format!("AccountService/Accounts/{name}"));
            ("Account", name, origin, "ManagerAccount")
        }
    };
    let (message, severity, text) = match became {
        Turn::Added => ("ResourceEvent.ResourceCreated", Health::OK, "is there".to_owned()),
        Turn::Changed => (
            "ResourceEvent.ResourceChanged",
            Health::OK,
            "was changed".to_owned(),
        ),
        Turn::Removed => ("ResourceEvent.ResourceRemoved", Health::OK, "is gone".to_owned()),
        Turn::Lost { because } => (
            "ResourceEvent.ResourceStatusChangedCritical",
            Health::Critical,
            format!("gives no answer: {because}"),
        ),
        Turn::Back => (
            "ResourceEvent.ResourceStatusChangedOK",
            Health::OK,
            "answers again".to_owned(),
        ),
        Turn::Suspect { because } => (
            "ResourceEvent.ResourceStatusChangedWarning",
            Health::Warning,
            format!("is suspect: {because}"),
        ),
        Turn::Sound => (
            "ResourceEvent.ResourceStatusChangedOK",
            Health::OK,
            "is suspect no more".to_owned(),
        ),
    };
    let args = match became {
        Turn::Lost { .. } | Turn::Back | Turn::Suspect { .. } | Turn::Sound => {
            vec![name.clone(), severity.to_string()]
        }
        Turn::Added | Turn::Changed | Turn::Removed => Vec::new(),
    };
    Told {
        message,
        args,
        text: format!("{what} {name} {text}."),
        severity,
        origin,
        resource_type,
    }
}

fn of_task(operation: &str, state: OperationState) -> Option<Told> {
    let (message, text, severity) = match state {
        OperationState::Pending => return None,
        OperationState::Running => ("TaskEvent.TaskStarted", "goes on", Health::OK),
        OperationState::Unwinding => return None,
        OperationState::Indeterminate => (
            "TaskEvent.TaskPaused",
            "waits for an outcome that nobody knows",
            Health::Warning,
        ),
        OperationState::Quarantined => ("TaskEvent.TaskPaused", "waits for somebody", Health::Warning),
        OperationState::Completed => ("TaskEvent.TaskCompletedOK", "is done", Health::OK),
        OperationState::Cancelled => (
            "TaskEvent.TaskCancelled",
            "was cancelled, and undone",
            Health::Warning,
        ),
        OperationState::RolledBack => (
            "TaskEvent.TaskAborted",
            "failed, and was undone",
            Health::Critical,
        ),
        OperationState::Failed => ("TaskEvent.TaskAborted", "failed", Health::Critical),
    };
    let name = plain(operation);
    Some(Told {
        message,
        text: format!("Task {name} {text}."),
        severity,
        origin: uri::task(&name),
        args: vec![name],
        resource_type: "Task",
    })
}

fn of_system(composition: &str, became: Became) -> Told {
    let name = plain(composition);
    let (message, text) = match became {
        Became::Made => ("ResourceEvent.ResourceCreated", "was composed"),
        Became::Changed => ("ResourceEvent.ResourceChanged", "holds other GPUs"),
        Became::Removed => ("ResourceEvent.ResourceRemoved", "was decomposed"),
    };
    Told {
        message,
        text: format!("System {name} {text}."),
        args: Vec::new(),
        severity: Health::OK,
        origin: uri::system(&name),
        resource_type: "ComputerSystem",
    }
}

/// As somebody wants it told who tries out who listens.
fn test_record(test: &TestEvent) -> (EventRecord, &'static str) {
    let severity = test.severity.as_deref().unwrap_or("OK");
    let record = EventRecord {
        event_type: Some(match &test.event_type {
            Some(text) => EventType::from(text.as_str()),
            None => EventType::Alert,
        }),
        event_timestamp: test.happened.map(time),
        event_id: test.event_id.clone(),
        message_id: Some(test.message_id.clone()),
        message_args: Some(test.args.clone()),
        message: Some(test.message.clone().unwrap_or_else(|| "A test.".into())),
        severity: Some(severity.to_owned()),
        message_severity: Some(Health::from(severity)),
        origin_of_condition: test.origin.clone().map(Ref::to),
        ..EventRecord::default()
    };
    (record, "")
}
