//! How weights are stored, module by module.

use super::LLAMA_8B;
use crate::hub_config::parse;

/// Bytes of a parameter in routed experts and beside them, by a quantization_config; or why it is not understood.
fn parts(config: &str, quantised: &str) -> Result<(f64, f64), String> {
    let quantised = format!(r#"{{"quantization_config": {{{quantised}}},"#);
    let model = parse("x", &config.replacen('{', &quantised, 1)).unwrap();
    match (model.stored, model.stored_unread) {
        (Some(stored), _) => {
            let parts = stored.parts.unwrap();
            Ok((parts.routed, parts.beside))
        }
        (None, why) => Err(why.unwrap()),
    }
}

#[test]
fn modules_that_stay_in_16_bits() {
    let beside = |quantised: &str| parts(LLAMA_8B, quantised).unwrap().1;
    let [h, q, kv, f, layers] = [4096.0, 4096.0, 1024.0, 14336.0, 32.0];
    let inner = 8_030_261_248.0 - 2.0 * 128_256.0 * h;
    // 1 B in matrices, 2 B in norms and in exceptions.
    let expected = |kept: f64| {
        let matrices = layers * (2.0 * h * (q + kv) + 3.0 * h * f);
        2.0 - (matrices - kept) / inner
    };
    let fp8 = r#""quant_method": "fp8""#;
    let attention = layers * 2.0 * h * (q + kv);
    let one_of_layer_3 = h * f;
    for (kept, params) in [
        ("", 0.0),
        (r#", "modules_to_not_convert": null"#, 0.0),
        (
            r#", "modules_to_not_convert": ["lm_head", "model.visual.blocks", "gate", "model.layers.0.linear_attn.in_proj_ba"]"#,
            0.0,
        ),
        (r#", "modules_to_not_convert": ["self_attn"]"#, attention),
        (
            r#", "ignored_layers": ["model.layers.3.mlp.up_proj", "model.layers.77.mlp.up_proj"]"#,
            one_of_layer_3,
        ),
        (r#", "ignore": ["re:.*self_attn.*", "re:.*lm_head"]"#, attention),
        (
            r#", "ignore": ["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]"#,
            layers * 3.0 * h * f,
        ),
        (
            r#", "ignore": ["model.layers.3*.mlp.up_proj"]"#,
            3.0 * one_of_layer_3,
        ),
        (
            r#", "ignore": ["model.layers.0*"]"#,
            attention / layers + 3.0 * one_of_layer_3,
        ),
        (r#", "ignore": ["model.layers.*.self_attn"]"#, attention),
        (
            r#", "ignore": ["re:.*layers\\.\\d\\.self_attn.*"]"#,
            10.0 * attention / layers,
        ),
        (
            r#", "ignore": ["re:.*layers\\..\\.self_attn.*"]"#,
            10.0 * attention / layers,
        ),
        (
            r#", "ignore": ["vpm.encoder.layers.3.self_attn", "mtp.layers.0*"]"#,
            0.0,
        ),
        (r#", "dynamic": {"-:.*self_attn.*": {}}"#, attention),
        (
            r#", "exclude_modules": ["model.language_model.layers.3.mlp.up*", "lm_head*"]"#,
            one_of_layer_3,
        ),
        (
            r#", "extra_config": {"model.layers.3.mlp.up_proj": {"bits": 16}, "model.layers.4.mlp.up_proj": {"bits": 8}}"#,
            one_of_layer_3,
        ),
    ] {
        let found = beside(&format!("{fp8}{kept}"));
        assert!(
            (found - expected(params)).abs() < 1e-9,
            "{kept}: {found}, not {}",
            expected(params)
        );
    }
    // Scales of 128 weights, and of 32, with zero points and without.
    let int4 = |more: &str| {
        let groups = format!(r#""quant_method": "gptq", "bits": 4, {more}"#);
        2.0 - (2.0 - beside(&groups)) / (2.0 - expected(0.0))
    };
    for (more, bytes) in [
        (r#""group_size": 128"#, 0.5 + 2.5 / 128.0),
        (r#""group_size": 32"#, 0.5 + 2.5 / 32.0),
        (r#""group_size": 32, "symmetric": true"#, 0.5 + 2.0 / 32.0),
        (r#""group_size": -1"#, 0.5),
        (r#""desc_act": true"#, 0.53),
    ] {
        let found = int4(more);
        assert!((found - bytes).abs() < 1e-9, "{more}: {found}");
    }
}

#[test]
fn groups_of_modules_in_formats_of_their_own() {
    let model = with_experts();
    let group = |targets: &str, bits: u64, kind: &str| {
        format!(
            r#"{{"targets": [{targets}], "weights": {{"num_bits": {bits}, "type": "{kind}", "group_size": 16}}}}"#
        )
    };
    let of = |groups: &str, more: &str| {
        let groups = format!(r#""quant_method": "compressed-tensors", "config_groups": {{{groups}}}{more}"#);
        parts(&model, &groups).unwrap()
    };
    let (fp8, fp4) = (
        group("\"re:.*self_attn.*\"", 8, "float"),
        group("\"re:.*experts.*\"", 4, "float"),
    );
    let (routed, beside) = of(&format!(r#""a": {fp8}, "b": {fp4}"#), "");
    assert!((routed - 0.5625).abs() < 1e-9, "{routed}");
    assert!(beside > 1.0 && beside < 1.1, "{beside}");
    let attention =
        r#"{"targets": ["LlamaAttention"], "weights": null, "output_activations": {"num_bits": 8}}"#;
    let fused = group("\"FusedMoE\"", 4, "float");
    let (routed, beside) = of(&format!(r#""a": {attention}, "b": {fused}, "c": {fp8}"#), "");
    assert!(
        (routed - 0.5625).abs() < 1e-9 && beside > 1.0 && beside < 1.1,
        "{routed} {beside}"
    );
    let packed = group("\"Linear\", \"Attention\"", 4, "int");
    of(&format!(r#""a": {packed}"#), r#", "format": "int-quantized""#);
    let all = group("\"Linear\"", 4, "float");
    // Groups with names take precedence over the class.
    let (routed, beside) = of(&format!(r#""a": {all}, "b": {fp8}"#), "");
    assert!(
        (routed - 0.5625).abs() < 1e-9 && beside > 1.0,
        "{routed} {beside}"
    );
    let (routed, beside) = of(&format!(r#""a": {all}"#), r#", "ignore": ["re:.*self_attn.*"]"#);
    assert!(
        (routed - 0.5625).abs() < 1e-9 && beside == 2.0,
        "{routed} {beside}"
    );
    let cache = r#", "kv_cache_scheme": {"num_bits": 8, "type": "float"}"#;
    let config = format!(r#"{{"quantization_config": {{"quant_method": "fp8"{cache}}},"#);
    let read = parse("x", &model.replacen('{', &config, 1)).unwrap();
    assert_eq!(read.stored.unwrap().cache_bytes, Some(1));
}

/// As Model Optimizer lists each module that is quantised with its format.
#[test]
fn formats_of_single_modules() {
    let listed = |module: &str, format: &str| {
        let name = |layer: u64| format!(r#""model.layers.{layer}.{module}": {{"quant_algo": "{format}"}}"#);
        (0..32).map(name).collect::<Vec<String>>().join(",")
    };
    let layers = [
        listed("self_attn.q_proj", "FP8"),
        listed("mlp.up_proj", "W4A16_NVFP4"),
    ]
    .join(",");
    let mixed = format!(
        r#""quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {{{layers}}}"#
    );
    let (_, beside) = parts(LLAMA_8B, &mixed).unwrap();
    let [h, f, layers] = [4096.0, 14336.0, 32.0];
    let inner = 8_030_261_248.0 - 2.0 * 128_256.0 * h;
    let less = layers * (h * h * 1.0 + h * f * (2.0 - 0.5625));
    assert!((beside - (2.0 - less / inner)).abs() < 1e-9, "{beside}");
}

/// Qwen3-30B-A3B.
fn with_experts() -> String {
    r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": false}"#
        .to_owned()
}

#[test]
fn quantisation_that_contradicts_itself() {
    let refused = |quantised: &str| parts(LLAMA_8B, quantised).unwrap_err();
    let long: Vec<String> = (0..100_000).map(|n| format!("\"re:.*layers.{n}.*\"")).collect();
    let groups: Vec<String> = (0..100_000)
        .map(|n| {
            format!(r#""{n}": {{"targets": ["re:.*{n}.*"], "weights": {{"num_bits": 8, "type": "float"}}}}"#)
        })
        .collect();
    for (quantised, says) in [
        (
            r#""quant_method": "gptq", "bits": 4, "w_bit": 8"#,
            "w_bit is 8; allowed: the number that bits is",
        ),
        (
            r#""quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": true"#,
            "load_in_8bit is true; allowed: false with load_in_4bit",
        ),
        (
            r#""quant_method": "fp8", "modules_to_not_convert": ["model.layers"]"#,
            "modules_to_not_convert is [\"model.layers\"]; allowed: modules that leave a matrix",
        ),
        (r#""quant_method": "fp8", "bits": 4"#, "bits is 4; allowed: 8"),
        (
            r#""quant_method": "fp8", "ignore": ["layers.[01].mlp"]"#,
            "names of modules, with * for anything",
        ),
        (
            r#""quant_method": "gptq", "dynamic": {"+:.*mlp.*": {"bits": 8}}"#,
            "dynamic is {",
        ),
        (
            r#""quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}"#,
            "quant_algo is \"NVFP4\"; allowed: the format of config_groups",
        ),
        (
            r#""quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"weights": {"num_bits": 4, "type": "int"}}}"#,
            "allowed: one group at most for all linear layers",
        ),
        (
            r#""quant_method": "bitsandbytes", "load_in_4bit": false, "load_in_8bit": false"#,
            "load_in_4bit is false; allowed: true, or load_in_8bit true",
        ),
        (
            r#""quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["nothing"], "weights": {"num_bits": 8, "type": "float"}}}"#,
            "targets is \"nothing\"; allowed: names of modules that this model has",
        ),
        (
            r#""quant_method": "compressed-tensors", "ignore": [], "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"targets": ["re:.*frobnic.*"], "weights": {"num_bits": 4, "type": "int"}}}"#,
            "targets is \"re:.*frobnic.*\"; allowed: names of modules that this model has",
        ),
        (
            r#""quant_method": "compressed-tensors", "ignore": ["Linear"], "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}"#,
            "ignore is [\"Linear\"]; allowed: names of modules",
        ),
        (
            r#""quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}}"#,
            "format is \"float-quantized\"; allowed: int-quantized, pack-quantized, as the weights",
        ),
        (
            r#""quant_method": "compressed-tensors", "config_groups": {"a": {"format": "float-quantized", "weights": {"num_bits": 8, "type": "int"}}}"#,
            "format is \"float-quantized\"; allowed: int-quantized, pack-quantized",
        ),
        (
            r#""quant_method": "fp8", "kv_cache_scheme": {"num_bits": 3}"#,
            "num_bits is 3; allowed: 4, 8, 16, of kv_cache_scheme",
        ),
        (
            &format!(
                r#""quant_method": "compressed-tensors", "config_groups": {{{}}}"#,
                groups.join(",")
            ),
            "allowed: at most 1000 groups",
        ),
        (
            r#""quant_method": "fp8", "ignore": ["lm_head", "model.layers.3.self_atn"]"#,
            "ignore is \"model.layers.3.self_atn\"; allowed: names of modules that this model has",
        ),
        (
            r#""quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "INT4"}}"#,
            "quant_algo is \"INT4\"; allowed: FP8, NVFP4",
        ),
        (
            r#""quant_method": "fp8", "ignore": ["re:(("]"#,
            "ignore is \"re:((\"; allowed: names of modules",
        ),
        (
            r#""quant_method": "fp8", "ignore": [7]"#,
            "ignore is [7]; allowed: a list of names of modules",
        ),
        (
            r#""quant_method": "gptq", "bits": 4, "group_size": 0"#,
            "group_size is 0; allowed: -1, or 1 to",
        ),
        (
            &format!(r#""quant_method": "fp8", "ignore": [{}]"#, long.join(",")),
            "allowed: at most 500 regular expressions, 2000 with a number",
        ),
    ] {
        let said = refused(quantised);
        assert!(said.contains(says), "{said}");
    }
    // A set of names has no such limit.
    let names: Vec<String> = (0..100_000)
        .map(|n| format!("\"model.layers.{n}.self_attn.q_proj\""))
        .collect();
    let many = format!(r#""quant_method": "fp8", "ignore": [{}]"#, names.join(","));
    assert!(parts(LLAMA_8B, &many).unwrap().1 > 1.0);
}
