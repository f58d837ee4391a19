//! From a model to GPU sets: sane sizes, ranking, limits, and reasons for what does not fit.

use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_sizing::fit::{Division, fit, fit_calibrated};
use poolwright_sizing::job::{Inference, WeightFormat};
use poolwright_sizing::{Calibration, Catalogue, Fit, Job, Limits, Model, Need, Offer, Task, settings};

fn model(name: &str) -> Model {
    Catalogue::builtin().resolve(name).unwrap()
}

fn offer(kind: &str, available: Option<u32>) -> Offer {
    Offer::of(Profiles::builtin().by_name(kind).unwrap(), available)
}

fn everything() -> Vec<Offer> {
    Profiles::builtin()
        .all()
        .iter()
        .map(|k| Offer::of(k, None))
        .collect()
}

fn slots(slots: u32) -> Limits {
    Limits {
        host_slots: Some(slots),
        ..Limits::default()
    }
}

fn infer(name: &str, offers: &[Offer], limits: Limits) -> Fit {
    fit(&model(name), &Job::of(Task::Infer), offers, limits).unwrap()
}

#[test]
fn the_three_classes_on_80_gb_gpus() {
    for (name, least, most) in [("8B", 1, 1), ("70B", 2, 4), ("400B", 12, 16)] {
        for slots in [None, Some(8), Some(16)] {
            let limits = Limits {
                host_slots: slots,
                ..Limits::default()
            };
            let fit = infer(name, &[offer("h100-pcie-80gb", None)], limits);
            let best = &fit.candidates[0];
            assert!(
                (least..=most).contains(&best.set.count),
                "{name} {slots:?}: {}",
                best.set
            );
            assert!(best.set.min_memory_per_gpu <= best.memory, "{name}");
        }
    }
}

#[test]
fn a_tight_fit_says_what_share_of_the_gpu_the_engine_must_take() {
    let fit = infer("400B", &[offer("h100-pcie-80gb", None)], slots(8));
    let notes = &fit.candidates[0].estimate.notes;
    assert!(
        notes
            .iter()
            .any(|n| n.starts_with("start vllm-0.11 with --gpu-memory-utilization 0.9")),
        "{notes:?}"
    );
    // Whichever set is taken, its share is told with the need.
    let need = fit.need().unwrap();
    for candidate in &fit.candidates {
        let advice = need.advice_on(candidate.set.kind.as_deref(), candidate.set.count);
        assert!(
            advice.is_some_and(|text| text.contains("--gpu-memory-utilization 0.")),
            "{}: {advice:?}",
            candidate.set
        );
    }
    let fit = infer("8B", &[offer("h100-pcie-80gb", None)], slots(8));
    let notes = &fit.candidates[0].estimate.notes;
    assert!(notes.iter().all(|n| !n.starts_with("start ")), "{notes:?}");
    assert!(
        notes
            .iter()
            .any(|n| n.starts_with("vllm-0.11 takes 0.9 of a GPU by default")),
        "{notes:?}"
    );
    // 52 GiB are left on it for caches of half a GiB.
    assert!(
        notes
            .iter()
            .any(|n| n.ends_with("requests of 4096 tokens fit at once")),
        "{notes:?}"
    );
}

#[test]
fn ranked_by_gpus_then_waste_then_cost() {
    let fit = infer("8B", &everything(), Limits::default());
    let firsts: Vec<_> = fit.candidates.iter().take(40).collect();
    for pair in firsts.windows(2) {
        let key = |c: &poolwright_sizing::fit::Candidate| (c.set.count, c.stranded());
        let further = pair[1].set.kind == pair[0].set.kind;
        assert!(
            key(pair[0]) <= key(pair[1]) || further,
            "{} before {}",
            pair[0].set,
            pair[1].set
        );
    }
    // A 48 GB card before an 80 GB one; both alone.
    let position = |kind: &str| {
        firsts
            .iter()
            .position(|c| c.set.kind.as_deref() == Some(kind))
            .unwrap()
    };
    assert!(position("l40s-48gb") < position("h100-pcie-80gb"));
    assert_eq!(firsts[0].set.count, 1);
    // What is priced is added up.
    let h100 = firsts
        .iter()
        .find(|c| c.set.kind.as_deref() == Some("h100-sxm5-80gb"))
        .unwrap();
    assert_eq!((h100.price_usd, h100.power_w), (Some(30_000.0), Some(700.0)));
}

