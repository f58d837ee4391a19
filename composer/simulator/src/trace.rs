//! Recorded jobs: rows of CSV, plain or gzipped, to jobs in the order of their submission.
//!
//! Columns are found by name, in any of three dialects: our own, AcmeTrace's and the Alibaba spot trace's. A value that
//! is wrong is an error that names its line, column and value; what did not run, or had no GPU, is left out and counted.

use flate2::read::MultiGzDecoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use poolwright_sizing::csv::{self, CsvError, Row};
use std::collections::HashMap;
use std::io::{self, Read};

/// A job that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    pub id: String,
    /// Index in [`Trace::tenants`].
    pub tenant: usize,
    /// Seconds since the trace's first submission.
    pub submit_s: f64,
    /// Seconds that it ran, without waiting.
    pub duration_s: f64,
    pub gpus: u32,
    /// Memory that each GPU must have, where the trace says so.
    pub min_gpu_mem_gib: Option<u32>,
    /// The kind of GPU that it needs, where the trace says so.
    pub gpu_type: Option<String>,
}

/// Jobs by submission, the earliest at zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub jobs: Vec<TraceJob>,
    pub tenants: Vec<String>,
    /// Rows without GPUs.
    pub without_gpus: usize,
    /// Rows of jobs that did not run: no run time, or none above zero.
    pub without_run_time: usize,
    /// Jobs that ask for a fraction of a GPU: rounded up to whole GPUs.
    pub rounded_up: usize,
}

/// Why a trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("can't be read: {0}")]
    Io(#[from] io::Error),
    #[error("more than {} MiB unpacked", MOST_BYTES >> 20)]
    TooLong,
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error(
        "no column of {missing}; found none of {wanted}. The first line names the columns: {}",
        "job_id, tenant, submit_s, duration_s, gpus"
    )]
    Column { missing: &'static str, wanted: String },
    #[error(
        "no column of {missing}; found none of {wanted}. The first line names the columns: time, tenant, gpus; or those of \
         recorded jobs: job_id, tenant, submit_s, duration_s, gpus"
    )]
    SampleColumn { missing: &'static str, wanted: String },
    #[error("no sample in it: each line has a time and a number of GPUs")]
    NoSamples,
    #[error("line {line}, column {column}: {value:?} is not {allowed}")]
    Value {
        line: usize,
        column: &'static str,
        value: String,
        allowed: &'static str,
    },
    #[error(
        "no job in it that ran on a GPU ({without_gpus} rows without GPUs, {without_run_time} that did not run)"
    )]
    Empty {
        without_gpus: usize,
        without_run_time: usize,
    },
}

const MOST_BYTES: u64 = 1 << 30;
pub(crate) const MOST_GPUS: f64 = 1e6;
const MOST_SECONDS: f64 = 1e9;
pub(crate) const MAX_MEMORY_GIB: u32 = 1_000_000;

const ID: &[&str] = &["job_id", "job_name"];
pub(crate) const TENANT: &[&str] = &["tenant", "user", "organization", "vc"];
pub(crate) const SUBMIT: &[&str] = &["submit_s", "submit_time"];
const DURATION: &[&str] = &["duration_s", "duration"];
const GPUS: &[&str] = &["gpus", "gpu_num", "gpu_request"];
const WORKERS: &[&str] = &["worker_num"];
const MEMORY: &[&str] = &["min_gpu_mem_gb"];
pub(crate) const KIND: &[&str] = &["gpu_type", "gpu_model"];

impl Trace {
    /// Reads a trace; gzip is recognised by its first bytes.
    pub fn read(from: impl Read) -> Result<Self, TraceError> {
        Self::parse(&unpacked(from)?)
    }

