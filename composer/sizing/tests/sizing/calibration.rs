//! Measured peaks correct constants, within limits and out loud.

use poolwright_model::profile::Profiles;
use poolwright_sizing::calibration::{Calibrated, Constant, calibrate};
use poolwright_sizing::estimate::Term;
use poolwright_sizing::fit::{fit, fit_calibrated};
use poolwright_sizing::inference::{self, Layout};
use poolwright_sizing::job::{AdapterType, Method, Precision, Recompute};
use poolwright_sizing::overhead::Card;
use poolwright_sizing::{
    Calibration, Catalogue, Inference, Job, Limits, Model, Offer, Parallel, Training, batch, training,
};
use proptest::prelude::*;

const COLUMNS: &str = "id,model,params,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,tied,mlp,task,precision,\
                       micro_batch,seq_len,gen_tokens,shard_ranks,recompute,attention,loss,metric,vendor,engine,peak_gib";

fn model() -> Model {
    Catalogue::builtin().resolve("Llama-3.2-1B").unwrap()
}

fn architecture(model: &Model) -> String {
    let Model {
        params,
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        ..
    } = model;
    let tied = u8::from(model.tied);
    format!(
        "{},{params},{layers},{hidden},{heads},{kv_heads},{head_dim},{ffn},{vocab},{tied},swiglu",
        model.name
    )
}

fn step(seq_len: u64) -> Training {
    let mut job = Training {
        precision: Precision::Bf16,
        seq_len,
        recompute: Recompute::None,
        ..Training::new(Method::Full)
    };
    job.adapters.dtype = AdapterType::Fp32;
    job
}

const OUTSIDE: [&str; 2] = ["context", "kernels"];

/// GiB of terms that are outside the allocator, or of the others.
fn gib(terms: &[Term], outside: bool) -> f64 {
    let of = terms
        .iter()
        .filter(|term| OUTSIDE.contains(&term.name.as_str()) == outside);
    of.map(|term| term.point.gib()).sum()
}

/// GiB predicted of a step on one GPU: by the allocator, and outside it.
fn predicted(seq_len: u64) -> (f64, f64) {
    let card = Card::from("NVIDIA");
    let estimate = training::estimate(&model(), &step(seq_len), &Parallel::SINGLE, card).unwrap();
    (gib(&estimate.terms, false), gib(&estimate.terms, true))
}

fn training_row(id: &str, seq_len: u64, metric: &str, peak: f64) -> String {
    let architecture = architecture(&model());
    format!("{id},{architecture},full,bf16,1,{seq_len},,1,none,flash,full_fp32,{metric},,,{peak}")
}

/// A training step on one GPU whose allocator reserved so many times what is predicted.
fn trained(id: &str, seq_len: u64, factor: f64) -> String {
    training_row(id, seq_len, "reserved", predicted(seq_len).0 * factor)
}

/// The process memory of the same run, with an overhead above the prediction, in GiB.
fn seen(id: &str, seq_len: u64, factor: f64, more: f64) -> String {
    let (reserved, outside) = predicted(seq_len);
    training_row(id, seq_len, "device", reserved * factor + outside + more)
}

/// A served run on one GPU, with engine memory above the prediction, in GiB.
fn served(id: &str, requests: u64, more: f64) -> String {
    let job = Inference {
        prompt_tokens: 1000,
        generated_tokens: 24,
        concurrency: requests,
        ..Inference::default()
    };
    let estimate = inference::estimate(&model(), &job, Layout::SINGLE, Card::from("NVIDIA")).unwrap();
    let peak = estimate.point.gib() + more;
    let architecture = architecture(&model());
    format!("{id},{architecture},infer,,{requests},1000,24,1,,,,device,,vllm-0.11,{peak}")
}

/// The bound that `size --batch` has for a row.
fn batch_safe(row: &str) -> f64 {
    let sized = batch::size(&table(&[row.to_owned()])).unwrap();
    sized[0].result.as_ref().unwrap().safe.gib()
}

fn table(rows: &[String]) -> String {
    format!("{COLUMNS}\n{}\n", rows.join("\n"))
}

fn calibrated(rows: &[String]) -> Calibrated {
    calibrate(&table(rows)).unwrap()
}

