//! Decoders with a part of their own; of those that see or hear too, the class of the language part.

pub(in crate::hub_config::tests) const COUNTED: &[(&str, u64)] = &[
    (
        r#"{"model_type": "bitnet", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 30, "num_attention_heads": 20, "num_key_value_heads": 5, "vocab_size": 128256, "max_position_embeddings": 4096, "hidden_act": "relu2", "tie_word_embeddings": true}"#,
        2_412_820_480,
    ),
    (
        r#"{"model_type": "persimmon", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 36, "num_attention_heads": 64, "vocab_size": 262144, "max_position_embeddings": 16384, "qk_layernorm": true, "hidden_act": "relu2", "tie_word_embeddings": false}"#,
        9_397_175_296,
    ),
    (
        r#"{"model_type": "xglm", "d_model": 4096, "ffn_dim": 16384, "num_layers": 32, "attention_heads": 32, "vocab_size": 256008, "max_position_embeddings": 2048}"#,
        7_492_771_840,
    ),
    (
        r#"{"model_type": "biogpt", "hidden_size": 1600, "intermediate_size": 6400, "num_hidden_layers": 48, "num_attention_heads": 25, "vocab_size": 57717, "max_position_embeddings": 2048}"#,
        1_571_188_800,
    ),
    (
        r#"{"model_type": "ctrl", "n_embd": 1280, "dff": 8192, "n_layer": 48, "n_head": 16, "n_positions": 256, "vocab_size": 246534}"#,
        1_637_964_550,
    ),
    (
        r#"{"model_type": "openai-gpt", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512, "vocab_size": 40478}"#,
        116_534_784,
    ),
    (
        r#"{"model_type": "jais2", "hidden_size": 3328, "intermediate_size": 26624, "num_hidden_layers": 32, "num_attention_heads": 26, "num_key_value_heads": 26, "head_dim": 128, "vocab_size": 150272, "hidden_act": "relu2", "attention_bias": true, "mlp_bias": true}"#,
        8_090_401_280,
    ),
    (
        r#"{"model_type": "nanochat", "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 20, "num_attention_heads": 10, "num_key_value_heads": 10, "vocab_size": 65536, "max_position_embeddings": 2048, "hidden_act": "relu2"}"#,
        560_988_160,
    ),
    (
        r#"{"model_type": "diffllama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000}"#,
        1_104_222_208,
    ),
    (
        r#"{"model_type": "doge", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32768, "is_moe": false, "tie_word_embeddings": true}"#,
        335_750_272,
    ),
    (
        r#"{"model_type": "jetmoe", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_key_value_heads": 16, "kv_channels": 128, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000, "tie_word_embeddings": true}"#,
        8_522_237_952,
    ),
    (
        r#"{"model_type": "hyperclovax", "hidden_size": 6144, "intermediate_size": 14336, "num_hidden_layers": 38, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 110592, "tie_word_embeddings": false}"#,
        14_748_112_896,
    ),
    (
        r#"{"model_type": "granite_swa", "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49155, "tie_word_embeddings": true}"#,
        8_170_849_536,
    ),
    (
        r#"{"model_type": "qwen2_5_omni_text", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064}"#,
        7_615_616_512,
    ),
    (
        r#"{"model_type": "qwen3_omni_moe_text", "hidden_size": 2048, "intermediate_size": 768, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 152064, "tie_word_embeddings": false}"#,
        30_532_646_912,
    ),
    (
        r#"{"model_type": "mllama_text_model", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "tie_word_embeddings": false}"#,
        9_775_192_080,
    ),
    (
        r#"{"model_type": "laguna", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "sliding_window": 512, "gating": true, "vocab_size": 100352, "tie_word_embeddings": false}"#,
        33_189_975_808,
    ),
    (
        r#"{"model_type": "AXK1", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 163840, "first_k_dense_replace": 1, "tie_word_embeddings": false}"#,
        518_983_052_288,
    ),
    // As the published files have them, which transformers has no class for: Ling Mini 2.0 less the 256 biases that balance
    // the experts of 19 layers, and the first Qwen.
    (
        r#"{"model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qk_norm": true, "use_bias": false, "use_qkv_bias": false, "vocab_size": 157184, "tie_word_embeddings": false}"#,
        16_255_643_392 - 19 * 256,
    ),
    (
        r#"{"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192, "no_bias": true, "tie_word_embeddings": false}"#,
        7_721_324_544,
    ),
];
