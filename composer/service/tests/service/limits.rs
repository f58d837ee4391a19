//! However much runs by itself: in no hour is more moved than the limits allow, whatever is asked for, and what is
//! held back may begin at the very moment that was told.

use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{GpuId, HostId, TenantId};
use poolwright_service::limits::{Counted, HOUR, Limits, Moves, Ran, judge, moved};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// For each GPU that is moved: its hosts, and its tenants.
type Wanted = BTreeMap<u8, (BTreeSet<u8>, BTreeSet<u8>)>;

fn wanted() -> impl Strategy<Value = Wanted> {
    let hosts = prop::collection::btree_set(0..3u8, 1..3);
    let tenants = prop::collection::btree_set(0..2u8, 0..3);
    prop::collection::btree_map(0..12u8, (hosts, tenants), 0..9)
}

fn moves(wanted: &Wanted) -> Moves {
    let moved = wanted.iter().map(|(gpu, (hosts, tenants))| {
        let hosts: BTreeSet<HostId> = hosts
            .iter()
            .map(|n| format!("host-{n}").parse().unwrap())
            .collect();
        let tenants: BTreeSet<TenantId> = tenants
            .iter()
            .map(|n| format!("tenant-{n}").parse().unwrap())
            .collect();
        (format!("gpu-{gpu}").parse::<GpuId>().unwrap(), (hosts, tenants))
    });
    Moves::of(&moved.collect())
}

fn everybody() -> Vec<Counted> {
    let hosts = (0..3).map(|n| Counted::Host(format!("host-{n}").parse().unwrap()));
    let tenants = (0..2).map(|n| Counted::Tenant(format!("tenant-{n}").parse().unwrap()));
    let gpus = (0..12).map(|n| Counted::Gpu(format!("gpu-{n}").parse().unwrap()));
    [Counted::All]
        .into_iter()
        .chain(hosts)
        .chain(tenants)
        .chain(gpus)
        .collect()
}

fn allowed(limits: &Limits, whose: &Counted) -> u32 {
    match whose {
        Counted::All => limits.per_hour,
        Counted::Host(_) => limits.per_host,
        Counted::Tenant(_) => limits.per_tenant,
        Counted::Gpu(_) => limits.per_gpu,
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let hold = prop_oneof![Just(0), 1..3600u32];
    let limits = (1..10u32, 1..25u32, 1..15u32, 1..15u32, 1..4u32, hold);
    limits.prop_map(|(plan, hour, host, tenant, gpu, hold_s)| Limits {
        per_plan: plan,
        per_hour: hour,
        per_host: host,
        per_tenant: tenant,
        per_gpu: gpu,
        hold_s,
        ..Limits::default()
    })
}

/// It is to be moved, and was moved less than the hold before.
fn is_held(limits: &Limits, ran: &[Ran], whose: &Counted, wanted: &Moves, now: Timestamp) -> bool {
    let hold = SignedDuration::from_secs(limits.hold_s.into());
    let held = |ran: &Ran| ran.moves.counted(whose) > 0 && now.duration_since(ran.at) < hold;
    matches!(whose, Counted::Gpu(_)) && wanted.counted(whose) > 0 && ran.iter().any(held)
}

proptest! {
    #[test]
    fn in_no_hour_more_is_moved_than_is_allowed(
        limits in limits(),
        asked in prop::collection::vec((0..2400i64, wanted()), 1..40),
    ) {
        let mut ran: Vec<Ran> = Vec::new();
        let mut now = Timestamp::UNIX_EPOCH;
        for (pause, wanted) in &asked {
            now += SignedDuration::from_secs(*pause);
            let wanted = moves(wanted);
            let fits = everybody().iter().all(|whose| {
                moved(&ran, whose, now) + wanted.counted(whose) <= allowed(&limits, whose)
            }) && wanted.all() <= limits.per_plan
                && everybody().iter().all(|whose| !is_held(&limits, &ran, whose, &wanted, now));
            match judge(&limits, &ran, &wanted, now) {
                Ok(()) => {
                    prop_assert!(fits);
                    ran.push(Ran { at: now, moves: wanted });
                }
                Err(exceeded) => {
                    prop_assert!(!fits, "{exceeded}");
                    let Some(frees) = exceeded.frees else {
                        let anew = judge(&limits, &[], &wanted, now);
                        prop_assert!(anew.is_err(), "an hour later it would begin: {exceeded}");
                        continue;
                    };
                    prop_assert!(frees > now && frees <= now + HOUR, "{exceeded}");
                    prop_assert!(judge(&limits, &ran, &wanted, frees).is_ok(), "{exceeded}");
                    let before = frees - SignedDuration::from_nanos(1);
                    prop_assert!(judge(&limits, &ran, &wanted, before).is_err(), "{exceeded}");
                }
            }
        }
        // Hours that end with a run have the most in them.
        for last in &ran {
            for whose in everybody() {
                let until = ran.iter().filter(|ran| ran.at <= last.at).cloned().collect::<Vec<_>>();
                prop_assert!(moved(&until, &whose, last.at) <= allowed(&limits, &whose), "{whose:?}");
            }
        }
    }

    #[test]
    fn what_moves_nothing_is_never_held_back(limits in limits(), busy in wanted()) {
        let ran = [Ran { at: Timestamp::UNIX_EPOCH, moves: moves(&busy) }];
        prop_assert_eq!(judge(&limits, &ran, &Moves::default(), Timestamp::UNIX_EPOCH), Ok(()));
    }
}
