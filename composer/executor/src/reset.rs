//! Resets: what was held is closed to other tenants until its reset was seen.
//!
//! A reset that isn't seen is no failure: the unit stays dirty, the evidence says why, and a bind for
//! another tenant refuses it.
//!
//! It is not to be read back either. So one whose answer nobody got (a time-out, a crash) is waited out
//! ([`crate::late`]) before anything else is done with the unit, or it would hit whoever is given it next: until then
//! it is *Indeterminate*, and the claim stays. Only then is it asked for once more: twice is as good as once.
//!
//! It is a step, or it is beside the steps: of a unit that is given back, with a host having had it since. Both are
//! in the journal, before they are sent and after.

use crate::context::Context;
use crate::gpus::Change;
use crate::late::{self, Looked, Outstanding};
use crate::ledger::Halt;
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, said};
use crate::operation::StepRecord;
use crate::state::StepState;
use poolwright_driver::{Bound, DriverError, ErrorKind, ResetSeen};
use poolwright_model::fault::FaultKind;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Target, Verb};
use tokio::time::Instant;

/// What became of a reset: what to tell, and what it means for the unit.
struct Outcome {
    evidence: String,
    change: Option<Change>,
}

/// How it was asked for so far.
struct Asked {
    attempts: u32,
    outstanding: Outstanding,
    error: Option<String>,
}

struct Reset<'a> {
    cx: &'a Context,
    live: &'a Live,
    index: u32,
    target: Target,
    /// Whether it is the step itself, or beside the steps, as part of giving back.
    way: Way,
}

/// Runs a reset step.
pub(crate) async fn reset(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let reset = Reset::new(cx, live, &record, Way::Do);
    let mut asked = Asked {
        attempts: record.attempts,
        outstanding: match record.state {
            StepState::Pending => Outstanding::Nothing,
            _ => Outstanding::of_before(record.task.as_ref(), &cx.options),
        },
        error: record.error,
    };
    let outcome = reset.run(&mut asked).await?;
    reset.done(&asked, outcome).await
}

/// Undoes a reset step, which is another reset: whoever gets the unit back gets it clean of what was
/// done to it in between.
pub(crate) async fn undo(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let mut line = StepLine::new(index, StepState::Undone);
    line.evidence = clean_up(cx, live, &record).await?;
    note::outcome(cx, live, line, None, Way::Undo).await
}

/// Resets a unit that a host was given since its last reset and that nobody holds, and gives the evidence; does
/// nothing where there is nothing to clean, and nothing that may still come.
pub(crate) async fn clean_up(cx: &Context, live: &Live, record: &StepRecord) -> Result<Option<String>, Halt> {
    let index = record.step.index;
    let before = live.ask(|operation| operation.clean_up(index).cloned());
    let before = before.filter(|line| is_open(line.state));
    let step_is_open = record.step.verb == Verb::Reset && is_open(record.state);
    let outstanding = match &before {
        Some(line) => Outstanding::of_before(line.task.as_ref(), &cx.options),
        None if step_is_open => Outstanding::of_before(record.task.as_ref(), &cx.options),
        None => Outstanding::Nothing,
    };
    let mut asked = Asked {
        attempts: before.as_ref().map_or(0, |line| line.attempts),
        outstanding,
        error: before.and_then(|line| line.error),
    };
    let reset = Reset::new(cx, live, record, Way::Undo);
    reset.wait_out(&mut asked).await?;
    let is_loose = live.ask_gpus(|gpus| {
        gpus.of_unit(&record.step.target.unit)
            .any(|gpu| !gpu.clean && matches!(gpu.state, GpuState::Reserved | GpuState::Dirty))
    });
    let outcome = match is_loose.await {
        true => reset.run(&mut asked).await?,
        false if reset.state().is_some_and(is_open) => not("there was nothing to clean any more"),
        false => return Ok(None),
    };
    let evidence = outcome.evidence.clone();
    reset.done(&asked, outcome).await?;
    Ok(Some(evidence))
}

impl<'a> Reset<'a> {
    fn new(cx: &'a Context, live: &'a Live, record: &StepRecord, way: Way) -> Self {
        Self {
            cx,
            live,
            index: record.step.index,
            target: record.step.target.clone(),
            way,
        }
    }

