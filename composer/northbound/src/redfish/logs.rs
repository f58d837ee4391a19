//! The audit log as a log service of the manager: its latest entries, the latest first.

use super::message::Refusal;
use super::{managers, shown, status, time, uri};
use crate::Api;
use poolwright_redfish_model::{
    Collection, LogEntry, LogEntryCollection, LogEntryEventSeverity, LogEntryOriginatorTypes, LogEntryType,
    LogService, LogServiceCollection, LogServiceLogEntryTypes, LogServiceLogPurpose,
    LogServiceOverWritePolicy, Resource,
};
use poolwright_service::audit::{Entry, Kind, MOST};
use serde_json::Value;

/// What it is called.
const AUDIT: &str = "Audit";
/// So many of its entries are listed; the JSON API has all.
const LISTED: u32 = 200;
/// How an entry is told apart from others of its type.
const FORMAT: &str = "Poolwright audit";

fn below(path: &str) -> String {
    uri::at(&format!("Managers/{}/LogServices{path}", managers::SELF))
}

fn entry_at(seq: u64) -> String {
    below(&format!("/{AUDIT}/Entries/{seq}"))
}

pub(crate) fn all() -> LogServiceCollection {
    let members = uri::links([below(&format!("/{AUDIT}"))]);
    LogServiceCollection::of(below(""), "Logs", members)
}

pub(crate) fn one(name: &str, now: jiff::Timestamp) -> Option<LogService> {
    (name == AUDIT).then(|| LogService {
        id: Some(AUDIT.into()),
        name: Some("Audit log".into()),
        description: Some("Every change that was asked for, what came of it, and every denial".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        date_time: Some(time(now)),
        log_entry_type: Some(LogServiceLogEntryTypes::OEM),
        log_purposes: Some(vec![LogServiceLogPurpose::Security]),
        over_write_policy: Some(LogServiceOverWritePolicy::WrapsWhenFull),
        max_number_of_records: i64::try_from(MOST).ok(),
        persistency: Some(true),
        entries: Some(uri::link(&format!(
            "Managers/{}/LogServices/{AUDIT}/Entries",
            managers::SELF
        ))),
        ..LogService::at(below(&format!("/{AUDIT}")))
    })
}

/// With its members as they are, and not as links to them: so Redfish wants it of logs.
pub(crate) async fn entries(api: &Api) -> Result<Value, Refusal> {
    let latest = api.composer.audit().latest(LISTED).await?;
    let members: Result<Vec<Value>, Refusal> = latest.iter().rev().map(|entry| shown(&told(entry))).collect();
    let at = below(&format!("/{AUDIT}/Entries"));
    let mut collection = shown(&LogEntryCollection::of(
        at,
        "Entries of the audit log",
        Vec::new(),
    ))?;
    collection["Members@odata.count"] = latest.len().into();
    collection["Members"] = members?.into();
    Ok(collection)
}

pub(crate) async fn entry(api: &Api, seq: &str) -> Result<Option<Value>, Refusal> {
    let Ok(number) = seq.parse::<u64>() else {
        return Ok(None);
    };
    let found = api.composer.audit().one(number).await?;
    // One number has one name: 7 is not 07.
    let found = found.filter(|_| number.to_string() == seq);
    found.map(|entry| shown(&told(&entry))).transpose()
}

/// What kind of entry it is, as ids of messages are written: ours, as its format is.
fn message_id(kind: Kind) -> String {
    let kind = match kind {
        Kind::Asked => "Asked",
        Kind::Answered => "Answered",
        Kind::Denied => "Denied",
        Kind::Began => "Began",
        Kind::Ended => "Ended",
    };
    format!("PoolwrightAudit.1.0.{kind}")
}

fn told(entry: &Entry) -> LogEntry {
    let record = &entry.record;
    let severity = match record.kind {
        Kind::Denied => LogEntryEventSeverity::Warning,
        Kind::Asked | Kind::Answered | Kind::Began | Kind::Ended => LogEntryEventSeverity::OK,
    };
    LogEntry {
        id: Some(entry.seq.to_string()),
        name: Some(format!("Entry {}", entry.seq)),
        entry_type: Some(LogEntryType::Oem),
        oem_record_format: Some(FORMAT.into()),
        created: Some(time(entry.at)),
        severity: Some(severity),
        message: Some(entry.to_string()),
        message_id: Some(message_id(record.kind)),
        username: record.by.clone(),
        originator_type: Some(LogEntryOriginatorTypes::Client),
        originator: Some(record.from.clone()).filter(|from| !from.is_empty()),
        persistency: Some(true),
        ..LogEntry::at(entry_at(entry.seq))
    }
}
