//! Each reason for not serving a demand, with its numbers, its words and what would help.

use crate::support::*;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Health, PowerState};
use poolwright_planner::{Help, Plan, Reason, Reserved};
use poolwright_sizing::need::Need;

fn h100(count: u32) -> Need {
    Need::of_kind("h100", count)
}

fn helps<'p>(plan: &'p Plan, demand: &str) -> &'p [Help] {
    let unplaced = plan.unplaced.iter().find(|u| u.demand.as_str() == demand);
    &unplaced.unwrap().tried[0].helps
}

#[track_caller]
fn says(plan: &Plan, demand: &str, words: &str) {
    let unplaced = plan.unplaced.iter().find(|u| u.demand.as_str() == demand);
    assert_eq!(unplaced.unwrap().to_string(), words);
}

#[test]
fn no_such_kind() {
    let mut rack = Rack::new()
        .gpus("f/s", "l4", 22.0, 2)
        .host("h", "f/s", 8)
        .want("d", h100(1));
    let plan = rack.plan();
    says(
        &plan,
        "d",
        "demand d of acme (1 x h100) is not served: the pool has no GPU of kind h100; what helps: add 1 GPU of \
         kind h100 to the pool",
    );
    let id = rack.gpu("f/s", "h100", 80.0);
    rack.gpu_mut(id.as_str()).composability = Composability::no(WhyNotKind::Soldered, "HGX baseboard");
    let plan = rack.plan();
    assert_eq!(
        *reason(&plan, "d"),
        Reason::NoKind {
            kind: Some("h100".into()),
            seen: 1
        }
    );
    assert!(helps(&plan, "d").contains(&Help::SeeWhyNotComposable { gpus: 1 }));
}

/// Three free GPUs of one kind are not a reason to call six of any kind impossible while another kind has eight.
#[test]
fn a_set_of_any_kind_names_the_kind_that_can_serve_it_later() {
    let plan = Rack::new()
        .gpus("f/s", "l4", 22.0, 3)
        .gpus("f/s", "h100", 80.0, 8)
        .host("h", "f/s", 16)
        .want("first", h100(8))
        .want("any", need(vec![set(None, 6, 0.0, 1)], false))
        .plan();
    assert!(matches!(reason(&plan, "any"), Reason::AllBusy { kind, .. } if kind == "h100"));
    assert!(!plan.unplaced[0].is_never());
}

#[test]
fn an_empty_pool() {
    let rack = Rack::new()
        .host("h", "f/s", 8)
        .want("d", Need::of_memory(1, gib(10.0)));
    assert_eq!(*reason(&rack.plan(), "d"), Reason::NoKind { kind: None, seen: 0 });
}

#[test]
fn memory_too_small() {
    let rack = Rack::new()
        .gpus("f/s", "l4", 22.0, 2)
        .gpus("f/s", "l40s", 45.0, 2)
        .host("h", "f/s", 8)
        .want("d", Need::of_memory(1, gib(70.0)));
    says(
        &rack.plan(),
        "d",
        "demand d of acme (1 GPU with at least 70.0 GiB each) is not served: each GPU needs 70.0 GiB, and the largest has 45.0 GiB; what helps: add 1 GPU to the pool, each with 70.0 \
         GiB or more",
    );
}

#[test]
fn not_enough_even_if_all_were_free() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 8)
        .want("d", h100(6));
    rack.foreign("g001", "h");
    let plan = rack.plan();
    assert_eq!(
        *reason(&plan, "d"),
        Reason::NotEnoughGpus {
            kind: "h100".into(),
            needed: 6,
            free: 3,
            pool: 4
        }
    );
    assert_eq!(
        helps(&plan, "d"),
        [Help::AddGpus {
            kind: Some("h100".into()),
            gpus: 2,
            min_memory: gib(0.0)
        }]
    );
}

#[test]
fn all_busy_names_who_has_them() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 9)
        .host("h", "f/s", 9)
        .want("first", h100(2));
    rack.apply(1);
    rack.demand("second", 9, h100(1));
    rack.demand("d", 0, h100(7));
    rack.foreign("g004", "h");
    rack.gpu_mut("g005").state = GpuState::Quarantined;
    rack.gpu_mut("g006").health = Health::Critical;
    rack.cordoned.gpus.insert("g007".parse().unwrap());
    rack.reserved = vec![Reserved {
        unit: "g008".parse().unwrap(),
        host_port: None,
    }];
    let plan = rack.plan();
    let Reason::AllBusy {
        needed,
        free,
        busy,
        held_by,
        ..
    } = reason(&plan, "d")
    else {
        panic!("{plan:#?}")
    };
    assert_eq!((*needed, *free), (7, 1));
    let counts = (
        busy.held,
        busy.reserved,
        busy.foreign,
        busy.cordoned,
        busy.unhealthy,
        busy.unsettled,
    );
    assert_eq!(counts, (3, 1, 1, 1, 1, 1));
    let holders: Vec<_> = held_by
        .iter()
        .map(|h| (h.demand.as_ref().unwrap().as_str(), h.gpus))
        .collect();
    assert_eq!(holders, [("first", 2), ("second", 1)]);
    assert_eq!(
        helps(&plan, "d"),
        [
            Help::WaitForOperations { gpus: 1 },
            Help::Uncordon { gpus: 1, hosts: 0 },
            Help::ReleaseGpus {
                kind: "h100".into(),
                gpus: 3
            },
            Help::FreeForeign { gpus: 1 },
            Help::ResolveGpus { gpus: 1 },
            Help::RepairGpus { gpus: 1 },
        ]
    );
}

