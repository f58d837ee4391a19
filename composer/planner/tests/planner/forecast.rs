//! Forecasts by themselves: what they say of pasts that are known, and what must hold of any past.

use poolwright_planner::forecast::{
    Basis, Forecast, History, JobRun, Sample, Series, SeriesError, Window, forecast,
};
use proptest::prelude::*;

const HOUR: i64 = 3_600;
const DAY: usize = 24;

fn window(since: i64, until: i64, step: i64) -> Window {
    Window { since, until, step }
}

fn hourly(values: impl IntoIterator<Item = f64>) -> History {
    let samples: Vec<Sample> = values
        .into_iter()
        .enumerate()
        .map(|(hour, gpus)| Sample {
            at: hour as i64 * HOUR,
            gpus,
        })
        .collect();
    let end = samples.len() as i64 * HOUR;
    History::of(Series::of_samples(&samples, window(0, end, HOUR)).unwrap())
}

fn said(history: &History) -> Forecast {
    forecast(history, &[1, 6, 24])
}

/// A random walk, from 0 to 64 GPUs.
fn walk(hours: usize, seed: u64) -> Vec<f64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut level: i32 = 32;
    (0..hours)
        .map(|_| {
            level = (level + rng.i32(-4..=4)).clamp(0, 64);
            f64::from(level)
        })
        .collect()
}

#[test]
fn what_never_changes_is_expected_to_stay_without_a_margin() {
    for horizon in said(&hourly(vec![8.0; 400])).horizons {
        assert_eq!((horizon.p50, horizon.p90), (8.0, 8.0));
        let measured = horizon.measured.unwrap();
        assert_eq!(
            (measured.ours.coverage, measured.ours.over, measured.ours.wape),
            (1.0, 0.0, 0.0)
        );
    }
}

#[test]
fn a_day_that_repeats_is_expected_again_where_the_last_value_is_wrong() {
    let nights = (0..20 * DAY).map(|hour| if hour % DAY < 8 { 64.0 } else { 8.0 });
    let found = said(&hourly(nights));
    // It is midnight; in six hours it is night, in a day the last hour before midnight again.
    let six = &found.horizons[1];
    let measured = six.measured.unwrap();
    assert!(matches!(six.basis, Basis::Methods { .. }), "{six:?}");
    assert!(
        measured.ours.wape < 0.7 * measured.last_value.wape,
        "{measured:?}"
    );
    assert!(six.p90 >= 60.0 && six.p50 > 30.0, "{six:?}");
}

#[test]
fn nine_of_ten_moments_of_a_random_walk_are_covered() {
    for seed in 1..=3 {
        for horizon in said(&hourly(walk(1_200, seed))).horizons {
            let ours = horizon.measured.unwrap().ours;
            assert!((0.8..=1.0).contains(&ours.coverage), "{seed}: {horizon:?}");
        }
    }
}

#[test]
fn a_short_past_is_the_last_value_and_its_worst_error() {
    let found = said(&hourly([4.0, 8.0, 6.0]));
    let next = &found.horizons[0];
    assert_eq!(
        (next.p50, next.p90, next.basis.clone()),
        (6.0, 10.0, Basis::ShortPast)
    );
    assert_eq!(next.measured, None);
    let tomorrow = &found.horizons[2];
    assert_eq!(
        (tomorrow.p50, tomorrow.p90),
        (6.0, 6.0),
        "no error is known of a day ahead"
    );
}

#[test]
fn what_came_is_no_part_of_what_was_said_before() {
    let ends_with = |last: f64| {
        let mut past = walk(500, 9);
        past[499] = last;
        said(&hourly(past)).horizons
    };
    for (one, other) in ends_with(0.0).into_iter().zip(ends_with(1e6)) {
        let covered = |measured: f64, moments: usize| (measured * moments as f64).round();
        let (one, other) = (one.measured.unwrap(), other.measured.unwrap());
        let covered = [one, other].map(|measured| covered(measured.ours.coverage, measured.moments));
        assert_eq!(
            covered[0] - covered[1],
            1.0,
            "only the last moment, which nobody could have foreseen"
        );
    }
}

