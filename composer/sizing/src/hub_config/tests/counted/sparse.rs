//! Sparse attention, parts that layers share, and kinds that few models are of.

pub(in crate::hub_config::tests) const COUNTED: &[(&str, u64)] = &[
    (
        r#"{"model_type": "deepseek_v4", "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "hc_mult": 4, "index_n_heads": 64, "index_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "sliding_window": 128, "layer_types": ["heavily_compressed_attention", "heavily_compressed_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention"], "tie_word_embeddings": false}"#,
        284_325_869_015,
    ),
    (
        r#"{"model_type": "deepseek_v4", "hidden_size": 1024, "moe_intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 32000, "q_lora_rank": 256, "o_groups": 4, "o_lora_rank": 128, "hc_mult": 2, "index_n_heads": 8, "index_head_dim": 64, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "sliding_window": 128, "compress_ratios": [0, 4, 128, 4, 0], "tie_word_embeddings": false}"#,
        131_287_195,
    ),
    (
        r#"{"model_type": "minimax_m3_vl_text", "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288, "shared_intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064, "num_local_experts": 128, "num_experts_per_tok": 4, "index_n_heads": 4, "index_head_dim": 128, "layer_types": ["full_attention", "full_attention", "minimax_m3_sparse", "minimax_m3_sparse", "minimax_m3_sparse", "minimax_m3_sparse"], "mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse", "sparse"], "tie_word_embeddings": false}"#,
        32_789_578_240,
    ),
    (
        r#"{"model_type": "zamba2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 81, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "num_mem_blocks": 2, "n_mamba_heads": 112, "mamba_ngroups": 2, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "adapter_rank": 128, "use_shared_attention_adapter": false, "layers_block_type": ["mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba"], "tie_word_embeddings": true}"#,
        7_356_749_648,
    ),
    (
        r#"{"model_type": "zamba2", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 38, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "num_mem_blocks": 1, "n_mamba_heads": 64, "mamba_ngroups": 1, "mamba_d_state": 128, "adapter_rank": 128, "use_shared_attention_adapter": true, "layers_block_type": ["mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba"], "tie_word_embeddings": true}"#,
        1_215_064_704,
    ),
    (
        r#"{"model_type": "olmo_hybrid", "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 30, "num_key_value_heads": 30, "vocab_size": 100352, "linear_num_key_heads": 30, "linear_num_value_heads": 30, "linear_key_head_dim": 96, "linear_value_head_dim": 192, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention"], "tie_word_embeddings": false}"#,
        7_430_870_688,
    ),
    (
        r#"{"model_type": "codegen", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "vocab_size": 50400, "rotary_dim": 64, "tie_word_embeddings": false}"#,
        6_050_882_784,
    ),
    (
        r#"{"model_type": "iquestcoder", "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 80, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 76800, "tie_word_embeddings": false}"#,
        39_794_283_520,
    ),
    (
        r#"{"model_type": "mellum", "hidden_size": 2304, "intermediate_size": 7168, "moe_intermediate_size": 896, "num_hidden_layers": 28, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 98304, "num_local_experts": 64, "num_experts_per_tok": 8, "sliding_window": 1024, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"], "tie_word_embeddings": false}"#,
        12_149_923_072,
    ),
    (
        r#"{"model_type": "aria_text", "hidden_size": 2560, "intermediate_size": 1664, "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 20, "vocab_size": 100352, "moe_num_experts": 64, "moe_topk": 6, "moe_num_shared_experts": 2, "tie_word_embeddings": false}"#,
        24_869_091_840,
    ),
    // Text parts, with the head that the whole model has.
    (
        r#"{"model_type": "glm4v_text", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 151552, "attention_bias": true, "tie_word_embeddings": false}"#,
        9_400_279_040,
    ),
    (
        r#"{"model_type": "glm_ocr_text", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 59392, "tie_word_embeddings": false}"#,
        373_359_616,
    ),
    (
        r#"{"model_type": "glm4v_moe_text", "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552, "attention_bias": true, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "tie_word_embeddings": false}"#,
        106_852_245_504,
    ),
];