#[test]
fn no_host_at_all() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 1)
        .host("a", "f/s", 8)
        .host("b", "f/s", 8)
        .host("c", "f/s", 8)
        .want("d", h100(1));
    rack.host_mut("a").power_state = PowerState::Off;
    rack.cordoned.hosts.insert("b".parse().unwrap());
    rack.host_mut("c").ports[0].control = None;
    let plan = rack.plan();
    says(
        &plan,
        "d",
        "demand d of acme (1 x h100) is not served: no host may be given GPUs: 1 host is off, 1 host is \
         closed, 1 host is without a port to bind to; what helps: power on 1 host",
    );
    assert_eq!(
        plan.unplaced[0].alternatives(),
        [
            "1 x h100: no host may be given GPUs: 1 host is off, 1 host is closed, 1 host is without a port to bind \
          to; what helps: power on 1 host, or open 1 host, or add a host with 1 slot"
        ]
    );
}

#[test]
fn no_host_with_so_many_slots() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 12)
        .host("h", "f/s", 8)
        .want("big", h100(10));
    let plan = rack.plan();
    assert_eq!(
        *reason(&plan, "big"),
        Reason::NoHostWithSlots {
            needed: 10,
            best: 8,
            largest: 8
        }
    );
    assert_eq!(helps(&plan, "big"), [Help::AddHost { slots: 10 }]);

    rack.forget("big");
    rack.demand("first", 0, h100(3));
    rack.apply(1);
    rack.demand("d", 0, h100(8));
    let plan = rack.plan();
    assert_eq!(helps(&plan, "d"), [Help::FreeSlots { slots: 3 }]);
}

#[test]
fn spanning_is_proposed_where_it_would_do() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 12)
        .host("a", "f/s", 8)
        .host("b", "f/s", 8)
        .want("d", h100(10));
    assert_eq!(helps(&rack.plan(), "d")[0], Help::AllowSpanning);
}

#[test]
fn out_of_reach() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .gpus("g/s", "h100", 80.0, 4)
        .host("a", "f/s", 8)
        .want("d", h100(6));
    let plan = rack.plan();
    assert_eq!(
        *reason(&plan, "d"),
        Reason::NotReachable {
            kind: "h100".into(),
            needed: 6,
            free: 8,
            best: 4
        }
    );
    assert_eq!(helps(&plan, "d"), [Help::Connect]);
}

#[test]
fn fragmented() {
    // Six GPUs within reach of the host with four slots, and eight slots where only four GPUs are.
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 6)
        .gpus("g/s", "h100", 80.0, 4)
        .host("a", "f/s", 4)
        .host("b", "g/s", 8)
        .want("d", h100(6));
    let plan = rack.plan();
    assert_eq!(
        *reason(&plan, "d"),
        Reason::Fragmented {
            kind: "h100".into(),
            needed: 6,
            free: 10,
            largest: 4
        }
    );
}

#[test]
fn fragmented_over_several_hosts() {
    let rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 12)
        .host("a", "f/s", 6)
        .host("b", "f/s", 6)
        .want("d", need(vec![set(Some("h100"), 12, 0.0, 4)], true));
    assert_eq!(
        *reason(&rack.plan(), "d"),
        Reason::Fragmented {
            kind: "h100".into(),
            needed: 12,
            free: 12,
            largest: 8
        }
    );
}

#[test]
fn the_nearest_alternative_is_named_first() {
    let sets = vec![
        set(Some("b200"), 1, 0.0, 1),
        set(Some("h100"), 9, 0.0, 1),
        set(Some("l4"), 2, 0.0, 1),
    ];
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .gpus("f/s", "l4", 22.0, 2)
        .host("h", "f/s", 8)
        .want("first", Need::of_kind("l4", 1));
    rack.apply(1);
    rack.demand("d", 0, need(sets, false));
    let plan = rack.plan();
    let tried = &plan.unplaced[0].tried;
    let kinds: Vec<_> = tried
        .iter()
        .filter_map(|tried| tried.set.kind.as_deref())
        .collect();
    assert_eq!(kinds, ["l4", "h100", "b200"]);
    assert!(
        plan.unplaced[0]
            .to_string()
            .contains("; 2 other alternatives came no nearer")
    );
    assert_eq!(plan.unplaced[0].alternatives().len(), 3);
}

#[test]
fn of_several_kinds_the_one_with_most_free_is_named() {
    let mut rack = Rack::new()
        .gpus("f/s", "a100", 80.0, 10)
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 16)
        .want("many", Need::of_kind("a100", 9))
        .want("one", h100(1));
    rack.apply(1);
    rack.demand("d", 0, Need::of_memory(4, gib(70.0)));
    let plan = rack.plan();
    assert!(
        matches!(reason(&plan, "d"), Reason::AllBusy { kind, free: 3, .. } if kind == "h100"),
        "{plan:#?}"
    );
}

#[test]
fn a_need_that_names_nothing() {
    let rack = Rack::new().want("d", need(vec![], true));
    says(
        &rack.plan(),
        "d",
        "demand d of acme (a model) is not served: its need names no GPUs",
    );
}