    /// Resets a unit that is bound to nothing: once more where nobody knows what became of it, and a little later
    /// where an earlier reset still goes on.
    async fn run(&self, asked: &mut Asked) -> Result<Outcome, Halt> {
        let mut pauses = self.cx.options.pauses();
        let mut unknown = 0;
        let mut patience = None;
        loop {
            self.wait_out(asked).await?;
            if let Some(outcome) = self.not_to_be_reset().await {
                return Ok(outcome);
            }
            let answer = self.ask(asked).await?;
            let now = Instant::now();
            match answer {
                Ok(ResetSeen::Done) => return self.read_back(asked).await,
                Ok(ResetSeen::CannotTell) => {
                    return Ok(not("its manager can't reset it, or doesn't say that it did"));
                }
                Err(error) if error.kind == ErrorKind::OutcomeUnknown => {
                    unknown += 1;
                    if unknown == 2 {
                        self.wait_out(asked).await?;
                        return Ok(not(&said(&error)));
                    }
                }
                Err(error) if error.kind == ErrorKind::Conflict => {
                    let until = *patience.get_or_insert(now + self.cx.options.settle);
                    if now >= until {
                        return Ok(not(&said(&error)));
                    }
                    let pause = pauses.next().unwrap_or(self.cx.options.last_pause);
                    self.live.pause(pause.min(until - now), self.forward()).await?;
                }
                Err(error) => return Ok(not(&said(&error))),
            }
        }
    }

    /// The address may belong to another GPU by now, so a reset counts only once the address shows this one. A service that
    /// doesn't answer, such as one that restarts, is waited for.
    async fn read_back(&self, asked: &mut Asked) -> Result<Outcome, Halt> {
        let options = &self.cx.options;
        let mut pauses = options.pauses();
        let patience = Instant::now() + options.settle;
        loop {
            let error = match self.cx.metal.bound(&self.target).await {
                Ok(_) => {
                    return Ok(Outcome {
                        evidence: "reset, and seen to be".to_owned(),
                        change: Some(Change::ResetSeen),
                    });
                }
                Err(error) => error,
            };
            let is_silent = match (error.kind, error.fault) {
                (ErrorKind::OutcomeUnknown, _) => true,
                (ErrorKind::NoEffect, fault) => matches!(
                    fault,
                    FaultKind::Unreachable | FaultKind::Timeout | FaultKind::ServerError
                ),
                _ => false,
            };
            if !is_silent {
                return Ok(not(&said(&error)));
            }
            let why = said(&error);
            if Instant::now() >= patience {
                asked.error = Some(format!("reset of {}: done, and not read back", self.target.unit));
                self.hold(asked, &why).await?;
            }
            self.show(format!("the GPU to be read after its reset: {why}"));
            let pause = pauses.next().unwrap_or(options.last_pause);
            self.live.pause(pause, self.forward()).await?;
        }
    }

    /// Why it is left alone; `None` where it is bound to nothing.
    async fn not_to_be_reset(&self) -> Option<Outcome> {
        let foreign = |reason: &str| Outcome {
            change: Some(Change::SeenForeign),
            ..not(reason)
        };
        match self.cx.metal.bound(&self.target).await {
            Ok(Bound::Free) => None,
            Ok(Bound::To { port_address }) => Some(foreign(&format!(
                "it is bound to {port_address}, by somebody else"
            ))),
            Ok(Bound::Several { port_addresses }) => Some(foreign(&format!(
                "it is bound to several ports: {}",
                port_addresses.join(", ")
            ))),
            Err(error) => Some(not(&said(&error))),
        }
    }

