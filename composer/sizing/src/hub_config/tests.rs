use super::*;

const LLAMA_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": false, "vocab_size": 128256}"#;

fn count(text: &str) -> u64 {
    parse("x", text)
        .unwrap_or_else(|why| panic!("{why}: {text}"))
        .params
}

#[test]
fn configs_are_counted() {
    let model = parse("mine", LLAMA_8B).unwrap();
    assert_eq!(
        (model.params, model.kv_heads, model.name.as_str()),
        (8_030_261_248, 8, "mine")
    );
    let gpt2 = r#"{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "vocab_size": 50257, "activation_function": "gelu_new"}"#;
    let model = parse("gpt2", gpt2).unwrap();
    assert_eq!(
        (model.params, model.mlp, model.ffn, model.tied),
        (124_439_808, Mlp::GeluNew, 3072, true)
    );
}

/// The counts are those of the classes of transformers 5.23.0, built from the same settings.
#[test]
fn every_architecture_is_counted_as_its_class_does() {
    for (config, params) in COUNTED {
        assert_eq!(count(config), params, "{config}");
    }
}

#[test]
fn the_text_part_of_a_model_with_more_inputs_is_read() {
    let config = format!(
        r#"{{"model_type": "llava", "vision_config": {{"model_type": "clip_vision_model"}}, "text_config": {LLAMA_8B}}}"#
    );
    let model = parse("x", &config).unwrap();
    assert_eq!(model.params, 8_030_261_248);
    assert!(model.source.contains("text part"), "{}", model.source);
}

#[test]
fn what_is_no_language_model_is_refused_with_what_is_allowed() {
    let error = |text: &str| parse("x", text).unwrap_err().to_string();
    for (text, says) in [
        (
            r#"{"model_type": "vit", "hidden_size": 768}"#,
            "model_type is \"vit\"; allowed: a language model, one of llama, granite",
        ),
        (
            r#"{"_class_name": "UNet2DConditionModel", "sample_size": 64}"#,
            "model_type is missing; allowed: a language model",
        ),
        (r#"{"model_type": 7}"#, "model_type is 7; allowed"),
        (
            r#"{"model_type": "clip", "text_config": 3}"#,
            "text_config is 3; allowed: an object",
        ),
        (
            r#"{"model_type": "clip", "text_config": {"model_type": "clip_text_model"}}"#,
            "model_type is \"clip_text_model\"",
        ),
        ("[]", "the file is []; allowed: an object"),
        ("{", "config.json is not what it should be"),
    ] {
        assert!(error(text).contains(says), "{}", error(text));
    }
}

#[test]
fn impossible_values_are_refused_by_field() {
    let error = |from: &str, to: &str| parse("x", &LLAMA_8B.replace(from, to)).unwrap_err().to_string();
    for (from, to, says) in [
        (
            "vocab_size",
            "vocab",
            "a llama model lacks vocab_size; allowed: a whole number",
        ),
        (
            "\"attention_bias\": false",
            "\"attention_bias\": true",
            "attention_bias is true; allowed: false",
        ),
        ("14336", "14336000000000", "ffn is 14336000000000; allowed: 1 to"),
        (
            "14336",
            "1e30",
            "intermediate_size is 1e+30; allowed: a whole number",
        ),
        ("14336", "-5", "intermediate_size is -5; allowed: a whole number"),
        (
            "\"num_hidden_layers\": 32",
            "\"num_hidden_layers\": 0",
            "layers is 0; allowed: 1 to",
        ),
        (
            "\"num_key_value_heads\": 8",
            "\"num_key_value_heads\": 7",
            "kv_heads is 7; allowed: a divisor of heads, 32",
        ),
        (
            "\"num_key_value_heads\": 8",
            "\"num_key_value_heads\": \"8\"",
            "num_key_value_heads is \"8\"",
        ),
    ] {
        let error = error(from, to);
        assert!(error.contains(says), "{error}");
    }
}

const COUNTED: [(&str, u64); 26] = [
    (
        r#"{"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44, "num_attention_heads": 64, "vocab_size": 50432}"#,
        20_554_567_680,
    ),
    (
        r#"{"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 2048}"#,
        1_315_758_080,
    ),
    (
        r#"{"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880}"#,
        7_069_016_064,
    ),
    (
        r#"{"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200}"#,
        2_779_683_840,
    ),
    (
        r#"{"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152}"#,
        3_030_371_328,
    ),
    (
        r#"{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024, "multi_query": true, "new_decoder_architecture": false, "bias": false, "parallel_attn": true}"#,
        6_921_720_704,
    ),
    (
        r#"{"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8, "vocab_size": 65024, "new_decoder_architecture": true, "bias": false}"#,
        41_303_293_952,
    ),
    (
        r#"{"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "tie_word_embeddings": false}"#,
        7_298_617_344,
    ),
    (
        r#"{"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 256000, "use_qk_norm": false}"#,
        34_980_831_232,
    ),
    (
        r#"{"model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792, "num_hidden_layers": 64, "num_attention_heads": 96, "num_key_value_heads": 8, "vocab_size": 256000, "use_qk_norm": true}"#,
        103_810_674_688,
    ),
    (
        r#"{"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000}"#,
        8_537_680_896,
    ),
    (
        r#"{"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000}"#,
        2_614_341_888,
    ),
    (
        r#"{"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144}"#,
        999_885_952,
    ),
    (
        r#"{"model_type": "granite", "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49155, "tie_word_embeddings": true}"#,
        8_170_848_256,
    ),
    (
        r#"{"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "tie_word_embeddings": false}"#,
        3_821_079_552,
    ),
    (
        r#"{"model_type": "qwen2", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true}"#,
        3_085_938_688,
    ),
    (
        r#"{"model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": true}"#,
        1_720_574_976,
    ),
    (
        r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}"#,
        46_702_792_704,
    ),
    (
        r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "tie_word_embeddings": false}"#,
        14_315_784_192,
    ),
    (
        r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "tie_word_embeddings": false}"#,
        30_532_122_624,
    ),
    (
        r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "tie_word_embeddings": false}"#,
        15_706_484_224,
    ),
    (
        r#"{"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 102400, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "tie_word_embeddings": false}"#,
        235_741_434_880,
    ),
    (
        r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "tie_word_embeddings": false}"#,
        671_026_404_352,
    ),
    (
        r#"{"model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552, "attention_bias": true, "use_qk_norm": true, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "first_k_dense_replace": 3, "tie_word_embeddings": false}"#,
        352_797_814_784,
    ),
    (
        r#"{"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4, "attention_bias": true, "tie_word_embeddings": false}"#,
        20_914_757_184,
    ),
    (
        r#"{"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "tie_word_embeddings": false}"#,
        400_711_848_960,
    ),
];
