//! Files as nobody should write them: each field of each example changed at random. What is read is sized, too.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Values of every kind, and numbers at every edge.
fn any_value() -> impl Strategy<Value = Value> {
    let numbers = prop_oneof![
        (0_u64..4).prop_map(Value::from),
        (1_u64..100_000).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..64).prop_map(|bits| Value::from(1_u64 << bits)),
        any::<f64>().prop_map(Value::from),
        Just(json!(1e30)),
    ];
    let words = prop_oneof![
        Just(json!("auto")),
        Just(json!("float32")),
        Just(json!("M*-E")),
        "[a-z*-]{0,8}".prop_map(Value::from)
    ];
    let single = prop_oneof![
        4 => numbers,
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => words
    ];
    let several = single.clone();
    prop_oneof![
        5 => single,
        1 => prop::collection::vec(several, 0..6).prop_map(Value::from),
        1 => Just(json!({})),
        1 => Just(json!({"head_dim": 512})),
    ]
}

/// What is done to a file: its fields are taken by number, so that all of them have their turn.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, Value),
    Drop(usize),
    /// The field's value under another's name.
    Move(usize, usize),
    /// A list is longer by what it begins with.
    Longer(usize),
}

fn any_change() -> impl Strategy<Value = Change> {
    let at = || 0_usize..64;
    prop_oneof![
        6 => (at(), any_value()).prop_map(|(at, value)| Change::Set(at, value)),
        1 => at().prop_map(Change::Drop),
        1 => (at(), at()).prop_map(|(from, to)| Change::Move(from, to)),
        1 => at().prop_map(Change::Longer),
    ]
}

fn changed(file: &mut Map<String, Value>, change: &Change) {
    let key = |file: &Map<String, Value>, at: usize| file.keys().nth(at % file.len().max(1)).cloned();
    let (Change::Set(at, _) | Change::Drop(at) | Change::Move(at, _) | Change::Longer(at)) = change;
    let Some(name) = key(file, *at) else { return };
    match change {
        Change::Set(_, value) => {
            file.insert(name, value.clone());
        }
        Change::Drop(_) => {
            file.remove(&name);
        }
        Change::Move(_, to) => {
            let value = file.remove(&name).unwrap_or_default();
            if let Some(other) = key(file, *to) {
                file.insert(other, value);
            }
        }
        Change::Longer(_) => {
            if let Some(Value::Array(list)) = file.get_mut(&name) {
                list.extend(list.first().cloned());
            }
        }
    }
}

/// Whatever is read has a count that is its own, and is sized or refused.
fn sized(model: &Model, tensor: u64, pipeline: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(model.anatomy.params(), Some(model.params));
    let serving = Inference::default();
    for layout in [Layout::SINGLE, Layout { tensor, pipeline }] {
        if let Ok(estimate) = inference::estimate(model, &serving, layout, "NVIDIA") {
            prop_assert!(estimate.safe >= estimate.point);
        }
    }
    let parallel = Parallel {
        tensor,
        pipeline,
        ..Parallel::SINGLE
    };
    for method in [Method::Full, Method::Lora] {
        for layout in [&Parallel::SINGLE, &parallel] {
            if let Ok(estimate) = training::estimate(model, &Training::new(method), layout, "NVIDIA") {
                prop_assert!(estimate.safe >= estimate.point);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_file_is_a_panic(
        example in 0..counted::all().count(),
        changes in prop::collection::vec(any_change(), 1..4),
        tensor in 1_u64..9, pipeline in 1_u64..9,
    ) {
        let (text, _) = counted::all().nth(example).unwrap();
        let mut file: Map<String, Value> = serde_json::from_str(text).unwrap();
        for change in &changes {
            changed(&mut file, change);
        }
        if let Ok(model) = parse("x", &Value::from(file).to_string()) {
            sized(&model, tensor, pipeline)?;
        }
    }

    /// A text part is no safer than a file.
    #[test]
    fn no_part_is_a_panic(example in 0..counted::all().count(), change in any_change(), vision in any_value()) {
        let (text, _) = counted::all().nth(example).unwrap();
        let mut file: Map<String, Value> = serde_json::from_str(text).unwrap();
        changed(&mut file, &change);
        let whole = json!({"model_type": "somebody_elses", "text_config": file, "vision_config": vision});
        if let Ok(model) = parse("x", &whole.to_string()) {
            sized(&model, 2, 2)?;
        }
    }
}
