//! The jobs behind what is wanted, with the ends that were planned for them: of the queue as they were expected to run, of
//! phases and calendars as they say. Forecasts rest on them beside what was noted.

use super::Composer;
use crate::course::Course;
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::job::JobRun;
use crate::schedule::Calendar;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::DemandId;
use poolwright_planner::forecast;
use poolwright_planner::promise::width;
use poolwright_store::read_all;
use std::collections::BTreeMap;

/// Windows of a calendar that were open within so long count as jobs that ended, and no more of them than these.
const LOOKED_BACK: SignedDuration = SignedDuration::from_hours(14 * 24);
const MOST_WINDOWS: usize = 64;

/// A job that wants or wanted GPUs of a kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KnownJob {
    pub tenant: String,
    pub kind: String,
    pub run: forecast::JobRun,
}

/// From when to when something was wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    from: Timestamp,
    planned: Option<Timestamp>,
    /// It ended as was planned.
    over: bool,
    gpus: u32,
}

impl Composer {
    /// All that is known of; `gone` is a demand that ends now.
    pub(super) async fn known_jobs(&self, gone: Option<&DemandId>) -> Result<Vec<KnownJob>, ServiceError> {
        let now = self.clock.now();
        let runs = read_all::<JobRun>(self.store.as_ref()).await?;
        let mut jobs: Vec<KnownJob> = runs.into_iter().map(|found| over(found.value)).collect();
        let calendars = self.calendars().await?;
        let mut wanted: BTreeMap<DemandId, (u32, String)> = BTreeMap::new();
        for part in self.parts_now().await? {
            let Some(demand) = part.demand else { continue };
            let (gpus, _) = wanted.entry(demand).or_insert((0, part.kind));
            *gpus += part.now.wanted as u32;
        }
        for record in self.demands().await? {
            let wants = wanted.get(&record.spec.id);
            let gpus = wants.map_or(width(&record.demand), |(gpus, _)| *gpus);
            let kind = wants.map(|(_, kind)| kind.clone()).or_else(|| kind_of(&record));
            for span in spans(&record, gpus, wants.is_some(), &calendars, now) {
                let ended = match span.over {
                    true => span.planned,
                    false => (gone == Some(&record.spec.id)).then_some(now),
                };
                jobs.push(KnownJob {
                    tenant: record.demand.tenant.to_string(),
                    kind: kind.clone().unwrap_or_default(),
                    run: forecast::JobRun {
                        from: span.from.as_second(),
                        ended: ended.map(Timestamp::as_second),
                        planned: span.planned.map(Timestamp::as_second),
                        gpus: f64::from(span.gpus),
                    },
                });
            }
        }
        Ok(jobs)
    }
}

/// A job of the queue that is over.
fn over(run: JobRun) -> KnownJob {
    let begun = run.begun.as_second();
    let expected = run.expected_s.and_then(|seconds| i64::try_from(seconds).ok());
    KnownJob {
        tenant: run.tenant.to_string(),
        kind: run.kind.unwrap_or_default(),
        run: forecast::JobRun {
            from: begun,
            ended: Some(run.ended.as_second()),
            planned: expected.map(|seconds| begun.saturating_add(seconds)),
            gpus: f64::from(run.gpus),
        },
    }
}

fn kind_of(record: &DemandRecord) -> Option<String> {
    record.demand.need.best().and_then(|set| set.kind.clone())
}

/// When a demand was and is wanted.
fn spans(
    record: &DemandRecord,
    gpus: u32,
    is_wanted: bool,
    calendars: &[Calendar],
    now: Timestamp,
) -> Vec<Span> {
    if let Some(course) = &record.course {
        return layers(course, now);
    }
    if let Some(schedule) = &record.schedule {
        let calendar = calendars.iter().find(|calendar| calendar.id == *schedule);
        return calendar.map_or(Vec::new(), |calendar| {
            let since = record.demand.created;
            windows(
                calendar,
                since,
                is_wanted.then_some(gpus),
                width(&record.demand),
                now,
            )
        });
    }
    let job = record.job.as_ref();
    let from = job.map_or(Some(record.demand.created), |job| job.begun);
    let spec = record.spec.queue.clone().unwrap_or_default();
    let span = from.filter(|_| is_wanted).map(|from| Span {
        from,
        planned: job.and_then(|job| job.planned(&spec)),
        // It is wanted: one whose planned end has passed goes on.
        over: false,
        gpus,
    });
    span.into_iter().collect()
}

/// The phases of a course, on top of each other: what is wanted through several of them ends with the last of these.
fn layers(course: &Course, now: Timestamp) -> Vec<Span> {
    let mut open: Vec<Span> = Vec::new();
    let mut done = Vec::new();
    let mut windows = course.windows.iter().map(|window| {
        let counts = window.need.alternatives.iter().map(|set| set.count);
        (course.moment(window.start_s), counts.min().unwrap_or(0))
    });
    let end = [(course.ends(), 0)];
    for (at, gpus) in windows.by_ref().chain(end) {
        let mut level: u32 = open.iter().map(|span| span.gpus).sum();
        while level > gpus {
            let Some(top) = open.last_mut() else { break };
            let less = top.gpus.min(level - gpus);
            done.push(Span {
                planned: Some(at),
                over: at <= now,
                gpus: less,
                ..*top
            });
            (top.gpus, level) = (top.gpus - less, level - less);
            if top.gpus == 0 {
                open.pop();
            }
        }
        if gpus > level {
            open.push(Span {
                from: at,
                planned: None,
                over: false,
                gpus: gpus - level,
            });
        }
    }
    done.retain(|span| span.from <= now);
    done
}

/// The windows of a calendar that are over, and the one that is open while its demand is wanted.
fn windows(
    calendar: &Calendar,
    since: Timestamp,
    wanted: Option<u32>,
    gpus: u32,
    now: Timestamp,
) -> Vec<Span> {
    let back = now.saturating_sub(LOOKED_BACK).unwrap_or(now).max(since);
    let mut spans: Vec<Span> = calendar
        .window
        .next_openings(back, MOST_WINDOWS)
        .into_iter()
        .filter(|opening| opening.closes.is_some_and(|closes| closes <= now))
        .map(|opening| Span {
            from: opening.opens,
            planned: opening.closes,
            over: true,
            gpus,
        })
        .collect();
    if let Some(gpus) = wanted {
        let opened = calendar.window.opened_at(now);
        spans.push(Span {
            from: opened.map_or(since, |opened| opened.max(since)),
            planned: calendar.next_change(now),
            over: false,
            gpus,
        });
    }
    spans
}
