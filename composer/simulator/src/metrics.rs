//! What is made of a run: times, by width too, use, energy and operations.

use crate::replay::{Record, Replayed};
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of one run, or the means of several. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedMetrics"))]
pub struct Metrics {
    pub jobs: usize,
    /// Jobs that could never have been held.
    pub refused: usize,
    /// Job completion time: from submission to the end.
    pub jct_mean_s: f64,
    pub jct_p50_s: f64,
    pub jct_p95_s: f64,
    pub jct_p99_s: f64,
    /// From submission until the job computes: its turn, and the attach.
    pub wait_mean_s: f64,
    pub wait_p95_s: f64,
    pub wait_p99_s: f64,
    /// What attaching and detaching added for a job.
    pub attach_mean_s: f64,
    /// Completion time over run time (of at least ten seconds).
    pub slowdown_mean: f64,
    pub utilization: f64,
    pub stranded_gpu_h: f64,
    pub attaches: f64,
    pub detaches: f64,
    pub attaches_per_job: f64,
    pub energy_kwh: f64,
    pub makespan_s: f64,
    /// Where the scenario promises windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    pub by_width: Vec<Width>,
}

/// Promised windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(inline))]
pub struct Windows {
    /// Promises, whether kept or not.
    pub admitted: f64,
    /// Of them, those that had their GPUs in time.
    pub served: f64,
    /// Requested windows without a promise.
    pub refused: f64,
    /// The delay of the latest one that began.
    pub latest_s: f64,
}

impl Windows {
    fn of(run: &Replayed) -> Option<Self> {
        let begun = run.windows.iter();
        let late = begun.map(|window| window.began.saturating_sub(window.from));
        (run.requested_windows > 0).then(|| Self {
            admitted: (run.requested_windows - run.refused_windows) as f64,
            served: late.clone().filter(|late| *late == 0).count() as f64,
            refused: run.refused_windows as f64,
            latest_s: late.max().unwrap_or(0) as f64 / 1000.0,
        })
    }

    fn mean(runs: &[Metrics]) -> Option<Self> {
        let all: Vec<Self> = runs.iter().filter_map(|run| run.windows).collect();
        let of = |figure: fn(&Self) -> f64| all.iter().map(figure).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| Self {
            admitted: of(|run| run.admitted),
            served: of(|run| run.served),
            refused: of(|run| run.refused),
            latest_s: all.iter().map(|run| run.latest_s).fold(0.0, f64::max),
        })
    }
}

/// The same of jobs of one width class: 1, 2, 3 to 4, 5 to 8 GPUs, and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedWidth"))]
pub struct Width {
    /// The widths that there are in the class.
    pub gpus: String,
    pub jobs: usize,
    pub jct_mean_s: f64,
    pub jct_p95_s: f64,
    pub jct_p99_s: f64,
    pub wait_mean_s: f64,
    pub wait_p95_s: f64,
}

impl Metrics {
    #[must_use]
    pub fn of(run: &Replayed) -> Self {
        let records = &run.records;
        let jct = sorted(records, |record| record.ended - record.submitted);
        let wait = sorted(records, |record| record.began - record.submitted);
        let attach = sorted(records, |record| record.began - record.granted);
        let slowdowns = records.iter().map(|record| {
            let run_time = (record.ended - record.began).max(10_000);
            (record.ended - record.submitted) as f64 / run_time as f64
        });
        let jobs = records.len();
        Self {
            jobs,
            refused: run.refused.len(),
            jct_mean_s: mean(&jct),
            jct_p50_s: quantile(&jct, 0.5),
            jct_p95_s: quantile(&jct, 0.95),
            jct_p99_s: quantile(&jct, 0.99),
            wait_mean_s: mean(&wait),
            wait_p95_s: quantile(&wait, 0.95),
            wait_p99_s: quantile(&wait, 0.99),
            attach_mean_s: mean(&attach),
            slowdown_mean: mean(&slowdowns.collect::<Vec<_>>()),
            utilization: run.meter.utilization(),
            stranded_gpu_h: run.meter.stranded_gpu_h(),
            attaches: run.meter.attaches as f64,
            detaches: run.meter.detaches as f64,
            attaches_per_job: run.meter.attaches as f64 / jobs.max(1) as f64,
            energy_kwh: run.meter.energy_kwh(),
            makespan_s: run.meter.makespan_s(),
            windows: Windows::of(run),
            by_width: by_width(records),
        }
    }