    /// Journals the intent, and asks for it.
    async fn ask(&self, asked: &mut Asked) -> Result<Result<ResetSeen, DriverError>, Halt> {
        asked.attempts += 1;
        (asked.outstanding, asked.error) = (Outstanding::Nothing, None);
        let intent = self.line(StepState::Running, asked);
        match self.way {
            Way::Do => note::intent(self.cx, self.live, intent, None).await?,
            Way::Undo => note::clean_up_intent(self.cx, self.live, intent).await?,
        }
        self.show(format!("{} to be reset", self.target.unit));
        let pass = self.cx.pass(self.live, self.index, self.way);
        let answer = self.cx.metal.reset(&self.target, pass).await?;
        note::acted(self.cx, self.live, self.index, self.way).await;
        if let Err(error) = &answer
            && error.kind == ErrorKind::OutcomeUnknown
        {
            asked.outstanding = Outstanding::after(&answer, &self.cx.options);
            asked.error = Some(format!("reset of {}: {}", self.target.unit, said(error)));
        }
        Ok(answer)
    }

    /// Waits until nothing that was sent can come any more; holds the operation meanwhile.
    async fn wait_out(&self, asked: &mut Asked) -> Result<(), Halt> {
        let options = &self.cx.options;
        let mut pauses = options.pauses();
        loop {
            let mut pause = pauses.next().unwrap_or(options.last_pause);
            let why = match asked.outstanding.clone() {
                Outstanding::Nothing => return Ok(()),
                Outstanding::Until(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        asked.outstanding = Outstanding::Nothing;
                        return Ok(());
                    }
                    pause = pause.min(left);
                    "it may still come true".to_owned()
                }
                Outstanding::Task(task) => {
                    match late::look_at(&self.cx.metal, &self.target, &task, options).await {
                        Looked::GoesOn(why) => why,
                        Looked::Ended(_, outstanding) => {
                            asked.outstanding = outstanding;
                            pauses = options.pauses();
                            continue;
                        }
                    }
                }
            };
            self.hold(asked, &why).await?;
            self.show(format!("the reset of {}: {why}", self.target.unit));
            self.live.pause(pause, self.forward()).await?;
        }
    }

    /// Nobody knows what becomes of it: the unit is held, and that is written down.
    async fn hold(&self, asked: &Asked, why: &str) -> Result<(), Halt> {
        if self.state() == Some(StepState::Indeterminate) {
            return Ok(());
        }
        let mut line = self.line(StepState::Indeterminate, asked);
        let cause = asked.error.clone();
        let cause = cause.unwrap_or_else(|| format!("reset of {}: interrupted", self.target.unit));
        line.error = Some(format!("{cause}; {why}"));
        self.outcome(line, None).await
    }

    /// What the journal has of it.
    fn state(&self) -> Option<StepState> {
        self.live.ask(|operation| match self.way {
            Way::Do => operation.step(self.index).map(|record| record.state),
            Way::Undo => operation.clean_up(self.index).map(|line| line.state),
        })
    }

    async fn done(&self, asked: &Asked, Outcome { evidence, change }: Outcome) -> Result<(), Halt> {
        let mut line = StepLine::new(self.index, StepState::Done);
        (line.attempts, line.evidence) = (asked.attempts, Some(evidence));
        self.outcome(line, change).await
    }

    async fn outcome(&self, line: StepLine, change: Option<Change>) -> Result<(), Halt> {
        match self.way {
            Way::Do => note::outcome(self.cx, self.live, line, change, self.way).await,
            Way::Undo => note::clean_up_outcome(self.cx, self.live, line, change).await,
        }
    }

    fn line(&self, state: StepState, asked: &Asked) -> StepLine {
        StepLine {
            attempts: asked.attempts,
            unsure: !asked.outstanding.is_over(Instant::now()),
            task: asked.outstanding.task().cloned(),
            error: asked.error.clone(),
            ..StepLine::new(self.index, state)
        }
    }

    /// What the step waits for; one that something is beside of goes on as it was.
    fn show(&self, waiting_for: String) {
        self.live.hold_back(self.index, Some(waiting_for));
    }

    /// The step, where it goes forward: its waits end when it is to be undone.
    fn forward(&self) -> Option<u32> {
        (self.way == Way::Do).then_some(self.index)
    }
}

/// Sent, and nobody has written down what became of it.
fn is_open(state: StepState) -> bool {
    matches!(state, StepState::Running | StepState::Indeterminate)
}

fn not(reason: &str) -> Outcome {
    Outcome {
        evidence: format!("not reset: {reason}"),
        change: None,
    }
}
