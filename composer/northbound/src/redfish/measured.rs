//! Agent telemetry of each GPU: in the metrics of its processor, and in one report for each host with telemetry, so
//! that no answer grows with the pool.
//!
//! Stale and missing readings are left out: a zero would be wrong. `/api/v1/telemetry` has the readings without a
//! Redfish property, such as memory in use.

use super::pool::Pool;
use super::{systems, time, uri};
use jiff::Timestamp;
use poolwright_redfish_model::{
    EnvironmentMetrics, MetricReport, MetricReportDefinition, MetricReportDefinitionMetric,
    MetricReportDefinitionReportActionsEnum, MetricReportDefinitionReportUpdatesEnum,
    MetricReportDefinitionType, MetricReportMetricValue, PCIeDevicePCIeErrors, ProcessorMetrics, Ref,
    Resource, SensorExcerpt,
};
use poolwright_service::Composer;
use poolwright_service::telemetry::Telemetry;
use serde_json::{Number, Value, json};

/// Before the name of a host's system, in the name of its report.
const REPORT: &str = "GPUs-";

/// One number of a GPU.
struct Metric {
    id: &'static str,
    /// The description.
    what: &'static str,
    /// In the words of UCUM.
    units: &'static str,
    /// `Gauge`, or `Counter`: monotonic until a reset.
    metric_type: &'static str,
    /// Where it is, below the GPU's processor.
    property: &'static str,
    of: fn(&Telemetry) -> Option<Number>,
}

const METRICS: [Metric; 5] = [
    Metric {
        id: "GpuBusyPercent",
        what: "Of the time, how much something ran on the GPU",
        units: "%",
        metric_type: "Gauge",
        property: "ProcessorMetrics#/BandwidthPercent",
        of: |told| Some(told.utilization_percent?.into()),
    },
    Metric {
        id: "GpuWatts",
        what: "What the GPU takes",
        units: "W",
        metric_type: "Gauge",
        property: "EnvironmentMetrics#/PowerWatts/Reading",
        of: |told| thousandths(told.power_mw?.into()),
    },
    Metric {
        id: "GpuJoules",
        what: "What the GPU has taken since its driver was loaded",
        units: "J",
        metric_type: "Counter",
        property: "EnvironmentMetrics#/EnergyJoules/Reading",
        of: |told| thousandths(told.energy_mj?),
    },
    Metric {
        id: "GpuCelsius",
        what: "How warm the GPU is",
        units: "Cel",
        metric_type: "Gauge",
        property: "EnvironmentMetrics#/TemperatureCelsius/Reading",
        of: |told| Some(told.temperature_c?.into()),
    },
    Metric {
        id: "GpuLinkErrorsCorrected",
        what: "Errors that were put right on the link of the GPU, as both of its ends have counted since they came",
        units: "{count}",
        metric_type: "Counter",
        property: "ProcessorMetrics#/PCIeErrors/CorrectableErrorCount",
        of: |told| Some(told.correctable_errors?.into()),
    },
];

/// Whole numbers stay whole.
#[expect(
    clippy::cast_precision_loss,
    reason = "beyond 2^53 the thousandths of what a GPU took are not missed"
)]
fn thousandths(number: u64) -> Option<Number> {
    match number % 1000 {
        0 => Some((number / 1000).into()),
        _ => Number::from_f64(number as f64 / 1000.0),
    }
}

fn definition_at(id: &str) -> String {
    uri::at(&format!("TelemetryService/MetricDefinitions/{id}"))
}

fn report_definition_at(system: &str) -> String {
    uri::at(&format!(
        "TelemetryService/MetricReportDefinitions/{REPORT}{system}"
    ))
}

fn report_at(system: &str) -> String {
    uri::at(&format!("TelemetryService/MetricReports/{REPORT}{system}"))
}

pub(super) fn definition_places() -> impl Iterator<Item = String> {
    METRICS.iter().map(|metric| definition_at(metric.id))
}

pub(super) fn definition(id: &str) -> Option<Value> {
    let metric = METRICS.iter().find(|metric| metric.id == id)?;
    Some(json!({
        "@odata.id": definition_at(id),
        "@odata.type": "#MetricDefinition.v1_3_5.MetricDefinition",
        "Id": id,
        "Name": metric.what,
        "MetricType": metric.metric_type,
        "MetricDataType": "Decimal",
        "Implementation": "PhysicalSensor",
        "PhysicalContext": "GPU",
        "Calculable": "NonSummable",
        "Units": metric.units,
        "IsLinear": true,
    }))
}

