//! The fit search: whole, bounded, and honest about what is best.

use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_sizing::fit::{self, Candidate, Division, Merit, Shortfall, Widths};
use poolwright_sizing::inference::{self, Layout};
use poolwright_sizing::job::{Method, Offload, WeightFormat};
use poolwright_sizing::{
    Catalogue, Fit, Inference, Job, Limits, Model, Offer, Parallel, Task, Training, training,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

fn model(name: &str) -> Model {
    Catalogue::builtin().resolve(name).unwrap()
}

fn offers() -> Vec<Offer> {
    Profiles::builtin()
        .all()
        .iter()
        .map(|k| Offer::of(k, None))
        .collect()
}

fn offer(kind: &str) -> Offer {
    Offer::of(Profiles::builtin().by_name(kind).unwrap(), None)
}

fn burdens(c: &Candidate) -> [f64; 4] {
    [
        f64::from(c.set.count),
        c.price_usd.unwrap_or(f64::INFINITY),
        c.power_w.unwrap_or(f64::INFINITY),
        -(c.free.0 as f64),
    ]
}

fn dominates(a: &Candidate, b: &Candidate) -> bool {
    let (a, b) = (burdens(a), burdens(b));
    a.iter().zip(b).all(|(a, b)| *a <= b) && a != b
}

fn jobs() -> impl Strategy<Value = Job> {
    let serving = (
        1u64..65_536,
        1u64..64,
        select(vec![WeightFormat::Bf16, WeightFormat::Fp8]),
    )
        .prop_map(|(prompt_tokens, concurrency, weights)| {
            Job::Inference(Inference {
                prompt_tokens,
                concurrency,
                weights,
                ..Inference::default()
            })
        });
    let step = (select(Method::ALL), 9u32..17, 1u64..17, 1u64..5).prop_map(
        |(method, sequence, accumulation, micro_batch)| {
            Job::Training(Training {
                seq_len: 1 << sequence,
                accumulation,
                micro_batch,
                ..Training::new(method)
            })
        },
    );
    prop_oneof![serving, step]
}

fn models() -> impl Strategy<Value = Model> {
    let models = Catalogue::builtin()
        .all()
        .into_iter()
        .filter(|m| m.latent.is_none());
    select(models.cloned().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_set_on_the_front_is_dominated_and_every_other_is(
        model in models(), job in jobs(), offers in subsequence(offers(), 1..20), slots in select(vec![None, Some(4), Some(8)]),
    ) {
        let limits = Limits { host_slots: slots, ..Limits::default() };
        let found = fit::fit(&model, &job, &offers, limits).unwrap();
        for (place, c) in found.candidates.iter().enumerate() {
            let beaten = found.candidates.iter().any(|other| dominates(other, c));
            let twin = |other: &Candidate| burdens(other) == burdens(c) && other.set.kind == c.set.kind;
            let shown_before = found.candidates[..place].iter().any(twin);
            prop_assert_eq!(c.on_front, !beaten && !shown_before, "{}", c.set);
            // Invariants of a set.
            prop_assert!(c.set.count.is_multiple_of(c.set.group) && c.set.count >= 1);
            prop_assert!(c.estimate.safe <= c.memory && c.set.min_memory_per_gpu == c.estimate.safe);
            prop_assert_eq!(u64::from(c.set.count), c.division.gpus());
            prop_assert!(slots.is_none_or(|slots| c.set.group <= slots));
            let tensor = match c.division {
                Division::Inference(layout) => layout.tensor,
                Division::Training(parallel) => parallel.tensor,
            };
            prop_assert!(model.heads.is_multiple_of(tensor));
        }
        for merit in Merit::ALL {
            let best = found.candidates.iter().filter(|c| c.best_at.contains(merit));
            let known = found.candidates.iter().any(|c| burdens(c)[*merit as usize].is_finite());
            prop_assert_eq!(best.count() > 0, known, "{}", merit);
        }
        prop_assert_eq!(found.candidates.is_empty(), !found.candidates.iter().any(|set| set.on_front));
    }

    /// The search bisects; trying every number finds nothing smaller.
    #[test]
    fn the_fewest_gpus_are_found(model in models(), job in jobs(), kind in select(offers())) {
        let limits = Limits { max_gpus: 192, ..Limits::default() };
        let found = fit::fit(&model, &job, std::slice::from_ref(&kind), limits).unwrap();
        let card = kind.card();
        let plain = (1..=192u64).find(|n| {
            let estimate = match &job {
                Job::Training(step) => training::estimate(&model, step, &Parallel::data(*n), card),
                Job::Inference(job) => {
                    let layout = Layout { tensor: 1, pipeline: (*n).min(model.layers) };
                    inference::estimate(&model, job, layout, card)
                }
            };
            estimate.unwrap().safe <= kind.memory
        });
        let least = found.candidates.iter().map(|c| u64::from(c.set.count)).min();
        if let Some(plain) = plain {
            prop_assert!(least.is_some_and(|least| least <= plain), "{:?} {}", least, plain);
        }
        if let Job::Training(_) = job {
            let sharded = found.candidates.iter().filter(|c| matches!(
                c.division, Division::Training(p) if p == Parallel::data(p.data)
            ));
            for c in sharded {
                prop_assert_eq!(Some(u64::from(c.set.count)), plain);
            }
        }
    }
}

fn sized(name: &str, job: &Job, offers: &[Offer], limits: Limits) -> Fit {
    fit::fit(&model(name), job, offers, limits).unwrap()
}

#[test]
fn just_so_many_gpus_are_taken_where_that_divides() {
    let wanted = |gpus| Limits {
        gpus: Some(gpus),
        host_slots: Some(8),
        ..Limits::default()
    };
    let job = Job::of(Task::Full);
    let h100 = [offer("h100-sxm5-80gb")];
    let found = sized("Llama-3.1-8B", &job, &h100, wanted(32));
    assert!(!found.candidates.is_empty());
    assert!(found.candidates.iter().all(|c| c.set.count == 32));
    // Too few for it: it says how many it has and what each lacks.
    let few = sized("Llama-3.1-70B", &job, &h100, wanted(2));
    assert!(matches!(
        few.rejections[0].shortfall,
        Shortfall::Memory { over: 2, .. }
    ));
    // No layout of a served model makes 11 of 32 heads and 32 layers on hosts of 8.
    let odd = sized("Llama-3.1-8B", &Job::of(Task::Infer), &h100, wanted(37));
    assert_eq!(
        odd.rejections[0].shortfall,
        Shortfall::Layout {
            gpus: 37,
            asked: false
        }
    );
    let sixteen = Offer::of(Profiles::builtin().by_name("h100-sxm5-80gb").unwrap(), Some(16));
    let less = sized("Llama-3.1-8B", &job, &[sixteen], wanted(32));
    assert_eq!(less.rejections[0].reason, "needs 32, 16 available");
}

/// bitsandbytes shards quantised weights with FSDP; no trainer divides their matrices unless it is asked to.
#[test]
fn quantised_weights_are_divided_by_sharding() {
    let job = Job::Training(Training {
        seq_len: 1024,
        ..Training::new(Method::Qlora)
    });
    let cards = [offer("rtx-4090-24gb")];
    let found = sized("Llama-3.1-70B", &job, &cards, Limits::default());
    assert!(!found.candidates.is_empty());
    for candidate in &found.candidates {
        let gpus = u64::from(candidate.set.count);
        assert_eq!(candidate.division, Division::Training(Parallel::data(gpus)));
    }
    let tensor = Widths {
        tensor: Some(4),
        ..Widths::default()
    };
    let limits = Limits {
        widths: tensor,
        ..Limits::default()
    };
    let asked = sized("Llama-3.1-70B", &job, &cards, limits);
    let Division::Training(division) = asked.candidates[0].division else {
        panic!("{asked:?}")
    };
    assert_eq!(division.tensor, 4);
}

/// A host that lacks the memory for what its GPUs offload holds none of the sets that it could.
#[test]
fn hosts_hold_what_is_offloaded() {
    let job = Job::Training(Training {
        offload: Offload::Parameters,
        ..Training::new(Method::Full)
    });
    let h100 = [offer("h100-sxm5-80gb")];
    let with = |gib: u64, gpus| Limits {
        gpus: Some(gpus),
        host_slots: Some(8),
        host_memory: Some(Bytes::from_gib(gib as f64)),
        ..Limits::default()
    };
    // 16 bytes of 70.6 billion parameters, over the GPUs of one host and of four.
    let small = sized("Llama-3.1-70B", &job, &h100, with(1024, 8));
    let Shortfall::HostMemory { needed, .. } = small.rejections[0].shortfall else {
        panic!("{:?}", small.rejections)
    };
    assert!(
        (needed.gib() - 16.0 * 70.553706496e9 / 1024f64.powi(3)).abs() < 0.1,
        "{needed}"
    );
    assert!(
        !sized("Llama-3.1-70B", &job, &h100, with(1100, 8))
            .candidates
            .is_empty()
    );
    let spread = sized("Llama-3.1-70B", &job, &h100, with(270, 32));
    assert!(
        spread
            .candidates
            .iter()
            .all(|c| c.estimate.on_host.unwrap().gib() * 8.0 <= 270.0)
    );
    assert!(!spread.candidates.is_empty());
}

/// A sequence that no host has room for goes over several; the groups that share a host stay as wide as the tensor
/// parallelism.
#[test]
fn a_long_sequence_goes_over_hosts() {
    let long = Job::Training(Training {
        seq_len: 131_072,
        ..Training::new(Method::Full)
    });
    let h100 = [offer("h100-sxm5-80gb")];
    let found = sized("Llama-3.1-405B", &long, &h100, Limits::default());
    let best = &found.candidates[0];
    let Division::Training(ways) = best.division else {
        panic!("{}", best.division)
    };
    assert!(ways.context > 1 && ways.tensor * ways.context > 8, "{ways}");
    assert_eq!(u64::from(best.set.group), ways.tensor);
    let alone = Limits {
        spannable: false,
        ..Limits::default()
    };
    assert!(sized("Llama-3.1-405B", &long, &h100, alone).candidates.is_empty());
    // What fits inside a host is not spread further.
    let short = Job::of(Task::Full);
    for set in sized("Llama-3.1-8B", &short, &h100, Limits::default()).candidates {
        assert!(matches!(set.division, Division::Training(ways) if ways.tensor * ways.context <= 8));
    }
}

#[test]
fn widths_that_are_asked_for_are_taken_or_refused() {
    let h100 = [offer("h100-sxm5-80gb")];
    let filled = Training {
        accumulation: 16,
        ..Training::new(Method::Full)
    };
    let with = |name: &str, job: &Job, widths: Widths| {
        let model = model(name);
        let limits = Limits {
            widths,
            ..Limits::default()
        };
        fit::fit(&model, job, &h100, limits).map(|found| found.candidates)
    };
    let train = Job::Training(filled.clone());
    let asked = Widths {
        tensor: Some(4),
        pipeline: Some(4),
        interleave: Some(2),
        context: Some(2),
        ..Widths::default()
    };
    let found = with("Llama-3.1-8B", &train, asked).unwrap();
    assert!(!found.is_empty());
    for set in &found {
        let says = "tensor 4 with sequence parallelism, pipeline 4, interleave 2, context 2";
        assert!(set.division.to_string().starts_with(says), "{}", set.division);
    }
    // Left open, stages are tried with one part and with two.
    let pipeline = |parts: u64| Widths {
        pipeline: Some(8),
        interleave: Some(parts),
        ..Widths::default()
    };
    let plain = with("Llama-3.1-70B", &train, pipeline(1)).unwrap();
    let interleaved = with("Llama-3.1-70B", &train, pipeline(2)).unwrap();
    let idle = |sets: &[Candidate]| sets[0].speed.as_ref().unwrap().idle_s;
    assert!(idle(&interleaved) < 0.7 * idle(&plain));
    let experts = Widths {
        expert: Some(4),
        ..Widths::default()
    };
    let found = with("Mixtral-8x7B", &train, experts).unwrap();
    assert!(
        found
            .iter()
            .all(|set| set.division.to_string().contains("expert 4"))
    );
    let serve = Widths {
        tensor: Some(2),
        pipeline: Some(4),
        ..Widths::default()
    };
    let found = with("Llama-3.1-70B", &Job::of(Task::Infer), serve).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].set.count, found[0].set.group), (8, 2));

    let refused = |name, job: &Job, widths| with(name, job, widths).unwrap_err().to_string();
    let tensor = |tensor| Widths {
        tensor: Some(tensor),
        ..Widths::default()
    };
    assert_eq!(
        refused("Llama-3.1-8B", &train, tensor(3)),
        "tensor is 3; allowed: a divisor of attention heads, 32"
    );
    assert_eq!(
        refused("Llama-3.1-8B", &Job::of(Task::Infer), experts),
        "expert is 4; allowed: 1 to 1"
    );
    let context = Widths {
        context: Some(2),
        ..Widths::default()
    };
    assert_eq!(
        refused("Llama-3.1-8B", &Job::of(Task::Infer), context),
        "context is 2; allowed: 1 where a model is served"
    );
    assert_eq!(
        refused("Llama-3.1-8B", &Job::of(Task::Full), pipeline(1)),
        "pipeline is 8; allowed: 1 to the micro-batches of a step (accumulation), 1"
    );
    // Wider than a host: no set, and a reason.
    let model = model("Llama-3.1-8B");
    let limits = Limits {
        widths: tensor(16),
        ..Limits::default()
    };
    let nothing = fit::fit(&model, &train, &h100, limits).unwrap();
    assert!(nothing.candidates.is_empty());
    assert!(
        nothing.rejections[0]
            .reason
            .starts_with("tensor 16 needs 16 GPUs on one host and one switch or island, which join 8"),
        "{}",
        nothing.rejections[0].reason
    );
}

