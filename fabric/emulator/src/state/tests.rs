//! The bindings: no GPU is ever bound twice, whatever is asked in whatever order.

use super::*;
use crate::rack::{BoxIx, Style};
use proptest::prelude::*;
use std::time::Duration;

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

fn state(name: &str) -> State {
    State::new(Arc::new(Rack::builtin(name).unwrap()), at(0))
}

fn gpu(state: &State, name: &str) -> GpuIx {
    state.rack().gpu_named(name).unwrap()
}

fn port(state: &State, name: &str) -> PortIx {
    state.rack().port_named(name).unwrap()
}

fn begin(state: &mut State, change: Change, now: i64) -> Result<ChangeId, Refusal> {
    state.begin(change, Course::Real, None, at(now)).map(|(id, _)| id)
}

#[test]
fn a_bind_takes_its_time_and_the_host_sees_the_gpu_later() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    let id = begin(&mut state, Change::bind(g, p), 100).unwrap();
    state.settle(at(119));
    assert_eq!(
        (state.bound_to(g), state.busy(g), state.outcome(id)),
        (None, true, None)
    );
    state.settle(at(120));
    assert_eq!(
        (state.bound_to(g), state.busy(g), state.outcome(id)),
        (Some(p), false, Some(&Ok(())))
    );
    assert!(!state.seen_by_host(g, at(139)));
    assert!(state.seen_by_host(g, at(140)));
}

#[test]
fn a_gpu_is_never_bound_twice() {
    let mut state = state("zones");
    let g = gpu(&state, "box-1/gpu-1");
    let (p, other) = (port(&state, "host-1/port-1"), port(&state, "host-2/port-2"));
    begin(&mut state, Change::bind(g, p), 0).unwrap();
    assert!(matches!(
        begin(&mut state, Change::bind(g, other), 1),
        Err(Refusal::Busy { .. })
    ));
    for to in [p, other] {
        let refused = begin(&mut state, Change::bind(g, to), 50).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "box-1/gpu-1 is bound to host-1/port-1 already"
        );
    }
    assert_eq!(
        (state.bound_to(g), state.tally().double_binds_refused),
        (Some(p), 2)
    );
}

#[test]
fn what_was_bound_before_is_there_from_the_start() {
    let state = state("zones");
    let g = gpu(&state, "box-1/gpu-2");
    assert_eq!(state.bound_to(g), Some(port(&state, "host-2/port-2")));
    assert!(state.seen_by_host(g, at(0)));
    assert_eq!(state.tally(), Tally::default());
}

#[test]
fn no_port_takes_more_gpus_than_it_has_slots() {
    let text = "name = \"t\"\nstyle = \"zones\"\nlatency.bind = \"10ms\"\n\
                [[box]]\ngpus = [{ kind = \"l40s-48gb\", count = 4 }]\n[[host]]\nslots = 2\n";
    let mut state = State::new(Arc::new(Rack::from_toml("t", text).unwrap()), at(0));
    let p = port(&state, "host-1/port-1");
    begin(&mut state, Change::bind(GpuIx(0), p), 0).unwrap();
    // One is there, one is on its way: a third finds no room.
    begin(&mut state, Change::bind(GpuIx(1), p), 20).unwrap();
    let refused = begin(&mut state, Change::bind(GpuIx(2), p), 21).unwrap_err();
    assert_eq!(
        refused,
        Refusal::NoRoom {
            port: "host-1/port-1".into(),
            slots: 2,
            wanted: 1
        }
    );
    // In one step with a leaving GPU there is.
    let exchange = Change::Move {
        port: p,
        add: vec![GpuIx(2)],
        remove: vec![GpuIx(0)],
        system: SystemFate::Keep,
    };
    begin(&mut state, exchange, 40).unwrap();
    state.settle(at(60));
    assert_eq!(state.at_port(p).collect::<Vec<_>>(), [GpuIx(1), GpuIx(2)]);
    assert_eq!(state.check(), Ok(()));
}

#[test]
fn other_fabrics_and_other_ports_are_refused() {
    let mut state = state("zones");
    let g = gpu(&state, "box-1/gpu-1");
    let (far, near) = (port(&state, "host-1/port-2"), port(&state, "host-1/port-1"));
    assert!(matches!(
        begin(&mut state, Change::bind(g, far), 0),
        Err(Refusal::NoPath { .. })
    ));
    assert!(matches!(
        begin(&mut state, Change::unbind(g, near), 0),
        Err(Refusal::NotBound { .. })
    ));
    let soldered = gpu(&state, "host-3/gpu-1");
    assert!(matches!(
        begin(&mut state, Change::bind(soldered, near), 0),
        Err(Refusal::NoPath { .. })
    ));
}

