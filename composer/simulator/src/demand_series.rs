//! Recorded demand: how many GPUs each tenant wanted over time, from samples or from recorded jobs.
//!
//! Samples have a time, a number of GPUs and, where there are several, a tenant and a kind; each holds until the next of these. Jobs
//! want their GPUs from their submission, for as long as they ran.

use crate::trace::{
    self, KIND, MOST_GPUS, SUBMIT, TENANT, Trace, TraceError, TraceJob, field, moment, number,
};
use poolwright_planner::forecast::{History, JobRun, Sample, Seconds, Series, SeriesError, Window};
use poolwright_sizing::csv::{self, Row};
use std::collections::BTreeMap;
use std::io::Read;

const TIME: &[&str] = &["time", "at", "timestamp"];
const WANTED: &[&str] = &["gpus", "gpus_wanted", "running_gpu_num"];
/// Those that wait are wanted, too, where running ones are told apart.
const PENDING: &[&str] = &["pending_gpu_num"];

/// What a file says of the past.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    Jobs(Trace),
    Samples(Samples),
}

/// Samples by tenant, and the span that they tell of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// By tenant and kind, which is empty where none is named.
    tenants: BTreeMap<(String, String), Vec<Sample>>,
    since: Seconds,
    until: Seconds,
}

/// Whether it was known at a job's beginning when it would end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    Known,
    Unknown,
}

/// A tenant, and what it wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    pub name: String,
    /// Only GPUs of this kind; without it, of all.
    pub kind: Option<String>,
    pub history: History,
    pub gpu_hours: f64,
}

impl Recorded {
    /// Reads a file, plain or gzipped: with a column of submissions it is of jobs, else of samples.
    pub fn read(from: impl Read) -> Result<Self, TraceError> {
        let text = trace::unpacked(from)?;
        let header = text.lines().next().unwrap_or_default().to_ascii_lowercase();
        let columns: Vec<&str> = header
            .split(',')
            .map(|column| column.trim_matches(|c: char| c.is_whitespace() || c == '"' || c == '\u{feff}'))
            .collect();
        match SUBMIT.iter().any(|column| columns.contains(column)) {
            true => Ok(Self::Jobs(Trace::parse(&text)?)),
            false => Ok(Self::Samples(Samples::parse(&text)?)),
        }
    }

    /// What all wanted together, first, and then each tenant, the largest first; all over the same time. After each, where
    /// that is asked for, what it wanted of each kind that the file names.
    pub fn tenants(
        &self,
        step: Seconds,
        planned: Planned,
        by_kind: bool,
    ) -> Result<Vec<Tenant>, SeriesError> {
        let mut tenants = match self {
            Self::Jobs(trace) => of_jobs(trace, step, planned, by_kind)?,
            Self::Samples(samples) => samples.tenants(step, by_kind)?,
        };
        let is_named = |tenant: &Tenant| tenant.name != ALL && !tenant.name.is_empty();
        if !tenants.iter().any(is_named) {
            // A file without tenants: what nobody in particular wanted is what all did.
            tenants.retain(|tenant| tenant.name == ALL);
        }
        for tenant in tenants.iter_mut().filter(|tenant| tenant.name.is_empty()) {
            NOBODY.clone_into(&mut tenant.name);
        }
        let sizes: BTreeMap<String, f64> = tenants
            .iter()
            .filter(|tenant| tenant.kind.is_none())
            .map(|tenant| (tenant.name.clone(), tenant.gpu_hours))
            .collect();
        let size = |tenant: &Tenant| sizes.get(&tenant.name).copied().unwrap_or(0.0);
        tenants.sort_by(|a, b| {
            let place = |one: &Tenant| (one.name != ALL, one.kind.is_some());
            (place(a).0.cmp(&place(b).0))
                .then(size(b).total_cmp(&size(a)))
                .then_with(|| a.name.cmp(&b.name))
                .then(place(a).1.cmp(&place(b).1))
                .then(b.gpu_hours.total_cmp(&a.gpu_hours))
        });
        Ok(tenants)
    }
}

impl Tenant {
    /// Of a tenant; without one, of all.
    fn new(name: Option<&str>, kind: Option<&str>, history: History) -> Self {
        let series = history.series();
        Self {
            name: name.unwrap_or(ALL).to_owned(),
            kind: kind.map(str::to_owned),
            gpu_hours: series.means.iter().sum::<f64>() * series.step as f64 / 3600.0,
            history,
        }
    }
}