#[test]
fn a_set_says_what_it_is_best_at() {
    let job = Job::of(Task::Infer);
    let kinds = [
        "l40s-48gb",
        "h100-sxm5-80gb",
        "rtx-pro-6000-server-96gb",
        "b200-sxm6-180gb",
    ];
    let found = sized("Llama-3.1-70B", &job, &kinds.map(offer), Limits::default());
    let best = |merit: Merit| {
        let mut of = found.candidates.iter().filter(|c| c.best_at.contains(&merit));
        of.next().unwrap().set.kind.clone().unwrap()
    };
    assert_eq!(best(Merit::FewestGpus), "b200-sxm6-180gb");
    // L40S at 8,500 are more of them, and less together than two B200 at 40,000 or four H100 at 30,000; a kind without
    // a price is not judged.
    assert_eq!(best(Merit::LeastCost), "l40s-48gb");
    let least = |kind: &str| {
        let sets = found
            .candidates
            .iter()
            .filter(|c| c.set.kind.as_deref() == Some(kind));
        sets.filter_map(|c| c.price_usd).min_by(f64::total_cmp)
    };
    assert!(
        least("l40s-48gb") < least("b200-sxm6-180gb") && least("b200-sxm6-180gb") < least("h100-sxm5-80gb")
    );
    assert_eq!(least("rtx-pro-6000-server-96gb"), None);
    assert!(found.candidates.iter().any(|set| set.on_front));
}