#[test]
fn jobs_known_to_end_are_expected_to_end() {
    // Each day a wide job runs for ten hours, and it was said so when it began; a narrow one runs always.
    let mut jobs: Vec<JobRun> = (0..30)
        .map(|day| JobRun {
            from: day * DAY as i64 * HOUR,
            ended: Some(day * DAY as i64 * HOUR + 10 * HOUR),
            planned: Some(day * DAY as i64 * HOUR + 10 * HOUR),
            gpus: 32.0,
        })
        .collect();
    jobs.push(JobRun {
        from: 0,
        ended: None,
        planned: None,
        gpus: 4.0,
    });
    let six_in_the_morning = (29 * DAY as i64 + 6) * HOUR;
    jobs[29].ended = None;
    let history = History::of_jobs(jobs, window(0, six_in_the_morning, HOUR)).unwrap();
    assert_eq!(history.series().levels.last(), Some(&36.0));
    let found = forecast(&history, &[2, 6]);
    let (soon, later) = (&found.horizons[0], &found.horizons[1]);
    assert!(soon.p50 > 32.0, "it still runs in two hours: {soon:?}");
    assert!(later.p50 < 24.0, "it will have ended in six: {later:?}");
}

/// A job of 32 GPUs beside 4 that stay; hourly runs of it, the last of which goes on.
fn beside_four(runs: Vec<(i64, Option<i64>, i64)>, now: i64) -> Forecast {
    let job = |gpus, (from, ended, planned): (i64, Option<i64>, Option<i64>)| JobRun {
        from: from * HOUR,
        ended: ended.map(|at| at * HOUR),
        planned: planned.map(|at| at * HOUR),
        gpus,
    };
    let mut jobs = vec![job(4.0, (0, None, None))];
    let runs = runs.into_iter();
    jobs.extend(runs.map(|(from, ended, planned)| job(32.0, (from, ended, Some(planned)))));
    let history = History::of_jobs(jobs, window(0, now * HOUR, HOUR)).unwrap();
    forecast(&history, &[2, 4])
}

#[test]
fn what_is_known_to_end_is_expected_no_longer_though_nothing_ended_before() {
    let found = beside_four(vec![(0, None, 103)], 100);
    let (before, after) = (&found.horizons[0], &found.horizons[1]);
    assert_eq!((before.p50, before.p90, before.ends), (36.0, 36.0, 0.0));
    assert_eq!((after.p50, after.p90, after.ends), (4.0, 4.0, 32.0));
    assert_eq!(after.basis, Basis::KnownEnds);
    // On the first day of a manager, too; and where it has just ended, earlier than was planned.
    assert_eq!(beside_four(vec![(0, None, 9)], 6).horizons[1].p50, 4.0);
    assert_eq!(beside_four(vec![(0, Some(99), 103)], 100).horizons[0].p50, 4.0);
}

#[test]
fn where_others_always_come_in_place_of_what_ends_as_much_is_expected_again() {
    let mut runs: Vec<_> = (0..50)
        .map(|run| (4 * run, Some(4 * run + 4), 4 * run + 4))
        .collect();
    runs.push((200, None, 204));
    let after = &beside_four(runs, 202).horizons[1];
    assert_eq!((after.p50, after.ends), (36.0, 32.0), "{after:?}");
}

#[test]
fn a_job_past_its_planned_end_is_expected_to_go_on() {
    let after = &beside_four(vec![(0, None, 90)], 100).horizons[1];
    assert_eq!((after.p50, after.ends), (36.0, 0.0), "{after:?}");
}

