use super::*;

const RULE: Rule = Rule {
    threshold: 5,
    locked: SignedDuration::from_secs(900),
    forgotten: SignedDuration::from_secs(900),
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn source(number: u32) -> Source {
    Source::of(std::net::Ipv4Addr::from_bits(number).into())
}

fn met(attempt: &Attempt) -> Met {
    Met::of(attempt, None, None)
}

/// An attempt that is delayed after five failures at this second.
fn delayed(second: i64) -> (Attempt, Met) {
    let attempt = Attempt::at("admin", Some("id"), source(1));
    let mut met = met(&attempt);
    for _ in 0..5 {
        met.admit(&attempt, &RULE, at(second));
    }
    (attempt, met)
}

#[test]
fn a_name_and_a_source_take_a_bounded_place_however_many_there_are() {
    let attempt = Attempt::at("admin", Some("id"), source(1));
    let mut met = met(&attempt);
    for _ in 0..5 {
        assert!(matches!(met.admit(&attempt, &RULE, at(0)), Admission::Counted(_)));
    }
    for number in 0..200 {
        for name in 0..40 {
            let source = source(number).to_string();
            met.page.count(&source, &name.to_string(), &RULE, at(1));
        }
    }
    assert_eq!(met.page.sources.len(), SOURCES);
    assert!(
        met.page
            .sources
            .values()
            .all(|source| source.names.len() <= NAMES)
    );
    let json = serde_json::to_string(&met.page).unwrap();
    assert!(json.len() < 32 << 10, "{} bytes", json.len());
}

#[test]
fn invented_sources_do_not_make_one_that_guessed_more_often_be_forgotten() {
    let (attempt, mut met) = delayed(0);
    for number in 2..1_000 {
        met.page.count(&source(number).to_string(), "other", &RULE, at(1));
    }
    assert_eq!(met.admit(&attempt, &RULE, at(2)), Admission::Early);
}

#[test]
fn the_password_of_one_account_gives_no_checks_of_another() {
    let admin = Attempt::at("admin", Some("id"), source(1));
    let own = Attempt::at("kim", Some("other"), source(1));
    let mut page = SourceFailures::empty(&admin.page);
    let mut try_at = |attempt: &Attempt, is_right: bool| {
        let mut met = Met::of(attempt, Some(page.clone()), None);
        let admission = met.admit(attempt, &RULE, at(0));
        if is_right {
            met.give_back(attempt, &RULE, at(0));
        }
        page = met.page;
        admission
    };
    for _ in 0..5 {
        try_at(&own, false);
    }
    for number in 0..45 {
        try_at(&Attempt::at(&number.to_string(), None, source(1)), false);
    }
    for _ in 0..CHECKS {
        assert_eq!(try_at(&admin, false), Admission::Early);
    }
    for _ in 0..10 {
        assert_eq!(try_at(&own, true), Admission::Early);
        assert_eq!(try_at(&admin, false), Admission::Refused);
    }
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_delay() {
    let (attempt, met) = delayed(100_000);
    assert_eq!(met.until(&attempt, &RULE, at(100_001))[0], Some(at(100_015)));
    assert_eq!(met.until(&attempt, &RULE, at(1))[0], None);
}

#[test]
fn delays_are_those_of_the_rule_of_the_day() {
    let (attempt, met) = delayed(0);
    let longer = Rule {
        locked: SignedDuration::from_secs(86_400),
        ..RULE
    };
    let later = Rule { threshold: 6, ..RULE };
    assert_eq!(met.until(&attempt, &longer, at(1))[0], Some(at(1440)));
    assert_eq!(met.until(&attempt, &later, at(1))[0], None);
}

#[test]
fn failures_are_forgotten_some_time_after_the_last_delay() {
    let (attempt, mut met) = delayed(0);
    let mut sooner = met.clone();
    assert!(matches!(
        sooner.admit(&attempt, &RULE, at(914)),
        Admission::Counted(Some(_))
    ));
    assert_eq!(met.admit(&attempt, &RULE, at(915)), Admission::Counted(None));
}
