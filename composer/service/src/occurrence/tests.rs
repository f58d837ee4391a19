//! Which openings take place, and from when to when what they want is held.

use super::*;
use crate::window::WindowSpec;
use poolwright_model::id::DemandId;
use std::collections::BTreeSet;

fn at(text: &str) -> Timestamp {
    format!("2026-03-02T{text}:00Z").parse().unwrap()
}

fn calendar(id: &str, hours: (&str, &str), overlap: Overlap, missed: Missed) -> Calendar {
    let window = WindowSpec::cron(
        format!("0 {} * * *", hours.0),
        format!("0 {} * * *", hours.1),
        "UTC",
    );
    Calendar {
        id: ScheduleId::new(id).unwrap(),
        window: window.parse(at("00:00")).unwrap(),
        suspends: BTreeSet::from([DemandId::new("chat").unwrap()]),
        overlap,
        missed,
        back_by_close: false,
        ladder: None,
        reclaim_s: None,
        mark: None,
        by_hand: None,
        lend: None,
        early: None,
    }
}

#[test]
fn what_is_attached_early_stays_until_it_is_decided_about_its_opening() {
    let mut skips = calendar("skips", ("20", "7"), Overlap::Skip, Missed::MakeUp);
    let early = Early {
        opens: at("20:00"),
        demands: BTreeSet::from([DemandId::new("training").unwrap()]),
    };
    skips.early = Some(early.clone());
    assert_eq!(skips.early_at(at("19:59")), Some(&early));
    assert_eq!(
        skips.early_at(at("20:00")),
        Some(&early),
        "nobody has decided yet"
    );
    let opened = Some(at("20:00"));
    let left_out = Fate::LeftOut {
        because: "it gives way".to_owned(),
    };
    for fate in [Fate::Begun, left_out] {
        skips.mark = Some(Mark {
            opened,
            ends: None,
            fate,
        });
        assert_eq!(skips.early_at(at("20:00")), None);
    }
    let mut plain = calendar("plain", ("20", "7"), Overlap::Both, Missed::MakeUp);
    plain.early = Some(early);
    assert_eq!(plain.early_at(at("20:00")), None, "it runs");
    assert_eq!(plain.early_at(at("19:00")), plain.early.as_ref());
    assert_eq!(plain.early_at(at("18:59")), None, "the clock was ahead then");
}

/// Decides, keeps what was decided, and says who runs.
fn step(calendars: &mut [Calendar], time: &str) -> Vec<String> {
    for (id, mark) in decide(calendars, |_| Returns::of(&[]), at(time)) {
        let decided = calendars.iter_mut().find(|calendar| calendar.id == id).unwrap();
        decided.mark = Some(mark);
    }
    assert_eq!(
        decide(calendars, |_| Returns::of(&[]), at(time)),
        [],
        "decided once"
    );
    let open = calendars.iter().filter(|calendar| calendar.is_open(at(time)));
    open.map(|calendar| calendar.id.to_string()).collect()
}

#[test]
fn one_that_waits_begins_when_the_other_is_over() {
    let first = calendar("a", ("8", "12"), Overlap::Both, Missed::MakeUp);
    let mut both = [first, calendar("b", ("10", "14"), Overlap::Queue, Missed::Skip)];
    assert_eq!(step(&mut both, "09:00"), ["a"]);
    assert_eq!(step(&mut both, "10:00"), ["a"]);
    assert!(matches!(
        both[1].mark_at(at("11:00")).unwrap().fate,
        Fate::Waits { .. }
    ));
    assert_eq!(step(&mut both, "12:00"), ["b"], "it waited, and was not missed");
    assert_eq!(step(&mut both, "14:00"), [] as [&str; 0]);
}

#[test]
fn one_that_gives_way_is_left_out_for_the_whole_of_its_window() {
    let first = calendar("a", ("8", "12"), Overlap::Both, Missed::MakeUp);
    let mut both = [first, calendar("b", ("10", "14"), Overlap::Skip, Missed::MakeUp)];
    assert_eq!(step(&mut both, "10:00"), ["a"]);
    assert_eq!(step(&mut both, "13:00"), [] as [&str; 0]);
    let Fate::LeftOut { because } = &both[1].mark_at(at("13:00")).unwrap().fate else {
        panic!("{both:?}")
    };
    assert!(because.contains("schedule a"), "{because}");
    // With nothing in common they don't meet.
    let mut apart = calendar("b", ("10", "14"), Overlap::Skip, Missed::MakeUp);
    apart.suspends.clear();
    both[1] = apart;
    assert_eq!(step(&mut both, "10:00"), ["a", "b"]);
}