/// The systems of hosts at which something was measured within a day.
fn measured_systems(pool: &Pool, composer: &Composer) -> Vec<String> {
    let hosts = composer.measured_hosts();
    let names = hosts.iter().filter_map(|host| pool.system_of(host));
    names.map(str::to_owned).collect()
}

pub(super) fn report_definition_places(pool: &Pool, composer: &Composer) -> Vec<String> {
    let systems = measured_systems(pool, composer);
    systems
        .iter()
        .map(|system| report_definition_at(system))
        .collect()
}

pub(super) fn report_places(pool: &Pool, composer: &Composer) -> Vec<String> {
    let systems = measured_systems(pool, composer);
    systems.iter().map(|system| report_at(system)).collect()
}

/// The system that the report of this name covers, and the telemetry of each of its GPUs, by GPU name.
fn reported<'a>(
    pool: &'a Pool,
    composer: &Composer,
    name: &'a str,
) -> Option<(&'a str, Vec<(&'a str, Telemetry)>)> {
    let system = name.strip_prefix(REPORT)?;
    let host = &pool.host(system)?.id;
    let gpus = pool.gpus_at(host).filter_map(|gpu| {
        let told = composer.telemetry_of(&gpu.id)?;
        let name = pool.gpus.name(gpu.id.as_str())?;
        (told.host == *host).then_some((name, told))
    });
    let gpus: Vec<_> = gpus.collect();
    // Its GPUs may have gone to other hosts since.
    let is_known = !gpus.is_empty() || composer.measured_hosts().contains(host);
    is_known.then_some((system, gpus))
}

pub(super) fn report_definition(
    pool: &Pool,
    composer: &Composer,
    name: &str,
) -> Option<MetricReportDefinition> {
    let (system, _) = reported(pool, composer, name)?;
    let metric = |metric: &Metric| MetricReportDefinitionMetric {
        metric_id: Some(metric.id.into()),
        ..MetricReportDefinitionMetric::default()
    };
    Some(MetricReportDefinition {
        id: Some(name.into()),
        name: Some(format!("GPUs of {system}")),
        metric_report_definition_enabled: Some(true),
        metric_report_definition_type: Some(MetricReportDefinitionType::OnRequest),
        report_actions: Some(vec![
            MetricReportDefinitionReportActionsEnum::LogToMetricReportsCollection,
        ]),
        report_updates: Some(MetricReportDefinitionReportUpdatesEnum::Overwrite),
        metrics: Some(METRICS.iter().map(metric).collect()),
        metric_report: Some(Ref::to(report_at(system))),
        ..MetricReportDefinition::at(report_definition_at(system))
    })
}

pub(super) fn report(pool: &Pool, composer: &Composer, name: &str) -> Option<MetricReport> {
    let (system, gpus) = reported(pool, composer, name)?;
    Some(report_of(system, &gpus, composer.clock().now()))
}

fn report_of(system: &str, gpus: &[(&str, Telemetry)], now: Timestamp) -> MetricReport {
    let fresh = gpus.iter().filter(|(_, told)| !told.stale);
    let values = fresh.flat_map(|(gpu, told)| {
        METRICS.iter().filter_map(move |metric| {
            let processor = uri::processor(system, gpu);
            Some(MetricReportMetricValue {
                metric_id: Some(metric.id.into()),
                metric_value: Some((metric.of)(told)?.to_string()),
                metric_property: Some(format!("{processor}/{}", metric.property)),
                metric_definition: Some(Ref::to(definition_at(metric.id))),
                timestamp: Some(time(told.at)),
                ..MetricReportMetricValue::default()
            })
        })
    });
    MetricReport {
        id: Some(format!("{REPORT}{system}")),
        name: Some(format!("GPUs of {system}")),
        timestamp: Some(time(now)),
        metric_values: Some(values.collect()),
        metric_report_definition: Some(Ref::to(report_definition_at(system))),
        ..MetricReport::at(report_at(system))
    }
}

/// The telemetry of a GPU, for its processor; `None` if it is stale or another host reported it.
fn fresh(composer: &Composer, pool: &Pool, name: &str) -> Option<Telemetry> {
    let gpu = pool.gpu(name)?;
    let told = composer.telemetry_of(&gpu.id)?;
    (!told.stale && gpu.host.as_ref() == Some(&told.host)).then_some(told)
}

pub(super) fn processor_metrics(
    pool: &Pool,
    composer: &Composer,
    system: &str,
    gpu: &str,
) -> Option<ProcessorMetrics> {
    let place = systems::processor(pool, system, gpu)?.metrics?.odata_id?;
    let told = fresh(composer, pool, gpu);
    Some(processor_metrics_of(place, told.as_ref()))
}