    /// The means of several runs of the same jobs; default where there are none.
    #[must_use]
    pub fn mean(runs: &[Self]) -> Self {
        let Some(first) = runs.first() else {
            return Self::default();
        };
        let of = |figure: fn(&Self) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
        let by_width = first.by_width.iter().enumerate().map(|(index, width)| {
            let of = |figure: fn(&Width) -> f64| {
                runs.iter().map(|run| figure(&run.by_width[index])).sum::<f64>() / runs.len() as f64
            };
            Width {
                jct_mean_s: of(|width| width.jct_mean_s),
                jct_p95_s: of(|width| width.jct_p95_s),
                jct_p99_s: of(|width| width.jct_p99_s),
                wait_mean_s: of(|width| width.wait_mean_s),
                wait_p95_s: of(|width| width.wait_p95_s),
                ..width.clone()
            }
        });
        Self {
            jobs: first.jobs,
            refused: first.refused,
            jct_mean_s: of(|run| run.jct_mean_s),
            jct_p50_s: of(|run| run.jct_p50_s),
            jct_p95_s: of(|run| run.jct_p95_s),
            jct_p99_s: of(|run| run.jct_p99_s),
            wait_mean_s: of(|run| run.wait_mean_s),
            wait_p95_s: of(|run| run.wait_p95_s),
            wait_p99_s: of(|run| run.wait_p99_s),
            attach_mean_s: of(|run| run.attach_mean_s),
            slowdown_mean: of(|run| run.slowdown_mean),
            utilization: of(|run| run.utilization),
            stranded_gpu_h: of(|run| run.stranded_gpu_h),
            attaches: of(|run| run.attaches),
            detaches: of(|run| run.detaches),
            attaches_per_job: of(|run| run.attaches_per_job),
            energy_kwh: of(|run| run.energy_kwh),
            makespan_s: of(|run| run.makespan_s),
            windows: Windows::mean(runs),
            by_width: by_width.collect(),
        }
    }
}

fn by_width(records: &[Record]) -> Vec<Width> {
    let mut classes: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for record in records {
        classes
            .entry(record.gpus.next_power_of_two())
            .or_default()
            .push(record);
    }
    let width = |(_, records): (u32, Vec<&Record>)| {
        let gpus = records.iter().map(|record| record.gpus);
        let (least, most) = (gpus.clone().min().unwrap_or(0), gpus.max().unwrap_or(0));
        let jct = sorted(records.iter().copied(), |record| record.ended - record.submitted);
        let wait = sorted(records.iter().copied(), |record| record.began - record.submitted);
        Width {
            gpus: if least == most {
                most.to_string()
            } else {
                format!("{least}-{most}")
            },
            jobs: records.len(),
            jct_mean_s: mean(&jct),
            jct_p95_s: quantile(&jct, 0.95),
            jct_p99_s: quantile(&jct, 0.99),
            wait_mean_s: mean(&wait),
            wait_p95_s: quantile(&wait, 0.95),
        }
    };
    classes.into_iter().map(width).collect()
}

/// Spans in seconds, the shortest first.
fn sorted<'a>(records: impl IntoIterator<Item = &'a Record>, span: impl Fn(&Record) -> u64) -> Vec<f64> {
    let mut spans: Vec<f64> = records
        .into_iter()
        .map(|record| span(record) as f64 / 1000.0)
        .collect();
    spans.sort_by(f64::total_cmp);
    spans
}

/// 0 of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// A quantile of sorted values, between two of them in proportion; 0 of nothing.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}
