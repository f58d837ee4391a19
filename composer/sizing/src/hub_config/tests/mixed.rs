//! Layers of several kinds: what they keep, and what is refused.

use super::*;
use crate::anatomy::Anatomy;

fn example(model_type: &str) -> &'static str {
    let named = format!("\"model_type\": \"{model_type}\"");
    let found = counted::all().find(|(text, _)| text.contains(&named));
    found.unwrap_or_else(|| panic!("no example of {model_type}")).0
}

fn read(model_type: &str) -> Model {
    parse("x", example(model_type)).unwrap()
}

/// Bytes of the terms of these names, of one request.
fn serving(model: &Model, tokens: u64, tensor: u64, names: &[&str]) -> Vec<u64> {
    let job = Inference {
        prompt_tokens: tokens,
        generated_tokens: 0,
        concurrency: 1,
        engine: "pytorch".into(),
        ..Inference::default()
    };
    let terms = inference::tensors(model, &job, Layout { tensor, pipeline: 1 }).unwrap();
    let of = |name: &&str| terms.iter().find(|term| term.name == *name).unwrap().point.0;
    names.iter().map(of).collect()
}

const CACHE: &str = "key/value cache";

/// A state space alone needs no more for a longer context.
#[test]
fn a_state_space_keeps_as_much_however_long_the_context_is() {
    let model = read("falcon_mamba");
    // 8,192 channels with 16 elements each and 3 convolved tokens, in 64 layers.
    let state = 64 * (8192 * 16 * 2 + 3 * 8192 * 2);
    for tokens in [10, 100_000] {
        let names = [CACHE, "states of state spaces"];
        assert_eq!(serving(&model, tokens, 1, &names), [0, state]);
    }
    let fit = inference::estimate(&model, &Inference::default(), Layout::SINGLE, "NVIDIA").unwrap();
    assert!(
        fit.notes
            .iter()
            .any(|note| note.starts_with("estimate: states of state spaces")),
        "{:?}",
        fit.notes
    );
}

/// Of Nemotron Nano's 56 layers 27 have a state, 4 attention, 25 an MLP.
#[test]
fn a_hybrid_of_single_parts_keeps_what_each_part_keeps() {
    let (text, _) = counted::all().find(|(text, _)| text.contains("4480")).unwrap();
    let model = parse("x", text).unwrap();
    let anatomy = model.anatomy.clone();
    assert_eq!(
        (
            anatomy.with_state,
            anatomy.full,
            anatomy.plain,
            anatomy.with_experts
        ),
        (27, 4, 25, 0)
    );
    // The state in fp32, as the file asks; its 8 groups are held by as many GPUs.
    let state = |gpus: u64| 27 * (128 * 80 * 128 * 4 / gpus + 3 * 2 * (2 * 8 * 128 + 128 * 80) / gpus);
    let names = [CACHE, "states of state spaces"];
    assert_eq!(
        serving(&model, 1000, 1, &names),
        [4 * 2 * 8 * 128 * 2 * 1000, state(1)]
    );
    assert_eq!(
        serving(&model, 1000, 2, &names),
        [4 * 2 * 4 * 128 * 2 * 1000, state(2)]
    );
}

/// The compressed entry in layers with attention, a matrix a head in the others.
#[test]
fn kimi_keeps_a_compressed_cache_and_states() {
    let model = read("kimi_linear");
    let state = 20 * (32 * 128 * 128 * 4 + 3 * 2 * 3 * 4096);
    let names = [CACHE, "states of linear attention"];
    assert_eq!(
        serving(&model, 1000, 1, &names),
        [7 * (512 + 64) * 2 * 1000, state]
    );
}

/// Lightning attention has no convolution to keep anything of.
#[test]
fn lightning_attention_keeps_a_matrix_a_head() {
    let model = read("minimax");
    let names = [CACHE, "states of linear attention"];
    let (cache, state) = (10 * 2 * 8 * 128 * 2 * 1000, 70 * 64 * 128 * 128 * 4);
    assert_eq!(serving(&model, 1000, 1, &names), [cache, state]);
}

/// Sparse attention keeps an index beside its cache: a key of 128 in 8 bits, and its scale.
#[test]
fn an_index_is_kept_beside_the_cache() {
    let model = read("deepseek_v32");
    assert_eq!(serving(&model, 1000, 1, &[CACHE]), [61 * (576 * 2 + 132) * 1000]);
}

