//! Settings of models, and how many parameters their classes in transformers 5.23.0 register.

mod decoders;
mod others;
mod recurrent;
mod sparse;
mod state_spaces;

/// Of all kinds.
pub(super) fn all() -> impl Iterator<Item = &'static (&'static str, u64)> {
    COUNTED
        .iter()
        .chain(state_spaces::COUNTED)
        .chain(others::COUNTED)
        .chain(sparse::COUNTED)
        .chain(decoders::COUNTED)
        .chain(recurrent::COUNTED)
}

pub(super) const COUNTED: &[(&str, u64)] = &[
    (
        r#"{"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 256000, "sliding_window": 4096, "sliding_window_pattern": 4}"#,
        8_028_033_024,
    ),
    (
        r#"{"model_type": "olmo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 50304, "tie_word_embeddings": false}"#,
        6_888_095_744,
    ),
    (
        r#"{"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304, "tie_word_embeddings": false}"#,
        6_919_161_856,
    ),
    (
        r#"{"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 50304, "use_qkv_bias": false, "tie_word_embeddings": false}"#,
        2_795_443_200,
    ),
    (
        r#"{"model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "use_qkv_bias": true, "tie_word_embeddings": false}"#,
        1_644_515_328,
    ),
    (
        r#"{"model_type": "gpt_bigcode", "n_embd": 6144, "n_inner": 24576, "n_layer": 40, "n_head": 48, "n_positions": 8192, "vocab_size": 49152, "multi_query": true}"#,
        15_517_456_384,
    ),
    (
        r#"{"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "vocab_size": 50400, "rotary_dim": 64, "tie_word_embeddings": false}"#,
        6_050_882_784,
    ),
    (
        r#"{"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32, "num_heads": 20, "intermediate_size": null, "max_position_embeddings": 2048, "vocab_size": 50257, "attention_types": [[["global", "local"], 16]]}"#,
        2_651_307_520,
    ),
    (
        r#"{"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432, "no_bias": true}"#,
        6_649_286_656,
    ),
    (
        r#"{"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256}"#,
        3_075_098_624,
    ),
    (
        r#"{"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552, "attention_bias": true, "tie_word_embeddings": false}"#,
        9_400_279_040,
    ),
    (
        r#"{"model_type": "glm4", "hidden_size": 6144, "intermediate_size": 23040, "num_hidden_layers": 61, "num_attention_heads": 48, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552, "attention_bias": false, "tie_word_embeddings": false}"#,
        32_566_081_536,
    ),
    (
        r#"{"model_type": "seed_oss", "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 155136, "attention_bias": true, "attention_out_bias": false, "mlp_bias": false, "tie_word_embeddings": false}"#,
        36_151_104_512,
    ),
    (
        r#"{"model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2, "vocab_size": 32064, "attention_bias": true, "lm_head_bias": true, "tie_word_embeddings": false}"#,
        41_873_153_344,
    ),
    (
        r#"{"model_type": "nemotron", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 32, "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 256000, "tie_word_embeddings": false}"#,
        15_628_775_424,
    ),
    (
        r#"{"model_type": "exaone4", "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 102400, "tie_word_embeddings": false, "sliding_window": 4096, "sliding_window_pattern": 4}"#,
        32_003_216_384,
    ),
    (
        r#"{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "attention_bias": true, "tie_word_embeddings": false}"#,
        1_100_149_760,
    ),
    (
        r#"{"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}"#,
        3_880_263_168,
    ),
    (
        r#"{"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000.0}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, "tie_word_embeddings": false}"#,
        131_596_523_520,
    ),
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
    (
        r#"{"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 512, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "attention_bias": false, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4}"#,
        79_674_391_296,
    ),
    (
        r#"{"model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 10, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000, "tie_word_embeddings": false, "attention_bias": false, "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 5, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention"]}"#,
        672_837_376,
    ),
    (
        r#"{"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "moe_intermediate_size": 512, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "attention_bias": false, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4}"#,
        34_660_610_688,
    ),
    (
        r#"{"model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064, "num_local_experts": 256, "num_experts_per_tok": 8, "tie_word_embeddings": false}"#,
        228_689_748_992,
    ),
    (
        r#"{"model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20, "num_key_value_heads": 20, "vocab_size": 154880, "n_routed_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse"], "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "tie_word_embeddings": false, "attention_bias": false}"#,
        29_943_390_976,
    ),
    (
        r#"{"model_type": "exaone_moe", "hidden_size": 4096, "intermediate_size": 16384, "moe_intermediate_size": 1024, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 102400, "num_experts": 64, "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse", "sparse"], "tie_word_embeddings": false, "sliding_window": 4096}"#,
        28_550_639_616,
    ),
    (
        r#"{"model_type": "dots1", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1, "tie_word_embeddings": false, "attention_bias": false, "sliding_window": 4096}"#,
        470_354_944,
    ),
    (
        r#"{"model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40, "num_key_value_heads": 40, "head_dim": 32, "vocab_size": 73448, "kv_lora_rank": 256, "q_lora_rank": 768, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64, "tie_word_embeddings": true, "attention_bias": false}"#,
        4_073_875_968,
    ),
    (
        r#"{"model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 50304, "tie_word_embeddings": false, "attention_bias": false, "sliding_window": 4096}"#,
        6_888_624_128,
    ),
    (
        r#"{"model_type": "apertus", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 131072, "tie_word_embeddings": false, "attention_bias": false}"#,
        6_979_596_352,
    ),
    (
        r#"{"model_type": "arcee", "hidden_size": 2560, "intermediate_size": 18432, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 80, "vocab_size": 32000, "tie_word_embeddings": false, "attention_bias": false}"#,
        4_022_766_080,
    ),
    (
        r#"{"model_type": "ernie4_5", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 103424, "tie_word_embeddings": true, "use_bias": false}"#,
        360_748_032,
    ),
    (
        r#"{"model_type": "hunyuan_v1_dense", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000, "tie_word_embeddings": false, "attention_bias": false}"#,
        324_029_440,
    ),
    (
        r#"{"model_type": "solar_open", "hidden_size": 4096, "moe_intermediate_size": 1280, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 196608, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "tie_word_embeddings": false, "attention_bias": false}"#,
        102_651_793_408,
    ),
    (
        r#"{"model_type": "granitemoe", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": false, "attention_bias": false}"#,
        37_039_116_288,
    ),
    (
        r#"{"model_type": "flex_olmo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "num_experts": 7, "num_experts_per_tok": 5, "tie_word_embeddings": false, "attention_bias": false}"#,
        33_270_665_216,
    ),
    (
        r#"{"model_type": "internlm3", "hidden_size": 4096, "intermediate_size": 10240, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 128512, "tie_word_embeddings": false, "attention_bias": false}"#,
        8_804_241_408,
    ),
    (
        r#"{"model_type": "glm", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552, "tie_word_embeddings": false, "attention_bias": true}"#,
        9_399_951_360,
    ),
    (
        r#"{"model_type": "helium", "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24, "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128, "vocab_size": 48000, "tie_word_embeddings": false, "attention_bias": false}"#,
        2_172_643_840,
    ),
    // Their classes come with the models; the counts are their makers'.
    (
        r#"{"model_type": "exaone", "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102400, "activation_function": "silu", "tie_word_embeddings": false}"#,
        7_818_448_896,
    ),
    (
        r#"{"model_type": "exaone", "hidden_size": 2560, "intermediate_size": 7168, "num_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 80, "vocab_size": 102400, "tie_word_embeddings": true}"#,
        2_405_327_360,
    ),
    (
        r#"{"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28, "num_attention_heads": 32, "multi_query_attention": true, "multi_query_group_num": 2, "kv_channels": 128, "padded_vocab_size": 65024, "add_qkv_bias": true, "add_bias_linear": false, "seq_length": 32768}"#,
        6_243_584_000,
    ),
];