#[test]
fn speed_comes_with_its_parts_and_much_communication_is_warned_of() {
    let prompts = Job::Inference(Inference {
        generated_tokens: 0,
        ..Inference::default()
    });
    let kinds = ["h100-sxm5-80gb", "h100-pcie-80gb"];
    let found = sized("Llama-3.1-70B", &prompts, &kinds.map(offer), Limits::default());
    for c in &found.candidates {
        let speed = c.speed.as_ref().unwrap();
        let parts = speed.compute_s + speed.memory_s + speed.communication_s + speed.idle_s;
        assert!((parts / speed.step_s - 1.0).abs() < 1e-9, "{speed:?}");
        let mut notes = c.estimate.notes.iter();
        let warned = notes.any(|note| note.starts_with("warning: communication takes"));
        assert_eq!(warned, speed.communication_share > 0.2, "{}: {speed:?}", c.set);
    }
    let of = |kind: &str| {
        let mut all = found.candidates.iter();
        let c = all.find(|c| c.set.kind.as_deref() == Some(kind)).unwrap();
        let share = c.speed.as_ref().unwrap().communication_share;
        (share, c.tokens_per_s().unwrap(), c.run_time_s(1e9).unwrap())
    };
    let ((nvlink, fast, soon), (pcie, slow, late)) = (of(kinds[0]), of(kinds[1]));
    assert!(nvlink < 0.2 && pcie > 0.2, "{nvlink} {pcie}");
    assert!(fast > slow && soon < late, "{fast} {slow}");
    assert!((soon * fast / 1e9 - 1.0).abs() < 1e-9);
}

