//! Who gets what: a story for each rule.

use crate::support::*;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Health, PowerState};
use poolwright_planner::Reserved;
use poolwright_sizing::need::Need;

#[test]
fn one_kind_in_a_composition() {
    let rack = Rack::new()
        .gpus("f/s1", "a100", 80.0, 3)
        .gpus("f/s1", "h100", 80.0, 4)
        .host("host-1", "f/s1", 8)
        .want("d", Need::of_memory(4, gib(70.0)));
    let plan = rack.plan();
    assert_eq!(
        gpus_of(&plan, "d"),
        ["g004", "g005", "g006", "g007"],
        "3 of one kind and 1 of another won't do"
    );
}

#[test]
fn alternatives_are_tried_in_their_rank_order() {
    let rack = || {
        Rack::new()
            .gpus("f/s", "h100", 80.0, 4)
            .gpus("f/s", "l40s", 45.0, 8)
            .host("h", "f/s", 8)
    };
    let sets = |first, second| need(vec![first, second], false);
    let h100 = set(Some("h100"), 2, 70.0, 1);
    let l40s = set(Some("l40s"), 4, 40.0, 1);
    let plan = rack().want("d", sets(h100.clone(), l40s.clone())).plan();
    assert_eq!(gpus_of(&plan, "d"), ["g001", "g002"]);
    let plan = rack().want("d", sets(l40s.clone(), h100)).plan();
    assert_eq!(gpus_of(&plan, "d").len(), 4);
    let plan = rack().want("d", sets(set(Some("h100"), 5, 70.0, 1), l40s)).plan();
    assert_eq!(
        gpus_of(&plan, "d").len(),
        4,
        "the first is not possible, so the second"
    );
}

#[test]
fn any_kind_means_the_smallest_that_suffices() {
    let rack = Rack::new()
        .gpus("f/s", "b200", 180.0, 2)
        .gpus("f/s", "l4", 22.0, 2)
        .gpus("f/s", "h100", 80.0, 2)
        .gpus("f/s", "h200", 141.0, 2)
        .host("h", "f/s", 8)
        .want("d", Need::of_memory(2, gib(60.0)));
    assert_eq!(gpus_of(&rack.plan(), "d"), ["g005", "g006"]);
}

#[test]
fn the_same_switch_comes_first() {
    let plan = two_switches().want("d", Need::of_kind("h100", 4)).plan();
    assert_eq!(hosts_of(&plan, "d"), [("host-1".into(), 4)]);
    assert_eq!(gpus_of(&plan, "d"), ["g001", "g002", "g003", "g004"]);

    let mut rack = two_switches().want("d", Need::of_kind("h100", 4));
    rack.foreign("g001", "host-1");
    let plan = rack.plan();
    assert_eq!(
        hosts_of(&plan, "d"),
        [("host-2".into(), 4)],
        "all four are on the other switch"
    );

    let plan = two_switches().want("d", Need::of_kind("h100", 6)).plan();
    assert_eq!(
        gpus_of(&plan, "d").len(),
        6,
        "over the cable, where one switch is not enough"
    );
}

#[test]
fn a_switch_is_not_broken_up_without_need() {
    // Four GPUs are wanted: the switch that has exactly four is used up, and the one with eight stays whole.
    let rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 8)
        .gpus("f/s2", "h100", 80.0, 4)
        .host("host-1", "f/s1", 8)
        .host("host-2", "f/s2", 8)
        .cable("f", "s1", "s2")
        .want("d", Need::of_kind("h100", 4));
    assert_eq!(hosts_of(&rack.plan(), "d"), [("host-2".into(), 4)]);
}

#[test]
fn used_hosts_fill_up_and_empty_ones_stay_whole() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 16)
        .host("host-1", "f/s", 8)
        .host("host-2", "f/s", 8)
        .want("first", Need::of_kind("h100", 5));
    rack.apply(1);
    rack.demand("second", 0, Need::of_kind("h100", 2));
    let plan = rack.apply(2);
    assert_eq!(
        hosts_of(&plan, "second"),
        [("host-1".into(), 2)],
        "the one that is in use"
    );
    rack.demand("big", 0, Need::of_kind("h100", 8));
    assert_eq!(hosts_of(&rack.plan(), "big"), [("host-2".into(), 8)]);
}

#[test]
fn foreign_bindings_take_slots_too() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("host-1", "f/s", 2)
        .host("host-2", "f/s", 3)
        .want("d", Need::of_kind("h100", 2));
    rack.foreign("g001", "host-1");
    assert_eq!(hosts_of(&rack.plan(), "d"), [("host-2".into(), 2)]);
}

