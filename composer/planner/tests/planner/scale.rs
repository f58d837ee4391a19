//! A whole pod: 4,096 GPUs, 1,024 hosts, 500 demands.

use crate::support::*;
use poolwright_sizing::need::Need;

/// Fabrics that host ports and GPUs share, with so many leaves each, all cabled to one spine. Hosts and GPUs
/// sit on every leaf, or hosts on the even and GPUs on the odd ones.
fn pod(fabrics: usize, leaves: usize, apart: bool) -> Rack {
    let (gpus, hosts) = (4096 / fabrics / leaves, 1024 / fabrics / leaves);
    let mut rack = Rack::new();
    for fabric in 0..fabrics {
        for leaf in 0..leaves {
            let name = format!("f{fabric:02}/leaf{leaf:02}");
            let kind = if leaf % 4 < 3 {
                ("h100", 80.0)
            } else {
                ("l40s", 45.0)
            };
            rack = rack.cable(&format!("f{fabric:02}"), "spine", &format!("leaf{leaf:02}"));
            let twice = if apart { 2 } else { 1 };
            if !apart || leaf % 2 == 1 {
                rack = rack.gpus(&name, kind.0, kind.1, gpus * twice);
            }
            if !apart || leaf % 2 == 0 {
                for host in 0..hosts * twice {
                    rack = rack.host(&format!("host-{fabric:02}-{leaf:02}-{host:02}"), &name, 8);
                }
            }
        }
    }
    rack
}

fn ask(rack: &mut Rack, demands: usize) {
    for number in 0..demands {
        let sizes = [1u32, 2, 4, 8, 8, 16, 24, 3];
        let count = sizes[number % sizes.len()];
        let sets = vec![
            set(Some("b200"), count.div_ceil(2), 150.0, 1),
            set(Some("h100"), count, 70.0, 1),
            set(Some("l40s"), count * 2, 40.0, 1),
        ];
        rack.demand(&format!("demand-{number:03}"), 0, need(sets, true));
    }
}

#[test]
fn a_pod_of_many_fabrics() {
    let mut rack = pod(16, 4, false);
    assert_eq!(rack.snapshot.topology.gpus.len(), 4096);
    assert_eq!(rack.snapshot.topology.hosts.len(), 1024);
    ask(&mut rack, 500);
    let plan = rack.apply(1);
    assert!(plan.composes.len() >= 400, "{}", plan.summary());
    // By day half of them go, and others come that don't all fit.
    rack.demands.truncate(250);
    for number in 500..750 {
        rack.demand(
            &format!("demand-{number}"),
            1,
            Need::of_kind("h100", 16).spanning(true),
        );
    }
    let plan = rack.plan();
    assert!(
        !plan.unplaced.is_empty() && !plan.releases.is_empty(),
        "{}",
        plan.summary()
    );
}

#[test]
fn a_pod_of_one_fabric_with_gpus_and_hosts_on_different_switches() {
    let mut rack = pod(1, 128, true);
    assert_eq!(rack.snapshot.topology.gpus.len(), 4096);
    assert_eq!(rack.snapshot.topology.hosts.len(), 1024);
    ask(&mut rack, 500);
    let plan = rack.plan();
    assert!(plan.composes.len() >= 400, "{}", plan.summary());
}

#[test]
fn a_pod_whose_uplinks_carry_only_so_many() {
    let mut rack = pod(1, 128, true);
    // All GPUs of a host come from another switch.
    let leaves = (0..128).map(|leaf| (switch_at(&format!("f00/leaf{leaf:02}")), 24));
    rack.uplinks.most = leaves.collect();
    ask(&mut rack, 500);
    let plan = rack.apply(1);
    assert!(plan.composes.len() >= 100, "{}", plan.summary());
    for (uplink, carried) in rack.across() {
        assert!(carried <= rack.uplinks.most[uplink], "{uplink:?}");
    }
    rack.demands.truncate(100);
    ask(&mut rack, 250);
    assert!(!rack.plan().unplaced.is_empty());
}