#[test]
fn hosts_limit_groups_and_a_set_may_span_them() {
    let h100 = offer("h100-pcie-80gb", None);
    for (host, most_group) in [(4, 4), (8, 8), (2, 2)] {
        let fit = infer("400B", std::slice::from_ref(&h100), slots(host));
        let best = &fit.candidates[0];
        assert!(best.set.group <= most_group, "{host}: {}", best.set.group);
        assert_eq!(best.hosts, best.set.hosts_needed(host), "{host}");
        assert!(best.hosts.unwrap() > 1, "{host}");
        let Division::Inference(layout) = best.division else {
            panic!("{:?}", best.division)
        };
        assert_eq!(layout.gpus(), u64::from(best.set.count));
    }
    let single = Limits {
        spannable: false,
        ..slots(8)
    };
    let fit = infer("400B", &[h100], single);
    assert!(fit.candidates.is_empty() && fit.need().is_none());
    let reason = &fit.rejections[0].reason;
    assert!(
        reason.contains("one host takes 8") && reason.starts_with("needs 1"),
        "{reason}"
    );
}

#[test]
fn narrower_groups_follow_for_smaller_hosts() {
    let need = infer("400B", &[offer("h100-pcie-80gb", None)], slots(8))
        .need()
        .unwrap();
    assert_eq!(need.task, Some(Task::Infer));
    assert!(
        need.spannable && need.label.starts_with("400B infer bf16"),
        "{}",
        need.label
    );
    let sets: Vec<_> = need.alternatives.iter().map(|s| (s.count, s.group)).collect();
    assert!(
        sets.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 > w[1].1),
        "{sets:?}"
    );
    assert_eq!(sets.last().unwrap().1, 1);
    for (count, group) in sets {
        assert_eq!(count % group, 0);
    }
    assert!(
        need.explanation.iter().any(|line| line.starts_with("weights ")),
        "{:?}",
        need.explanation
    );
    let text = serde_json::to_string(&need).unwrap();
    assert_eq!(serde_json::from_str::<Need>(&text).unwrap(), need);
}

#[test]
fn training_takes_as_many_shards_as_it_needs() {
    let h100 = [offer("h100-sxm5-80gb", None)];
    let count = |name: &str, task| {
        let fit = fit(&model(name), &Job::of(task), &h100, slots(8)).unwrap();
        let best = fit.candidates[0].clone();
        // Whatever is fastest, there is a layout for hosts that take one GPU each.
        assert!(fit.candidates.iter().any(|c| c.set.group == 1), "{name}");
        best.set.count
    };
    // 16 bytes a parameter are 120 GiB for 8B, 60 on each of two that share every matrix; a 70B model does not train on one host.
    assert!(
        (2..=4).contains(&count("Llama-3.1-8B", Task::Full)),
        "{}",
        count("Llama-3.1-8B", Task::Full)
    );
    assert!(count("Llama-3.1-70B", Task::Full) > 16);
    assert_eq!(count("Llama-3.1-8B", Task::Lora), 1);
    assert_eq!(count("Llama-3.1-8B", Task::Qlora), 1);
    assert_eq!(count("Llama-3.1-70B", Task::Qlora), 1);
    assert!(count("Llama-3.1-70B", Task::Lora) > 2);
}

#[test]
fn each_kind_that_does_not_fit_has_its_reason() {
    // Latent attention cannot be split over a group: a cache this long fits nowhere.
    let long = Inference {
        prompt_tokens: 1 << 20,
        concurrency: 1 << 16,
        weights: WeightFormat::Fp8,
        ..Inference::default()
    };
    let offers = everything();
    let nowhere = fit(
        &model("DeepSeek-V3"),
        &Job::Inference(long),
        &offers,
        Limits::default(),
    )
    .unwrap();
    assert!(nowhere.candidates.is_empty());
    assert_eq!(nowhere.rejections.len(), offers.len());
    for rejection in &nowhere.rejections {
        assert!(
            rejection.reason.contains("key/value cache"),
            "{}: {}",
            rejection.kind,
            rejection.reason
        );
    }

    let few = infer("70B", &[offer("l4-24gb", Some(3))], Limits::default());
    assert!(
        few.rejections[0].reason.ends_with("3 available"),
        "{}",
        few.rejections[0].reason
    );
    let none = infer("8B", &[offer("l4-24gb", Some(0))], Limits::default());
    assert_eq!(none.rejections[0].reason, "none is available");
    let slotless = infer("8B", &[offer("a100-pcie-80gb", None)], slots(0));
    assert_eq!(slotless.rejections[0].reason, "no host takes a GPU");
    let capped = infer(
        "400B",
        &[offer("h100-pcie-80gb", None)],
        Limits {
            max_gpus: 8,
            ..Limits::default()
        },
    );
    assert!(
        capped.rejections[0].reason.ends_with("at most 8 are allowed"),
        "{}",
        capped.rejections[0].reason
    );
}

