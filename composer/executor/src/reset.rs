//! Resets: what was held is closed to other tenants until its reset was seen.
//!
//! A reset that isn't seen is no failure: the unit stays dirty, the evidence says why, and a bind for
//! another tenant refuses it.

use crate::charge;
use crate::context::Context;
use crate::gpus::Change;
use crate::ledger::Halt;
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, done, said};
use crate::operation::StepRecord;
use crate::pause::Pass;
use crate::state::StepState;
use poolwright_driver::{Bound, DriverError, ErrorKind, ResetSeen};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Target;

/// What became of a reset: what to tell, and what it means for the unit.
struct Outcome {
    evidence: String,
    change: Option<Change>,
}

/// Runs a reset step.
pub(crate) async fn reset(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let mut intent = StepLine::new(index, StepState::Running);
    intent.attempts = record.attempts + 1;
    note::intent(cx, live, intent, None).await?;
    live.show(index, Some(format!("{} to be reset", target.unit)));
    let pass = cx.pass(live, index, Way::Do);
    let Outcome { evidence, change } = try_reset(cx, target, pass).await?;
    note::acted(cx, live, index, Way::Do).await;
    done(cx, live, index, evidence, change).await
}

/// Undoes a reset step, which is another reset: whoever gets the unit back gets it clean of what was
/// done to it in between.
pub(crate) async fn undo(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let (change, evidence) = clean(cx, live, &record).await?;
    let mut line = StepLine::new(index, StepState::Undone);
    line.evidence = evidence;
    note::outcome(cx, live, line, change, Way::Undo).await
}

/// Resets a unit that a host was given since its last reset and that nobody holds; does nothing where
/// there is nothing to clean.
pub(crate) async fn clean(
    cx: &Context,
    live: &Live,
    record: &StepRecord,
) -> Result<(Option<Change>, Option<String>), Halt> {
    let target = &record.step.target;
    let loose = live.ask_gpus(|gpus| {
        gpus.of_unit(&target.unit)
            .any(|gpu| !gpu.clean && matches!(gpu.state, GpuState::Reserved | GpuState::Dirty))
    });
    if !loose.await {
        return Ok((None, None));
    }
    charge::confirm(cx, live, record.step.index).await?;
    let pass = cx.pass(live, record.step.index, Way::Undo);
    let Outcome { evidence, change } = try_reset(cx, target, pass).await?;
    Ok((change, Some(evidence)))
}

/// Resets a unit that is bound to nothing. Doing it twice is as good as once.
async fn try_reset(cx: &Context, target: &Target, pass: Pass<'_>) -> Result<Outcome, Halt> {
    let not = |reason: String| Outcome {
        evidence: format!("not reset: {reason}"),
        change: None,
    };
    match cx.metal.bound(target).await {
        Ok(Bound::Free) => {}
        Ok(Bound::To { port_address }) => {
            return Ok(Outcome {
                change: Some(Change::SeenForeign),
                ..not(format!("it is bound to {port_address}, by somebody else"))
            });
        }
        Ok(Bound::Several { port_addresses }) => {
            return Ok(Outcome {
                change: Some(Change::SeenForeign),
                ..not(format!(
                    "it is bound to several ports: {}",
                    port_addresses.join(", ")
                ))
            });
        }
        Err(error) => return Ok(not(said(&error))),
    }
    Ok(match ask(cx, target, pass).await? {
        Ok(ResetSeen::Done) => Outcome {
            evidence: "reset, and seen to be".to_owned(),
            change: Some(Change::ResetSeen),
        },
        Ok(ResetSeen::CannotTell) => not("its manager can't reset it, or doesn't say that it did".to_owned()),
        Err(error) => not(said(&error)),
    })
}

/// Asks for a reset; once more where nobody knows what became of it. Where an earlier one still goes on, be
/// it of this run or of one before a crash, it is asked for again a little later.
async fn ask(cx: &Context, target: &Target, pass: Pass<'_>) -> Result<Result<ResetSeen, DriverError>, Halt> {
    let until = tokio::time::Instant::now() + cx.options.settle;
    let mut pauses = cx.options.pauses();
    let mut unknown = 0;
    loop {
        let answer = cx.metal.reset(target, pass).await?;
        let now = tokio::time::Instant::now();
        match &answer {
            Err(error) if error.kind == ErrorKind::OutcomeUnknown && unknown == 0 => unknown += 1,
            Err(error) if error.kind == ErrorKind::Conflict && now < until => {
                tokio::time::sleep(pauses.next().unwrap_or_default().min(until - now)).await;
            }
            _ => return Ok(answer),
        }
    }
}
