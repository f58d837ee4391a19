//! A run over time: phases, each with its own work, batch, sequence and GPUs, one after another, become windows of
//! time with a need each.
//!
//! How long a phase lasts follows from its tokens and the speed of the smallest set that holds it; every alternative
//! of a window's need is at least as fast, so whichever the planner takes is done by the window's end. Nothing is
//! added for checkpoints, failures and the moves between phases.

use crate::calibration::Calibration;
use crate::error::SizingError;
use crate::fit::{self, Candidate, Fit, Limits, Offer};
use crate::job::Job;
use crate::model::Model;
use crate::named::named;
use crate::need::{Need, NeedWindow, Task};

named! {
    /// What a phase is to a run.
    PhaseKind("kind") {
        /// Small batches or short sequences while the learning rate rises.
        WarmUp = "warm-up",
        Main = "main",
        /// The last part of training, on longer sequences.
        LongContext = "long-context",
        /// Serving the model to judge it.
        Evaluation = "evaluation",
        /// On other data, often with adapters.
        FineTune = "fine-tune",
    }
}

impl PhaseKind {
    pub fn usual_task(self) -> Task {
        match self {
            PhaseKind::WarmUp | PhaseKind::Main | PhaseKind::LongContext => Task::Full,
            PhaseKind::Evaluation => Task::Infer,
            PhaseKind::FineTune => Task::Lora,
        }
    }
}

/// How much is done in a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Trained, or of an evaluation generated.
    Tokens(f64),
    Seconds(f64),
}

/// A part of a run with one kind of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub name: String,
    pub kind: PhaseKind,
    pub job: Job,
    pub work: Work,
    /// Just so many GPUs; None: the fewest that hold it.
    pub gpus: Option<u32>,
    /// The name of a hardware profile; None: any kind on offer.
    pub gpu_kind: Option<String>,
}

/// When a phase runs, and on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    pub kind: PhaseKind,
    /// What the planner takes.
    pub window: NeedWindow,
    /// The set that the length rests on: the first alternative of the need.
    pub set: Candidate,
    pub work: Work,
}

/// Short however large it is.
fn brief(number: f64) -> String {
    if number.abs() < 1e15 {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// A phase that can't be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PhaseError {
    #[error("phase {phase}: {error}")]
    Sizing { phase: String, error: SizingError },
    /// With the reason of each kind.
    #[error("phase {phase}: {} fits nowhere", fit.label)]
    Nowhere { phase: String, fit: Box<Fit> },
    #[error(
        "phase {phase}: how fast the sets that hold it are is not known; give its hours instead of tokens"
    )]
    NoSpeed { phase: String },
    #[error("phase {phase}: {key} is {}; allowed: {allowed}", brief(*found))]
    Work {
        phase: String,
        key: &'static str,
        found: f64,
        allowed: String,
    },
    #[error("phase {phase}: two phases have this name; each window is known by its own")]
    Twice { phase: String },
}

/// The windows of the phases, one after another from second 0.
pub fn schedule(
    model: &Model,
    phases: &[Phase],
    offers: &[Offer],
    limits: Limits,
) -> Result<Vec<Scheduled>, PhaseError> {
    schedule_calibrated(model, phases, offers, limits, &Calibration::default())
}

/// The same with constants as measured peaks corrected them.
pub fn schedule_calibrated(
    model: &Model,
    phases: &[Phase],
    offers: &[Offer],
    limits: Limits,
    calibration: &Calibration,
) -> Result<Vec<Scheduled>, PhaseError> {
    let mut scheduled: Vec<Scheduled> = Vec::new();
    let mut start_s = 0;
    for phase in phases {
        if scheduled.iter().any(|before| before.window.phase == phase.name) {
            return Err(PhaseError::Twice {
                phase: phase.name.clone(),
            });
        }
        let next = window(model, phase, offers, limits, calibration, start_s)?;
        start_s = next.window.end_s;
        scheduled.push(next);
    }
    Ok(scheduled)
}

fn window(
    model: &Model,
    phase: &Phase,
    offers: &[Offer],
    limits: Limits,
    calibration: &Calibration,
    start_s: u64,
) -> Result<Scheduled, PhaseError> {
    check(phase, limits)?;
    let wanted = |offer: &&Offer| phase.gpu_kind.is_none() || offer.kind == phase.gpu_kind;
    let offers: Vec<Offer> = offers.iter().filter(wanted).cloned().collect();
    let limits = Limits {
        gpus: phase.gpus.or(limits.gpus),
        ..limits
    };
    let fit = fit::fit_calibrated(model, &phase.job, &offers, limits, calibration);
    let mut fit = fit.map_err(|error| PhaseError::Sizing {
        phase: phase.name.clone(),
        error,
    })?;
    if fit.candidates.is_empty() {
        return Err(PhaseError::Nowhere {
            phase: phase.name.clone(),
            fit: Box::new(fit),
        });
    }
    let seconds = match phase.work {
        Work::Seconds(seconds) => seconds,
        Work::Tokens(tokens) => {
            let slowest = fit.candidates.iter().find_map(Candidate::tokens_per_s);
            let slowest = slowest.ok_or_else(|| PhaseError::NoSpeed {
                phase: phase.name.clone(),
            })?;
            fit.candidates
                .retain(|candidate| candidate.tokens_per_s().is_some_and(|rate| rate >= slowest));
            tokens / slowest
        }
    };
    let (Some(set), Some(need)) = (fit.candidates.first().cloned(), fit.need()) else {
        return Err(PhaseError::NoSpeed {
            phase: phase.name.clone(),
        });
    };
    // Whole seconds, so that windows meet; a phase takes at least one.
    let length = (seconds.ceil() as u64).max(1);
    Ok(Scheduled {
        kind: phase.kind,
        window: NeedWindow {
            phase: phase.name.clone(),
            start_s,
            end_s: start_s.saturating_add(length),
            need: Need {
                label: format!("{}: {}", phase.name, need.label),
                ..need
            },
        },
        set,
        work: phase.work,
    })
}

fn check(phase: &Phase, limits: Limits) -> Result<(), PhaseError> {
    let refused = |key, found, allowed: &str| PhaseError::Work {
        phase: phase.name.clone(),
        key,
        found,
        allowed: allowed.to_owned(),
    };
    if let Some(gpus) = phase.gpus.filter(|gpus| !(1..=limits.max_gpus).contains(gpus)) {
        let allowed = format!("1 to {}", limits.max_gpus);
        return Err(refused("gpus", f64::from(gpus), &allowed));
    }
    match phase.work {
        Work::Tokens(tokens) if !(1.0..=1e18).contains(&tokens) => {
            Err(refused("tokens", tokens, "1 to 10^18"))
        }
        Work::Seconds(seconds) if !(1.0..=1e10).contains(&seconds) => Err(refused(
            "hours",
            seconds / 3600.0,
            "a second, 0.0003, to 2.7 million, some 300 years",
        )),
        Work::Tokens(_) | Work::Seconds(_) => Ok(()),
    }
}
