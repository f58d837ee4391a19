use super::*;
use crate::inference::{self, Layout};
use crate::job::{Inference, Method, Training};
use crate::model::Vision;
use crate::parallel::Parallel;
use crate::training;

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

/// A mixture is as fast as its token's way through it, wherever its shape comes from.
#[test]
fn a_mixture_is_timed_by_what_a_token_passes() {
    use crate::{Catalogue, Job, Limits, Offer, Task, fit};
    let (config, _) = COUNTED.iter().find(|(text, _)| text.contains("mixtral")).unwrap();
    let read = parse("read", config).unwrap();
    assert_eq!(read.active(), 12_879_925_248);
    let known = Catalogue::builtin().resolve("Mixtral-8x7B").unwrap();
    let kind = poolwright_model::profile::Profiles::builtin();
    let offer = Offer::of(kind.by_name("h100-sxm5-80gb").unwrap(), None);
    let speed = |model: &Model| {
        let found = fit::fit(
            model,
            &Job::of(Task::Infer),
            std::slice::from_ref(&offer),
            Limits::default(),
        );
        found.unwrap().candidates[0].tokens_per_s().unwrap()
    };
    assert_eq!(speed(&read), speed(&known));
}

#[test]
fn layers_with_a_window_are_those_of_the_list() {
    let (config, _) = COUNTED.iter().find(|(text, _)| text.contains("cohere2")).unwrap();
    let window = |config: &str| {
        parse("x", config)
            .unwrap()
            .window
            .map(|w| (w.tokens, w.full_every))
    };
    assert_eq!(window(config), Some((4096, 4)));
    let list = |full_every: usize| {
        let of = |at: usize| {
            if (at + 1).is_multiple_of(full_every) {
                "\"full_attention\""
            } else {
                "\"sliding_attention\""
            }
        };
        let list: Vec<&str> = (0..32).map(of).collect();
        config.replacen('{', &format!("{{\"layer_types\": [{}],", list.join(",")), 1)
    };
    assert_eq!(window(&list(8)), Some((4096, 8)));
    assert_eq!(window(&list(64)), Some((4096, 33)));
    let few = list(8).replacen("\"full_attention\",", "", 1);
    assert!(
        parse("x", &few)
            .unwrap_err()
            .to_string()
            .contains("layer_types is")
    );
}

#[test]
fn the_format_of_weights_is_taken_from_the_file() {
    use crate::job::WeightFormat;
    let with = |fields: &str| parse("x", &LLAMA_8B.replacen('{', &format!("{{{fields},"), 1));
    let stored = |fields: &str| with(fields).unwrap().stored;
    assert_eq!(parse("x", LLAMA_8B).unwrap().stored, None);
    let quantised = |inner: &str| format!(r#""torch_dtype": "bfloat16", "quantization_config": {{{inner}}}"#);
    for (fields, format) in [
        (r#""torch_dtype": "bfloat16""#.to_owned(), WeightFormat::Bf16),
        (r#""dtype": "float32""#.to_owned(), WeightFormat::Fp32),
        (
            quantised(r#""quant_method": "gptq", "bits": 8"#),
            WeightFormat::GptqInt8,
        ),
        (
            quantised(r#""quant_method": "awq", "bits": 4"#),
            WeightFormat::AwqInt4,
        ),
        (
            quantised(r#""quant_method": "fp8", "weight_block_size": [128, 128]"#),
            WeightFormat::Fp8,
        ),
        (
            quantised(
                r#""quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true"#,
            ),
            WeightFormat::Nf4Dq,
        ),
        (quantised(r#""load_in_8bit": true"#), WeightFormat::Int8),
        (
            quantised(
                r#""quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}"#,
            ),
            WeightFormat::Fp8,
        ),
    ] {
        assert_eq!(stored(&fields), Some(format), "{fields}");
    }
    let refused = |inner: &str| with(&quantised(inner)).unwrap_err().to_string();
    assert!(refused(r#""quant_method": "hqq""#).contains("quant_method is \"hqq\"; allowed: gptq, awq"));
    assert!(refused(r#""quant_method": "gptq", "bits": 3"#).contains("bits is 3; allowed: 4, 8"));
    let error = with(r#""torch_dtype": "int4""#).unwrap_err().to_string();
    assert!(
        error.contains("torch_dtype is \"int4\"; allowed: bfloat16"),
        "{error}"
    );
}

#[test]
fn the_text_part_of_a_model_with_more_inputs_is_read() {
    let config = format!(
        r#"{{"model_type": "llava", "vision_config": {{"model_type": "clip_vision_model"}}, "text_config": {LLAMA_8B}}}"#
    );
    let model = parse("x", &config).unwrap();
    assert_eq!(model.params, 8_030_261_248);
    assert!(model.source.contains("text part"), "{}", model.source);

    // It is served with what it sees with, and trained without.
    let Some(Vision::Counted(tower)) = model.vision else {
        panic!("{:?}", model.vision)
    };
    assert_eq!(tower, 324_487_168);
    let (serving, alone) = (Inference::default(), Layout::SINGLE);
    let seeing = inference::estimate(&model, &serving, alone, "NVIDIA").unwrap();
    let blind = Model {
        vision: None,
        ..model.clone()
    };
    let blind = inference::estimate(&blind, &serving, alone, "NVIDIA").unwrap();
    assert_eq!(seeing.point.0 - blind.point.0, 2 * tower);
    assert!(
        seeing.notes[0].starts_with("estimate: what images take"),
        "{:?}",
        seeing.notes
    );
    let step = Training::new(Method::Lora);
    let trained = training::estimate(&model, &step, &Parallel::SINGLE, "NVIDIA").unwrap();
    assert!(
        trained
            .notes
            .iter()
            .any(|note| note.contains("without its vision tower")),
        "{:?}",
        trained.notes
    );

    let other = config.replace("clip_vision_model", "somebody_elses");
    let unknown = parse("x", &other).unwrap();
    assert_eq!(unknown.vision, Some(Vision::NotCounted));
    let estimate = inference::estimate(&unknown, &serving, alone, "NVIDIA").unwrap();
    assert!(
        estimate.notes[0].contains("of a kind that is not counted"),
        "{:?}",
        estimate.notes
    );
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
            "\"mlp_bias\": true",
            "mlp_bias is true; allowed: false",
        ),
        (
            "14336",
            "14336000000000",
            "intermediate_size is 14336000000000; allowed: 1 to",
        ),
        (
            "14336",
            "1e30",
            "intermediate_size is 1e+30; allowed: a whole number",
        ),
        ("14336", "-5", "intermediate_size is -5; allowed: a whole number"),
        (
            "\"num_hidden_layers\": 32",
            "\"num_hidden_layers\": 0",
            "num_hidden_layers is 0; allowed: 1 to",
        ),
        (
            "\"num_key_value_heads\": 8",
            "\"num_key_value_heads\": 7",
            "num_key_value_heads is 7; allowed: a divisor of heads, 32",
        ),
        (
            "\"num_attention_heads\": 32",
            "\"num_attention_heads\": 48",
            "num_attention_heads is 48; allowed: a divisor of the width, 4096, where head_dim is not given",
        ),
        (
            "\"num_attention_heads\": 32",
            "\"num_attention_heads\": 0",
            "num_attention_heads is 0; allowed: a divisor of the width",
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

const COUNTED: [(&str, u64); 45] = [
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
];