#[test]
fn rows_correct_a_constant_and_the_estimates_say_so() {
    let rows = [
        trained("a", 1024, 1.01),
        trained("b", 2048, 1.02),
        trained("c", 4096, 1.03),
        trained("odd", 8192, 1.30),
    ];
    let found = calibrated(&rows);
    assert!(
        found.refused_rows.is_empty() && found.refused_corrections.is_empty(),
        "{found:?}"
    );
    let [correction] = found.calibration.corrections.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (correction.constant, correction.rows),
        (Constant::AllocatorAlone, 4)
    );
    // The median, which one odd row moves little; a bound that covers that row.
    assert!((correction.change.middle - 1.025).abs() < 1e-4, "{correction:?}");
    let bound = batch_safe(&rows[3]) * correction.change.safe;
    assert!(
        bound >= predicted(8192).0 * 1.3 && correction.change.safe > 1.025,
        "{correction:?}"
    );
    assert!(correction.error_after < correction.error_before, "{correction:?}");

    let text = found.calibration.to_json().unwrap();
    let read = Calibration::parse("c.json", &text).unwrap();
    assert_eq!(read.corrections, found.calibration.corrections);
    let offers = [Offer::of(
        Profiles::builtin().by_name("h100-sxm5-80gb").unwrap(),
        None,
    )];
    let job = Job::Training(step(2048));
    let plain = fit(&model(), &job, &offers, Limits::default()).unwrap();
    let corrected = fit_calibrated(&model(), &job, &offers, Limits::default(), &read).unwrap();
    let point = |fit: &poolwright_sizing::Fit| fit.candidates[0].estimate.point.gib();
    let outside = gib(&corrected.candidates[0].estimate.terms, true);
    assert!((point(&corrected) - outside - predicted(2048).0 * 1.025).abs() < 1e-3);
    assert!((point(&corrected) - point(&plain)).abs() > 1e-3);
    let notes = &corrected.candidates[0].estimate.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("calibrated: ") && note.ends_with("from 4 rows, in c.json")),
        "{notes:?}"
    );
    assert!(
        !plain.candidates[0]
            .estimate
            .notes
            .iter()
            .any(|note| note.contains("calibrated"))
    );
}

#[test]
fn what_an_engine_holds_is_corrected_from_outside() {
    let rows: Vec<String> = (1..=12)
        .map(|n| served(&format!("s{n}"), 8 * n, 0.5 + 0.01 * n as f64))
        .collect();
    let found = calibrated(&rows);
    let correction = &found.calibration.corrections[0];
    assert_eq!(
        (correction.framework.as_str(), correction.constant),
        ("vllm-0.11", Constant::EngineAlone)
    );
    // The bound keeps its distance, which covers all rows.
    assert!((correction.change.middle - 0.565).abs() < 1e-3, "{correction:?}");
    assert_eq!(correction.change.safe, correction.change.middle);
    let offers = [Offer::of(Profiles::builtin().by_name("l4-24gb").unwrap(), None)];
    let job = Job::Inference(Inference::default());
    let corrected = fit_calibrated(&model(), &job, &offers, Limits::default(), &found.calibration).unwrap();
    let plain = fit(&model(), &job, &offers, Limits::default()).unwrap();
    let estimate = |fit: &poolwright_sizing::Fit| fit.candidates[0].estimate.clone();
    let (terms, more) = (
        estimate(&corrected).terms,
        estimate(&corrected).point.gib() - estimate(&plain).point.gib(),
    );
    assert!((more - 0.565).abs() < 1e-3, "{more}");
    assert!(
        terms
            .iter()
            .any(|term| term.name == "engine" && term.formula.starts_with("calibrated: ")),
        "{terms:?}"
    );
    assert!(
        !terms
            .iter()
            .any(|term| term.name == "activations" || term.name == "context")
    );
}

/// The constants that rows correct, and those that they don't.
fn explained(rows: &[String]) -> (Vec<(Constant, f64)>, Vec<String>) {
    let found = calibrated(rows);
    assert!(found.refused_rows.is_empty(), "{found:?}");
    let corrected = found.calibration.corrections.iter();
    let refused = found.refused_corrections.iter();
    (
        corrected.map(|c| (c.constant, c.change.middle)).collect(),
        refused
            .map(|refused| format!("{}: {}", refused.what, refused.why))
            .collect(),
    )
}

