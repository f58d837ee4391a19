//! Fields that change what a layer has, in the kinds whose classes know them.

use super::{LLAMA_8B, counted, parse};

fn with(config: &str, fields: &str) -> u64 {
    let text = config.replacen('{', &format!("{{{fields},"), 1);
    parse("x", &text)
        .unwrap_or_else(|error| panic!("{fields}: {error}"))
        .params
}

fn example(model_type: &str) -> &'static (&'static str, u64) {
    let named = format!("\"model_type\": \"{model_type}\"");
    counted::all().find(|(text, _)| text.contains(&named)).unwrap()
}

#[test]
fn fields_of_other_classes() {
    for (model_type, fields) in [
        ("llama4_text", r#""use_qk_norm": true"#),
        ("deepseek_v3", r#""use_qk_norm": true"#),
        ("qwen3", r#""qk_layernorm": false"#),
        ("hunyuan_v1_dense", r#""use_qk_norm": false"#),
        ("mixtral", r#""router_bias": true"#),
        ("mixtral", r#""gating": true"#),
        (
            "llama4_text",
            r#""moe_layers": [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47]"#,
        ),
    ] {
        let (config, params) = example(model_type);
        assert_eq!(with(config, fields), *params, "{model_type} {fields}");
    }
    assert_eq!(with(LLAMA_8B, r#""multi_query": true"#), 8_030_261_248);
}

#[test]
fn norms_and_biases_of_falcon() {
    let (config, params) = example("falcon");
    let [layers, h] = [32, 4544];
    assert_eq!(
        with(
            &config.replace("\"parallel_attn\": true", "\"parallel_attn\": false"),
            r#""x": 0"#
        ),
        params + layers * 2 * h
    );
    let second = counted::all()
        .find(|(text, _)| text.contains("\"num_kv_heads\": 8"))
        .unwrap();
    assert_eq!(
        with(second.0, r#""num_ln_in_parallel_attn": 1"#),
        second.1 - 60 * 2 * 8192
    );
}

#[test]
fn norms_of_heads_that_glm_states() {
    let (config, params) = example("glm4_moe");
    let without = config.replace("\"use_qk_norm\": true, ", "");
    assert_eq!(with(&without, r#""x": 0"#), params - 92 * 2 * 128);
}

/// DeepSeek's layers with experts are those whose number the frequency divides.
#[test]
fn a_frequency_of_experts() {
    let (config, _) = example("deepseek_v3");
    let text = config.replacen('{', r#"{"moe_layer_freq": 2,"#, 1);
    assert_eq!(parse("x", &text).unwrap().anatomy.with_experts, 29);
}

/// A list with a state, a window and all tokens loses none of them.
#[test]
fn windows_of_a_hybrid() {
    let kinds = (0..32).map(|layer| match layer {
        0..=27 => "\"mamba\"",
        28..=30 => "\"sliding_attention\"",
        _ => "\"attention\"",
    });
    let kinds = kinds.collect::<Vec<&str>>().join(",");
    let fields = format!(r#"{{"sliding_window": 4096, "layer_types": [{kinds}],"#);
    let model = parse("x", &example("bamba").0.replacen('{', &fields, 1)).unwrap();
    assert_eq!(
        (
            (model.anatomy.full, model.anatomy.windowed),
            model.anatomy.with_state
        ),
        ((1, 3), 28)
    );
    assert_eq!(model.anatomy.attending, 4);
}

#[test]
fn windows_by_letters_and_by_the_first_layers() {
    let layers = |config: &str, fields: &str| {
        let text = config.replacen('{', &format!("{{{fields},"), 1);
        parse("x", &text).map(|model| (model.anatomy.full, model.anatomy.windowed))
    };
    let exaone = example("exaone4")
        .0
        .replace(", \"sliding_window_pattern\": 4", "");
    for (pattern, expected) in [("LLLG", (16, 48)), ("LG", (32, 32)), ("G", (64, 0))] {
        let fields = format!(r#""sliding_window_pattern": "{pattern}""#);
        assert_eq!(layers(&exaone, &fields).unwrap(), expected, "{pattern}");
    }
    for pattern in ["", "nonsense"] {
        let fields = format!(r#""sliding_window_pattern": "{pattern}""#);
        let error = layers(&exaone, &fields).unwrap_err().to_string();
        assert!(error.contains("sliding_window_pattern is"), "{error}");
    }
    let qwen = example("qwen2").0;
    let slides = r#""use_sliding_window": true, "sliding_window": 4096, "max_window_layers""#;
    assert_eq!(layers(qwen, &format!("{slides}: 28")).unwrap(), (28, 8));
    assert_eq!(layers(qwen, &format!("{slides}: 36")).unwrap(), (36, 0));
}