#[test]
fn of_two_that_open_together_one_runs() {
    let new = |id| calendar(id, ("8", "12"), Overlap::Queue, Missed::MakeUp);
    let mut three = [new("c"), new("b"), new("a")];
    assert_eq!(step(&mut three, "08:00"), ["a"]);
    // Whoever came first goes on, also where another is looked at earlier.
    three[2].by_hand = None;
    assert_eq!(step(&mut three, "11:00"), ["a"]);
}

#[test]
fn what_was_missed_is_made_up_for_or_left_out() {
    let mut both = [
        calendar("made-up", ("8", "12"), Overlap::Both, Missed::MakeUp),
        calendar("strict", ("8", "12"), Overlap::Both, Missed::Skip),
    ];
    assert_eq!(step(&mut both, "08:06"), ["made-up"]);
    assert_eq!(step(&mut both, "11:00"), ["made-up"]);
    both[1].mark = None;
    assert_eq!(
        step(&mut both, "08:05"),
        ["made-up", "strict"],
        "not too late yet"
    );
    assert_eq!(step(&mut both, "11:00"), ["made-up", "strict"], "and it goes on");
}

#[test]
fn what_is_lent_is_back_by_the_closing_or_is_not_lent() {
    let mut one = [calendar("a", ("8", "9"), Overlap::Both, Missed::MakeUp)];
    one[0].back_by_close = true;
    assert_eq!(step(&mut one, "08:00"), ["a"]);
    assert_eq!(
        one[0].next_change(at("08:00")),
        Some(at("08:55")),
        "5 minutes are assumed"
    );
    assert_eq!(step(&mut one, "08:54"), ["a"]);
    assert_eq!(step(&mut one, "08:55"), [] as [&str; 0]);
    assert_eq!(step(&mut one, "08:59"), [] as [&str; 0], "it does not open again");
    // Begun so late that what is lent could not be back: not lent.
    one[0].mark = None;
    assert_eq!(step(&mut one, "08:56"), [] as [&str; 0]);
    let Some(Fate::LeftOut { because }) = one[0].mark.as_ref().map(|mark| &mark.fate) else {
        panic!("{one:?}")
    };
    assert!(
        because.contains("300 s, which is assumed") && because.contains("there are 240 s"),
        "{because}"
    );
}

#[test]
fn nothing_is_lent_for_less_time_than_its_return_was_measured_to_take() {
    let mut one = calendar("a", ("8", "9"), Overlap::Both, Missed::MakeUp);
    let ends = |one: &Calendar, took: &[u32]| one.end_of(&Returns::of(took), at("08:00"));
    let refused = ends(&one, &[3600; 5]).unwrap_err();
    assert!(
        refused.contains("for 3600 s") && refused.contains("95th percentile of 5"),
        "{refused}"
    );
    assert_eq!(
        ends(&one, &[3599; 5]),
        Ok(None),
        "it is promised to nobody by when"
    );
    assert_eq!(
        ends(&one, &[3600; 4]),
        Ok(None),
        "what is assumed refuses nothing"
    );
    one.suspends.clear();
    assert_eq!(ends(&one, &[3600; 5]), Ok(None), "it lends nothing");
}

#[test]
fn a_run_by_hand_is_on_for_its_time() {
    let mut one = [calendar("a", ("8", "12"), Overlap::Both, Missed::Skip)];
    one[0].by_hand = Some(ByHand {
        from: at("06:00"),
        until: at("07:00"),
        back_by: None,
        by: "somebody".into(),
    });
    assert_eq!(one[0].next_change(at("05:00")), Some(at("06:00")));
    assert_eq!(step(&mut one, "06:30"), ["a"]);
    assert_eq!(one[0].next_change(at("06:30")), Some(at("07:00")));
    assert_eq!(one[0].runs_until(at("06:30")), Some(at("07:00")));
    assert_eq!(step(&mut one, "07:00"), [] as [&str; 0]);
    assert_eq!(one[0].next_change(at("07:00")), Some(at("08:00")));
}