    /// Reads the text of a trace.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut names = HashMap::new();
        let mut wrong = None;
        csv::read(text, |row| {
            if wrong.is_none() {
                wrong = trace.add(row, &mut names).err();
            }
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        trace.jobs.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s));
        let Some(first) = trace.jobs.first().map(|job| job.submit_s) else {
            return Err(TraceError::Empty {
                without_gpus: trace.without_gpus,
                without_run_time: trace.without_run_time,
            });
        };
        trace.jobs.iter_mut().for_each(|job| job.submit_s -= first);
        Ok(trace)
    }

    fn add(&mut self, row: &Row<'_>, names: &mut HashMap<String, usize>) -> Result<(), TraceError> {
        for (missing, wanted) in [("submission", SUBMIT), ("run time", DURATION), ("GPUs", GPUS)] {
            if !wanted.iter().any(|column| row.has(column)) {
                let wanted = wanted.join(", ");
                return Err(TraceError::Column { missing, wanted });
            }
        }
        let gpus = number(row, GPUS, MOST_GPUS, "a number of GPUs from 0 to a million")?.unwrap_or(0.0)
            * number(row, WORKERS, MOST_GPUS, "a number of workers from 0 to a million")?.unwrap_or(1.0);
        if gpus > MOST_GPUS {
            let (column, value) = field(row, GPUS).unwrap_or((GPUS[0], ""));
            return Err(wrong(
                row,
                column,
                value,
                "at most a million GPUs with all workers",
            ));
        }
        if gpus <= 0.0 {
            self.without_gpus += 1;
            return Ok(());
        }
        let allowed = "a number of seconds from 0 to a thousand million";
        let Some(duration_s) = number(row, DURATION, MOST_SECONDS, allowed)?.filter(|run| *run > 0.0) else {
            self.without_run_time += 1;
            return Ok(());
        };
        let Some(submit_s) = moment(row, SUBMIT)? else {
            return Err(wrong(row, SUBMIT[0], "", "seconds, or a date and time"));
        };
        let tenant = field(row, TENANT).map_or("", |(_, tenant)| tenant);
        let next = names.len();
        let tenant = *names.entry(tenant.to_owned()).or_insert_with(|| {
            self.tenants.push(tenant.to_owned());
            next
        });
        let memory = number(
            row,
            MEMORY,
            MAX_MEMORY_GIB.into(),
            "a number of GiB from 0 to a million",
        )?;
        self.rounded_up += usize::from(gpus.fract() > 0.0);
        self.jobs.push(TraceJob {
            id: field(row, ID).map_or_else(|| format!("line-{}", row.line), |(_, id)| id.to_owned()),
            tenant,
            submit_s,
            duration_s,
            gpus: gpus.ceil() as u32,
            min_gpu_mem_gib: memory.map(|gib| gib.ceil() as u32),
            gpu_type: field(row, KIND).map(|(_, kind)| kind.to_owned()),
        });
        Ok(())
    }

    /// Seconds from the first submission to the last.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        self.jobs.last().map_or(0.0, |job| job.submit_s)
    }

    /// What all jobs use.
    #[must_use]
    pub fn gpu_seconds(&self) -> f64 {
        self.jobs
            .iter()
            .map(|job| job.duration_s * f64::from(job.gpus))
            .sum()
    }

    /// The widest job.
    #[must_use]
    pub fn widest(&self) -> u32 {
        self.jobs.iter().map(|job| job.gpus).max().unwrap_or(0)
    }
}

/// All of a text; gzip is recognised by its first bytes.
pub(crate) fn unpacked(mut from: impl Read) -> Result<String, TraceError> {
    let mut bytes = Vec::new();
    from.by_ref().take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let packed = std::mem::take(&mut bytes);
        MultiGzDecoder::new(packed.as_slice())
            .take(MOST_BYTES + 1)
            .read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(TraceError::TooLong);
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))?)
}

/// The field of the first of the columns that has one.
pub(crate) fn field<'a>(row: &'a Row<'_>, columns: &[&'static str]) -> Option<(&'static str, &'a str)> {
    columns
        .iter()
        .find_map(|column| Some((*column, row.get(column)?)))
}

pub(crate) fn number(
    row: &Row<'_>,
    columns: &[&'static str],
    most: f64,
    allowed: &'static str,
) -> Result<Option<f64>, TraceError> {
    let Some((column, text)) = field(row, columns) else {
        return Ok(None);
    };
    match text.parse::<f64>() {
        Ok(number) if (0.0..=most).contains(&number) => Ok(Some(number)),
        _ => Err(wrong(row, column, text, allowed)),
    }
}

/// A moment: seconds, or a date and time, with its offset from UTC or else in UTC.
pub(crate) fn moment(row: &Row<'_>, columns: &[&'static str]) -> Result<Option<f64>, TraceError> {
    let Some((column, text)) = field(row, columns) else {
        return Ok(None);
    };
    if let Ok(seconds) = text.parse::<f64>() {
        return match seconds.is_finite() && seconds.abs() <= 1e11 {
            true => Ok(Some(seconds)),
            false => Err(wrong(row, column, text, "a number of seconds within 1e11")),
        };
    }
    let at = text.parse::<Timestamp>().or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        Ok::<_, jiff::Error>(civil.to_zoned(TimeZone::UTC)?.timestamp())
    });
    at.map(|at| Some(at.as_duration().as_secs_f64()))
        .map_err(|_| wrong(row, column, text, "seconds, or a date and time"))
}

pub(crate) fn wrong(row: &Row<'_>, column: &'static str, value: &str, allowed: &'static str) -> TraceError {
    TraceError::Value {
        line: row.line,
        column,
        value: value.to_owned(),
        allowed,
    }
}
