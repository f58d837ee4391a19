//! Prices of any size: what is too dear is refused by its field, and everything else adds up.

use super::extended::read;
use super::instances::{Size, instance};
use super::planned;
use fastrand::Rng;
use poolwright_planner::horizon::{check, extended};
use serde_json::{Value, json};

const SIZES: [f64; 8] = [0.0, 1e-9, 0.001, 1.0, 50.0, 1e3, 1e5, 1e7];

/// A problem made by chance at prices made by chance.
fn at_any_prices(seed: u64) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = instance(seed, Size::TINY);
    value["schema"] = extended::SCHEMA.into();
    // How many of them are absurd: few at times, and nearly all at times.
    let absurd = rng.f64();
    let mut price = |usual: f64| match rng.f64() < absurd {
        true => json!(SIZES[rng.usize(..SIZES.len())]),
        false => json!(usual),
    };
    value["slot_s"] = match price(3600.0) {
        zero if zero == json!(0.0) => json!(1),
        length => length,
    };
    for name in [
        "unmet_per_gpu_slot",
        "attach",
        "detach",
        "host_fire_up",
        "hop_per_gpu_slot",
        "split_per_slot",
    ] {
        value["costs"][name] = price(50.0);
    }
    value["costs"]["energy_per_kwh"] = price(100.0);
    let watts = [price(150.0), price(25.0), price(300.0), price(50.0)];
    for gpu in value["gpus"].as_array_mut().unwrap() {
        let first = if gpu["type"] == "T24" { 0 } else { 2 };
        (gpu["active_w"], gpu["idle_w"]) = (watts[first].clone(), watts[first + 1].clone());
    }
    for host in value["hosts"].as_array_mut().unwrap() {
        (host["host_on_w"], host["host_idle_w"]) = (json!(1e7), price(150.0));
    }
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["weight"] = price(1.0);
        let wants = json!({"gpus": demand["gpus"], "min_mem_gb": 24});
        let mut other = wants.clone();
        other["penalty"] = price(10.0);
        demand["options"] = json!([wants, other]);
        for name in ["gpus", "min_mem_gb"] {
            demand.as_object_mut().unwrap().remove(name);
        }
    }
    value
}

#[test]
fn any_prices_are_refused_or_add_up() {
    let (mut refused, mut counted) = (0, 0);
    for seed in 0..200 {
        let value = at_any_prices(seed);
        let problem = match read(&value) {
            Ok(problem) => problem,
            Err(error) => {
                assert!(
                    error.to_string().contains("larger unit of cost"),
                    "{error}: {value}"
                );
                refused += 1;
                continue;
            }
        };
        let plan = planned(&problem, seed, 5, None);
        assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost), "{value}");
        assert!((0..=plan.cost).contains(&plan.bound), "{value}");
        counted += 1;
    }
    assert!(
        refused > 10 && counted > 50,
        "{refused} refused, {counted} counted"
    );
}

#[test]
fn what_would_be_too_dear_is_named() {
    let mut value = instance(1, Size::TINY);
    value["schema"] = extended::SCHEMA.into();
    value["slot_s"] = json!(1e7);
    value["costs"]["energy_per_kwh"] = json!(1e7);
    for (field, pointer) in [
        ("hosts[].host_on_w", "/hosts/0/host_on_w"),
        ("costs.attach", "/costs/attach"),
    ] {
        let mut value = value.clone();
        if field == "costs.attach" {
            value["slot_s"] = json!(1);
            value["costs"]["energy_per_kwh"] = json!(0);
            value["horizon_slots"] = json!(20_000);
            let gpu = value["gpus"][0].clone();
            let more = (0..20_000).map(|index| {
                let mut gpu = gpu.clone();
                (gpu["id"], gpu["attached_to"]) = (json!(format!("more-{index}")), Value::Null);
                gpu
            });
            value["gpus"].as_array_mut().unwrap().extend(more);
        }
        *value.pointer_mut(pointer).unwrap() = json!(1e7);
        let said = read(&value).unwrap_err().to_string();
        assert!(
            said.starts_with(field) && said.contains("larger unit of cost"),
            "{said}"
        );
    }
}
