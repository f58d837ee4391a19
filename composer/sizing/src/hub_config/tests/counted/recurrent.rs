//! Recurrent models, and their hybrids with attention.

pub(in crate::hub_config::tests) const COUNTED: &[(&str, u64)] = &[
    (
        r#"{"model_type": "rwkv", "hidden_size": 4096, "attention_hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32, "vocab_size": 50277, "context_length": 1024, "tie_word_embeddings": false}"#,
        7_392_649_216,
    ),
    (
        r#"{"model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15360, "num_hidden_layers": 26, "num_attention_heads": 10, "num_key_value_heads": 1, "lru_width": 2560, "conv1d_width": 4, "attention_window_size": 2048, "block_types": ["recurrent", "recurrent", "attention"], "vocab_size": 256000}"#,
        2_682_862_080,
    ),
    (
        r#"{"model_type": "recurrent_gemma", "hidden_size": 4096, "intermediate_size": 24576, "num_hidden_layers": 38, "num_attention_heads": 16, "lru_width": 4096, "attention_window_size": 2048, "vocab_size": 256000}"#,
        8_957_464_576,
    ),
    (
        r#"{"model_type": "zamba", "hidden_size": 3712, "intermediate_size": 14848, "num_hidden_layers": 76, "num_attention_heads": 16, "num_key_value_heads": 16, "n_mamba_heads": 2, "mamba_dt_rank": 232, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "attn_layer_period": 6, "attn_layer_offset": 4, "vocab_size": 32000}"#,
        7_232_490_496,
    ),
    (
        r#"{"model_type": "xlstm", "hidden_size": 4096, "embedding_dim": 4096, "num_hidden_layers": 32, "num_blocks": 32, "num_heads": 8, "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "use_bias": false, "vocab_size": 50304, "tie_word_embeddings": false}"#,
        6_865_424_896,
    ),
    (
        r#"{"model_type": "bailing_hybrid", "hidden_size": 2560, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 42, "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "head_dim": 128, "num_experts": 512, "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 2, "layer_group_size": 6, "short_conv_kernel_size": 4, "num_nextn_predict_layers": 1, "vocab_size": 157184, "tie_word_embeddings": false}"#,
        124_414_191_072,
    ),
    // These are classes of flash-linear-attention 0.6.0.
    (
        r#"{"model_type": "rwkv6", "hidden_size": 2048, "num_hidden_layers": 24, "num_heads": 32, "hidden_ratio": 3.5, "vocab_size": 65536}"#,
        1_497_587_712,
    ),
    (
        r#"{"model_type": "rwkv6", "hidden_size": 1024, "num_hidden_layers": 3, "num_heads": 8, "expand_k": 1.0, "expand_v": 2.0, "intermediate_size": 3000, "vocab_size": 1000}"#,
        50_227_200,
    ),
    (
        r#"{"model_type": "rwkv7", "hidden_size": 2560, "num_hidden_layers": 32, "head_dim": 64, "decay_low_rank_dim": 96, "gate_low_rank_dim": 320, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "intermediate_size": 10240, "vocab_size": 65536, "attn": null}"#,
        2_947_735_040,
    ),
    (
        r#"{"model_type": "rwkv7", "hidden_size": 2048, "num_hidden_layers": 24, "head_dim": 64, "decay_low_rank_dim": 64, "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 16, "vocab_size": 32000}"#,
        1_366_644_736,
    ),
];
