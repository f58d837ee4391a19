//! Uplinks with limits: plans keep them, and a demand that a limit blocks names it as the reason.

use crate::support::*;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_planner::direct::{self, Refusal};
use poolwright_planner::undo::{self, undo};
use poolwright_planner::uplinks::{carried, crossed};
use poolwright_planner::{FullUplink, Help, Kept, Plan, Reason, Reserved, Violation, check};
use poolwright_sizing::need::Need;

fn h100(count: u32) -> Need {
    Need::of_kind("h100", count)
}

fn full(switch: &str, most: u32, carried: u32, needed: u32) -> FullUplink {
    let (fabric, switch) = switch_at(switch);
    FullUplink {
        fabric,
        switch,
        most,
        carried,
        needed,
    }
}

fn gpus(names: &[&str]) -> Vec<GpuId> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn host(name: &str) -> HostId {
    name.parse().unwrap()
}

#[test]
fn nothing_is_attached_beyond_what_uplinks_carry_and_the_demand_is_told_so() {
    let six = two_switches().uplink("f/s1", 2).want("d", h100(6)).plan();
    assert_eq!(gpus_of(&six, "d").len(), 6, "two of them across");
    let plan = two_switches().uplink("f/s1", 2).want("d", h100(7)).plan();
    assert_eq!(
        *reason(&plan, "d"),
        Reason::Uplinks {
            kind: "h100".into(),
            needed: 7,
            free: 8,
            largest: 6,
            ever: 6,
            full: vec![full("f/s1", 2, 0, 3)],
        }
    );
    let unplaced = &plan.unplaced[0];
    let (fabric, switch) = switch_at("f/s1");
    let raise = Help::RaiseUplinks {
        fabric,
        switch,
        gpus: 3,
    };
    assert_eq!(unplaced.tried[0].helps, [Help::AllowSpanning, raise]);
    assert!(unplaced.is_never(), "nobody has anything that he could let go of");
    let told = unplaced.tried[0].to_string();
    for words in [
        "8 GPUs of kind h100 are free, but at most 6 of the 7 needed can be had together",
        "the uplinks of switch f/s1 may carry 2 GPUs and carry 0: with these it would be 3",
        "poolwright uplink set f/s1 --gpus 3",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let raised = two_switches().uplink("f/s1", 3).want("d", h100(7)).plan();
    assert!(raised.unplaced.is_empty());
}

#[test]
fn a_gpu_counts_at_its_own_switch_and_at_its_hosts() {
    for switch in ["f/s1", "f/s2"] {
        let plan = two_switches().uplink(switch, 1).want("d", h100(6)).plan();
        assert!(
            matches!(reason(&plan, "d"), Reason::Uplinks { largest: 5, .. }),
            "{switch}"
        );
    }
    // Of the switch in between nothing is counted.
    let between = Rack::new()
        .gpus("f/s1", "h100", 80.0, 4)
        .host("host-1", "f/s2", 8)
        .cable("f", "s1", "spine")
        .cable("f", "s2", "spine")
        .uplink("f/spine", 0)
        .want("d", h100(4));
    assert!(between.plan().unplaced.is_empty());
}

#[test]
fn what_is_attached_and_what_is_on_its_way_takes_its_part() {
    let mut rack = two_switches().uplink("f/s1", 3).want("first", h100(6));
    rack.apply(1);
    assert_eq!(rack.across()[&switch_at("f/s1")], 2);
    rack.demand("second", 0, h100(2));
    // Two are left at the other switch.
    let second = rack.plan();
    let (at, _) = &hosts_of(&second, "second")[0];
    assert!(rack.held[0].host.as_str() != at, "at the host beside them");

    // A foreign bind crosses, too.
    rack.foreign("g008", "host-1");
    assert_eq!(carried(&rack.world())[&switch_at("f/s1")], 3);
    // And an operation brings another.
    let unit = "g007".parse().unwrap();
    let port = Some("host-1/p0".parse().unwrap());
    rack.reserved = vec![Reserved {
        unit,
        host_port: port,
    }];
    assert_eq!(carried(&rack.world())[&switch_at("f/s1")], 4);
}

#[test]
fn where_less_may_be_by_now_what_is_there_stays_and_no_more_comes() {
    let mut rack = two_switches().want("wide", h100(6));
    rack.apply(1);
    rack = rack.uplink("f/s1", 1);
    let plan = rack.plan();
    assert!(plan.changes_nothing(), "{plan:#?}");
    let there = host(rack.held[0].host.as_str());
    let free: Vec<GpuId> = (rack.snapshot.topology.gpus.iter())
        .filter(|gpu| gpu.state == GpuState::Free)
        .map(|gpu| gpu.id.clone())
        .collect();
    let refused = direct::attach(&free[..1], &there, &rack.input()).unwrap_err();
    assert_eq!(refused, Refusal::Uplinks(full("f/s1", 1, 2, 3)));
    // A release is always allowed.
    rack.forget("wide");
    rack.apply(2);
    assert!(rack.held.is_empty());
}

#[test]
fn what_is_asked_for_by_name_is_refused_with_what_would_help() {
    let rack = two_switches().uplink("f/s2", 2);
    let across = gpus(&["g005", "g006", "g007"]);
    let refused = direct::attach(&across, &host("host-1"), &rack.input()).unwrap_err();
    assert_eq!(refused, Refusal::Uplinks(full("f/s2", 2, 0, 3)));
    assert!(
        refused.hint().contains("poolwright uplink set f/s2 --gpus 3"),
        "{}",
        refused.hint()
    );
    let plan = direct::attach(&across[..2], &host("host-1"), &rack.input()).unwrap();
    rack.holds(&plan);
    let beside = direct::attach(&across, &host("host-2"), &rack.input()).unwrap();
    rack.holds(&beside);
}

#[test]
fn of_two_ports_the_one_that_crosses_less_is_taken_where_the_other_may_not_be() {
    let rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 3)
        .host_with("host-1", &[("f/s1", 1), ("f/s2", 8)])
        .cable("f", "s1", "s2")
        .uplink("f/s2", 1);
    let two = direct::attach(&gpus(&["g001", "g002"]), &host("host-1"), &rack.input()).unwrap();
    rack.holds(&two);
    let refused = direct::attach(&gpus(&["g001", "g002", "g003"]), &host("host-1"), &rack.input());
    assert!(matches!(refused, Err(Refusal::Uplinks(_))), "{refused:?}");
}

