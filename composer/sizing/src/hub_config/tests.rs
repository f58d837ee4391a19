use super::*;
use counted::COUNTED;

mod counted;
mod fields;
mod mixed;
mod mutated;
mod plain;
mod stored;

use crate::features::Mlp;
use crate::inference::{self, Layout};
use crate::job::{Inference, Method, Training};
use crate::model::Vision;
use crate::parallel::Parallel;
use crate::training;

const LLAMA_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": false, "vocab_size": 128256}"#;

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
        (model.params, model.features.mlp, model.ffn, model.tied),
        (124_439_808, Mlp::GeluNew, 3072, true)
    );
}

/// Biases on the three matrices of the MLP.
#[test]
fn biases_that_a_file_states_are_counted() {
    let biased = LLAMA_8B.replace("\"attention_bias\": false", "\"mlp_bias\": true");
    let more = 32 * (2 * 14336 + 4096);
    assert_eq!(parse("x", &biased).unwrap().params, 8_030_261_248 + more);
}

/// The counts are those of the classes of transformers 5.23.0, built from the same settings.
#[test]
fn every_architecture_is_counted_as_its_class_does() {
    for (config, params) in counted::all() {
        let model = parse("x", config).unwrap();
        assert_eq!(model.params, *params, "{config}");
    }
}

/// The state of a hybrid is as large however long the sequence is, and divided with the heads.
#[test]
fn a_hybrid_keeps_states_in_place_of_a_cache() {
    let (config, _) = COUNTED
        .iter()
        .find(|(text, _)| text.contains("qwen3_next"))
        .unwrap();
    let model = parse("x", config).unwrap();
    assert_eq!(
        (
            model.anatomy.with_state,
            (model.anatomy.full, model.anatomy.windowed)
        ),
        (36, (12, 0))
    );
    let terms = |tokens: u64, tensor: u64| {
        let job = Inference {
            prompt_tokens: tokens,
            generated_tokens: 0,
            concurrency: 1,
            engine: "pytorch".into(),
            ..Inference::default()
        };
        let terms = inference::tensors(&model, &job, Layout { tensor, pipeline: 1 }).unwrap();
        let bytes = |name: &str| terms.iter().find(|term| term.name == name).unwrap().point.0;
        (bytes("key/value cache"), bytes("states of linear attention"))
    };
    // Two heads of 256 in 12 layers; 32 matrices of 128 x 128 in fp32 and 3 convolved tokens of 8,192 in 36.
    let state = 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2);
    assert_eq!(terms(1000, 1), (2 * 2 * 256 * 2 * 12 * 1000, state));
    assert_eq!(terms(2000, 2), (2 * 256 * 2 * 12 * 2000, state / 2));

    let irregular = config.replacen('{', r#"{"layer_types": ["linear_attention"],"#, 1);
    let error = parse("x", &irregular).unwrap_err().to_string();
    assert!(
        error.contains("layer_types is") && error.contains("a list of 48, one for each layer"),
        "{error}"
    );
    let heads = config.replace("\"linear_num_key_heads\": 16", "\"linear_num_key_heads\": 5");
    let error = parse("x", &heads).unwrap_err().to_string();
    assert!(
        error.contains("linear_num_key_heads is 5; allowed: a divisor of linear.value_heads, 32"),
        "{error}"
    );
}

/// As a log of vLLM has it, by its figures of Qwen3.5-9B over two GPUs: blocks of 528 tokens, of which 0.76 % is padding.
#[test]
fn a_hybrids_cache_comes_in_pages_as_large_as_a_state() {
    let model = crate::Catalogue::builtin().resolve("Qwen3.5-9B").unwrap();
    let job = |prompt_tokens| Inference {
        prompt_tokens,
        generated_tokens: 0,
        concurrency: 1,
        ..Inference::default()
    };
    let pair = Layout {
        tensor: 2,
        pipeline: 1,
    };
    let cache = |tokens| {
        let terms = inference::tensors(&model, &job(tokens), pair).unwrap();
        terms
            .iter()
            .find(|term| term.name == "key/value cache")
            .unwrap()
            .point
            .0
    };
    let token = 8 * 2048;
    assert_eq!(
        (cache(1), cache(528), cache(529)),
        (528 * token, 528 * token, 1056 * token)
    );
    let kept = model.linear.unwrap().kept_bytes(2);
    assert!((528.0 * 2048.0 / kept as f64 - 1.0076).abs() < 1e-4, "{kept}");
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
        let model = parse("x", config).unwrap();
        (model.window, (model.anatomy.full, model.anatomy.windowed))
    };
    assert_eq!(window(config), (Some(4096), (8, 24)));
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
    assert_eq!(window(&list(8)), (Some(4096), (4, 28)));
    assert_eq!(window(&list(64)), (Some(4096), (0, 32)));
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
    let stored = |fields: &str| with(fields).unwrap().stored.map(|stored| stored.format);
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
            quantised(r#""quant_method": "modelopt", "quant_algo": "NVFP4""#),
            WeightFormat::Nvfp4,
        ),
        (
            quantised(
                r#""quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}"#,
            ),
            WeightFormat::Fp8,
        ),
    ] {
        assert_eq!(stored(&fields), Some(format), "{fields}");
    }
    let refused = |inner: &str| {
        let model = with(&quantised(inner)).unwrap();
        assert_eq!(model.stored, None, "nothing is guessed");
        model.stored_unread.unwrap()
    };
    assert!(refused(r#""quant_method": "hqq""#).contains("quant_method is \"hqq\"; allowed: gptq, awq"));
    assert!(refused(r#""quant_method": "gptq", "bits": 3"#).contains("bits is 3; allowed: 4, 8"));
    let mixed = refused(r#""quant_method": "modelopt", "quant_algo": "MIXED_PRECISION""#);
    assert!(mixed.contains("quant_algo is \"MIXED_PRECISION\"; allowed: FP8, NVFP4"));
    let error = with(r#""torch_dtype": "int4""#).unwrap().stored_unread.unwrap();
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
            "model_type is \"vit\"; allowed: a language model, one of ",
        ),
        (
            r#"{"model_type": "mixtrall"}"#,
            "kinds, the nearest being mixtral, mistral, mistral4 (`poolwright size --list model-types` has all)",
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
            "\"use_bias\": true",
            "use_bias is true; allowed: false",
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
            "num_attention_heads is 0; allowed: 1 to",
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

/// Files call the language part by several names; of one that speaks it lies deeper.
#[test]
fn the_language_part_is_found_under_each_of_its_names() {
    for (before, after) in [
        (r#""llm_config": "#, ""),
        (r#""language_config": "#, ""),
        (
            r#""thinker_config": {"model_type": "thinker", "vision_config": {"depth": 32}, "text_config": "#,
            "}",
        ),
    ] {
        let text =
            format!(r#"{{"model_type": "somebodys", "torch_dtype": "bfloat16", {before}{LLAMA_8B}{after}}}"#);
        let model = parse("x", &text).unwrap();
        assert_eq!(model.params, 8_030_261_248);
        assert_eq!(
            model.stored,
            Some(crate::job::WeightFormat::Bf16.into()),
            "{before}"
        );
        let sees = before.contains("vision").then_some(Vision::NotCounted);
        assert_eq!(model.vision, sees, "{before}");
    }
}
