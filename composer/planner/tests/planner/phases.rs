//! A run whose needs change over time is planned window by window.

use crate::support::*;
use poolwright_model::profile::Profiles;
use poolwright_sizing::phases::{Phase, PhaseKind, Work, schedule};
use poolwright_sizing::{Catalogue, Job, Limits, Offer};

const KIND: &str = "h100-pcie-80gb";

fn phase(name: &str, kind: PhaseKind, gpus: Option<u32>) -> Phase {
    Phase {
        name: name.into(),
        kind,
        job: Job::of(kind.usual_task()),
        work: Work::Tokens(1e9),
        gpus,
        gpu_kind: None,
    }
}

#[test]
fn each_window_of_a_run_is_placed_with_just_its_gpus() {
    let kind = Profiles::builtin().by_name(KIND).unwrap();
    let memory = kind.memory().gib();
    let mut rack = Rack::new()
        .gpus("f/s1", KIND, memory, 12)
        .gpus("f/s2", KIND, memory, 12)
        .host("host-1", "f/s1", 8)
        .host("host-2", "f/s2", 8)
        .host("host-3", "f/s2", 8)
        .cable("f", "s1", "s2");
    let phases = [
        phase("warm-up", PhaseKind::WarmUp, Some(4)),
        phase("main", PhaseKind::Main, Some(16)),
        phase("evaluation", PhaseKind::Evaluation, None),
        phase("fine-tune", PhaseKind::FineTune, Some(8)),
    ];
    let model = Catalogue::builtin().resolve("Llama-3.1-8B").unwrap();
    let limits = Limits {
        host_slots: Some(8),
        ..Limits::default()
    };
    let run = schedule(&model, &phases, &[Offer::of(kind, Some(24))], limits).unwrap();
    for (scheduled, gpus) in run.iter().zip([4, 16, 1, 8]) {
        rack.demand("run", 0, scheduled.window.need.clone());
        rack.apply(7);
        let held: u32 = rack.held.iter().map(|composition| composition.gpu_count()).sum();
        // What the phase before had and this one does not need is let go.
        assert_eq!(held, gpus, "{}", scheduled.window.phase);
        rack.forget("run");
    }
}