#[test]
fn what_moves_makes_room_for_itself_and_in_that_order() {
    let mut rack = two_switches().host("host-3", "f/s2", 8).uplink("f/s1", 2);
    let plan = direct::attach(&gpus(&["g001", "g002"]), &host("host-2"), &rack.input()).unwrap();
    rack.execute(&plan, 1);
    for seed in 0..8 {
        let mut rack = rack.clone();
        let plan = direct::move_to(&gpus(&["g001", "g002"]), &host("host-3"), &rack.input()).unwrap();
        rack.holds(&plan);
        rack.execute(&plan, seed);
        assert_eq!(rack.across()[&switch_at("f/s1")], 2);
    }
}

#[test]
fn one_that_failed_is_exchanged_across_a_full_uplink_once_it_is_gone() {
    for seed in 0..8 {
        let mut rack = Rack::new()
            .gpus("f/s1", "h100", 80.0, 3)
            .host("host-1", "f/s2", 8)
            .cable("f", "s1", "s2")
            .uplink("f/s1", 2)
            .want("d", h100(2));
        rack.apply(seed);
        rack.gpu_mut("g001").composability = poolwright_model::composable::Composability::no(
            poolwright_model::composable::WhyNotKind::Quarantined,
            "it failed",
        );
        let plan = rack.apply(seed);
        assert_eq!(gpus_of(&plan, "d"), ["g003"], "{plan:#?}");
        assert!(rack.plan().changes_nothing());
    }
}

