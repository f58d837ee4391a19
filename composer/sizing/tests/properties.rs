//! What must hold whatever the numbers: more work never needs less, more GPUs never more on each.
#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the report")]

use poolwright_sizing::inference::{self, Layout};
use poolwright_sizing::job::{
    AdapterType, Adapters, Attention, Inference, Loss, Method, Precision, Recompute, Sharding, Targets,
    Training, WeightFormat,
};
use poolwright_sizing::training;
use poolwright_sizing::{Catalogue, Estimate, Model, Parallel, size_class};
use proptest::prelude::*;
use proptest::sample::select;

fn trainable_model() -> impl Strategy<Value = Model> {
    let models: Vec<Model> = Catalogue::builtin()
        .all()
        .iter()
        .filter(|m| m.latent.is_none())
        .cloned()
        .collect();
    select(models)
}

fn step() -> impl Strategy<Value = Training> {
    let settings = (
        select(Method::ALL),
        select(Precision::ALL),
        select(Recompute::ALL),
        select(Attention::ALL),
        select(Loss::ALL),
        select(Sharding::ALL),
        select(Targets::ALL),
        select(AdapterType::ALL),
    );
    (settings, 1u64..16, 1u64..16_384, 1u64..4, 1u64..256).prop_map(
        |((method, precision, recompute, attention, loss, sharding, targets, dtype), b, s, ga, rank)| {
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
                adapters: Adapters {
                    rank,
                    targets,
                    dtype,
                    trainable: None,
                },
                frozen: WeightFormat::Nf4,
            }
        },
    )
}

fn serving() -> impl Strategy<Value = Inference> {
    let format = select(vec![
        WeightFormat::Fp32,
        WeightFormat::Bf16,
        WeightFormat::Fp8,
        WeightFormat::AwqInt4,
    ]);
    let engine = select(vec!["vllm-0.11", "vllm-0.6.4", "pytorch"]);
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
                prompt_logits,
                engine: engine.to_owned(),
            },
        )
}

fn sound(estimate: &Estimate) {
    assert!(estimate.safe >= estimate.point && estimate.point.0 > 0);
    assert_eq!(estimate.point, estimate.terms.iter().map(|t| t.point).sum());
    assert_eq!(estimate.safe, estimate.terms.iter().map(|t| t.safe).sum());
}

fn train(model: &Model, job: &Training, gpus: u64) -> Estimate {
    let estimate = training::estimate(model, job, &Parallel::data(gpus), "NVIDIA").unwrap();
    sound(&estimate);
    estimate
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
        model in trainable_model(), job in step(), gpus in 1u64..64, more in 1u64..1000,
    ) {
        let base = train(&model, &job, gpus).safe;
        let longer = Training { seq_len: job.seq_len + more, ..job.clone() };
        prop_assert!(train(&model, &longer, gpus).safe >= base);
        let wider = Training { micro_batch: job.micro_batch + more, ..job.clone() };
        prop_assert!(train(&model, &wider, gpus).safe >= base);
        let accumulating = Training { accumulation: job.accumulation + more, ..job };
        prop_assert!(train(&model, &accumulating, gpus).safe >= base);
    }

    /// From two GPUs on: the step from one to two adds the gathered layers, which can outweigh what is
    /// saved on a model with few layers or frozen 4-bit weights. Communication buffers aside.
    #[test]
    fn more_shards_never_need_more(model in trainable_model(), job in step(), gpus in 2u64..512, more in 1u64..512) {
        let live = |n| training::peak(&model, &job, &Parallel::data(n)).unwrap().bytes;
        prop_assert!(live(gpus + more) <= live(gpus));
    }

    #[test]
    fn two_shards_need_no_more_than_one_in_full_training(model in trainable_model(), job in step()) {
        let job = Training { method: Method::Full, ..job };
        let live = |n| training::peak(&model, &job, &Parallel::data(n)).unwrap().bytes;
        prop_assert!(live(2) <= live(1));
    }

    #[test]
    fn more_requests_and_tokens_never_need_less(
        model in select(Catalogue::builtin().all().to_vec()), job in serving(), more in 1u64..10_000,
    ) {
        let base = serve(&model, &job, Layout::SINGLE).safe;
        let longer = Inference { prompt_tokens: job.prompt_tokens + more, ..job.clone() };
        prop_assert!(serve(&model, &longer, Layout::SINGLE).safe >= base);
        let longer = Inference { generated_tokens: job.generated_tokens + more, ..job.clone() };
        prop_assert!(serve(&model, &longer, Layout::SINGLE).safe >= base);
        let busier = Inference { concurrency: job.concurrency + more, ..job };
        prop_assert!(serve(&model, &busier, Layout::SINGLE).safe >= base);
    }

    #[test]
    fn more_gpus_never_need_more_tensors_on_each(
        model in select(Catalogue::builtin().all().to_vec()), job in serving(),
        tensor in 1u64..9, pipeline in 1u64..12, more in 1u64..4,
    ) {
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
        prop_assert!(train(&big, &job, 1).safe >= train(&small, &job, 1).safe);
        prop_assert!(serve(&big, &infer, Layout::SINGLE).safe >= serve(&small, &infer, Layout::SINGLE).safe);
    }
}