#[test]
fn a_reset_is_refused_while_bound_and_cleans() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    begin(&mut state, Change::bind(g, p), 0).unwrap();
    let refused = begin(&mut state, Change::Reset { gpu: g }, 50).unwrap_err();
    assert!(matches!(refused, Refusal::InUse { .. }), "{refused}");
    begin(&mut state, Change::unbind(g, p), 50).unwrap();
    state.settle(at(100));
    assert!(state.dirty(g));
    begin(&mut state, Change::Reset { gpu: g }, 100).unwrap();
    assert!(state.resetting(g) && state.dirty(g));
    assert!(matches!(
        begin(&mut state, Change::bind(g, p), 110),
        Err(Refusal::Busy { .. })
    ));
    state.settle(at(599));
    assert!(state.resetting(g) && state.dirty(g));
    state.settle(at(600));
    assert_eq!(
        (state.resetting(g), state.dirty(g), state.resets(g)),
        (false, false, 1)
    );
}

#[test]
fn a_change_without_effect_ends_well_and_one_that_never_ends_holds() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    let (lie, due) = state
        .begin(Change::bind(g, p), Course::NoEffect, None, at(0))
        .unwrap();
    state.settle(due);
    assert_eq!((state.outcome(lie), state.bound_to(g)), (Some(&Ok(())), None));
    let (stuck, _) = state
        .begin(Change::bind(g, p), Course::Never, None, at(30))
        .unwrap();
    state.settle(at(1_000_000_000));
    assert_eq!((state.outcome(stuck), state.busy(g)), (None, true));
    state.restart_manager(state.rack().box_of(g).unwrap(), at(1_000_000_001));
    assert_eq!((state.outcome(stuck), state.busy(g)), (Some(&Ok(())), false));
    assert_eq!(state.bound_to(g), None);
    begin(&mut state, Change::bind(g, p), 1_000_000_002).unwrap();
}

#[test]
fn what_comes_late_holds_nothing_meanwhile_and_then_does_what_it_still_can() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    let late = |state: &mut State, change, now| {
        let by = Duration::from_millis(1000);
        state.begin(change, Course::Late(by), None, at(now)).unwrap().0
    };
    let bind = late(&mut state, Change::bind(g, p), 0);
    state.settle(at(999));
    assert_eq!((state.busy(g), state.bound_to(g)), (false, None));
    state.settle(at(1000));
    assert_eq!((state.outcome(bind), state.bound_to(g)), (Some(&Ok(())), Some(p)));
    state.unbind_by_others(g, at(2000));
    let reset = late(&mut state, Change::Reset { gpu: g }, 2000);
    state.bind_by_others(g, p, at(2500)).unwrap();
    state.settle(at(3000));
    assert!(matches!(state.outcome(reset), Some(Err(Refusal::InUse { .. }))));
    assert_eq!((state.tally().resets_in_use, state.resets(g)), (1, 0));
}

#[test]
fn a_gpu_that_vanishes_on_its_way_is_not_bound() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    let id = begin(&mut state, Change::bind(g, p), 0).unwrap();
    state.vanish(g, at(10));
    state.settle(at(50));
    assert!(matches!(state.outcome(id), Some(Err(Refusal::Gone { .. }))));
    assert_eq!(state.bound_to(g), None);
    state.reappear(g);
    begin(&mut state, Change::bind(g, p), 60).unwrap();
    state.settle(at(100));
    assert_eq!(state.bound_to(g), Some(p));
}

#[test]
fn a_host_that_is_off_sees_nothing_and_keeps_its_bindings() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-2"), port(&state, "host-2/port-2"));
    let host = state.rack().host_named("host-2").unwrap();
    state.set_power(host, HostPower::Off, at(10));
    assert!(!state.seen_by_host(g, at(10)));
    assert_eq!(state.bound_to(g), Some(p));
    state.set_power(host, HostPower::On, at(100));
    assert!(!state.seen_by_host(g, at(110)), "it enumerates first");
    assert!(state.seen_by_host(g, at(120)));
}

#[test]
fn jobs_show_and_a_gpu_pulled_in_use_is_counted() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-2"), port(&state, "host-2/port-2"));
    let job = Job {
        pid: 7,
        command: "python train.py".into(),
    };
    state.start_job(g, job.clone(), at(0)).unwrap();
    assert_eq!(state.jobs(g), std::slice::from_ref(&job));
    state.set_draining(g, true);
    assert!(matches!(
        state.start_job(g, job, at(0)),
        Err(Refusal::Draining { .. })
    ));
    begin(&mut state, Change::unbind(g, p), 0).unwrap();
    state.settle(at(100));
    assert_eq!((state.tally().pulled_in_use, state.jobs(g).len()), (1, 0));
}

