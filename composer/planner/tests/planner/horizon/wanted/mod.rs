//! What demands may say beyond `cps-1`: kept by every plan at the least cost, found out by the check, said where it is
//! in the way, and refused where it can't be right.

mod bundles;
mod options;
mod priorities;
mod running;
mod together;

pub use together::with_everything;

use super::extended::read;
use super::instances::gpu;
use super::judge::{cheapest_of_all, checked};
use super::planned;
use poolwright_planner::horizon::{Assignment, Broken, Problem, check, extended, reasons};
use serde_json::{Value, json};

/// The same problem in the schema that says more.
fn extended(mut value: Value) -> Value {
    value["schema"] = extended::SCHEMA.into();
    value
}

/// Two hosts with room for four and two, two GPUs of each of two types, and these demands.
fn small(demands: Value) -> Value {
    let host = |id: &str, slots: u64| json!({"id": id, "slots": slots, "switch": "s0", "host_on_w": 350, "host_idle_w": 150});
    json!({"schema": extended::SCHEMA, "horizon_slots": 8, "slot_s": 3600, "hosts": [host("large", 4), host("small", 2)],
        "gpus": [gpu("g0", "T24", "s0", None), gpu("g1", "T24", "s0", None), gpu("g2", "T40", "s0", None),
            gpu("g3", "T40", "s0", None)],
        "demands": demands, "costs": super::instances::costs()})
}

/// A demand for slots 2 to 3, with more keys.
fn demand(more: &Value) -> Value {
    let mut demand = json!({"id": "d", "tenant": "t", "start": 2, "end": 4, "weight": 1});
    for (key, value) in more.as_object().unwrap() {
        demand[key] = value.clone();
    }
    demand
}

/// What is said of a file with this demand alone.
fn refused(more: &Value) -> String {
    read(&small(json!([demand(more)]))).unwrap_err().to_string()
}

/// The reason for the one demand that is not served.
fn why(value: &Value) -> (String, Vec<String>) {
    let problem = read(value).unwrap();
    let mut unserved = reasons(&problem, &planned(&problem, 1, 40, None).assignment);
    assert_eq!(unserved.len(), 1, "{unserved:?}");
    let one = unserved.remove(0);
    (one.reason, one.help)
}

/// What the check says of a plan: entries of demands, and what is attached at `large` in slots 2 to 3.
fn judged(problem: &Problem, demands: Value, attached: &[(&str, u16)]) -> Result<i64, Broken> {
    let mut rows = json!({});
    for (group, count) in attached {
        rows[group] = json!([0, 0, count, count, 0, 0, 0, 0]);
    }
    let plan = json!({"demands": demands, "attached": {"large": rows}});
    check(problem, &serde_json::from_value(plan).unwrap())
}