/// What all tenants together are called.
pub const ALL: &str = "(all)";
/// What those rows are called that name no tenant, where others do.
pub const NOBODY: &str = "(no tenant)";

fn of_jobs(
    trace: &Trace,
    step: Seconds,
    planned: Planned,
    by_kind: bool,
) -> Result<Vec<Tenant>, SeriesError> {
    let window = Window {
        since: 0,
        until: trace.window_s() as Seconds,
        step,
    };
    let run = |job: &TraceJob| {
        let end = (job.submit_s + job.duration_s) as Seconds;
        JobRun {
            from: job.submit_s as Seconds,
            // What ends later nobody knew at the end of the trace.
            ended: Some(end).filter(|end| *end <= window.until),
            planned: (planned == Planned::Known).then_some(end),
            gpus: f64::from(job.gpus),
        }
    };
    let mut alike: BTreeMap<(Option<&str>, Option<&str>), Vec<JobRun>> = BTreeMap::new();
    for job in &trace.jobs {
        for name in [None, Some(trace.tenants[job.tenant].as_str())] {
            alike.entry((name, None)).or_default().push(run(job));
            if let Some(kind) = job.gpu_type.as_deref().filter(|_| by_kind) {
                alike.entry((name, Some(kind))).or_default().push(run(job));
            }
        }
    }
    alike
        .into_iter()
        .map(|((name, kind), jobs)| Ok(Tenant::new(name, kind, History::of_jobs(jobs, window)?)))
        .collect()
}

impl Samples {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let mut samples = Self::default();
        let mut wrong = None;
        csv::read(text, |row| {
            if wrong.is_none() {
                wrong = samples.add(row).err();
            }
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let mut moments: Vec<Seconds> = samples.tenants.values().flatten().map(|one| one.at).collect();
        moments.sort_unstable();
        moments.dedup();
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
            return Err(TraceError::NoSamples);
        };
        // The last holds for as long as most do.
        let mut between: Vec<Seconds> = moments.windows(2).map(|two| two[1] - two[0]).collect();
        between.sort_unstable();
        samples.since = *first;
        samples.until = last + between.get(between.len() / 2).copied().unwrap_or(0);
        Ok(samples)
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), TraceError> {
        for (missing, wanted) in [("time", TIME), ("GPUs wanted", WANTED)] {
            if !wanted.iter().any(|column| row.has(column)) {
                let wanted = wanted.join(", ");
                return Err(TraceError::SampleColumn { missing, wanted });
            }
        }
        let Some(at) = moment(row, TIME)? else {
            return Err(trace::wrong(row, TIME[0], "", "seconds, or a date and time"));
        };
        let allowed = "a number of GPUs from 0 to a million";
        let Some(wanted) = number(row, WANTED, MOST_GPUS, allowed)? else {
            return Ok(());
        };
        let pending = number(row, PENDING, MOST_GPUS, allowed)?.unwrap_or(0.0);
        let text = |names| field(row, names).map_or_else(String::new, |(_, text)| text.to_owned());
        let of = (text(TENANT), text(KIND));
        self.tenants.entry(of).or_default().push(Sample {
            at: at as Seconds,
            gpus: wanted + pending,
        });
        Ok(())
    }

    fn tenants(&self, step: Seconds, by_kind: bool) -> Result<Vec<Tenant>, SeriesError> {
        let window = Window {
            since: self.since,
            until: self.until,
            step,
        };
        let mut alike: BTreeMap<(Option<&str>, Option<&str>), Vec<Series>> = BTreeMap::new();
        for ((name, kind), samples) in &self.tenants {
            let series = Series::of_samples(samples, window)?;
            for name in [None, Some(name.as_str())] {
                alike.entry((name, None)).or_default().push(series.clone());
                if by_kind && !kind.is_empty() {
                    alike.entry((name, Some(kind))).or_default().push(series.clone());
                }
            }
        }
        let sums = alike.into_iter().filter_map(|((name, kind), series)| {
            let sum = Series::sum(&series)?;
            Some(Tenant::new(name, kind, History::of(sum)))
        });
        Ok(sums.collect())
    }
}
