//! What must hold whatever the numbers: more work never needs less, more GPUs never more on each.

use poolwright_sizing::constants::{Constants, Scope};
use poolwright_sizing::inference::{self, Layout};
use poolwright_sizing::job::{
    AdapterType, Adapters, AllocatorMode, Attention, Inference, Job, Loss, Method, Offload, Optimizer,
    Precision, Recompute, Sharding, Targets, Training, WeightFormat,
};
use poolwright_sizing::training;
use poolwright_sizing::{Catalogue, Estimate, Model, Parallel, batch, hub_config, size_class};
use proptest::prelude::*;
use proptest::sample::select;

fn any_model() -> impl Strategy<Value = Model> {
    select(
        Catalogue::builtin()
            .all()
            .into_iter()
            .cloned()
            .collect::<Vec<Model>>(),
    )
}

fn step() -> impl Strategy<Value = Training> {
    let settings = (
        select(Method::ALL),
        select(Precision::ALL),
        select(Recompute::ALL),
        select(Attention::ALL),
        select(Loss::ALL),
        select(Sharding::ALL),
        select(Optimizer::ALL),
        select(Offload::ALL),
    );
    let adapters = (1u64..256, select(Targets::ALL), select(AdapterType::ALL));
    let adapters = adapters.prop_map(|(rank, targets, dtype)| Adapters {
        rank,
        targets,
        dtype,
        trainable: None,
    });
    let framework = select(Constants::builtin().frameworks.names());
    let steps = (settings, adapters, framework, 1u64..16, 8u64..16_384, 1u64..4).prop_map(
        |(settings, adapters, framework, b, s, ga)| {
            let (method, precision, recompute, attention, loss, sharding, optimizer, offload) = settings;
            Training {
                method,
                precision,
                micro_batch: b,
                seq_len: s,
                accumulation: ga,
                recompute,
                attention,
                loss,
                sharding,
                optimizer,
                offload,
                allocator: AllocatorMode::ALL[(b % 3) as usize],
                framework: framework.to_owned(),
                framework_version: s.is_multiple_of(2).then(|| "1.12".parse().unwrap()),
                cuda: None,
                adapters,
                frozen: WeightFormat::Nf4,
            }
        },
    );
    steps.prop_filter("contradictory", |step| {
        Job::Training(step.clone()).check().is_ok()
    })
}

/// A layout that the model divides into.
fn layout(model: &Model) -> impl Strategy<Value = Parallel> + use<> {
    let model = model.clone();
    let widths = (
        0usize..4,
        any::<bool>(),
        1u64..17,
        1u64..5,
        0usize..3,
        1u64..17,
        0usize..5,
    );
    widths.prop_map(
        move |(t, sequence, pipeline, interleave, context, data, expert)| {
            let tensor = 1 << t;
            let candidate = Parallel {
                tensor,
                sequence: sequence && tensor > 1,
                pipeline,
                interleave,
                context: 1 << context,
                expert: 1 << expert,
                data,
            };
            let resident = Parallel {
                expert: 1,
                ..candidate
            };
            let narrower = Parallel {
                tensor: 1,
                sequence: false,
                interleave: 1,
                ..resident
            };
            [
                candidate,
                resident,
                Parallel {
                    interleave: 1,
                    ..resident
                },
                narrower,
            ]
            .into_iter()
            .find(|parallel| parallel.check(&model).is_ok())
            .unwrap_or(Parallel::data(data))
        },
    )
}

fn laid_out() -> impl Strategy<Value = (Model, Parallel)> {
    any_model().prop_flat_map(|model| {
        let parallel = layout(&model);
        (Just(model), parallel)
    })
}

/// The bound of serving on one GPU without what the allocator reserves, which depends on how sizes follow each other.
fn held(model: &Model, job: &Inference) -> u64 {
    let terms = serve(model, job, Layout::SINGLE).terms.into_iter();
    terms
        .filter(|term| term.name != "allocator")
        .map(|term| term.safe.0)
        .sum()
}

fn serving() -> impl Strategy<Value = Inference> {
    // Formats that store experts alone are refused for dense models.
    let stored = WeightFormat::ALL.iter().copied();
    let formats = stored.filter(|f| Constants::builtin().format(*f).scope != Scope::Experts);
    let format = select(formats.collect::<Vec<_>>());
    let engine = select(Constants::builtin().serving.names());
    (
        format,
        engine,
        0u64..100_000,
        0u64..10_000,
        1u64..64,
        any::<bool>(),
    )
        .prop_map(
            |(weights, engine, prompt_tokens, generated_tokens, concurrency, prompt_logits)| Inference {
                weights,
                cache_bytes: 2,
                prompt_tokens,
                generated_tokens,
                concurrency,
                attention: Attention::ALL[usize::from(generated_tokens.is_multiple_of(3))],
                allocator: AllocatorMode::ALL[(prompt_tokens % 3) as usize],
                prompt_logits,
                max_num_seqs: None,
                max_num_batched_tokens: None,
                gpu_memory_utilization: None,
                prefix_caching: false,
                enforce_eager: false,
                engine: engine.to_owned(),
                framework_version: None,
                cuda: generated_tokens
                    .is_multiple_of(2)
                    .then(|| "11.4".parse().unwrap()),
            },
        )
        .prop_filter("the engine reads the format", |job| {
            Job::Inference(job.clone()).check().is_ok()
        })
}

