//! Windows and openings by chance: in many zones, over changes of the clocks, and beside one another.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_service::occurrence::{Fate, Missed, Overlap, decide};
use poolwright_service::returns::Returns;
use poolwright_service::schedule::Calendar;
use poolwright_service::window::{Window, WindowSpec};
use std::collections::BTreeSet;

/// All of them set their clocks in other weeks, by half an hour, by an hour, or never.
const ZONES: [&str; 7] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "America/Santiago",
    "UTC",
];
const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A range of some days, none of which meet another of the same window: each has a part of the day to itself.
fn range(rng: &mut Rng, part: u32, parts: u32) -> String {
    let (from, to) = (24 * 60 * part / parts, 24 * 60 * (part + 1) / parts);
    let opens = rng.u32(from..to - 1);
    let closes = rng.u32(opens + 1..=to);
    let time = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
    let day = |rng: &mut Rng| DAYS[rng.usize(..DAYS.len())];
    let days = match rng.u8(..3) {
        0 => "daily".to_owned(),
        1 => format!("{}-{}", day(rng), day(rng)),
        _ => day(rng).to_owned(),
    };
    format!("{days} {}-{}", time(opens), time(closes))
}

fn window(rng: &mut Rng) -> (WindowSpec, Window) {
    let zone = ZONES[rng.usize(..ZONES.len())];
    let spec = match rng.bool() {
        true => {
            let parts = rng.u32(1..4);
            WindowSpec {
                weekly: (0..parts).map(|part| range(rng, part, parts)).collect(),
                zone: zone.into(),
                ..WindowSpec::default()
            }
        }
        false => {
            let cron = |rng: &mut Rng| format!("{} {} * * {}", rng.u8(..60), rng.u8(..24), rng.u8(..7));
            WindowSpec::cron(cron(rng), cron(rng), zone)
        }
    };
    let window = spec
        .parse(start())
        .unwrap_or_else(|error| panic!("{spec}: {error}"));
    (spec, window)
}

fn moment(rng: &mut Rng) -> Timestamp {
    start() + SignedDuration::from_secs(rng.i64(0..365 * 24 * 3600))
}

#[test]
fn a_window_turns_when_it_says_and_at_no_other_time() {
    let mut turned = 0;
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let (spec, window) = window(&mut rng);
        for _ in 0..6 {
            let now = moment(&mut rng);
            let open = window.is_open(now);
            let Some(next) = window.next_change(now) else {
                continue;
            };
            let told = format!("seed {seed}: {spec} in {}, at {now}, next {next}", spec.zone);
            assert!(next > now, "{told}");
            assert_ne!(window.is_open(next), open, "{told}");
            turned += 1;
            for _ in 0..8 {
                let between =
                    now + SignedDuration::from_secs(rng.i64(0..(next.as_second() - now.as_second())));
                assert_eq!(window.is_open(between), open, "{told}: at {between}");
            }
            if let Some(opened) = window.opened_at(now) {
                assert!(
                    open && opened <= now && window.is_open(opened),
                    "{told}: since {opened}"
                );
                let before = opened - SignedDuration::from_secs(1);
                assert!(!window.is_open(before), "{told}: since {opened}");
            }
        }
    }
    assert!(turned > 300, "{turned}");
}

#[test]
fn openings_follow_one_another() {
    for seed in 100..140 {
        let mut rng = Rng::with_seed(seed);
        let (spec, window) = window(&mut rng);
        let openings = window.next_openings(moment(&mut rng), 5);
        for pair in openings.windows(2) {
            let closes = pair[0].closes.unwrap();
            assert!(
                pair[0].opens < closes && closes < pair[1].opens,
                "seed {seed}: {spec}: {pair:?}"
            );
        }
        for opening in openings {
            assert!(window.is_open(opening.opens), "seed {seed}: {spec}: {opening:?}");
            assert_eq!(
                window.opened_at(opening.opens),
                Some(opening.opens),
                "seed {seed}: {spec}"
            );
        }
    }
}

fn calendar(rng: &mut Rng, id: usize) -> Calendar {
    Calendar {
        id: ScheduleId::new(format!("s{id}")).unwrap(),
        window: window(rng).1,
        suspends: (0..2)
            .filter(|_| rng.bool())
            .map(|n| DemandId::new(format!("d{n}")).unwrap())
            .collect(),
        overlap: [Overlap::Both, Overlap::Skip, Overlap::Queue][rng.usize(..3)],
        missed: [Missed::MakeUp, Missed::Skip][rng.usize(..2)],
        back_by_close: rng.u8(..3) == 0,
        mark: None,
        by_hand: None,
        ladder: None,
        reclaim_s: None,
        lend: None,
        early: None,
    }
}

