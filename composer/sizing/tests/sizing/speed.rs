//! Estimated speeds beside published ones.

use poolwright_model::profile::Profiles;
use poolwright_sizing::inference::Layout;
use poolwright_sizing::job::{Method, Recompute, Sharding};
use poolwright_sizing::roofline::{self, Launches, Rates};
use poolwright_sizing::{Catalogue, Inference, Job, Parallel, Training};

fn rates(kind: &str) -> Rates {
    Rates::of(Profiles::builtin().by_name(kind).unwrap()).unwrap()
}

fn step(seq_len: u64, micro_batch: u64, accumulation: u64, recompute: Recompute) -> Training {
    Training {
        seq_len,
        micro_batch,
        accumulation,
        recompute,
        ..Training::new(Method::Full)
    }
}

/// Tokens a second and GPU as published, within a third: H100 of 500 W stand beside H100 of 700 W here.
#[test]
fn training_is_near_published_speeds() {
    let llama_405b = |data, context, seq_len: u64| {
        let parallel = Parallel {
            tensor: 8,
            sequence: true,
            pipeline: 16,
            interleave: 4,
            context,
            data,
            ..Parallel::SINGLE
        };
        // 16 million tokens a step; weights stay gathered, and the stages are interleaved.
        let job = Training {
            sharding: Sharding::Gradients,
            ..step(seq_len, 1, 16_777_216 / seq_len / data, Recompute::None)
        };
        (parallel, job)
    };
    // From 6 operations a parameter and token, and those of attention: 400 TFLOP/s are 160 tokens/s.
    let (wide, wide_step) = llama_405b(128, 1, 8192);
    let (narrow, narrow_step) = llama_405b(64, 1, 8192);
    let cases = [
        // torchtitan's table, FSDP on 8 and on 128 H100, selective recomputation; eager 5,762, compiled 6,667.
        (
            "Llama-3.1-8B",
            "h100-sxm5-80gb",
            Parallel::data(8),
            step(8192, 2, 1, Recompute::OpSac),
            6200.0,
        ),
        (
            "Llama-3.1-8B",
            "h100-sxm5-80gb",
            Parallel::data(128),
            step(8192, 2, 1, Recompute::OpSac),
            6050.0,
        ),
        // The same on 64 A100: selective, and 70B with full recomputation.
        (
            "Llama-3.1-8B",
            "a100-sxm4-80gb",
            Parallel::data(64),
            step(8192, 1, 1, Recompute::OpSac),
            2973.0,
        ),
        (
            "Llama-3.1-70B",
            "a100-sxm4-80gb",
            Parallel::data(64),
            step(8192, 1, 1, Recompute::Full),
            331.0,
        ),
        // The Llama 3 paper, 405B on 8,192 and 16,384 H100: 430 and 400 TFLOP/s.
        ("Llama-3.1-405B", "h100-sxm5-80gb", narrow, narrow_step, 172.0),
        ("Llama-3.1-405B", "h100-sxm5-80gb", wide, wide_step, 160.0),
    ];
    for (name, kind, parallel, job, published) in cases {
        let model = Catalogue::builtin().resolve(name).unwrap();
        let speed = roofline::training(&model, &job, &parallel, &rates(kind), 8, None).unwrap();
        let ratio = speed.tokens_per_s_per_gpu / published;
        assert!(
            (0.67..=1.33).contains(&ratio),
            "{name} {kind} {parallel}: {ratio:.2} {speed:?}"
        );
    }
}

#[test]
fn a_slower_link_more_stages_and_more_hosts_are_slower() {
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let job = step(4096, 1, 8, Recompute::Full);
    let speed = |kind: &str, parallel: Parallel, host| {
        let speed = roofline::training(&model, &job, &parallel, &rates(kind), host, None).unwrap();
        assert!((0.0..1.0).contains(&speed.communication_share), "{speed:?}");
        speed.tokens_per_s_per_gpu
    };
    let tensor = |tensor| Parallel {
        tensor,
        sequence: tensor > 1,
        data: 16 / tensor,
        ..Parallel::SINGLE
    };
    assert!(speed("h100-sxm5-80gb", tensor(8), 8) > speed("h100-pcie-80gb", tensor(8), 8));
    assert!(speed("h100-pcie-80gb", tensor(2), 16) > speed("h100-pcie-80gb", tensor(8), 16));
    assert!(speed("h100-sxm5-80gb", tensor(8), 8) > speed("h100-sxm5-80gb", tensor(8), 4));
    let staged = |pipeline| Parallel {
        pipeline,
        ..Parallel::data(16 / pipeline)
    };
    assert!(speed("h100-sxm5-80gb", staged(2), 16) > speed("h100-sxm5-80gb", staged(8), 16));
    let interleaved = Parallel {
        interleave: 2,
        ..staged(8)
    };
    assert!(speed("h100-sxm5-80gb", interleaved, 16) > speed("h100-sxm5-80gb", staged(8), 16));
}