/// Gemma 4's layers with a window keep 8 heads of 256, the others 2 of 512; of Gemma 3n 20 of 35 keep any, 4 of them all.
#[test]
fn layers_keep_caches_of_their_own_widths_or_none() {
    let model = read("gemma4_text");
    let (windowed, full) = (25 * 2 * 8 * 256 * 2 * 1024, 5 * 2 * 2 * 512 * 2 * 100_000);
    assert_eq!(serving(&model, 100_000, 1, &[CACHE]), [windowed + full]);
    let model = read("gemma3n_text");
    let each = 2 * 2 * 256 * 2;
    assert_eq!(
        serving(&model, 30_000, 1, &[CACHE]),
        [each * (16 * 512 + 4 * 30_000)]
    );
}

/// Tables of which a token takes a row are no work, and stay in 16 bits.
#[test]
fn tables_of_every_layer_are_looked_up_alone() {
    let model = read("gemma3n_text");
    assert_eq!(model.looked_up(), 262_144 * 256 * 35);
    let weights = |weights| {
        let job = Inference {
            weights,
            ..Inference::default()
        };
        let terms = inference::tensors(&model, &job, Layout::SINGLE).unwrap();
        terms[0].point.0
    };
    use crate::job::WeightFormat;
    let (whole, packed) = (weights(WeightFormat::Bf16), weights(WeightFormat::Nf4));
    assert_eq!(whole, 2 * model.params);
    assert!(packed > 2 * (model.looked_up() + model.embedding()), "{packed}");
}

/// Two attentions in each layer; experts that do nothing have a place in the router alone. The count is that of the class
/// in transformers 5.23.0 without the matrices that it gives them.
#[test]
fn longcat_counts_experts_that_do_something() {
    let text = r#"{"model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
        "vocab_size": 131072, "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "moe_topk": 12,
        "n_routed_experts": 512, "zero_expert_num": 256, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": false}"#;
    let model = parse("x", text).unwrap();
    assert_eq!(model.params, 741_053_585_408 - 28 * 256 * 2 * 2048 * 6144);
    assert_eq!(serving(&model, 1000, 1, &[CACHE]), [2 * 28 * 576 * 2 * 1000]);
}

/// Of DeepSeek V4's 43 layers 20 keep an entry for 4 tokens, with an index, and 23 one for 128; each keeps a window too.
#[test]
fn a_compressed_cache_grows_by_a_part_of_an_entry_a_token() {
    let model = read("deepseek_v4");
    let entries = 20 * (512 + 128) / 4 + 23 * 512 / 128;
    let cache = |tokens| serving(&model, tokens, 1, &[CACHE])[0];
    let window = 43 * 512 * 2 * 128;
    assert!(cache(100_000) > window + entries * 2 * 100_000);
    assert!((cache(100_000) - window) as f64 / ((entries * 2 * 100_000) as f64) < 1.02);
}

/// Zamba 2 runs its two shared blocks in 13 layers, each of which keeps a cache of its own.
#[test]
fn shared_blocks_are_there_once_and_cached_where_they_run() {
    let model = read("zamba2");
    let blocks: Vec<u64> = model
        .anatomy
        .parts
        .iter()
        .filter(|part| part.name == "shared block")
        .map(|part| part.times)
        .collect();
    assert_eq!(blocks, [2]);
    assert_eq!(serving(&model, 1000, 1, &[CACHE]), [13 * 2 * 32 * 224 * 2 * 1000]);
}

/// Both a state and a cache in each layer.
#[test]
fn side_by_side_a_layer_keeps_both() {
    let model = read("falcon_h1");
    let state = 44 * (24 * 128 * 256 * 2 + 3 * 2 * (2 * 256 + 3072));
    let names = [CACHE, "states of state spaces"];
    assert_eq!(
        serving(&model, 1000, 1, &names),
        [44 * 2 * 2 * 128 * 2 * 1000, state]
    );
}

#[test]
fn a_short_convolution_keeps_its_last_inputs_alone() {
    let model = read("lfm2");
    let names = [CACHE, "states of short convolutions"];
    assert_eq!(
        serving(&model, 1000, 1, &names),
        [6 * 2 * 8 * 64 * 2 * 1000, 10 * 2 * 2048 * 2]
    );
}

/// A token passes few of the experts, whatever stands around them.
#[test]
fn a_hybrid_is_as_active_as_its_name_says() {
    let active = |text: &str| {
        let (text, _) = counted::all().find(|(found, _)| found.contains(text)).unwrap();
        parse("x", text).unwrap().active() as f64 / 1e9
    };
    // Nemotron 3 Nano 30B-A3B, LFM2-8B-A1B, Granite 4.0 H Small (32B-A9B).
    for (text, billions) in [
        ("MEMEM*E", 3.6),
        ("lfm2_moe", 1.6),
        ("\"num_local_experts\": 72", 9.0),
    ] {
        let found = active(text);
        assert!((found / billions - 1.0).abs() < 0.1, "{text}: {found}");
    }
}

