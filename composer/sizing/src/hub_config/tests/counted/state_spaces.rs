//! State spaces, short convolutions, and hybrids of them with attention.

pub(in crate::hub_config::tests) const COUNTED: &[(&str, u64)] = &[
    (
        r#"{"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280, "state_size": 16, "expand": 2, "conv_kernel": 4, "use_bias": false, "use_conv_bias": true, "time_step_rank": 160}"#,
        2_768_345_600,
    ),
    (
        r#"{"model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64, "vocab_size": 65024, "state_size": 16, "expand": 16, "conv_kernel": 4, "use_bias": false, "use_conv_bias": true, "time_step_rank": 256, "tie_word_embeddings": false}"#,
        7_272_665_088,
    ),
    (
        r#"{"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768, "state_size": 128, "expand": 2, "conv_kernel": 4, "n_groups": 8, "num_heads": 128, "head_dim": 64, "use_bias": false, "use_conv_bias": true, "tie_word_embeddings": false}"#,
        7_285_403_648,
    ),
    (
        r#"{"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "tie_word_embeddings": false}"#,
        51_570_323_328,
    ),
    (
        r#"{"model_type": "jamba", "hidden_size": 8192, "intermediate_size": 24576, "num_hidden_layers": 72, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 512, "tie_word_embeddings": false}"#,
        398_555_145_696,
    ),
    (
        r#"{"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": false}"#,
        9_780_235_392,
    ),
    (
        r#"{"model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21504, "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "tie_word_embeddings": false}"#,
        8_100_852_736,
    ),
    (
        r#"{"model_type": "nemotron_h", "hidden_size": 4480, "intermediate_size": 15680, "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "num_hidden_layers": 56, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "tie_word_embeddings": false, "mamba_ssm_cache_dtype": "float32"}"#,
        8_888_227_328,
    ),
    (
        r#"{"model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "tie_word_embeddings": false, "mamba_ssm_cache_dtype": "float32"}"#,
        31_577_937_344,
    ),
    (
        r#"{"model_type": "nemotron_h", "hidden_size": 4096, "layers_block_type": ["mamba", "moe", "mamba", "attention", "mlp", "moe"], "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "n_routed_experts": 512, "n_shared_experts": 1, "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024, "tie_word_embeddings": false}"#,
        7_251_051_264,
    ),
    (
        r#"{"model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 44, "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 130048, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_rms_norm": false, "tie_word_embeddings": false}"#,
        7_585_513_568,
    ),
    (
        r#"{"model_type": "falcon_h1", "hidden_size": 5120, "intermediate_size": 21504, "num_hidden_layers": 72, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 261120, "mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_rms_norm": true, "projectors_bias": true, "mamba_proj_bias": true, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false}"#,
        34_780_215_296,
    ),
    (
        r#"{"model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768, "shared_intermediate_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 100352, "num_local_experts": 72, "num_experts_per_tok": 10, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": true}"#,
        32_207_337_984,
    ),
    (
        r#"{"model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 512, "shared_intermediate_size": 1024, "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352, "num_local_experts": 64, "num_experts_per_tok": 6, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"], "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": true}"#,
        6_939_037_248,
    ),
    (
        r#"{"model_type": "granitemoehybrid", "hidden_size": 2048, "intermediate_size": 8192, "shared_intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 100352, "num_local_experts": 0, "num_experts_per_tok": 0, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"], "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": true}"#,
        3_191_396_096,
    ),
    (
        r#"{"model_type": "lfm2", "hidden_size": 2048, "intermediate_size": 12288, "block_ff_dim": 12288, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": true, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}"#,
        1_170_340_608,
    ),
    (
        r#"{"model_type": "lfm2", "hidden_size": 2048, "intermediate_size": 10752, "block_auto_adjust_ff_dim": false, "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3, "conv_bias": true, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"]}"#,
        2_569_497_600,
    ),
    (
        r#"{"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2, "conv_L_cache": 3, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"]}"#,
        8_339_929_856,
    ),
];