#[test]
fn a_plan_that_was_made_before_is_refused_where_the_room_is_gone() {
    let mut rack = two_switches().want("d", h100(6));
    let plan = rack.plan();
    let two = |rack: &Rack| -> Vec<String> {
        let found = check(&plan, &rack.world()).into_iter();
        found.map(|found| found.to_string()).collect()
    };
    assert_eq!(two(&rack), Vec::<String>::new());
    rack = rack.uplink("f/s1", 2);
    assert_eq!(two(&rack), Vec::<String>::new(), "it may be just so many");
    assert_eq!(crossed(&plan, &rack.world())[0].full(), None);
    rack = rack.uplink("f/s1", 1);
    assert_eq!(
        two(&rack),
        ["uplinks of switch f/s1 may have to carry 2 GPUs at once, and may carry 1"]
    );
    assert_eq!(
        crossed(&plan, &rack.world())[0].full(),
        Some(full("f/s1", 1, 0, 2))
    );
}

#[test]
fn the_check_sees_a_bind_that_does_not_wait() {
    let mut rack = two_switches().host("host-3", "f/s2", 8).uplink("f/s1", 2);
    let plan = direct::attach(&gpus(&["g001", "g002"]), &host("host-2"), &rack.input()).unwrap();
    rack.execute(&plan, 1);
    // Those across go, and others come across.
    rack.demand("d", 0, h100(6));
    let mut plan = direct::detach(&gpus(&["g001", "g002"]), &rack.input()).unwrap();
    rack.held.clear();
    let others = direct::attach(
        &gpus(&["g003", "g004"]),
        &host("host-3"),
        &{
            let mut free = rack.clone();
            for gpu in ["g001", "g002"] {
                let gpu = free.gpu_mut(gpu);
                (gpu.state, gpu.host, gpu.host_port) = (GpuState::Free, None, None);
            }
            free
        }
        .input(),
    );
    let others = others.unwrap();
    let first = plan.steps.len() as u32;
    plan.composes = others.composes;
    plan.steps.extend(others.steps.into_iter().map(|mut step| {
        step.index += first;
        step.after.iter_mut().for_each(|after| *after += first);
        step
    }));
    rack.held = plan.releases.clone();
    let across = |plan: &Plan| {
        let found = check(plan, &rack.world()).into_iter();
        let mut found = found.filter(|found| matches!(found, Violation::TooManyAcross { .. }));
        found.next().map(|found| found.to_string())
    };
    assert_eq!(
        across(&plan).as_deref(),
        Some("uplinks of switch f/s1 may have to carry 4 GPUs at once, and may carry 2")
    );
    // Each bind waits for one unbind: whichever it is, none is over.
    let of = |verb: Verb, plan: &Plan| -> Vec<u32> {
        let steps = plan.steps.iter().filter(|step| step.verb == verb);
        steps.map(|step| step.index).collect()
    };
    let (unbinds, binds) = (of(Verb::Unbind, &plan), of(Verb::Bind, &plan));
    for (bind, unbind) in binds.iter().zip(unbinds.iter().rev()) {
        plan.steps[*bind as usize].after.insert(0, *unbind);
    }
    assert_eq!(across(&plan), None);
    // Both wait for the same.
    plan.steps[binds[0] as usize].after[0] = unbinds[0];
    plan.steps[binds[1] as usize].after[0] = unbinds[0];
    assert_eq!(
        across(&plan).as_deref(),
        Some("uplinks of switch f/s1 may have to carry 3 GPUs at once, and may carry 2")
    );
}

