//! Public start-up logs of vLLM: its weights, and its cache in tokens.

use crate::left_out::{Said, left_out};
use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_sizing::constants::Constants;
use poolwright_sizing::csv::{self, Row};
use poolwright_sizing::inference::{self, Layout, cache_tokens};
use poolwright_sizing::job::WeightFormat;
use poolwright_sizing::overhead::Card;
use poolwright_sizing::{Catalogue, Inference, Job, Limits, Model, Offer, fit, hub_config};

const LOGS: &str = include_str!("../data/vllm_logs.csv");

/// Rows with another count of the cache: their weights alone are compared.
const EARLIER: &str = "before the V1 engine";

/// Rows with weights in another format than its name says.
const NOT_IN_THE_FORMAT: [&str; 2] = ["scales not known", "which pad less"];

/// Relative errors of a row.
struct Errors {
    row: String,
    weights: Option<f64>,
    tokens: Option<f64>,
    /// What the room for the cache says of the engine's bytes a logit, where logits are the largest.
    sampler: Option<(String, Said)>,
}

/// FP8 in the MLPs of all layers but the first and the last.
fn llama_405b_fp8() -> Model {
    let attention = (0..126).flat_map(|layer| {
        ["q", "k", "v", "o"].map(|name| format!("\"model.layers.{layer}.self_attn.{name}_proj\""))
    });
    let mlps = [0, 125].into_iter().flat_map(|layer| {
        ["gate", "up", "down"].map(|name| format!("\"model.layers.{layer}.mlp.{name}_proj\""))
    });
    let kept: Vec<String> = attention.chain(mlps).chain(["\"lm_head\"".into()]).collect();
    let config = format!(
        r#"{{"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "quantization_config": {{"quant_method": "fbgemm_fp8", "modules_to_not_convert": [{}]}}}}"#,
        kept.join(", ")
    );
    hub_config::parse("Llama-3.1-405B-FP8", &config).unwrap()
}

fn errors(row: &Row<'_>) -> Errors {
    let number = |column: &str| row.get(column).map(|text| text.parse::<f64>().unwrap());
    let whole = |column: &str| row.get(column).map(|text| text.parse::<u64>().unwrap());
    let model = match row.get("model").unwrap() {
        "Llama-3.1-405B-FP8" => llama_405b_fp8(),
        name => Catalogue::builtin().resolve(name).unwrap(),
    };
    let version = row.get("version").unwrap_or("0.11");
    // Before 0.8, logs are of weights alone.
    let engine = Constants::builtin().serving.engine(&format!("vllm-{version}"));
    let job = Inference {
        weights: row.get("weights").unwrap().parse().unwrap(),
        engine: engine.map_or("vllm-0.11", |engine| &engine.name).to_owned(),
        concurrency: 1,
        cache_bytes: whole("cache_bytes").unwrap(),
        max_num_seqs: whole("max_num_seqs"),
        max_num_batched_tokens: whole("max_num_batched_tokens"),
        enforce_eager: row.get("enforce_eager").is_some(),
        ..Inference::default()
    };
    let layout = Layout {
        tensor: whole("tensor").unwrap(),
        pipeline: whole("pipeline").unwrap(),
    };
    let kind = row
        .get("kind")
        .map(|kind| Profiles::builtin().by_name(kind).unwrap());
    let card = kind.map_or(Card::from("NVIDIA"), Card::of);
    let estimate = inference::estimate(&model, &job, layout, card).unwrap();
    let held = estimate.terms.iter().find(|term| term.name == "weights").unwrap();
    let off = |found: f64, printed: f64| found / printed - 1.0;
    let share = number("share").unwrap();
    let room = number("capacity_gib").filter(|_| row.get("note").is_none_or(|note| !note.contains(EARLIER)));
    let found = room.and_then(|capacity| {
        let memory = (Bytes::from_gib(capacity), share);
        cache_tokens(&model, &job, layout, &estimate, memory)
    });
    // Some logs say the room in GiB alone.
    let cache = estimate
        .terms
        .iter()
        .find(|term| term.name.contains("cache"))
        .unwrap();
    let token = cache.point.gib() / (job.prompt_tokens + job.generated_tokens) as f64;
    let room = number("cache_gib").filter(|_| model.window.is_none());
    let printed = number("cache_tokens").or(room.map(|room| room / token));
    let tokens = found
        .zip(printed)
        .map(|(found, printed)| off(found as f64, printed));
    let profiled = Constants::builtin()
        .serving
        .engine(&job.engine)
        .unwrap()
        .profiled
        .as_ref();
    let per_logit = profiled.unwrap().sampler.value;
    let activations = estimate
        .terms
        .iter()
        .find(|term| term.name == "activations")
        .unwrap();
    let sampler = tokens
        .zip(printed)
        .filter(|_| activations.formula.contains(" logits x "));
    let sampler = sampler.map(|(error, printed)| {
        let (room, each) = (printed * token, activations.point.gib() / per_logit);
        let said = Said {
            model: row.get("model").unwrap().to_owned(),
            constant: per_logit + error * room / each,
            weight: each / room,
        };
        (job.engine.clone(), said)
    });
    Errors {
        sampler,
        row: format!(
            "{} {} x {} {}",
            row.get("named").unwrap(),
            layout.gpus(),
            row.get("kind").unwrap_or("?"),
            row.get("version").unwrap_or("?")
        ),
        weights: number("weights_gib").map(|printed| off(held.point.gib(), printed)),
        tokens,
    }
}