fn sound(estimate: &Estimate) {
    assert!(estimate.safe >= estimate.point && estimate.point.0 > 0);
    assert_eq!(estimate.point, estimate.terms.iter().map(|t| t.point).sum());
    assert_eq!(estimate.safe, estimate.terms.iter().map(|t| t.safe).sum());
}

fn train(model: &Model, job: &Training, parallel: &Parallel) -> Estimate {
    let estimate = training::estimate(model, job, parallel, "NVIDIA").unwrap();
    sound(&estimate);
    estimate
}

/// Bytes of weights, gradients and optimizer states on each GPU.
fn states(model: &Model, job: &Training, parallel: &Parallel) -> f64 {
    training::states(model, job, parallel).unwrap()
}

fn serve(model: &Model, job: &Inference, layout: Layout) -> Estimate {
    let estimate = inference::estimate(model, job, layout, "NVIDIA").unwrap();
    sound(&estimate);
    estimate
}

proptest! {
    // A failing case is printed; nothing is written beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn longer_and_wider_steps_never_need_less(
        (model, parallel) in laid_out(), job in step(), more in 1u64..1000,
    ) {
        let base = train(&model, &job, &parallel).safe;
        let longer = Training { seq_len: job.seq_len + more, ..job.clone() };
        prop_assert!(train(&model, &longer, &parallel).safe >= base);
        let wider = Training { micro_batch: job.micro_batch + more, ..job.clone() };
        prop_assert!(train(&model, &wider, &parallel).safe >= base);
        let accumulating = Training { accumulation: job.accumulation + more, ..job };
        prop_assert!(train(&model, &accumulating, &parallel).safe >= base);
    }

    #[test]
    fn more_shards_never_hold_more_states((model, parallel) in laid_out(), job in step(), more in 1u64..512) {
        // Experts are spread over replicas evenly.
        let wider = Parallel { data: parallel.data + more * parallel.expert, ..parallel };
        prop_assert!(states(&model, &job, &wider) <= states(&model, &job, &parallel));
    }

    /// Groups that share matrices, and stages: twice as wide, none of them holds more of the model.
    #[test]
    fn wider_groups_and_deeper_pipelines_never_hold_more_states((model, parallel) in laid_out(), job in step()) {
        let base = states(&model, &job, &parallel);
        let wider = [
            Parallel { tensor: 2 * parallel.tensor, ..parallel },
            Parallel { pipeline: 2 * parallel.pipeline, ..parallel },
        ];
        for wider in wider.into_iter().filter(|wider| wider.check(&model).is_ok()) {
            prop_assert!(states(&model, &job, &wider) <= base, "{} and {}", parallel, wider);
        }
    }

    /// What the host holds falls with every GPU that shares it.
    #[test]
    fn more_shards_never_hold_more_on_their_hosts(model in any_model(), job in step(), gpus in 1u64..512, more in 1u64..512) {
        let held = |n| training::on_host(&model, &job, &Parallel::data(n)).unwrap();
        prop_assert!(held(gpus + more) <= held(gpus));
    }

    /// From two GPUs on: the step from one to two adds the gathered layers, which can outweigh what is
    /// saved on a model with few layers or frozen 4-bit weights. Communication buffers aside.
    #[test]
    fn more_shards_never_need_more(model in any_model(), job in step(), gpus in 2u64..512, more in 1u64..512) {
        let live = |n| training::peak(&model, &job, &Parallel::data(n)).unwrap().bytes;
        prop_assert!(live(gpus + more) <= live(gpus));
    }

    /// What one measure saves is never more than what it stores elsewhere or computes again.
    #[test]
    fn what_saves_memory_saves_memory((model, parallel) in laid_out(), job in step()) {
        let live = |job: &Training| training::peak(&model, job, &parallel).unwrap().bytes;
        let eager = Training { attention: Attention::Eager, ..job.clone() };
        let flash = Training { attention: Attention::Flash, ..job.clone() };
        // Frozen matrices need no input, so that the fused kernel alone keeps attention's output: as much as few scores are,
        // and more than those that are computed again.
        prop_assume!(job.seq_len >= model.head_dim && job.recompute != Recompute::Selective);
        prop_assert!(live(&flash) <= live(&eager));
        let small = Training { optimizer: Optimizer::Sgd, ..job.clone() };
        prop_assert!(live(&small) <= live(&job));
        let on_host = Training { offload: Offload::Optimizer, optimizer: Optimizer::AdamW, ..job.clone() };
        let here = Training { offload: Offload::None, optimizer: Optimizer::AdamW, ..job };
        prop_assert!(live(&on_host) <= live(&here));
    }

    #[test]
    fn more_requests_and_tokens_never_need_less(
        model in any_model(), job in serving(), more in 1u64..10_000,
    ) {
        let safe = |job: &Inference| held(&model, job);
        let base = safe(&job);
        let longer = Inference { prompt_tokens: job.prompt_tokens + more, ..job.clone() };
        prop_assert!(safe(&longer) >= base);
        let longer = Inference { generated_tokens: job.generated_tokens + more, ..job.clone() };
        prop_assert!(safe(&longer) >= base);
        let busier = Inference { concurrency: job.concurrency + more, ..job };
        prop_assert!(safe(&busier) >= base);
    }

    #[test]
    fn more_gpus_never_need_more_tensors_on_each(
        model in any_model(), job in serving(),
        tensor in 1u64..9, pipeline in 1u64..12, more in 1u64..4,
    ) {
        // Of hybrids, an engine's pages are as long as a state needs, which another width rounds to other lengths.
        let pages = Constants::builtin().serving.engine(&job.engine).unwrap().page_tokens.is_some();
        prop_assume!(model.linear.is_none() || !pages);
        let bytes = |tensor: u64, pipeline: u64| -> u64 {
            let layout = Layout { tensor: tensor.min(model.heads), pipeline: pipeline.min(model.layers) };
            inference::tensors(&model, &job, layout).unwrap().iter().map(|t| t.safe.0).sum()
        };
        let base = bytes(tensor, pipeline);
        // Each term is rounded up to a byte.
        prop_assert!(bytes(tensor + more, pipeline) <= base + 3);
        prop_assert!(bytes(tensor, pipeline + more) <= base + 3);
    }

    #[test]
    fn bigger_models_never_need_less(params in 1_000_000_000u64..2_000_000_000_000, percent in 0u64..100, job in step(), infer in serving()) {
        let small = size_class::shape(params).unwrap();
        let big = size_class::shape(params + params / 100 * percent).unwrap();
        let single = Parallel::SINGLE;
        prop_assert!(train(&big, &job, &single).safe >= train(&small, &job, &single).safe);
        prop_assert!(held(&big, &infer) >= held(&small, &infer));
    }

    /// Text that people and programs may send: refused or read, never a panic.
    #[test]
    fn no_input_is_a_panic(number in "[-+]?[0-9.e]{0,40}", text in ".{0,200}", column in 2usize..28) {
        let _ = size_class::parse_size(&format!("{number}B"));
        let _ = size_class::parse_size(&text);
        let _ = Catalogue::builtin().resolve(&text);
        let _ = hub_config::parse("x", &text);
        let config = CONFIG.replace("4096", if number.is_empty() { "0" } else { &number });
        let _ = hub_config::parse("x", &config);
        let _ = batch::size(&text);
        let mut fields: Vec<&str> = ROW.split(',').collect();
        fields[column] = &number;
        let row = fields.join(",");
        let outcomes = batch::size(&format!("{HEADER}\n{row}\n")).unwrap();
        prop_assert_eq!(outcomes.len(), 1);
    }

    /// Numbers of any size, in every field of a layout.
    #[test]
    fn any_layout_is_sized_or_refused(
        model in any_model(), job in step(), widths in prop::collection::vec(prop_oneof![0u64..64, any::<u64>()], 6),
        sequence in any::<bool>(), seq_len in any::<u64>(), micro_batch in any::<u64>(),
    ) {
        let parallel = Parallel {
            tensor: widths[0], sequence, pipeline: widths[1], interleave: widths[2], context: widths[3],
            expert: widths[4], data: widths[5],
        };
        let job = Training { seq_len, micro_batch, ..job };
        if let Ok(estimate) = training::estimate(&model, &job, &parallel, "NVIDIA") {
            sound(&estimate);
        }
    }
}

const HEADER: &str = "id,model,params,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,tied,mlp,task,precision,\
micro_batch,seq_len,gen_tokens,grad_accum,shard_ranks,recompute,attention,loss,trainable_params,lora_dtype,\
lora_targets,weights_dtype,framework,metric";
const ROW: &str = "a,x,8030261248,32,4096,32,8,128,14336,128256,0,swiglu,full,bf16,1,2048,0,1,1,none,flash,\
full_fp32,8030261248,bf16,qv,bf16,torch,allocated";
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 128256}"#;