#[test]
fn free_bus_numbers_limit_what_a_port_takes() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 8)
        .want("d", Need::of_kind("h100", 3));
    rack.host_mut("h").ports[0].free_buses = Some(2);
    assert_eq!(rack.plan().composes, vec![]);
    rack.host_mut("h").ports[0].free_buses = Some(3);
    assert_eq!(rack.plan().composes.len(), 1);
}

#[test]
fn a_need_too_big_for_any_host_is_spread_together_or_not_at_all() {
    let rack = |gpus| {
        Rack::new()
            .gpus("f/s", "h100", 80.0, gpus)
            .host("host-1", "f/s", 4)
            .host("host-2", "f/s", 8)
            .host("host-3", "f/s", 8)
    };
    let wide = |spannable| Need::of_kind("h100", 12).spanning(spannable);
    let plan = rack(12).want("d", wide(true)).plan();
    assert_eq!(
        hosts_of(&plan, "d"),
        [("host-2".into(), 8), ("host-1".into(), 4)],
        "fewest hosts, tightest last"
    );
    let parts: Vec<_> = plan.composes.iter().map(|c| (c.part, c.parts)).collect();
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|(_, parts)| *parts == 2));
    assert_eq!(rack(12).want("d", wide(false)).plan().composes, vec![]);
    assert_eq!(
        rack(11).want("d", wide(true)).plan().composes,
        vec![],
        "not even a part of it"
    );
}

#[test]
fn hosts_take_whole_groups() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 16)
        .host("host-1", "f/s", 6)
        .host("host-2", "f/s", 6)
        .host("host-3", "f/s", 6)
        .want("d", need(vec![set(Some("h100"), 12, 0.0, 4)], true));
    let parts = hosts_of(&rack.plan(), "d");
    assert_eq!(parts.iter().map(|(_, gpus)| *gpus).collect::<Vec<_>>(), [4, 4, 4]);
}

#[test]
fn one_host_comes_before_several_even_with_a_lower_alternative() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 12)
        .gpus("f/s", "h200", 141.0, 8)
        .host("host-1", "f/s", 8)
        .host("host-2", "f/s", 8)
        .want(
            "d",
            need(
                vec![set(Some("h100"), 12, 0.0, 1), set(Some("h200"), 8, 0.0, 1)],
                true,
            ),
        );
    assert_eq!(hosts_of(&rack.plan(), "d"), [("host-1".into(), 8)]);
}

#[test]
fn higher_priority_first_then_bigger_first() {
    let mut rack = Rack::new().gpus("f/s", "h100", 80.0, 8).host("h", "f/s", 8);
    rack.demand("a-small", 0, Need::of_kind("h100", 2));
    rack.demand("b-big", 0, Need::of_kind("h100", 7));
    let plan = rack.plan();
    assert_eq!(hosts_of(&plan, "b-big").len(), 1);
    assert_eq!(plan.unplaced.len(), 1);

    rack.demand("c-urgent", 5, Need::of_kind("h100", 2));
    let plan = rack.plan();
    assert_eq!(hosts_of(&plan, "c-urgent").len(), 1);
    assert_eq!(hosts_of(&plan, "b-big").len(), 0, "6 are left");
    assert_eq!(hosts_of(&plan, "a-small").len(), 1);
}

#[test]
fn nothing_is_taken_from_who_is_served() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 8)
        .want("old", Need::of_kind("h100", 3));
    rack.apply(1);
    rack.demand("urgent", 100, Need::of_kind("h100", 4));
    let plan = rack.plan();
    assert_eq!((plan.keeps.len(), plan.unplaced.len()), (1, 1));
    assert!(plan.changes_nothing());
}

#[test]
fn a_unit_moves_as_a_whole() {
    let rack = || {
        Rack::new()
            .gpus("f/s", "h100", 80.0, 8)
            .solder(1..=4)
            .solder(5..=8)
            .host("small", "f/s", 3)
            .host("large", "f/s", 8)
    };
    let plan = rack().want("d", Need::of_kind("h100", 2)).plan();
    assert_eq!(hosts_of(&plan, "d"), [("large".into(), 4)]);
    assert_eq!(plan.steps.len(), 4, "one bind for all four");
    let plan = rack().want("d", Need::of_kind("h100", 5)).plan();
    assert_eq!(hosts_of(&plan, "d"), [("large".into(), 8)]);
}