#[test]
fn generation_is_bound_by_memory_and_prompts_by_compute() {
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let speed = |job: &Inference, layout| {
        roofline::serving(&model, job, layout, &rates("h100-sxm5-80gb"), 8, None).unwrap()
    };
    let one = Inference {
        concurrency: 1,
        ..Inference::default()
    };
    let generating = speed(&one, Layout::SINGLE);
    // 16 GB of weights at 70 % of 3.35 TB/s: 7 ms a token.
    assert!((0.006..0.009).contains(&generating.step_s), "{generating:?}");
    assert_eq!(generating.bound_by, roofline::Bound::Memory);
    let prompts = Inference {
        generated_tokens: 0,
        ..one.clone()
    };
    assert_eq!(speed(&prompts, Layout::SINGLE).bound_by, roofline::Bound::Compute);
    // More requests at once share the reading of weights.
    let many = Inference {
        concurrency: 64,
        ..one
    };
    assert!(speed(&many, Layout::SINGLE).tokens_per_s_per_gpu > 8.0 * generating.tokens_per_s_per_gpu);
}

/// Small batches on one H200 (torch 2.11, transformers 5.17), in tokens a second: they wait for the host.
#[test]
fn small_batches_wait_for_the_host() {
    let h200 = rates("h200-sxm-141gb");
    let catalogue = Catalogue::builtin();
    for (name, requests, prompt_tokens, measured) in [
        ("Llama-3.1-8B", 8, 2048, 370.4),
        ("Llama-3.2-1B", 16, 2048, 1266.0),
        ("Qwen3-14B", 8, 2048, 151.0),
        ("Qwen3-8B", 16, 1024, 285.0),
        ("Gemma-2-9B", 2, 8000, 41.0),
        ("LFM2-1.2B", 4, 2048, 297.0),
    ] {
        let model = catalogue.resolve(name).unwrap();
        let job = Inference {
            engine: "pytorch".into(),
            concurrency: requests,
            prompt_tokens,
            generated_tokens: 128,
            ..Inference::default()
        };
        let launches = Launches::of(&model, &Job::Inference(job.clone()));
        let speed = roofline::serving(&model, &job, Layout::SINGLE, &h200, 8, launches).unwrap();
        assert_eq!(speed.bound_by, roofline::Bound::Launches, "{name}");
        let [slow, fast] = speed.range.unwrap();
        let found = |bound: f64| bound / speed.tokens_per_s_per_gpu * requests as f64 / speed.step_s;
        println!("{name}: {measured}, {:.0} to {:.0}", found(slow), found(fast));
        assert!((found(slow)..=found(fast)).contains(&measured), "{name}");
    }
    for (name, seq_len, step_s) in [
        ("Llama-3.2-1B", 512, 0.0498),
        ("Llama-3.2-3B", 512, 0.1044),
        ("Phi-3-mini", 1024, 0.1038),
    ] {
        let model = catalogue.resolve(name).unwrap();
        let job = Training {
            sharding: Sharding::None,
            ..step(seq_len, 1, 1, Recompute::None)
        };
        let launches = Launches::of(&model, &Job::Training(job.clone()));
        let speed = roofline::training(&model, &job, &Parallel::SINGLE, &h200, 8, launches).unwrap();
        let [slow, fast] = speed.range.unwrap();
        let measured = seq_len as f64 / step_s;
        println!("{name}: {measured:.0}, {slow:.0} to {fast:.0}");
        assert!((slow..=fast).contains(&measured), "{name}");
    }
}

/// A server captures its operations in graphs, and prepares each step.
#[test]
fn steps_of_a_server_take_their_time() {
    let speed = |name: &str| {
        let model = Catalogue::builtin().resolve(name).unwrap();
        let job = Inference {
            concurrency: 1,
            ..Inference::default()
        };
        let launches = Launches::of(&model, &Job::Inference(job.clone()));
        roofline::serving(
            &model,
            &job,
            Layout::SINGLE,
            &rates("h200-sxm-141gb"),
            8,
            launches,
        )
        .unwrap()
    };
    // 2.5 GB of weights at 70 % of 4.8 TB/s are 0.7 ms.
    let small = speed("Llama-3.2-1B");
    assert_eq!(small.bound_by, roofline::Bound::Memory);
    assert!((0.0014..0.0016).contains(&small.step_s), "{small:?}");
    let [slow, fast] = small.range.unwrap();
    assert!(slow < 210.0 && fast > 1000.0, "{slow} {fast}");
    assert_eq!(speed("Llama-3.1-8B").range, None);
}
