//! What comes after the host was seen to have the GPUs: it sees that they are well, gives them its profile, and tells its
//! software of them. An attach succeeds when all of that has.
//!
//! A host that nobody can ask for it is no obstacle: nothing is sent then, and the evidence says so.

use crate::context::Context;
use crate::ledger::Halt;
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, done, said};
use crate::state::StepState;
use poolwright_driver::{DriverError, ErrorKind};

/// Runs the step.
pub(crate) async fn make_ready(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let (mut attempts, mut unsure) = (record.attempts, record.state != StepState::Pending);
    if !unsure && let Err(error) = cx.metal.can_make_ready(target).await {
        return match error.kind {
            ErrorKind::CannotTell => note::carried(cx, live, not_possible(index, attempts, &error)).await,
            _ => failed(cx, live, index, (attempts, unsure), &error).await,
        };
    }
    loop {
        attempts += 1;
        let mut intent = StepLine::new(index, StepState::Running);
        (intent.attempts, intent.unsure) = (attempts, unsure);
        note::intent(cx, live, intent, None).await?;
        live.show(index, Some(format!("{} to make the GPUs ready", target.host)));
        let pass = cx.pass(live, index, Way::Do);
        let answer = cx.metal.make_ready(target, pass).await?;
        note::acted(cx, live, index, Way::Do).await;
        match answer {
            Ok(evidence) => return done(cx, live, index, evidence, None).await,
            Err(error) if error.kind == ErrorKind::CannotTell => {
                let line = not_possible(index, attempts, &error);
                return note::outcome(cx, live, line, None, Way::Do).await;
            }
            // Doing it twice is as good as once, and how often is bounded.
            Err(error) if error.kind == ErrorKind::OutcomeUnknown && attempts < 2 => unsure = true,
            Err(error) => {
                unsure |= error.kind == ErrorKind::OutcomeUnknown;
                return failed(cx, live, index, (attempts, unsure), &error).await;
            }
        }
    }
}

fn not_possible(index: u32, attempts: u32, error: &DriverError) -> StepLine {
    let mut line = StepLine::new(index, StepState::NotPossible);
    line.attempts = attempts;
    line.evidence = Some(format!("not made ready: {}", said(error)));
    line
}

async fn failed(
    cx: &Context,
    live: &Live,
    index: u32,
    (attempts, unsure): (u32, bool),
    error: &DriverError,
) -> Result<(), Halt> {
    let message = format!("{}: {}", live.step(index)?.step, said(error));
    let mut line = StepLine::new(index, StepState::Failed);
    (line.attempts, line.unsure) = (attempts, unsure);
    note::failed(cx, live, line, message, None).await
}
