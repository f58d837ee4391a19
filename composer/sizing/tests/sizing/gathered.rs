//! What is gathered of sharded weights, term by term: under a pipeline, and from the host's memory.

use poolwright_sizing::features::{Gate, Norms};
use poolwright_sizing::job::{Loss, Method, Offload, Precision, Recompute, Sharding, Training, WeightFormat};
use poolwright_sizing::training::{Peak, peak};
use poolwright_sizing::{Catalogue, Model, Parallel, training};

fn model(name: &str) -> Model {
    Catalogue::builtin().resolve(name).unwrap()
}

/// Parameters of one layer on average.
fn layer(model: &Model) -> f64 {
    (model.params - model.embedding()) as f64 / model.layers as f64
}

/// Bytes of a term; 0 where there is none.
fn term(peak: &Peak, name: &str) -> f64 {
    let term = peak.terms.iter().find(|term| term.name == name);
    term.map_or(0.0, |term| term.point.0 as f64)
}

/// To the byte, as terms are rounded up.
#[track_caller]
fn same(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1.0, "{found} instead of {expected}");
}

/// A stage keeps its weights gathered and its gradients whole over all micro-batches.
#[test]
fn a_sharded_pipeline_holds_its_stage_whole() {
    let model = model("Llama-3.1-70B");
    let job = Training {
        precision: Precision::Bf16,
        accumulation: 8,
        ..Training::new(Method::Full)
    };
    let laid_out = |pipeline| {
        let parallel = Parallel {
            pipeline,
            data: 8,
            ..Parallel::SINGLE
        };
        peak(&model, &job, &parallel).unwrap()
    };
    let four = laid_out(4);
    let stage = layer(&model) * 20.0 + (model.vocab * model.hidden) as f64;
    same(term(&four, "gradients"), 2.0 * stage);
    assert!(term(&four, "gathered weights") >= 2.0 * stage);
    // Without stages gradients are divided as they come, and layers given back.
    let one = laid_out(1);
    same(term(&one, "gradients"), 2.0 * model.params as f64 / 8.0);
    assert!(term(&one, "gathered weights") < 0.2 * 2.0 * model.params as f64);
}

/// What leaves the GPU is held by its host, and said.
#[test]
fn what_is_offloaded_is_said_in_the_hosts_memory() {
    let model = model("Llama-3.1-8B");
    let note = |offload, gpus| {
        let job = Training {
            offload,
            ..Training::new(Method::Full)
        };
        let estimate = training::estimate(&model, &job, &Parallel::data(gpus), "NVIDIA").unwrap();
        estimate
            .notes
            .into_iter()
            .find(|note| note.starts_with("offloaded: "))
    };
    assert_eq!(note(Offload::None, 1), None);
    // Two fp32 moments; and with weights and gradients, 16 bytes over two GPUs.
    assert_eq!(
        note(Offload::Optimizer, 1).unwrap(),
        "offloaded: 59.83 GiB of the host's memory for each GPU: optimizer states 59.83"
    );
    assert_eq!(
        note(Offload::Parameters, 2).unwrap(),
        "offloaded: 59.83 GiB of the host's memory for each GPU: weights 14.96, gradients 14.96, optimizer states 29.92"
    );
}

/// The scales of 4-bit weights stay behind, and shards come over on their own.
#[test]
fn weights_on_the_host_leave_their_scales_and_come_in_shards() {
    let model = model("Llama-2-70B");
    let on = |gpus, frozen| {
        let job = Training {
            offload: Offload::Parameters,
            recompute: Recompute::Full,
            frozen,
            ..Training::new(Method::Qlora)
        };
        peak(&model, &job, &Parallel::data(gpus)).unwrap()
    };
    let linears = (model.params - model.embedding()) as f64;
    for gpus in [2, 8] {
        same(term(&on(gpus, WeightFormat::Nf4), "scales"), 0.0625 * linears);
        same(term(&on(gpus, WeightFormat::Nf4Dq), "scales"), 0.015875 * linears);
    }
    // Two layers' shards: of four times the GPUs a quarter.
    let gathered = |gpus| term(&on(gpus, WeightFormat::Nf4), "gathered weights");
    let fewer = 2.0 * 0.5 * layer(&model) * (1.0 / 2.0 - 1.0 / 8.0);
    assert!((gathered(2) - gathered(8) - fewer).abs() <= 2.0);
}