/// Training knows every part; what no measurement confirms is said.
#[test]
fn layers_of_several_kinds_are_trained_as_an_estimate() {
    for (text, _) in counted::all() {
        let model = parse("x", text).unwrap();
        let estimate =
            training::estimate(&model, &Training::new(Method::Lora), &Parallel::SINGLE, "NVIDIA").unwrap();
        let said = estimate
            .notes
            .iter()
            .any(|note| note.contains("layers of this kind"));
        assert_eq!(said, model.anatomy.unmeasured, "{text}");
        assert!(estimate.safe.0 > 2 * model.params, "{text}");
    }
}

#[test]
fn what_layers_cannot_be_is_refused_by_the_field() {
    let refused = |model_type: &str, from: &str, to: &str| {
        let text = example(model_type).replace(from, to);
        assert_ne!(text, example(model_type), "{from}");
        parse("x", &text).unwrap_err().to_string()
    };
    for (model_type, from, to, says) in [
        (
            "mamba",
            "\"state_size\": 16",
            "\"state_size\": 0",
            "state_size is 0; allowed: 1 to",
        ),
        (
            "mamba",
            "\"expand\": 2",
            "\"expand\": 2000",
            "expand is 2000; allowed: so much that",
        ),
        (
            "mamba",
            ": 160",
            ": \"much\"",
            "time_step_rank is \"much\"; allowed: a whole number",
        ),
        (
            "jamba",
            "\"attn_layer_offset\": 4",
            "\"attn_layer_offset\": 8",
            "attn_layer_offset is 8; allowed: less than",
        ),
        (
            "bamba",
            "[9, 18, 27]",
            "[9, 9, 27]",
            "attn_layer_indices is [9,9,27]; allowed: a list of different layers",
        ),
        (
            "bamba",
            "\"mamba_n_heads\": 128",
            "\"mamba_n_heads\": 127",
            "mamba_n_heads is 127; allowed: a divisor of",
        ),
        ("nemotron_h", "M-M-", "M-X-", "hybrid_override_pattern is \"M-X-"),
        (
            "lfm2_moe",
            "\"num_experts_per_tok\": 4",
            "\"num_experts_per_tok\": 40",
            "num_experts_per_tok is 40; allowed: 1 to 32",
        ),
        ("granitemoehybrid", "\"mamba\", ", "", "layer_types is"),
        (
            "falcon_h1",
            "\"vocab_size\": 130048",
            "\"vocab_size\": 99999999999",
            "vocab_size is 99999999999; allowed: 1 to",
        ),
    ] {
        let error = refused(model_type, from, to);
        assert!(error.contains(says), "{error}");
    }
}

/// The parts are told by name, and are the whole.
#[test]
fn parts_add_up() {
    let Anatomy { parts, .. } = read("jamba").anatomy;
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "embedding",
            "head",
            "last norm",
            "state space",
            "attention",
            "norms",
            "MLP",
            "router",
            "expert"
        ]
    );
    let sum: u64 = parts.iter().map(|part| part.params * part.times).sum();
    assert_eq!(sum, 51_570_323_328);
}

/// RWKV keeps a matrix for each head and the last token of both parts of a layer; the fourth three sums a channel.
#[test]
fn what_mixes_time_keeps_as_much_however_long_the_context_is() {
    let names = [CACHE, "states of time mixing"];
    for (model_type, state) in [
        ("rwkv", 32 * (3 * 4096 * 4 + 2 * 4096 * 2)),
        ("rwkv7", 32 * (40 * 64 * 64 * 4 + 2 * 2560 * 2)),
    ] {
        let model = read(model_type);
        assert_eq!(serving(&model, 10, 1, &names), [0, state], "{model_type}");
        assert_eq!(serving(&model, 100_000, 1, &names), [0, state], "{model_type}");
    }
}

/// RecurrentGemma's 26 layers have 8 with attention, all with a window.
#[test]
fn a_recurrence_beside_attention_with_a_window_stops_growing() {
    let model = read("recurrent_gemma");
    let cache = 8 * 2 * 256 * 2;
    let state = 18 * (2560 * 4 + 3 * 2560 * 2);
    let names = [CACHE, "states of state spaces"];
    assert_eq!(serving(&model, 1000, 1, &names), [cache * 1000, state]);
    assert_eq!(serving(&model, 100_000, 1, &names), [cache * 2048, state]);
}

/// A token passes two experts of eight in attention as in the MLP.
#[test]
fn experts_of_attention_are_passed_as_those_of_the_mlp() {
    let model = read("jetmoe");
    let idle = model.params - model.active();
    assert_eq!(idle, 24 * 6 * (3 * 2048 * 5632 + 2 * 2048 * 16 * 128));
}