#[test]
fn of_units_of_several_sizes_none_is_needless() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 6)
        .solder(1..=2)
        .solder(3..=6)
        .host("h", "f/s", 8)
        .want("d", Need::of_kind("h100", 3));
    assert_eq!(gpus_of(&rack.plan(), "d"), ["g003", "g004", "g005", "g006"]);
}

#[test]
fn a_small_unit_does_not_bar_the_way_for_a_large_one() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .solder(2..=4)
        .host("h", "f/s", 3)
        .host("other", "f/s", 1)
        .want("d", Need::of_kind("h100", 2).spanning(true));
    assert_eq!(hosts_of(&rack.plan(), "d"), [("h".into(), 3)]);
}

#[test]
fn of_parts_with_large_units_none_is_needless() {
    let rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 5)
        .gpus("f/s2", "h100", 80.0, 2)
        .solder(1..=5)
        .host("a", "f/s1", 5)
        .host("b", "f/s2", 2)
        .want("d", need(vec![set(Some("h100"), 6, 0.0, 1)], true));
    assert_eq!(hosts_of(&rack.plan(), "d"), [("a".into(), 5), ("b".into(), 1)]);
}

#[test]
fn what_a_later_part_makes_needless_is_left() {
    let rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 5)
        .gpus("f/s2", "h100", 80.0, 4)
        .solder(1..=4)
        .solder(6..=9)
        .host("a", "f/s1", 5)
        .host("b", "f/s2", 4)
        .want("d", need(vec![set(Some("h100"), 7, 0.0, 1)], true));
    assert_eq!(
        hosts_of(&rack.plan(), "d"),
        [("a".into(), 4), ("b".into(), 4)],
        "the fifth is not needed"
    );
}

#[test]
fn a_unit_without_a_common_name_at_its_manager_stays() {
    let rack = || {
        Rack::new()
            .gpus("f/s", "h100", 80.0, 2)
            .solder(1..=2)
            .host("h", "f/s", 2)
    };
    let wanted = || Need::of_kind("h100", 2);
    assert_eq!(rack().want("d", wanted()).plan().composes.len(), 1);
    let mut rack = rack().want("d", wanted());
    rack.gpu_mut("g002").control = vec![point("f", "g002")];
    assert_eq!(
        rack.plan().composes.len(),
        0,
        "one bind would move only a part of it"
    );
}

#[test]
fn the_fewest_switches_where_one_is_not_enough() {
    let rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 1)
        .gpus("f/s2", "h100", 80.0, 3)
        .gpus("f/s3", "h100", 80.0, 4)
        .host("h", "f/s0", 8)
        .cable("f", "s0", "s1")
        .cable("f", "s0", "s2")
        .cable("f", "s0", "s3")
        .want("d", Need::of_kind("h100", 7));
    let gpus = gpus_of(&rack.plan(), "d");
    assert!(!gpus.contains(&"g001".to_owned()), "{gpus:?}");
}

#[test]
fn a_gpu_at_an_unknown_port_takes_a_slot_of_its_host() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 3)
        .host("h", "f/s", 2)
        .want("d", Need::of_kind("h100", 2));
    assert_eq!(rack.plan().composes.len(), 1);
    rack.gpu_mut("g003").host = Some("h".parse().unwrap());
    assert_eq!(rack.plan().composes.len(), 0);
}

#[test]
fn several_ports_of_a_host_are_used_together() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 2)
        .gpus("g/s", "h100", 80.0, 2)
        .host_with("h", &[("f/s", 4), ("g/s", 4)])
        .want("d", Need::of_kind("h100", 4));
    assert_eq!(hosts_of(&rack.plan(), "d"), [("h".into(), 4)]);
}

#[test]
fn a_gpu_in_two_fabrics_leaves_the_scarce_port_to_others() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host_with("h", &[("f/s", 2), ("g/s", 2)])
        .want("d", Need::of_kind("h100", 4));
    for id in ["g001", "g002"] {
        let other = rack.gpu("g/s", "tmp", 1.0);
        let other = rack.gpu_mut(other.as_str()).clone();
        let gpu = rack.gpu_mut(id);
        gpu.ports.extend(other.ports);
        gpu.control.push(point("g", id));
    }
    assert_eq!(hosts_of(&rack.plan(), "d"), [("h".into(), 4)]);
}