#[test]
fn what_is_kept_comes_back() {
    let mut state = state("zones");
    let (g, p) = (gpu(&state, "box-1/gpu-1"), port(&state, "host-1/port-1"));
    let host = state.rack().host_named("host-3").unwrap();
    begin(&mut state, Change::bind(g, p), 0).unwrap();
    state.settle(at(50));
    state.vanish(gpu(&state, "box-2/gpu-3"), at(50));
    state.set_power(host, HostPower::Off, at(50));
    let saved = state.save();
    let json = serde_json::to_string(&saved).unwrap();

    let mut other = self::state("zones");
    other
        .restore(&serde_json::from_str(&json).unwrap(), at(60))
        .unwrap();
    assert_eq!(other.save(), saved);
    assert_eq!(other.check(), Ok(()));

    let error = self::state("small")
        .restore(&saved, at(0))
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not fit the rack"), "{error}");
}

/// What can be done to a rack, in numbers that are taken modulo what there is.
#[derive(Debug, Clone)]
enum Doing {
    Bind(usize, usize),
    Unbind(usize),
    Exchange(usize, usize, usize),
    Reset(usize),
    Vanish(usize),
    Reappear(usize),
    Lose(usize),
    Others(usize, usize),
    Power(usize, bool),
    Wait(u16),
}

fn doing() -> impl Strategy<Value = Doing> {
    let n = || 0..64usize;
    prop_oneof![
        6 => (n(), n()).prop_map(|(g, p)| Doing::Bind(g, p)),
        4 => n().prop_map(Doing::Unbind),
        2 => (n(), n(), n()).prop_map(|(a, b, p)| Doing::Exchange(a, b, p)),
        2 => n().prop_map(Doing::Reset),
        1 => n().prop_map(Doing::Vanish),
        1 => n().prop_map(Doing::Reappear),
        1 => n().prop_map(Doing::Lose),
        1 => (n(), n()).prop_map(|(g, p)| Doing::Others(g, p)),
        1 => (n(), any::<bool>()).prop_map(|(h, on)| Doing::Power(h, on)),
        4 => (0..60u16).prop_map(Doing::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is done in whatever order, the invariants hold, and what is acknowledged is so.
    #[test]
    fn random_operations_never_break_an_invariant(doings in prop::collection::vec((doing(), 0..3u8), 1..80)) {
        let rack = Arc::new(Rack::builtin("zones").unwrap());
        prop_assert_eq!(rack.style, Style::Zones);
        let mut state = State::new(Arc::clone(&rack), at(0));
        let mut now = at(0);
        let gpu = |n: usize| GpuIx(n % rack.gpus.len());
        let port = |n: usize| PortIx(n % rack.ports.len());
        for (what, course) in doings {
            let course = [Course::Real, Course::NoEffect, Course::Real][usize::from(course)];
            let ask = |state: &mut State, change: Change| {
                let free_before: Vec<bool> = state.gpus.iter().map(|truth| truth.bound.is_none()).collect();
                let asked = state.begin(change.clone(), course, None, now);
                if let (Ok(_), Change::Move { add, .. }) = (&asked, &change) {
                    for gpu in add {
                        assert!(free_before[gpu.0], "a bound GPU was promised to somebody else");
                    }
                }
            };
            match what {
                Doing::Bind(g, p) => ask(&mut state, Change::bind(gpu(g), port(p))),
                Doing::Unbind(g) => {
                    let at = state.bound_to(gpu(g)).unwrap_or(PortIx(0));
                    ask(&mut state, Change::unbind(gpu(g), at));
                }
                Doing::Exchange(a, b, p) => ask(&mut state, Change::Move {
                    port: port(p), add: vec![gpu(a)], remove: vec![gpu(b)], system: SystemFate::Keep,
                }),
                Doing::Reset(g) => ask(&mut state, Change::Reset { gpu: gpu(g) }),
                Doing::Vanish(g) => state.vanish(gpu(g), now),
                Doing::Reappear(g) => state.reappear(gpu(g)),
                Doing::Lose(b) => state.lose_bindings(BoxIx(b % rack.boxes.len()), now),
                Doing::Others(g, p) => drop(state.bind_by_others(gpu(g), port(p), now)),
                Doing::Power(h, on) => {
                    let power = if on { HostPower::On } else { HostPower::Off };
                    state.set_power(HostIx(h % rack.hosts.len()), power, now);
                }
                Doing::Wait(ms) => now = later(now, Duration::from_millis(ms.into())),
            }
            state.settle(now);
            prop_assert_eq!(state.check(), Ok(()));
            let tally = state.tally();
            let bound = state.bindings().count() as u64;
            // One binding was there from the start.
            prop_assert_eq!(1 + tally.binds - tally.unbinds, bound);
        }
    }
}