/// Rows of the whole process: the term that explains them is corrected, and the other one is not.
#[test]
fn what_grows_with_the_tensors_is_a_factor_and_what_does_not_is_the_context() {
    let lengths = [512, 1024, 2048, 4096, 8192, 16384];
    let rows = |of: &dyn Fn(&str, u64) -> String| {
        let all = lengths.iter().map(|length| of(&format!("r{length}"), *length));
        all.collect::<Vec<_>>()
    };
    let is = |found: &[(Constant, f64)], expected: &[(Constant, f64)]| {
        let same = found
            .iter()
            .zip(expected)
            .all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 2e-3);
        assert!(found.len() == expected.len() && same, "{found:?}");
    };
    let (found, refused) = explained(&rows(&|id, length| seen(id, length, 1.1, 0.0)));
    is(&found, &[(Constant::AllocatorAlone, 1.1)]);
    assert!(
        refused[0].starts_with("pytorch context-alone: the rows are") && refused.len() == 1,
        "{refused:?}"
    );

    let (found, refused) = explained(&rows(&|id, length| seen(id, length, 1.0, 0.75)));
    is(&found, &[(Constant::ContextAlone, 0.75)]);
    assert!(
        refused[0].starts_with("pytorch allocator-alone: the rows are"),
        "{refused:?}"
    );

    let (found, refused) = explained(&rows(&|id, length| seen(id, length, 1.1, 0.75)));
    is(
        &found,
        &[(Constant::AllocatorAlone, 1.1), (Constant::ContextAlone, 0.75)],
    );
    assert!(refused.is_empty(), "{refused:?}");

    // Few rows of the whole process, beside rows of the allocator's own figure.
    let mixed: Vec<String> = [
        trained("a", 512, 1.1),
        trained("b", 2048, 1.1),
        trained("c", 8192, 1.1),
    ]
    .into_iter()
    .chain([512, 2048, 8192].map(|length| seen(&format!("s{length}"), length, 1.1, 0.75)))
    .collect();
    let few = [&mixed[..3], &mixed[3..4]].concat();
    let (found, refused) = explained(&few);
    is(&found, &[(Constant::AllocatorAlone, 1.1)]);
    assert!(refused.is_empty(), "{refused:?}");
    let (found, _) = explained(&mixed);
    is(
        &found,
        &[(Constant::AllocatorAlone, 1.1), (Constant::ContextAlone, 0.75)],
    );
}

/// Beyond weights and cache a server holds no more for a longer cache.
#[test]
fn what_grows_with_a_servers_cache_is_no_constant_of_it() {
    let rows: Vec<String> = (1..=12)
        .map(|n| served(&format!("s{n}"), 8 * n, 0.25 * n as f64))
        .collect();
    let (found, refused) = explained(&rows);
    assert!(found.is_empty(), "{found:?}");
    assert!(
        refused[0].starts_with("vllm-0.11 engine-alone: the error grows"),
        "{refused:?}"
    );
}

/// Jobs of one size show no difference between a factor and a constant, so neither is corrected.
#[test]
fn rows_that_do_not_tell_the_terms_apart_correct_nothing() {
    let same = [1024, 1024, 1024, 1030].map(|length| seen("r", length, 1.08, 0.0));
    let servers = [1, 1, 2, 2].map(|requests| served("s", requests, 2.0));
    for rows in [same, servers] {
        let (found, refused) = explained(&rows);
        assert!(found.is_empty(), "{found:?}");
        assert!(
            refused.iter().all(|why| why.contains("do not separate a factor")),
            "{refused:?}"
        );
    }
}