/// Whoever gives way never runs beside whom it gives way to, an opening has one fate, and what must be back by a closing
/// ends before it; however late or seldom somebody looks.
#[test]
fn what_is_decided_about_openings_holds() {
    let (mut gave_way, mut begun) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let mut calendars: Vec<Calendar> = (0..3).map(|id| calendar(&mut rng, id)).collect();
        let returns = Returns::of(&[rng.u32(1..4000); 5]);
        let mut now = moment(&mut rng);
        for _ in 0..60 {
            let ran: BTreeSet<ScheduleId> = running(&calendars, now);
            for (id, mark) in decide(&calendars, |_| returns.clone(), now) {
                let of = calendars.iter_mut().find(|calendar| calendar.id == id).unwrap();
                let before = of.mark_at(now).map(|mark| mark.fate.clone());
                let settled = matches!(before, Some(Fate::Begun | Fate::LeftOut { .. }));
                assert!(
                    !settled,
                    "seed {seed}: {id} at {now} was {before:?}, becomes {mark:?}"
                );
                begun += u32::from(mark.fate == Fate::Begun);
                gave_way += u32::from(matches!(mark.fate, Fate::Waits { .. } | Fate::LeftOut { .. }));
                of.mark = Some(mark);
            }
            assert_eq!(
                decide(&calendars, |_| returns.clone(), now),
                [],
                "seed {seed}: decided once"
            );
            let runs = running(&calendars, now);
            for calendar in calendars.iter().filter(|calendar| runs.contains(&calendar.id)) {
                assert!(calendar.window.is_open(now), "seed {seed}");
                if let (true, Some(closes)) = (calendar.back_by_close, calendar.window.next_change(now)) {
                    let left = closes.as_second() - now.as_second();
                    assert!(
                        left > i64::from(returns.p95_s),
                        "seed {seed}: {} has {left} s",
                        calendar.id
                    );
                }
                let new = !ran.contains(&calendar.id) && calendar.overlap != Overlap::Both;
                let rival = |other: &&Calendar| {
                    ran.contains(&other.id) && !other.suspends.is_disjoint(&calendar.suspends)
                };
                let rival = calendars.iter().find(rival).filter(|_| new);
                assert!(
                    rival.is_none(),
                    "seed {seed}: {} began beside {rival:?} at {now}",
                    calendar.id
                );
            }
            let next = calendars
                .iter()
                .filter_map(|calendar| calendar.next_change(now))
                .min();
            let late = SignedDuration::from_secs(if rng.bool() { 0 } else { rng.i64(0..7200) });
            now = next.unwrap() + late;
        }
    }
    assert!(gave_way > 50 && begun > 50, "{gave_way} gave way, {begun} began");
}

fn running(calendars: &[Calendar], now: Timestamp) -> BTreeSet<ScheduleId> {
    let open = calendars.iter().filter(|calendar| calendar.is_open(now));
    open.map(|calendar| calendar.id.clone()).collect()
}

#[test]
fn a_window_is_open_on_no_day_before_its_first_and_after_its_last() {
    let now = at("2026-01-01T00:00:00Z");
    let spec = WindowSpec {
        first_day: Some("2026-12-01".parse().unwrap()),
        last_day: Some("2026-12-02".parse().unwrap()),
        ..WindowSpec::cron("0 20 * * *", "30 7 * * *", "Europe/Berlin")
    };
    let window = spec.parse(now).unwrap();
    // In Berlin the first of December begins at 23:00 UTC; the night before is open then.
    let openings = window.next_openings(now, 5);
    let times = openings.iter().map(|opening| (opening.opens, opening.closes));
    let expected = [
        ("2026-11-30T23:00:00Z", "2026-12-01T06:30:00Z"),
        ("2026-12-01T19:00:00Z", "2026-12-02T06:30:00Z"),
        ("2026-12-02T19:00:00Z", "2026-12-02T23:00:00Z"),
    ];
    let expected = expected.map(|(opens, closes)| (at(opens), Some(at(closes))));
    assert_eq!(times.collect::<Vec<_>>(), expected);
    assert_eq!(
        window.opened_at(at("2026-12-01T03:00:00Z")),
        Some(at("2026-11-30T23:00:00Z"))
    );
    assert!(!window.is_open(at("2026-11-30T21:00:00Z")), "the evening before");
    let after = at("2026-12-02T23:00:00Z");
    assert!(!window.is_open(after) && window.is_over(after));
    assert_eq!(
        (window.next_change(after), window.ever_opens(after)),
        (None, false)
    );
    assert!(window.ever_opens(now));
    let never = WindowSpec {
        weekly: vec!["SUN 08:00-09:00".into()],
        opens: String::new(),
        closes: String::new(),
        ..spec.clone()
    };
    // A Tuesday and a Wednesday.
    assert!(!never.parse(now).unwrap().ever_opens(now));
    let turned = WindowSpec {
        last_day: Some("2026-11-30".parse().unwrap()),
        ..spec.clone()
    };
    let error = turned.parse(now).unwrap_err().to_string();
    assert!(
        error.contains("2026-12-01") && error.contains("2026-11-30"),
        "{error}"
    );
    assert_eq!(
        spec.to_string(),
        "0 20 * * * to 30 7 * * *, first on 2026-12-01, last on 2026-12-02"
    );
}
