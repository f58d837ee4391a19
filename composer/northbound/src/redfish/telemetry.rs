//! The pool in numbers: what each means, and a report of all of them.
//!
//! They are counted when they are asked for, and told once a minute to whoever listens to events.

use super::events::news::{EventId, News};
use super::message::Refusal;
use super::{shown, status, time, uri};
use poolwright_redfish_model::{
    Collection, Health, MetricReport, MetricReportCollection, MetricReportDefinition,
    MetricReportDefinitionCollection, MetricReportDefinitionMetric, MetricReportDefinitionReportActionsEnum,
    MetricReportDefinitionReportUpdatesEnum, MetricReportDefinitionType, MetricReportMetricValue, Ref,
    Resource, Schedule, State, TelemetryService,
};
use poolwright_service::{Composer, Status};
use serde_json::{Value, json};
use std::time::Duration;

/// How often whoever listens is told.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
const PERIOD_TEXT: &str = "PT1M";

/// The one report.
const REPORT: &str = "Pool";

/// One number.
struct Metric {
    id: &'static str,
    /// What it counts.
    what: &'static str,
    of: fn(&Status) -> usize,
}

const fn metric(id: &'static str, what: &'static str, of: fn(&Status) -> usize) -> Metric {
    Metric { id, what, of }
}

const METRICS: [Metric; 10] = [
    metric("GpusKnown", "GPUs that were seen", |now| now.gpus),
    metric("GpusComposable", "GPUs that can be moved between hosts", |now| {
        now.composable
    }),
    metric("GpusFree", "Composable GPUs that nobody has", |now| now.free),
    metric("GpusInUse", "Composable GPUs that are not free", |now| {
        now.composable.saturating_sub(now.free)
    }),
    metric("Hosts", "Hosts that were seen", |now| now.hosts),
    metric("Compositions", "Compositions that stand", |now| now.compositions),
    metric("OpenOperations", "Operations that have not ended", |now| {
        now.open_operations
    }),
    metric("Alarms", "Operations that somebody must look at", |now| {
        now.alarms.len()
    }),
    metric("EndpointsSilent", "Endpoints that do not answer", |now| {
        now.silent.len()
    }),
    metric("Faults", "Faults in the last look at the pool", |now| now.faults),
];

pub(crate) fn service() -> TelemetryService {
    TelemetryService {
        id: Some("TelemetryService".into()),
        name: Some("The pool in numbers".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        max_reports: Some(1),
        min_collection_interval: Some(PERIOD_TEXT.into()),
        metric_definitions: Some(uri::link("TelemetryService/MetricDefinitions")),
        metric_report_definitions: Some(uri::link("TelemetryService/MetricReportDefinitions")),
        metric_reports: Some(uri::link("TelemetryService/MetricReports")),
        ..TelemetryService::at(uri::at("TelemetryService"))
    }
}

fn definition_at(id: &str) -> String {
    uri::at(&format!("TelemetryService/MetricDefinitions/{id}"))
}

fn report_definition_at() -> String {
    uri::at(&format!("TelemetryService/MetricReportDefinitions/{REPORT}"))
}

fn report_at() -> String {
    uri::at(&format!("TelemetryService/MetricReports/{REPORT}"))
}

pub(crate) fn definitions() -> Value {
    let members = METRICS.map(|metric| json!({ "@odata.id": definition_at(metric.id) }));
    json!({
        "@odata.id": uri::at("TelemetryService/MetricDefinitions"),
        "@odata.type": "#MetricDefinitionCollection.MetricDefinitionCollection",
        "Name": "Metrics",
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

pub(crate) fn definition(id: &str) -> Option<Value> {
    let metric = METRICS.iter().find(|metric| metric.id == id)?;
    Some(json!({
        "@odata.id": definition_at(id),
        "@odata.type": "#MetricDefinition.v1_3_5.MetricDefinition",
        "Id": id,
        "Name": metric.what,
        "MetricType": "Numeric",
        "MetricDataType": "Integer",
        "Implementation": "Calculated",
        "Calculable": "NonSummable",
        "Units": "{count}",
        "IsLinear": true,
    }))
}

pub(crate) fn report_definitions() -> MetricReportDefinitionCollection {
    let place = uri::at("TelemetryService/MetricReportDefinitions");
    MetricReportDefinitionCollection::of(place, "Reports", uri::links([report_definition_at()]))
}

pub(crate) fn report_definition(name: &str) -> Option<MetricReportDefinition> {
    let metric = |metric: Metric| MetricReportDefinitionMetric {
        metric_id: Some(metric.id.into()),
        ..MetricReportDefinitionMetric::default()
    };
    (name == REPORT).then(|| MetricReportDefinition {
        id: Some(REPORT.into()),
        name: Some("The pool in numbers".into()),
        metric_report_definition_enabled: Some(true),
        metric_report_definition_type: Some(MetricReportDefinitionType::Periodic),
        report_actions: Some(vec![MetricReportDefinitionReportActionsEnum::RedfishEvent]),
        report_updates: Some(MetricReportDefinitionReportUpdatesEnum::Overwrite),
        schedule: Some(Box::new(Schedule {
            recurrence_interval: Some(PERIOD_TEXT.into()),
            ..Schedule::default()
        })),
        status: status::status(State::Enabled, Some(Health::OK)),
        metrics: Some(METRICS.map(metric).into()),
        metric_report: Some(Ref::to(report_at())),
        ..MetricReportDefinition::at(report_definition_at())
    })
}

pub(crate) fn reports() -> MetricReportCollection {
    let place = uri::at("TelemetryService/MetricReports");
    MetricReportCollection::of(place, "Reports", uri::links([report_at()]))
}

/// The numbers as they are now.
pub(crate) async fn report(composer: &Composer, name: &str) -> Result<Option<Value>, Refusal> {
    match name == REPORT {
        true => Ok(Some(shown(&counted(&composer.status().await?))?)),
        false => Ok(None),
    }
}

fn counted(status: &Status) -> MetricReport {
    let at = time(status.now);
    let value = |metric: Metric| MetricReportMetricValue {
        metric_id: Some(metric.id.into()),
        metric_value: Some((metric.of)(status).to_string()),
        metric_definition: Some(Ref::to(definition_at(metric.id))),
        timestamp: Some(at.clone()),
        ..MetricReportMetricValue::default()
    };
    MetricReport {
        id: Some(REPORT.into()),
        name: Some("The pool in numbers".into()),
        timestamp: Some(at.clone()),
        metric_values: Some(METRICS.map(value).into()),
        metric_report_definition: Some(Ref::to(report_definition_at())),
        ..MetricReport::at(report_at())
    }
}

/// The numbers as they are now, for whoever listens: between what the log had by then and what it has later.
pub(crate) async fn news(composer: &Composer, seq: u64) -> Result<News, Refusal> {
    let status = composer.status().await?;
    let id = EventId { seq, part: u32::MAX };
    let facets = json!({ "EventFormatType": "MetricReport", "EventType": "MetricReport" });
    let sent_as = format!("{seq}.report-{}", status.now.as_second());
    Ok(News::new(id, &sent_as, facets, &shown(&counted(&status))?))
}