#[test]
fn a_gpu_without_a_profile_is_offered_by_its_memory() {
    let unknown = Offer::of_memory("Contoso", Bytes::from_gib(96.0), Some(2));
    let fit = infer("8B", &[unknown], Limits::default());
    let set = &fit.candidates[0].set;
    assert_eq!((set.kind.as_deref(), set.count), (None, 1));
    assert!(
        set.admits(None, Bytes::from_gib(96.0)) && set.admits(Some("h100-pcie-80gb"), Bytes::from_gib(79.0))
    );
}

#[test]
fn what_a_gpu_does_not_compute_is_said_beside_its_set() {
    let offers = [
        offer("v100-pcie-32gb", None),
        offer("a100-pcie-80gb", None),
        offer("h100-pcie-80gb", None),
    ];
    let note = |weights, kind: &str| {
        let job = Job::Inference(Inference {
            weights,
            ..Inference::default()
        });
        let fit = fit(&model("8B"), &job, &offers, Limits::default()).unwrap();
        let found = fit
            .candidates
            .into_iter()
            .find(|c| c.set.kind.as_deref() == Some(kind));
        found.unwrap().note
    };
    let need = infer("8B", &offers, Limits::default()).need().unwrap();
    let v100 = need
        .explanation
        .iter()
        .filter(|line| line.contains("v100-pcie-32gb: computes no bf16"));
    assert_eq!(v100.count(), 1, "{:?}", need.explanation);
    let said = |note: Option<String>, word: &str| note.is_some_and(|note| note.contains(word));
    assert!(said(note(WeightFormat::Bf16, "v100-pcie-32gb"), "no bf16"));
    assert!(said(note(WeightFormat::Fp8, "v100-pcie-32gb"), "no fp8"));
    assert!(said(note(WeightFormat::Fp8, "a100-pcie-80gb"), "no fp8"));
    for (weights, kind) in [
        (WeightFormat::Bf16, "a100-pcie-80gb"),
        (WeightFormat::Fp8, "h100-pcie-80gb"),
        (WeightFormat::GptqInt4, "v100-pcie-32gb"),
    ] {
        assert_eq!(note(weights, kind), None, "{kind}");
    }
}

/// Sets for an engine that somebody chose start with its default share of a GPU; else the answer says which they need.
#[test]
fn sets_for_a_chosen_engine_start_by_themselves() {
    let model = model("Qwen2.5-32B");
    let found = |job: &Job| fit(&model, job, &everything(), slots(8)).unwrap().candidates;
    let starts = |found: &[poolwright_sizing::fit::Candidate]| {
        let advice = found.iter().filter_map(|candidate| candidate.advice.as_deref());
        let (more, enough): (Vec<&str>, Vec<&str>) = advice.partition(|text| text.contains("or more"));
        (more.len(), enough.len())
    };
    let usual = Job::of(Task::Infer);
    let (more, _) = starts(&found(&usual));
    assert!(more > 0);
    let mut chosen = usual.clone();
    settings::set(&mut chosen, "engine", "vllm-0.11").unwrap();
    let (more, enough) = starts(&found(&chosen));
    assert!(more == 0 && enough > 10, "{more} {enough}");
    // Also with constants measured here.
    let measured = r#"{"corrections": [{"framework": "vllm-0.11", "constant": "engine-alone", "rows": 4,
        "error_before": 5.0, "error_after": 1.0, "change": {"middle": 6.1, "safe": 12.8}}]}"#;
    let calibration = Calibration::parse("here", measured).unwrap();
    let measured = fit_calibrated(&model, &chosen, &everything(), slots(8), &calibration).unwrap();
    let alone = measured
        .candidates
        .iter()
        .filter(|candidate| candidate.set.count == 1);
    for candidate in alone {
        let context = candidate
            .estimate
            .terms
            .iter()
            .map(|term| term.safe.gib())
            .sum::<f64>();
        assert!(context <= candidate.memory.gib(), "{}", candidate.set);
        let advice = candidate.advice.as_deref().unwrap();
        assert!(advice.contains("is enough"), "{}: {advice}", candidate.set);
    }
    settings::set(&mut chosen, "gpu_memory_utilization", "0.98").unwrap();
    let free = |candidate: &poolwright_sizing::fit::Candidate| candidate.free;
    assert!(
        found(&chosen)
            .iter()
            .all(|candidate| free(candidate) < candidate.memory)
    );
    let refused = settings::set(&mut chosen, "gpu_memory_utilization", "1.2")
        .and_then(|()| fit(&model, &chosen, &everything(), slots(8)).map(|_| ()));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("gpu_memory_utilization is 1.2; allowed: 0.05 to 1")
    );
}