#[test]
fn what_is_taken_over_where_it_is_adds_nothing() {
    let mut rack = two_switches().uplink("f/s1", 0);
    rack.foreign("g005", "host-1");
    let adopted = poolwright_planner::adopt(&"f".parse().unwrap(), &rack.input()).plan;
    assert_eq!(adopted.composes.len(), 1, "{adopted:#?}");
    assert_eq!(
        crossed(&adopted, &rack.world())
            .iter()
            .find_map(|crossed| crossed.full()),
        None
    );
}

#[test]
fn an_undo_that_would_attach_too_much_across_is_refused() {
    let mut rack = two_switches();
    let plan = direct::attach(&gpus(&["g005", "g006"]), &host("host-1"), &rack.input()).unwrap();
    rack.execute(&plan, 1);
    let detached = direct::detach(&gpus(&["g005", "g006"]), &rack.input()).unwrap();
    rack.execute(&detached, 1);
    assert!(undo(&detached, &rack.input()).is_ok());
    rack = rack.uplink("f/s2", 1);
    assert_eq!(
        undo(&detached, &rack.input()),
        Err(undo::Refusal::Gone(Refusal::Uplinks(full("f/s2", 1, 0, 2))))
    );
}

#[test]
fn what_is_kept_makes_way_on_an_uplink_too() {
    let mut rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 4)
        .host("host-1", "f/s2", 2)
        .host("host-2", "f/s2", 2)
        .cable("f", "s1", "s2")
        .uplink("f/s1", 2)
        .want("first", h100(2));
    rack.apply(1);
    let kept = &mut rack.held[0];
    kept.demand = None;
    kept.kept = Some(Kept {
        since: jiff::Timestamp::UNIX_EPOCH,
        by: jiff::Timestamp::UNIX_EPOCH,
        part_of: None,
    });
    rack.forget("first");
    rack.demand("second", 0, h100(1));
    assert!(rack.plan().unplaced.is_empty());
    let plan = rack.apply(2);
    assert_eq!(plan.releases.len(), 1, "{plan:#?}");
    assert!(rack.across()[&switch_at("f/s1")] <= 2);
}

/// The free H100s are behind a full uplink; the A100s of the host's own switch are in use and can serve it later.
#[test]
fn a_set_of_any_kind_can_be_served_later_if_one_kind_can() {
    let plan = two_switches()
        .gpus("f/s2", "a100", 40.0, 6)
        .uplink("f/s1", 0)
        .want("first", need(vec![set(Some("a100"), 1, 0.0, 1)], false))
        .want("any", need(vec![set(None, 6, 0.0, 1)], false))
        .plan();
    assert!(
        !plan.unplaced.iter().any(|unplaced| unplaced.is_never()),
        "{plan:#?}"
    );
}

#[test]
fn a_board_counts_with_all_of_its_gpus() {
    let board = |most: u32| {
        Rack::new()
            .gpus("f/s1", "h100", 80.0, 4)
            .solder(1..=4)
            .host("host-1", "f/s2", 8)
            .cable("f", "s1", "s2")
            .uplink("f/s1", most)
            .want("d", h100(4))
            .plan()
    };
    assert!(board(4).unplaced.is_empty());
    assert!(matches!(
        reason(&board(3), "d"),
        Reason::Uplinks {
            largest: 0,
            ever: 0,
            ..
        }
    ));
}

#[test]
fn a_gpu_on_several_switches_counts_at_the_nearest() {
    let mut rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 1)
        .host("host-1", "f/s3", 8)
        .cable("f", "s1", "s2")
        .cable("f", "s2", "s3")
        .uplink("f/s1", 0)
        .uplink("f/s2", 1)
        .want("d", h100(1));
    let mut second = rack.gpu_mut("g001").ports[0].clone();
    second.switch = Some("s2".parse().unwrap());
    rack.gpu_mut("g001").ports.push(second);
    rack.plan();
    assert!(rack.plan().unplaced.is_empty());
    assert!(matches!(
        reason(&rack.uplink("f/s2", 0).plan(), "d"),
        Reason::Uplinks { .. }
    ));
}
