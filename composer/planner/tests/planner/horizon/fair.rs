//! Fair shares between tenants, and guarantees of GPUs that suit.

use super::extended::read;
use super::instances::{Size, gpu, instance};
use super::judge::{cheapest_of_all, checked, is_dearer_than_free};
use super::planned;
use poolwright_planner::horizon::{Assignment, Problem, extended, reasons};
use serde_json::{Value, json};

/// So many GPUs of each of two types, two hosts with room for all, and these demands.
fn pool(small: usize, large: usize, demands: Value, tenants: Value) -> Problem {
    let host =
        |id: &str| json!({"id": id, "slots": 16, "switch": "s0", "host_on_w": 350, "host_idle_w": 150});
    let of = |kind: &str, count: usize| -> Vec<Value> {
        let one = |index| gpu(&format!("{kind}-{index}"), kind, "s0", None);
        (0..count).map(one).collect()
    };
    let gpus = [of("T24", small), of("T40", large)].concat();
    let mut costs = super::instances::costs();
    costs["unfair_per_gpu_slot"] = json!(2000);
    let value = json!({"schema": extended::SCHEMA, "horizon_slots": 4, "slot_s": 3600, "hosts": [host("h0"), host("h1")],
        "gpus": gpus, "demands": demands, "tenants": tenants, "costs": costs});
    read(&value).unwrap()
}

fn wants(tenant: &str, index: usize, gpus: u32, memory: u32, weight: u32) -> Value {
    json!({"id": format!("{tenant}{index}"), "tenant": tenant, "start": 0, "end": 4, "gpus": gpus, "min_mem_gb": memory,
        "weight": weight})
}

/// GPUs that a tenant gets.
fn got(plan: &Assignment, tenant: &str) -> u32 {
    let of = plan
        .demands
        .iter()
        .filter(|served| served.demand.starts_with(tenant));
    of.filter_map(|served| served.got()).sum()
}

#[test]
fn who_is_guaranteed_gpus_gets_those_that_suit_it() {
    // There are others enough for everybody but tenant b, who needs the large ones.
    let demands = || {
        let greedy = (0..4).map(|index| wants("a", index, 1, 40, 9));
        let all: Vec<Value> = greedy.chain([wants("b", 0, 4, 40, 1)]).collect();
        json!(all)
    };
    let free = planned(&pool(8, 5, demands(), json!([])), 1, 100, None).assignment;
    assert_eq!((got(&free, "a"), got(&free, "b")), (4, 0));
    let tenants = json!([{"id": "b", "guaranteed_gpus": 4}]);
    let problem = pool(8, 5, demands(), tenants);
    let plan = planned(&problem, 1, 100, None).assignment;
    assert_eq!((got(&plan, "a"), got(&plan, "b")), (1, 4));
    // Whoever has to wait for that is told for whom.
    let problem = pool(
        8,
        5,
        json!([wants("a", 0, 2, 40, 9), wants("b", 0, 6, 40, 1)]),
        json!([{"id": "b", "guaranteed_gpus": 4}]),
    );
    let plan = planned(&problem, 1, 100, None).assignment;
    let reasons = reasons(&problem, &plan);
    let of_a = reasons.iter().find(|one| one.demand == "a0").unwrap();
    assert!(
        of_a.reason
            .contains("at most 1 are left beside the guarantees: 4 for tenant b"),
        "{of_a:?}"
    );
}

#[test]
fn tenants_share_by_their_weights_whatever_their_demands_weigh() {
    let demands = || {
        let eager = (0..8).map(|index| wants("a", index, 1, 24, 2));
        let other = (0..8).map(|index| wants("b", index, 1, 24, 1));
        json!(eager.chain(other).collect::<Vec<_>>())
    };
    let shared = |tenants: Value| {
        let problem = pool(8, 0, demands(), tenants);
        let plan = planned(&problem, 1, 200, None).assignment;
        let reasons = reasons(&problem, &plan);
        let of_a = reasons.into_iter().find(|one| one.demand.starts_with('a'));
        ((got(&plan, "a"), got(&plan, "b")), of_a)
    };
    assert_eq!(shared(json!([])).0, (8, 0));
    let weighs = |a: u32, b: u32| json!([{"id": "a", "weight": a}, {"id": "b", "weight": b}]);
    let (equally, of_a) = shared(weighs(1, 1));
    assert_eq!(equally, (4, 4));
    let of_a = of_a.unwrap();
    assert!(
        of_a.reason
            .contains("tenant a uses 4 GPUs then, and its fair share is 4"),
        "{of_a:?}"
    );
    assert_eq!(shared(weighs(3, 1)).0, (6, 2));
}

fn weighed(seed: u64, size: Size) -> Value {
    let mut value = instance(seed, size);
    value["schema"] = extended::SCHEMA.into();
    value["tenants"] =
        json!([{"id": "t0", "weight": 1 + seed % 3}, {"id": "t1", "most_gpus": 2}, {"id": "t2"}]);
    value["costs"]["unfair_per_gpu_slot"] = json!(150);
    value
}

#[test]
fn of_all_plans_the_cheapest_is_found_where_unfairness_has_a_price() {
    let mut dearer = 0;
    for seed in 0..12 {
        let (_, _, least) = cheapest_of_all(seed, &weighed(seed, Size::TINY));
        dearer += u32::from(is_dearer_than_free(seed, least));
    }
    assert!(dearer > 3, "being short cost nothing: {dearer}");
    for seed in 0..4 {
        checked(seed, &weighed(seed, Size::SMALL));
    }
}