#[test]
fn weights_and_room_of_the_cache() {
    let (mut weights, mut tokens) = (Vec::new(), Vec::new());
    csv::read(LOGS, |row| {
        let found = errors(row);
        let not_known = row
            .get("note")
            .is_some_and(|note| NOT_IN_THE_FORMAT.iter().any(|words| note.contains(words)));
        weights.extend(
            found
                .weights
                .filter(|_| !not_known)
                .map(|error| (error, found.row.clone())),
        );
        tokens.extend(found.tokens.map(|error| (error, found.row)));
    })
    .unwrap();
    let within = |of: &[(f64, String)], most: f64| {
        for (error, row) in of {
            println!("{:+5.1} %  {row}", 100.0 * error);
        }
        of.iter().filter(|(error, _)| error.abs() <= most).count()
    };
    println!("weights");
    assert_eq!(within(&weights, 0.02), weights.len());
    assert!(weights.len() >= 60, "{}", weights.len());
    println!("tokens of cache");
    let near = within(&tokens, 0.05);
    assert!(
        near >= 38 && tokens.len() - near <= 7,
        "{near} of {}",
        tokens.len()
    );
    // The bound of the middle estimate's excess.
    assert!(tokens.iter().all(|(error, _)| *error < 0.2));
}

#[test]
fn what_does_not_start_does_not_fit() {
    let fits = |model: &str, kind: &str, tokens: u64| {
        let job = Inference {
            weights: Catalogue::builtin()
                .resolve(model)
                .unwrap()
                .stored
                .map_or(WeightFormat::Bf16, |stored| stored.format),
            prompt_tokens: tokens - 1,
            generated_tokens: 1,
            concurrency: 1,
            ..Inference::default()
        };
        let offer = Offer::of(Profiles::builtin().by_name(kind).unwrap(), Some(1));
        let model = Catalogue::builtin().resolve(model).unwrap();
        let fit = fit::fit(&model, &Job::Inference(job), &[offer], Limits::default()).unwrap();
        !fit.candidates.is_empty()
    };
    // Two logs: -2.14 GiB are left for the cache; with more of the GPU, 1.71 GiB, and not enough either.
    assert!(!fits("gpt-oss-120b", "h100-sxm5-80gb", 131_072));
    assert!(fits("Llama-3.1-8B", "rtx-4090-24gb", 8192));
    assert!(fits("Llama-3.1-8B", "l4-24gb", 8192));
}

/// Each model's cache, with what the others say of the sampler.
#[test]
fn bytes_a_logit_hold_for_models_that_they_were_not_fitted_on() {
    for engine in ["vllm-0.11", "vllm-0.19"] {
        let mut rows = Vec::new();
        csv::read(LOGS, |row| {
            let found = errors(row).sampler.filter(|(of, _)| of == engine);
            rows.extend(found.map(|(_, said)| said));
        })
        .unwrap();
        let engines = &Constants::builtin().serving;
        let value = engines
            .engine(engine)
            .unwrap()
            .profiled
            .as_ref()
            .unwrap()
            .sampler
            .value;
        let (line, [_, error]) = left_out(&format!("{engine}: bytes a logit"), value, &rows);
        println!("{line}");
        assert!(error <= 5.0, "{line}");
    }
}