#[test]
fn what_may_not_be_given_away_is_not() {
    type Spoil = fn(&mut Rack);
    let spoils: [(&str, Spoil); 12] = [
        ("foreign", |rack| rack.foreign("g001", "other")),
        ("bound by nobody knows what port", |rack| {
            rack.gpu_mut("g001").host = Some("other".parse().unwrap())
        }),
        ("reserved", |rack| {
            rack.reserved = vec![Reserved {
                unit: "g001".parse().unwrap(),
                host_port: None,
            }];
        }),
        ("cordoned", |rack| {
            rack.cordoned.gpus = ["g001".parse().unwrap()].into();
        }),
        ("critical", |rack| rack.gpu_mut("g001").health = Health::Critical),
        ("indeterminate", |rack| {
            rack.gpu_mut("g001").state = GpuState::Indeterminate
        }),
        ("quarantined", |rack| {
            rack.gpu_mut("g001").state = GpuState::Quarantined
        }),
        ("soldered", |rack| {
            rack.gpu_mut("g001").composability = Composability::no(WhyNotKind::Soldered, "HGX baseboard");
        }),
        ("without control", |rack| rack.gpu_mut("g001").control.clear()),
        ("at another manager", |rack| {
            rack.gpu_mut("g001").control = vec![point("elsewhere", "g001")]
        }),
        ("in another fabric", |rack| {
            rack.gpu_mut("g001").ports[0].fabric = "elsewhere".parse().unwrap()
        }),
        ("without memory", |rack| rack.gpu_mut("g001").memory_bytes = None),
    ];
    for (what, spoil) in spoils {
        let rack = || {
            Rack::new()
                .gpus("f/s", "h100", 80.0, 2)
                .host("h", "f/s", 8)
                .host("other", "f/s", 0)
                .want("d", Need::of_kind("h100", 2))
        };
        assert_eq!(gpus_of(&rack().plan(), "d").len(), 2);
        let mut spoiled = rack();
        spoil(&mut spoiled);
        assert_eq!(spoiled.plan().composes, vec![], "{what}");
    }
}

#[test]
fn hosts_that_may_not_be_given_gpus_are_not() {
    type Spoil = fn(&mut Rack);
    let spoils: [(&str, Spoil); 5] = [
        ("off", |rack| rack.host_mut("h").power_state = PowerState::Off),
        ("going off", |rack| {
            rack.host_mut("h").power_state = PowerState::PoweringOff
        }),
        ("cordoned", |rack| {
            rack.cordoned.hosts = ["h".parse().unwrap()].into();
        }),
        ("without control", |rack| {
            rack.host_mut("h").ports[0].control = None
        }),
        ("on another switch", |rack| {
            rack.host_mut("h").ports[0].switch = Some("far".parse().unwrap())
        }),
    ];
    for (what, spoil) in spoils {
        let mut rack = Rack::new()
            .gpus("f/s", "h100", 80.0, 2)
            .host("h", "f/s", 8)
            .want("d", Need::of_kind("h100", 1));
        spoil(&mut rack);
        assert_eq!(rack.plan().composes, vec![], "{what}");
    }
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 2)
        .host("a-unknown", "f/s", 8)
        .host("b-on", "f/s", 8)
        .want("d", Need::of_kind("h100", 1));
    rack.host_mut("a-unknown").power_state = PowerState::Unknown;
    assert_eq!(hosts_of(&rack.plan(), "d"), [("b-on".into(), 1)]);
    rack.host_mut("b-on").power_state = PowerState::Off;
    assert_eq!(hosts_of(&rack.plan(), "d"), [("a-unknown".into(), 1)]);
}

#[test]
fn clean_gpus_come_before_dirty_ones() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 3)
        .host("h", "f/s", 8)
        .want("d", Need::of_kind("h100", 2));
    rack.gpu_mut("g001").state = GpuState::Dirty;
    assert_eq!(gpus_of(&rack.plan(), "d"), ["g002", "g003"]);
}

#[test]
fn without_a_profile_the_model_says_the_kind() {
    let mut rack = Rack::new()
        .gpus("f/s", "x", 80.0, 4)
        .host("h", "f/s", 8)
        .want("d", Need::of_kind("Foo 80G", 2));
    for (id, model) in [
        ("g001", Some("Foo 80G")),
        ("g002", Some("Bar")),
        ("g003", Some("Foo 80G")),
        ("g004", None),
    ] {
        let gpu = rack.gpu_mut(id);
        gpu.profile = None;
        gpu.model = model.map(Into::into);
    }
    assert_eq!(gpus_of(&rack.plan(), "d"), ["g001", "g003"]);
}