fn processor_metrics_of(place: String, told: Option<&Telemetry>) -> ProcessorMetrics {
    let errors = told.and_then(|told| told.correctable_errors);
    let errors = errors.map(|count| PCIeDevicePCIeErrors {
        correctable_error_count: i64::try_from(count).ok(),
        ..PCIeDevicePCIeErrors::default()
    });
    ProcessorMetrics {
        id: Some("ProcessorMetrics".into()),
        name: Some("What the GPU does".into()),
        bandwidth_percent: told.and_then(|told| told.utilization_percent).map(Number::from),
        pcie_errors: errors.map(Box::new),
        ..ProcessorMetrics::at(place)
    }
}

pub(super) fn environment_metrics(
    pool: &Pool,
    composer: &Composer,
    system: &str,
    gpu: &str,
) -> Option<EnvironmentMetrics> {
    let place = systems::processor(pool, system, gpu)?
        .environment_metrics?
        .odata_id?;
    let told = fresh(composer, pool, gpu);
    Some(environment_metrics_of(place, told.as_ref()))
}

fn environment_metrics_of(place: String, told: Option<&Telemetry>) -> EnvironmentMetrics {
    let reading = |of: fn(&Telemetry) -> Option<Number>| {
        let number = of(told?)?;
        Some(Box::new(SensorExcerpt {
            reading: Some(number),
            ..SensorExcerpt::default()
        }))
    };
    EnvironmentMetrics {
        id: Some("EnvironmentMetrics".into()),
        name: Some("What the GPU takes, and how warm it is".into()),
        power_watts: reading(|told| thousandths(told.power_mw?.into())),
        energy_joules: reading(|told| thousandths(told.energy_mj?)),
        temperature_celsius: reading(|told| Some(told.temperature_c?.into())),
        ..EnvironmentMetrics::at(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(gpu: &str, stale: bool) -> Telemetry {
        let told = json!({
            "gpu": gpu, "host": "host-3", "at": "2026-03-02T12:00:00Z", "age_s": 3, "stale": stale,
            "power_mw": 71_250, "energy_mj": 9_000_000, "utilization_percent": 41, "temperature_c": 63,
            "correctable_errors": 7,
        });
        serde_json::from_value(told).unwrap()
    }

    fn now() -> Timestamp {
        "2026-03-02T12:00:03Z".parse().unwrap()
    }

    /// A number of a report is the one at the place that it names.
    #[test]
    fn each_value_is_where_its_property_leads() {
        let measured = told("gpu-1", false);
        let report = report_of("host-3", &[("gpu-1", measured.clone())], now());
        let values = report.metric_values.unwrap();
        assert_eq!(values.len(), METRICS.len());
        let processor = uri::processor("host-3", "gpu-1");
        for value in values {
            let property = value.metric_property.unwrap();
            let (resource, pointer) = property.split_once('#').unwrap();
            let shown = match resource.strip_prefix(&format!("{processor}/")) {
                Some("ProcessorMetrics") => json!(processor_metrics_of(resource.to_owned(), Some(&measured))),
                Some("EnvironmentMetrics") => {
                    json!(environment_metrics_of(resource.to_owned(), Some(&measured)))
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(shown["@odata.id"], resource);
            let found = shown.pointer(pointer).map(Value::to_string);
            assert_eq!(found, value.metric_value, "{property}");
            assert_eq!(value.timestamp.as_deref(), Some("2026-03-02T12:00:00Z"));
            let id = value.metric_id.unwrap();
            assert_eq!(definition(&id).unwrap()["Id"], id);
        }
    }

    #[test]
    fn what_is_old_or_not_told_is_left_out() {
        let silent = Telemetry {
            utilization_percent: None,
            power_mw: None,
            energy_mj: None,
            temperature_c: Some(0),
            correctable_errors: None,
            ..told("gpu-2", false)
        };
        let gpus = [("gpu-1", told("gpu-1", true)), ("gpu-2", silent.clone())];
        let values = report_of("host-3", &gpus, now()).metric_values.unwrap();
        let values: Vec<_> = values
            .iter()
            .map(|value| (value.metric_id.as_deref(), value.metric_value.as_deref()))
            .collect();
        assert_eq!(values, [(Some("GpuCelsius"), Some("0"))]);
        for nothing in [Some(&silent), None] {
            let shown = json!(environment_metrics_of(String::new(), nothing));
            assert!(shown.get("PowerWatts").is_none(), "{shown}");
            let shown = json!(processor_metrics_of(String::new(), nothing));
            assert!(
                shown.get("BandwidthPercent").is_none() && shown.get("PCIeErrors").is_none(),
                "{shown}"
            );
        }
    }
}