/// What is unpacked with plain operations stays in the graph: a layer of it where layers are computed again, else all.
#[test]
fn matrices_of_gptq_stay_in_16_bits_until_their_backward_pass() {
    let model = model("Llama-2-7B");
    let unpacked = |frozen, recompute, moment: &str| {
        let job = Training {
            recompute,
            frozen,
            loss: Loss::Chunked,
            ..Training::new(Method::Qlora)
        };
        let peak = peak(&model, &job, &Parallel::SINGLE).unwrap();
        assert_eq!(peak.moment, moment);
        term(&peak, "dequantised weights")
    };
    let layers = (model.params - model.embedding()) as f64;
    let all = unpacked(WeightFormat::GptqInt4, Recompute::None, "start of backward");
    assert!((all / (2.0 * layers) - 1.0).abs() < 1e-3, "{all}");
    let first = "first layer of backward";
    let one = unpacked(WeightFormat::GptqInt4, Recompute::Full, first);
    assert!((one / (2.0 * layers / 32.0) - 1.0).abs() < 1e-3, "{one}");
    let matrix = (model.hidden * model.ffn) as f64;
    same(unpacked(WeightFormat::Nf4, Recompute::Full, first), 2.0 * matrix);
}

/// DeepSpeed's two buckets of 5e8 elements are there on one GPU, too, and for the few weights of an adapter.
#[test]
fn buckets_of_zero_are_whole() {
    let model = model("Llama-3.1-8B");
    for method in [Method::Full, Method::Lora] {
        let job = Training {
            precision: Precision::Bf16,
            sharding: Sharding::Gradients,
            ..Training::new(method)
        };
        let peak = peak(&model, &job, &Parallel::SINGLE).unwrap();
        same(term(&peak, "communication buckets"), 2.0 * 2.0 * 5e8);
    }
}

/// Where layers are of two kinds, a stage of one layer keeps one of them; both norms and one of a shared one.
#[test]
fn a_stage_of_one_layer_keeps_one_layer() {
    let kept = |model: &Model, pipeline: u64, recompute| {
        let job = Training {
            precision: Precision::Bf16,
            recompute,
            accumulation: 64,
            ..Training::new(Method::Full)
        };
        let parallel = Parallel {
            pipeline,
            ..Parallel::SINGLE
        };
        let peak = peak(model, &job, &parallel).unwrap();
        let activations = peak.terms.iter().find(|term| term.name == "activations").unwrap();
        let bytes = activations
            .formula
            .split(" B x ")
            .next()
            .unwrap()
            .replace(',', "");
        bytes.parse::<u64>().unwrap()
    };
    let deepseek = model("DeepSeek-V3");
    let mut experts = deepseek.clone();
    (experts.anatomy.plain, experts.anatomy.with_experts) = (0, experts.layers);
    assert_eq!(
        kept(&deepseek, 61, Recompute::None),
        kept(&experts, 1, Recompute::None)
    );
    let hybrid = model("Qwen3-Next-80B-A3B");
    let [mut attention, mut state] = [hybrid.clone(), hybrid.clone()];
    (attention.anatomy.attending, attention.anatomy.with_state) = (hybrid.layers, 0);
    (state.anatomy.attending, state.anatomy.with_state) = (0, hybrid.layers);
    let more = [attention, state].map(|model| kept(&model, 1, Recompute::None));
    assert_eq!(kept(&hybrid, 48, Recompute::None), more[0].max(more[1]));
    // torchtitan's form keeps the gate as well, which comes out of the matrix of queries.
    let gated = model("Qwen3.5-9B");
    let mut plain = gated.clone();
    plain.features.gate = Gate::None;
    let [with, without] = [&gated, &plain].map(|model| kept(model, 1, Recompute::OpSac));
    assert_eq!(with - without, gated.query() / 4);
    // With one norm for attention and experts there is no MLP beside them.
    let mut shared = model("Mixtral-8x7B");
    let two = kept(&shared, 1, Recompute::None);
    shared.features.norms = Norms::Shared;
    assert!(kept(&shared, 1, Recompute::None) < two);
}