/// What a pool joins is what shares every layer, however many GPUs its hosts take.
#[test]
fn tensor_parallelism_stays_inside_a_switch_or_island_of_the_pool() {
    let kind = Profiles::builtin().by_name("h100-pcie-80gb").unwrap();
    let within = |island: Option<u32>, widths: Widths| {
        let offers = [Offer::of(kind, Some(16)).joined(island)];
        let limits = Limits {
            host_slots: Some(8),
            widths,
            ..Limits::default()
        };
        sized("Llama-3.1-70B", &Job::of(Task::Infer), &offers, limits)
    };
    let widest = |fit: &Fit| fit.candidates.iter().map(|c| c.set.group).max();
    assert!(widest(&within(None, Widths::default())) >= Some(4));
    for island in [1, 2, 4] {
        let found = within(Some(island), Widths::default());
        assert!(!found.candidates.is_empty(), "{island}");
        for candidate in &found.candidates {
            assert!(candidate.set.group <= island, "{island}: {}", candidate.set);
        }
    }
    let asked = Widths {
        tensor: Some(4),
        ..Widths::default()
    };
    let refused = within(Some(2), asked);
    assert!(refused.candidates.is_empty());
    assert!(
        refused.rejections[0].reason.contains("one switch or island"),
        "{}",
        refused.rejections[0].reason
    );
    let training = |island| {
        let offers = [Offer::of(kind, Some(16)).joined(island)];
        sized("Llama-3.1-8B", &Job::of(Task::Full), &offers, Limits::default()).candidates
    };
    assert!(training(Some(2)).iter().all(|c| c.set.group <= 2));
    assert!(training(None).iter().any(|c| c.set.group > 2));
}