#[test]
fn samples_come_in_any_order_and_hold_until_the_next() {
    let at = |at, gpus| Sample { at, gpus };
    let samples = [at(3 * HOUR, 2.0), at(0, 4.0), at(HOUR / 2, 8.0)];
    let series = Series::of_samples(&samples, window(0, 4 * HOUR, HOUR)).unwrap();
    assert_eq!(series.means, [6.0, 8.0, 8.0, 2.0]);
    assert_eq!(series.levels, [8.0, 8.0, 8.0, 2.0]);
}

#[test]
fn what_is_no_series_says_why() {
    let one = [Sample { at: 0, gpus: 1.0 }];
    let wrong = |gpus| [Sample { at: 5, gpus }];
    for gpus in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
        let error = Series::of_samples(&wrong(gpus), window(0, HOUR, HOUR)).unwrap_err();
        assert!(error.to_string().contains("at 5 s"), "{error}");
    }
    assert_eq!(
        Series::of_samples(&one, window(0, HOUR, 0)),
        Err(SeriesError::Step(0))
    );
    assert!(matches!(
        Series::of_samples(&one, window(0, 30, HOUR)),
        Err(SeriesError::TooShort { known: 30, .. })
    ));
    assert!(Series::of_samples(&[], window(HOUR, 0, HOUR)).is_err());
    assert!(Series::of_samples(&one, window(0, i64::MAX, HOUR)).is_err());
    let job = JobRun {
        from: 0,
        ended: None,
        planned: Some(i64::MAX),
        gpus: 1.0,
    };
    assert!(History::of_jobs(vec![job], window(0, HOUR, HOUR)).is_err());
}

fn jobs() -> impl Strategy<Value = Vec<JobRun>> {
    let job = (0..40_i64 * 86_400, 1..20_i64 * 86_400, 0.0..64.0, any::<bool>());
    let job = job.prop_map(|(from, run, gpus, planned)| JobRun {
        from,
        ended: Some(from + run).filter(|ended| *ended <= 40 * 86_400),
        planned: planned.then_some(from + run),
        gpus,
    });
    prop::collection::vec(job, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_past_gives_a_forecast_in_order(
        samples in prop::collection::vec((-1_000_000..5_000_000_i64, 0.0..1e6), 1..200),
        step in 60..86_400_i64,
        ahead in prop::collection::vec(0..200_usize, 0..5),
        jobs in jobs(),
    ) {
        let samples: Vec<Sample> = samples.iter().map(|(at, gpus)| Sample { at: *at, gpus: *gpus }).collect();
        let Ok(series) = Series::of_samples(&samples, window(-1_000_000, 5_000_000, step)) else {
            return Ok(());
        };
        let history = History::with_jobs(series, jobs).unwrap();
        let found = forecast(&history, &ahead);
        prop_assert_eq!(found.horizons.len(), ahead.iter().filter(|ahead| **ahead > 0).count());
        for horizon in &found.horizons {
            prop_assert!(horizon.p50 >= 0.0 && horizon.p50 <= horizon.p90 && horizon.p90.is_finite(), "{:?}", horizon);
            if let Some(measured) = horizon.measured {
                prop_assert!((0.0..=1.0).contains(&measured.ours.coverage));
            }
        }
        prop_assert_eq!(&forecast(&history, &ahead), &found);
    }

    #[test]
    fn the_area_under_a_series_is_what_jobs_used(jobs in jobs()) {
        let end = 40 * 86_400;
        let Ok(series) = Series::of_jobs(&jobs, window(0, end, HOUR)) else {
            return Ok(());
        };
        let start = end - series.means.len() as i64 * HOUR;
        let used: f64 = jobs
            .iter()
            .map(|job| (job.ended.unwrap_or(end) - job.from.max(start)).max(0) as f64 * job.gpus)
            .sum();
        let area: f64 = series.means.iter().sum::<f64>() * HOUR as f64;
        prop_assert!((area - used).abs() <= 1e-6 * used.max(1e6), "{} {}", area, used);
    }
}
