//! The pool in numbers: what each means, and a report of all of them. Beside it are the reports of single GPUs
//! ([`super::measured`]).
//!
//! They are counted when they are asked for, and told once a minute to whoever listens to events.

use super::events::news::Report;
use super::message::Refusal;
use super::pool::Pool;
use super::{measured, shown, status, time, uri};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::profile::Profiles;
use poolwright_redfish_model::{
    Collection, Health, MetricReport, MetricReportCollection, MetricReportDefinition,
    MetricReportDefinitionCollection, MetricReportDefinitionMetric, MetricReportDefinitionReportActionsEnum,
    MetricReportDefinitionReportUpdatesEnum, MetricReportDefinitionType, MetricReportMetricValue, Ref,
    Resource, Schedule, State, TelemetryService,
};
use poolwright_service::telemetry::Telemetry;
use poolwright_service::{Composer, ServiceError, Status};
use serde_json::{Value, json};
use std::time::Duration;

/// How often whoever listens is told.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
const PERIOD_TEXT: &str = "PT1M";

/// The report of the pool.
pub(super) const REPORT: &str = "Pool";

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
    suspects: usize,
    measured: Measured,
}

/// The current readings of agents, without stale ones.
#[derive(Default)]
struct Measured {
    gpus: usize,
    /// Of those that tell it.
    milliwatts: Option<u64>,
    /// Of how many, and all together.
    busy: (usize, usize),
}

impl Measured {
    fn of(all: &[Telemetry]) -> Self {
        let mut measured = Self::default();
        for one in all.iter().filter(|one| !one.stale) {
            measured.gpus += 1;
            if let Some(power) = one.power_mw {
                *measured.milliwatts.get_or_insert_default() += u64::from(power);
            }
            if let Some(percent) = one.utilization_percent {
                let (gpus, sum) = measured.busy;
                measured.busy = (gpus + 1, sum + percent as usize);
            }
        }
        measured
    }

    fn watts(&self) -> Option<usize> {
        let milliwatts = self.milliwatts?;
        usize::try_from((milliwatts + 500) / 1000).ok()
    }

    fn busy_percent(&self) -> Option<usize> {
        let (gpus, sum) = self.busy;
        (sum + gpus / 2).checked_div(gpus)
    }
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
            suspects: composer.suspects().await?.len(),
            measured: Measured::of(&composer.telemetry()),
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

const METRICS: [Metric; 19] = [
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
    metric(
        "GpusSuspect",
        "GPUs whose links have more errors than a sound one has",
        |now| Some(now.suspects),
    ),
    metric("GpusMeasured", "GPUs that agents measure just now", |now| {
        Some(now.measured.gpus)
    }),
    watts(metric(
        "MeasuredWatts",
        "What the GPUs take that agents measure just now; of the others it is not known",
        |now| now.measured.watts(),
    )),
    Metric {
        units: "%",
        ..metric(
            "MeasuredBusyPercent",
            "Of the time, how much something ran on the GPUs that agents measure just now, on average",
            |now| now.measured.busy_percent(),
        )
    },
];

pub(crate) fn service() -> TelemetryService {
    TelemetryService {
        id: Some("TelemetryService".into()),
        name: Some("The pool in numbers".into()),
        service_enabled: Some(true),
        status: status::enabled(),
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
    let places = METRICS.iter().map(|metric| definition_at(metric.id));
    let members = uri::links(places.chain(measured::definition_places()));
    json!({
        "@odata.id": uri::at("TelemetryService/MetricDefinitions"),
        "@odata.type": "#MetricDefinitionCollection.MetricDefinitionCollection",
        "Name": "Metrics",
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

pub(crate) fn definition(id: &str) -> Option<Value> {
    let Some(metric) = METRICS.iter().find(|metric| metric.id == id) else {
        return measured::definition(id);
    };
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

pub(crate) fn report_definitions(pool: &Pool, composer: &Composer) -> MetricReportDefinitionCollection {
    let place = uri::at("TelemetryService/MetricReportDefinitions");
    let own = std::iter::once(report_definition_at());
    let all = uri::links(own.chain(measured::report_definition_places(pool, composer)));
    MetricReportDefinitionCollection::of(place, "Reports", all)
}

pub(crate) fn report_definition() -> MetricReportDefinition {
    let metric = |metric: Metric| MetricReportDefinitionMetric {
        metric_id: Some(metric.id.into()),
        ..MetricReportDefinitionMetric::default()
    };
    MetricReportDefinition {
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
    }
}

pub(crate) fn reports(pool: &Pool, composer: &Composer) -> MetricReportCollection {
    let place = uri::at("TelemetryService/MetricReports");
    let own = std::iter::once(report_at());
    let all = uri::links(own.chain(measured::report_places(pool, composer)));
    MetricReportCollection::of(place, "Reports", all)
}

/// The numbers as they are now.
pub(crate) async fn report(composer: &Composer) -> Result<Value, Refusal> {
    shown(&counted(&Numbers::of(composer).await?))
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

/// The numbers as they are now, for event listeners. `before`: the number of the last such report.
pub(crate) async fn news(composer: &Composer, before: u64) -> Result<Report, Refusal> {
    let numbers = Numbers::of(composer).await?;
    let facets = json!({ "EventFormatType": "MetricReport", "EventType": "MetricReport" });
    // The time, so that numbers increase across restarts; `before`, because a clock may be set back.
    let now = u64::try_from(numbers.status.now.as_second()).unwrap_or_default();
    Ok(Report::new(
        now.max(before + 1),
        facets,
        &shown(&counted(&numbers))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(power_mw: Option<u32>, utilization_percent: Option<u32>, stale: bool) -> Telemetry {
        let told = json!({
            "gpu": "g", "host": "h", "at": "2026-03-02T12:00:00Z", "age_s": 3, "stale": stale,
            "power_mw": power_mw, "utilization_percent": utilization_percent,
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn what_is_old_or_not_told_is_not_counted() {
        let none = Measured::of(&[told(Some(300_000), Some(100), true)]);
        assert_eq!((none.gpus, none.watts(), none.busy_percent()), (0, None, None));
        let some = Measured::of(&[
            told(Some(71_250), Some(41), false),
            told(Some(300_000), None, false),
            told(None, Some(0), false),
            told(Some(9_000_000), Some(100), true),
        ]);
        assert_eq!(
            (some.gpus, some.watts(), some.busy_percent()),
            (3, Some(371), Some(21))
        );
    }
}
