//! The pool in numbers: what each means, and a report of all of them.
//!
//! They are counted when they are asked for, and told once a minute to whoever listens to events.

use super::events::news::{EventId, News};
use super::message::Refusal;
use super::{shown, status, time, uri};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::profile::Profiles;
use poolwright_redfish_model::{
    Collection, Health, MetricReport, MetricReportCollection, MetricReportDefinition,
    MetricReportDefinitionCollection, MetricReportDefinitionMetric, MetricReportDefinitionReportActionsEnum,
    MetricReportDefinitionReportUpdatesEnum, MetricReportDefinitionType, MetricReportMetricValue, Ref,
    Resource, Schedule, State, TelemetryService,
};
use poolwright_service::{Composer, ServiceError, Status};
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
    /// In the words of UCUM.
    units: &'static str,
    /// `None`: it isn't known.
    of: fn(&Numbers) -> Option<usize>,
}

const fn metric(id: &'static str, what: &'static str, of: fn(&Numbers) -> Option<usize>) -> Metric {
    let units = "{count}";
    Metric { id, what, units, of }
}

const fn watts(metric: Metric) -> Metric {
    Metric { units: "W", ..metric }
}

/// What is counted.
struct Numbers {
    status: Status,
    jobs_running: usize,
    jobs_waiting: usize,
    watts_free: f64,
    watts_in_use: f64,
}

impl Numbers {
    async fn of(composer: &Composer) -> Result<Self, ServiceError> {
        let (jobs_running, jobs_waiting) = composer.queue_lengths().await?;
        let pool = composer.snapshot().await?;
        let profiles = Profiles::builtin();
        let (mut watts_free, mut watts_in_use) = (0.0, 0.0);
        let gpus = pool.topology.gpus.iter();
        for gpu in gpus.filter(|gpu| gpu.composability.is_composable()) {
            let kind = gpu.profile.as_deref().and_then(|name| profiles.by_name(name));
            let rated = kind.and_then(|kind| kind.tdp_w).unwrap_or_default();
            match gpu.state {
                GpuState::Free => watts_free += rated,
                _ => watts_in_use += rated,
            }
        }
        Ok(Self {
            status: composer.status().await?,
            jobs_running,
            jobs_waiting,
            watts_free,
            watts_in_use,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what GPUs are rated for is neither negative nor near the limits"
)]
fn whole(watts: f64) -> usize {
    watts.round() as usize
}

const METRICS: [Metric; 15] = [
    metric("GpusKnown", "GPUs that were seen", |now| Some(now.status.gpus)),
    metric("GpusComposable", "GPUs that can be moved between hosts", |now| {
        Some(now.status.composable)
    }),
    metric("GpusFree", "Composable GPUs that nobody has", |now| {
        Some(now.status.free)
    }),
    metric("GpusInUse", "Composable GPUs that are not free", |now| {
        Some(now.status.composable.saturating_sub(now.status.free))
    }),
    metric("Hosts", "Hosts that were seen", |now| Some(now.status.hosts)),
    metric("Compositions", "Compositions that stand", |now| {
        Some(now.status.compositions)
    }),
    metric("OpenOperations", "Operations that have not ended", |now| {
        Some(now.status.open_operations)
    }),
    metric("Alarms", "Operations that somebody must look at", |now| {
        Some(now.status.alarms.len())
    }),
    metric("EndpointsSilent", "Endpoints that do not answer", |now| {
        Some(now.status.silent.len())
    }),
    metric(
        "CertificateDays",
        "Days until the certificate ends that clients are shown",
        |now| {
            let days = now.status.certificate_days?;
            Some(days.try_into().unwrap_or_default())
        },
    ),
    metric("Faults", "Faults in the last look at the pool", |now| {
        Some(now.status.faults)
    }),
    metric("JobsRunning", "Jobs of the queue that have begun", |now| {
        Some(now.jobs_running)
    }),
    metric("JobsWaiting", "Jobs of the queue that wait", |now| {
        Some(now.jobs_waiting)
    }),
    watts(metric(
        "RatedWattsInUse",
        "What the composable GPUs that are not free are rated for; not measured",
        |now| Some(whole(now.watts_in_use)),
    )),
    watts(metric(
        "RatedWattsFree",
        "What the free composable GPUs are rated for; not measured",
        |now| Some(whole(now.watts_free)),
    )),
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
        "Units": metric.units,
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
        true => Ok(Some(shown(&counted(&Numbers::of(composer).await?))?)),
        false => Ok(None),
    }
}

fn counted(numbers: &Numbers) -> MetricReport {
    let at = time(numbers.status.now);
    let value = |metric: &Metric| {
        let counted = (metric.of)(numbers)?;
        Some(MetricReportMetricValue {
            metric_id: Some(metric.id.into()),
            metric_value: Some(counted.to_string()),
            metric_definition: Some(Ref::to(definition_at(metric.id))),
            timestamp: Some(at.clone()),
            ..MetricReportMetricValue::default()
        })
    };
    MetricReport {
        id: Some(REPORT.into()),
        name: Some("The pool in numbers".into()),
        timestamp: Some(at.clone()),
        metric_values: Some(METRICS.iter().filter_map(value).collect()),
        metric_report_definition: Some(Ref::to(report_definition_at())),
        ..MetricReport::at(report_at())
    }
}

/// The numbers as they are now, for whoever listens: between what the log had by then and what it has later.
pub(crate) async fn news(composer: &Composer, seq: u64) -> Result<News, Refusal> {
    let numbers = Numbers::of(composer).await?;
    let id = EventId { seq, part: u32::MAX };
    let facets = json!({ "EventFormatType": "MetricReport", "EventType": "MetricReport" });
    let sent_as = format!("{seq}.report-{}", numbers.status.now.as_second());
    Ok(News::new(id, &sent_as, facets, &shown(&counted(&numbers))?))
}
