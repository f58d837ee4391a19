//! A run over time becomes windows with needs.

use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_sizing::job::{Loss, Method};
use poolwright_sizing::need::NeedWindow;
use poolwright_sizing::phases::{Phase, PhaseError, PhaseKind, Scheduled, Work, schedule};
use poolwright_sizing::{Catalogue, Job, Limits, Offer, Training};

fn offers() -> Vec<Offer> {
    Profiles::builtin()
        .all()
        .iter()
        .map(|k| Offer::of(k, None))
        .collect()
}

fn phase(name: &str, kind: PhaseKind, work: Work, gpus: u32) -> Phase {
    Phase {
        name: name.into(),
        kind,
        job: Job::of(kind.usual_task()),
        work,
        gpus: Some(gpus),
        gpu_kind: Some("h100-sxm5-80gb".into()),
    }
}

fn training_run() -> Vec<Phase> {
    let long = Job::Training(Training {
        seq_len: 32_768,
        loss: Loss::Chunked,
        ..Training::new(Method::Full)
    });
    vec![
        phase("warm-up", PhaseKind::WarmUp, Work::Tokens(2e9), 8),
        phase("main", PhaseKind::Main, Work::Tokens(100e9), 64),
        Phase {
            job: long,
            ..phase("long", PhaseKind::LongContext, Work::Tokens(5e9), 32)
        },
        phase("judging", PhaseKind::Evaluation, Work::Seconds(7200.0), 2),
        Phase {
            gpus: None,
            gpu_kind: None,
            ..phase("tuning", PhaseKind::FineTune, Work::Tokens(1e8), 1)
        },
    ]
}

fn run(phases: &[Phase]) -> Result<Vec<Scheduled>, PhaseError> {
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let limits = Limits {
        host_slots: Some(8),
        ..Limits::default()
    };
    schedule(&model, phases, &offers(), limits)
}

#[test]
fn phases_follow_each_other_each_with_its_gpus() {
    let scheduled = run(&training_run()).unwrap();
    let counts: Vec<u32> = scheduled
        .iter()
        .map(|s| s.window.need.alternatives[0].count)
        .collect();
    assert_eq!(counts[..4], [8, 64, 32, 2]);
    assert_eq!(counts[4], 1, "one GPU is enough for adapters");
    assert_eq!(scheduled[0].window.start_s, 0);
    for pair in scheduled.windows(2) {
        assert_eq!(pair[0].window.end_s, pair[1].window.start_s);
    }
    // The budget decides when a phase ends.
    let main = &scheduled[1];
    let lasts = (main.window.end_s - main.window.start_s) as f64;
    assert!((main.set.run_time_s(100e9).unwrap() - lasts).abs() <= 1.0);
    let judging = &scheduled[3].window;
    assert_eq!(judging.end_s - judging.start_s, 7200);
    assert_eq!(
        NeedWindow::at(scheduled.iter().map(|s| &s.window), judging.start_s),
        Some(judging)
    );
    assert_eq!(
        NeedWindow::at(scheduled.iter().map(|s| &s.window), u64::MAX),
        None
    );
    let text = serde_json::to_string(&main.window).unwrap();
    assert_eq!(serde_json::from_str::<NeedWindow>(&text).unwrap(), main.window);
}

#[test]
fn every_alternative_is_done_by_the_end_of_its_window() {
    let any = Phase {
        gpus: None,
        gpu_kind: None,
        ..phase("main", PhaseKind::Main, Work::Tokens(1e9), 1)
    };
    let scheduled = run(std::slice::from_ref(&any)).unwrap().remove(0);
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let all = poolwright_sizing::fit::fit(
        &model,
        &any.job,
        &offers(),
        Limits {
            host_slots: Some(8),
            ..Limits::default()
        },
    )
    .unwrap();
    let lasts = scheduled.window.end_s as f64;
    let alternatives = &scheduled.window.need.alternatives;
    assert!(alternatives.len() > 1 && alternatives.len() < all.candidates.len());
    for candidate in &all.candidates {
        let in_time = candidate.run_time_s(1e9).is_some_and(|seconds| seconds <= lasts);
        assert_eq!(
            alternatives.contains(&candidate.set),
            in_time,
            "{}",
            candidate.set
        );
    }
}

#[test]
fn what_can_not_be_scheduled_is_refused_by_name() {
    let refused = |phases: &[Phase]| run(phases).unwrap_err().to_string();
    let main = phase("main", PhaseKind::Main, Work::Tokens(1e9), 64);
    assert!(refused(&[main.clone(), main.clone()]).contains("two phases"));
    let too_few = Phase {
        gpus: Some(1),
        ..main.clone()
    };
    assert!(refused(&[too_few]).starts_with("phase main: Llama-3.1-8B full"));
    for work in [
        Work::Tokens(0.0),
        Work::Tokens(f64::NAN),
        Work::Tokens(1e30),
        Work::Seconds(-1.0),
    ] {
        let error = refused(&[Phase { work, ..main.clone() }]);
        assert!(
            error.starts_with("phase main: ") && error.contains("allowed: "),
            "{error}"
        );
    }
    // GPUs of which only the memory is known have no speed.
    let unknown = [Offer::of_memory("Contoso", Bytes::from_gib(180.0), None)];
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let anywhere = Phase {
        gpu_kind: None,
        ..main
    };
    let error = schedule(&model, &[anywhere], &unknown, Limits::default()).unwrap_err();
    assert!(error.to_string().contains("give its hours"), "{error}");
}