#[test]
fn what_is_out_of_limits_or_does_not_help_is_refused_with_its_reason() {
    let why = |rows: &[String]| {
        let found = calibrated(rows);
        assert!(found.calibration.is_empty(), "{found:?}");
        found.refused_corrections[0].why.clone()
    };
    assert!(why(&[trained("a", 1024, 1.05), trained("b", 2048, 1.05)]).contains("at least 3"));
    let much: Vec<String> = (1..5).map(|n| trained("x", 1024 * n, 1.8)).collect();
    assert!(why(&much).contains("out of the limits, x 0.700 to x 1.600"));
    // All over the place: the others do not tell the next.
    let scattered = [("a", 0.7), ("b", 1.3), ("c", 1.0), ("d", 1.02)];
    let scattered = scattered.map(|(id, factor)| trained(id, 2048, factor));
    assert!(why(&scattered).contains("would not help"));

    let row = |changes: &[(&str, &str)]| {
        let (names, values) = (COLUMNS.split(','), trained("odd", 2048, 1.05));
        let changed = names.zip(values.split(',')).map(|(name, value)| {
            let change = changes.iter().find(|(column, _)| *column == name);
            change.map_or(value, |(_, new)| *new).to_owned()
        });
        changed.collect::<Vec<_>>().join(",")
    };
    for (changes, word) in [
        (vec![("peak_gib", "")], "peak_gib"),
        (vec![("peak_gib", "NaN")], "above 0"),
        (vec![("peak_gib", "inf")], "above 0"),
        (vec![("peak_gib", "-3")], "above 0"),
        (vec![("peak_gib", "1e300")], "at most 10000"),
        (vec![("peak_gib", "=cmd()")], "above 0"),
        (vec![("peak_gib", "500")], "another job"),
        (vec![("vendor", "foo"), ("metric", "device")], "a vendor of GPUs"),
        (vec![("metric", "allocated")], "no constant"),
        (vec![("metric", "")], "reserved, device"),
        (vec![("hidden", "1000000000000000000000000000000")], "hidden"),
        (vec![("heads", "0")], "heads"),
        (vec![("task", "infer"), ("metric", "device")], "engine"),
        (
            vec![("task", "infer"), ("metric", "device"), ("engine", "nobody-1")],
            "vllm-0.11",
        ),
        (
            vec![("task", "infer"), ("engine", "vllm-0.11"), ("peak_gib", "5")],
            "reserves its share",
        ),
    ] {
        let found = calibrated(&[row(&changes)]);
        let why = &found.refused_rows[0].why;
        assert!(
            why.contains(word) && found.refused_rows[0].what == "odd",
            "{changes:?}: {why}"
        );
    }
}

#[test]
fn a_file_that_somebody_wrote_is_held_to_the_same_limits() {
    let correction_of = |framework: &str, constant: &str, middle: f64, safe: f64| {
        serde_json::json!({
            "framework": framework, "constant": constant, "rows": 3, "error_before": 1.0, "error_after": 0.5,
            "change": {"middle": middle, "safe": safe},
        })
    };
    let correction = |middle, safe| correction_of("pytorch", "context-alone", middle, safe);
    let file =
        |corrections: &[serde_json::Value]| serde_json::json!({"corrections": corrections}).to_string();
    let refused = |text: &str| Calibration::parse("c.json", text).unwrap_err().to_string();
    assert!(Calibration::parse("c.json", &file(&[correction(1.05, 1.2)])).is_ok());
    assert!(refused(&file(&[correction(-0.6, 1.2)])).contains("out of the limits"));
    assert!(refused(&file(&[correction(1.2, 1.1)])).contains("bound"));
    assert!(refused(&file(&[correction(1.2, 1e308)])).contains("bound"));
    assert!(refused(&file(&[correction(1.1, 1.2), correction(1.2, 1.3)])).contains("twice"));
    for (framework, constant) in [
        ("foo", "context-alone"),
        ("pytorch", "engine-alone"),
        ("vllm-0.11", "allocator-alone"),
    ] {
        let text = file(&[correction_of(framework, constant, 1.0, 1.0)]);
        assert!(refused(&text).contains("no such constant"), "{text}");
    }
    for text in [
        "",
        "{}",
        "[]",
        "{\"corrections\": 3}",
        "{\"corrections\": [{\"factor\": 3}]}",
    ] {
        assert!(refused(text).starts_with("c.json: "), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    /// Whatever stands in a file, nothing panics and nothing out of limits comes out.
    #[test]
    fn any_table_is_read_or_refused(
        cells in proptest::collection::vec(proptest::collection::vec("[-0-9a-z.\"=eE, ]{0,8}", 25), 0..6),
        factors in proptest::collection::vec(0.1f64..4.0, 0..12),
    ) {
        let mut rows: Vec<String> = cells.iter().map(|row| row.join(",")).collect();
        rows.extend(factors.iter().enumerate().map(|(n, factor)| trained(&format!("r{n}"), 512 + 64 * n as u64, *factor)));
        for text in [table(&rows), rows.join("\n"), table(&rows[cells.len()..])] {
            let Ok(found) = calibrate(&text) else { continue };
            let text = found.calibration.to_json().unwrap();
            prop_assert_eq!(Calibration::parse("c.json", &text).unwrap().corrections, found.calibration.corrections);
        }
    }
}
