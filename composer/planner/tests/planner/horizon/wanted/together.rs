//! Everything that demands, hosts and tenants may say, all at once.

use super::super::instances::Size;
use super::running::with_running;
use super::*;
use fastrand::Rng;

pub fn with_everything(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = with_running(seed, size);
    for demand in value["demands"].as_array_mut().unwrap() {
        if demand.get("running").is_some() {
            continue;
        }
        let (gpus, memory) = (demand["gpus"].clone(), demand["min_mem_gb"].clone());
        demand["lead"] = json!(rng.u8(..2));
        demand["priority"] = json!(rng.u8(..3));
        let beside = match rng.u8(..4) {
            0 => {
                demand["options"] = json!([{"gpus": gpus, "min_mem_gb": memory}, {"gpus": 1, "min_mem_gb": 40, "penalty": 9}]);
                ["gpus", "min_mem_gb"].as_slice()
            }
            1 => {
                demand["parts"] = json!({"least": 1, "most": 2, "same_host_ok": rng.bool()});
                &[]
            }
            2 => {
                let length = demand["end"].as_i64().unwrap() - demand["start"].as_i64().unwrap();
                demand["phases"] = json!([{"slots": length, "gpus": 1, "min_mem_gb": 24, "parts": {"least": 2, "same_host_ok": true}}]);
                &["gpus", "min_mem_gb", "end"]
            }
            _ => {
                demand["one_switch"] = json!(rng.bool());
                &[]
            }
        };
        demand
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !beside.contains(&key.as_str()));
    }
    value["tenants"] = json!([{"id": "t1", "most_gpus": 9, "guaranteed_gpus": 1}]);
    if rng.bool() {
        value["hops"] = json!([{"from": "s0", "to": "s1", "hops": 2}]);
    }
    value
}

#[test]
fn all_of_it_together_is_kept_at_the_least_cost() {
    for seed in 0..5 {
        cheapest_of_all(seed, &with_everything(seed, Size::TINY));
    }
    for seed in 0..6 {
        checked(seed, &with_everything(seed, Size::SMALL));
    }
}
