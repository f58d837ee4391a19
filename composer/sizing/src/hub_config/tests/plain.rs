//! Kinds that are not known: read as a plain decoder where nothing speaks against it, and said to be an estimate.

use super::*;

/// As Llama 3.1 8B's, of a kind of its own.
const OWN: &str = r#"{"architectures": ["OursForCausalLM"], "auto_map": {"AutoModelForCausalLM": "modeling_ours.OursForCausalLM"},
    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2, 3], "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "ours", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.57.0", "use_cache": true, "use_qk_norm": false,
    "vocab_size": 128256}"#;

fn with(field: &str) -> Result<Model, ConfigError> {
    parse("ours", &OWN.replacen('{', &format!("{{{field}, "), 1))
}

#[test]
fn a_plain_decoder_of_a_kind_of_its_own_is_read_as_an_estimate() {
    let model = parse("ours", OWN).unwrap();
    assert_eq!((model.params, model.kv_heads), (8_030_261_248, 8));
    let served = inference::estimate(&model, &Inference::default(), Layout::SINGLE, "NVIDIA").unwrap();
    let step = Training::new(Method::Full);
    let trained = training::estimate(&model, &step, &Parallel::SINGLE, "NVIDIA").unwrap();
    for notes in [served.notes, trained.notes] {
        let said =
            "warning: its config.json is of a kind that is not known, \"ours\": counted as a plain decoder";
        assert!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
    }
    assert_eq!(model.unknown_kind.as_deref(), Some("ours"));
    assert_eq!(parse("x", LLAMA_8B).unwrap().unknown_kind, None);
}

/// Files of DeepSeek V3 and GLM-4.5 hold a layer more than the model runs with.
#[test]
fn layers_that_guess_ahead_are_said_to_be_left_out() {
    let (text, params) = counted::all()
        .find(|(text, _)| text.contains("deepseek_v3\""))
        .unwrap();
    let model = parse("x", &text.replacen('{', r#"{"num_nextn_predict_layers": 1,"#, 1)).unwrap();
    assert_eq!(model.params, *params);
    let served = inference::estimate(&model, &Inference::default(), Layout::SINGLE, "NVIDIA").unwrap();
    let said = "estimate: without what guesses tokens ahead (num_nextn_predict_layers is 1)";
    assert!(
        served.notes.iter().any(|note| note.starts_with(said)),
        "{:?}",
        served.notes
    );
    let none = parse("x", &text.replacen('{', r#"{"num_nextn_predict_layers": 0,"#, 1)).unwrap();
    assert_eq!(none.left_out, None);
}

/// What would change the count is named, with what to do.
#[test]
fn what_a_plain_decoder_does_not_have_is_refused_by_name() {
    for (field, says) in [
        (
            r#""num_experts": 64"#,
            "num_experts is 64; allowed: none: of the kind \"ours\"",
        ),
        (r#""use_qk_norm": true"#, "use_qk_norm is true; allowed: none"),
        (
            r#""attn_output_gate": true"#,
            "attn_output_gate is true; allowed: none",
        ),
        (
            r#""rope_num_experts": 64"#,
            "rope_num_experts is 64; allowed: none",
        ),
        (r#""kv_lora_rank": 512"#, "kv_lora_rank is 512; allowed: none"),
        (r#""mlp_bias": true"#, "mlp_bias is true; allowed: none"),
        (
            r#""hidden_act": "relu2""#,
            "hidden_act is \"relu2\"; allowed: silu",
        ),
        (
            r#""layer_types": ["recurrent"]"#,
            "layer_types is [\"recurrent\"]; allowed: a list of 32, one for each layer",
        ),
    ] {
        // Of two fields of a name the last one counts.
        let name = &field[..field.find(':').unwrap()];
        let text = OWN.lines().collect::<Vec<_>>().join(" ");
        let dropped: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        let mut kept = dropped.clone();
        kept.remove(name.trim_matches('"'));
        let text = serde_json::Value::from(kept).to_string();
        let error = parse("ours", &text.replacen('{', &format!("{{{field}, "), 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
        assert!(
            !says.ends_with("none") || error.contains("a model of the catalogue or a size"),
            "{error}"
        );
    }
    assert!(with(r#""_commit": "abc""#).is_ok());
}

/// Encoders, and what sees or hears, have many of a decoder's fields.
#[test]
fn what_is_no_decoder_is_no_plain_decoder_either() {
    for text in [
        r#"{"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "type_vocab_size": 2, "max_position_embeddings": 512}"#,
        r#"{"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 768,
            "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "patch_size": 16}"#,
        r#"{"architectures": ["CLIPModel"], "model_type": "clip", "text_config": {"model_type": "clip_text_model",
            "hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048,
            "vocab_size": 49408, "layer_norm_eps": 1e-05}, "vision_config": {"model_type": "clip_vision_model"}}"#,
        r#"{"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "d_model": 1280,
            "vocab_size": 51866, "encoder_layers": 32, "decoder_layers": 32, "num_hidden_layers": 32}"#,
        r#"{"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512, "d_ff": 2048,
            "num_layers": 6, "num_heads": 8, "vocab_size": 32128}"#,
        r#"{"model_type": "ours", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-05}"#,
    ] {
        let error = parse("x", text).unwrap_err().to_string();
        assert!(
            error.contains("model_type is") && error.contains("a language model, one of"),
            "{error}"
        );
    }
}
