//! The steps on the host's side: is there room, does it see the GPUs, who uses them.
//!
//! Looks change nothing, so they have no intent in the journal. A host side that can't tell is no
//! failure: the evidence says so.

use crate::context::Context;
use crate::gpus::Change;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, done, looked, said};
use crate::operation::StepRecord;
use crate::pause::Pass;
use crate::restart;
use crate::state::StepState;
use poolwright_driver::{Confirmation, DriverError, ErrorKind, Holder, Learned, Room};
use poolwright_model::step::{Target, Verb};

/// The evidence where the host's side can't tell.
pub(crate) const FABRIC_ALONE: &str = "fabric alone";

/// Asks for room.
pub(crate) async fn preflight(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    live.show(
        index,
        Some(format!("{} to say whether there is room", target.host)),
    );
    let largest_bar = live.ask_gpus(|gpus| gpus.largest_bar(&target.unit)).await;
    let evidence = match cx.metal.preflight(target, largest_bar).await {
        Ok(Room::Enough) => "the host says that there is room".to_owned(),
        Ok(Room::CannotTell { reason }) => reason,
        Err(error) if error.kind == ErrorKind::CannotTell => said(&error),
        Ok(Room::NotEnough { reason }) => {
            let message = format!("{}: {reason}", record.step);
            return failed(cx, live, &record, message).await;
        }
        Err(error) => {
            let message = format!("{}: {}", record.step, said(&error));
            return failed(cx, live, &record, message).await;
        }
    };
    looked(cx, live, index, evidence).await
}

/// Waits until the host sees the GPUs.
pub(crate) async fn verify(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let until = tokio::time::Instant::now() + cx.options.verify_deadline;
    loop {
        let missing = match cx.metal.verify(target).await {
            Ok(Confirmation::Seen { evidence, learned }) => {
                return seen(cx, live, &record, evidence, learned).await;
            }
            Ok(Confirmation::CannotTell { reason }) => return unconfirmed(cx, live, &record, &reason).await,
            Err(error) if error.kind == ErrorKind::CannotTell => {
                return unconfirmed(cx, live, &record, &said(&error)).await;
            }
            Ok(Confirmation::NotSeen { reason }) => reason,
            // It may be back before the deadline.
            Err(error) => said(&error),
        };
        if tokio::time::Instant::now() >= until {
            let waited = cx.options.verify_deadline.as_secs_f32();
            let message = format!("{}: not within {waited} s: {missing}", record.step);
            return failed(cx, live, &record, message).await;
        }
        let gpus: Vec<_> = target.gpus.iter().map(ToString::to_string).collect();
        let waits = format!("{} to see {} ({missing})", target.host, gpus.join(", "));
        live.show(index, Some(waits));
        live.pause(cx.options.verify_pause, Some(index)).await?;
    }
}

/// The host sees them. What it tells of them is kept; another GPU than before goes back.
async fn seen(
    cx: &Context,
    live: &Live,
    record: &StepRecord,
    evidence: String,
    learned: Vec<Learned>,
) -> Result<(), Halt> {
    let index = record.step.index;
    let unit = &record.step.target.unit;
    let Some(why) = live.ask_gpus(|gpus| gpus.is_another(unit, &learned)).await else {
        return note::confirmed(cx, live, index, evidence, learned).await;
    };
    let mut line = StepLine::new(index, StepState::Failed);
    line.learned = learned;
    let message = format!("{}: {why}; see what was exchanged there", record.step);
    note::failed(cx, live, line, message, None).await
}

async fn unconfirmed(cx: &Context, live: &Live, record: &StepRecord, reason: &str) -> Result<(), Halt> {
    if cx.options.accept_fabric_alone {
        let evidence = format!("{FABRIC_ALONE}: {reason}");
        return looked(cx, live, record.step.index, evidence).await;
    }
    let message = format!(
        "{}: {reason}, and the fabric's word alone is not accepted here",
        record.step
    );
    failed(cx, live, record, message).await
}

/// Makes the host let go of the GPUs, once nobody uses them.
pub(crate) async fn drain(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let (mut attempts, mut unsure) = (record.attempts, record.state != StepState::Pending);
    loop {
        live.show(index, Some(format!("{} to say who uses the GPUs", target.host)));
        if let Err(error) = nobody_uses(cx, live, target).await {
            return undrained(cx, live, &record, (attempts, unsure), &error).await;
        }
        // Before it lets go: after a start in between it has the GPUs again.
        let boot = match restart::boot(cx, target).await {
            Ok(boot) => boot,
            Err(_) if live.ask(|operation| operation.force.is_some()) => None,
            Err(error) => return undrained(cx, live, &record, (attempts, unsure), &error).await,
        };
        attempts += 1;
        let mut intent = StepLine::new(index, StepState::Running);
        (intent.attempts, intent.unsure, intent.boot) = (attempts, unsure, boot);
        note::intent(cx, live, intent, Some(Change::DrainStarted)).await?;
        live.show(index, Some(format!("{} to let go of the GPUs", target.host)));
        let pass = cx.pass(live, index, Way::Do);
        let answer = cx.metal.drain(target, pass).await?;
        note::acted(cx, live, index, Way::Do).await;
        let evidence = match answer {
            Ok(()) => "the host let go of it".to_owned(),
            Err(error) if error.kind == ErrorKind::CannotTell => {
                return not_possible(cx, live, index, &said(&error)).await;
            }
            // Draining twice is as good as once, and how often is bounded.
            Err(error) if error.kind == ErrorKind::OutcomeUnknown && attempts < 2 => {
                unsure = true;
                continue;
            }
            // Whether a job keeps it busy or the host hangs: somebody has said that it goes all the same.
            Err(error) if live.ask(|operation| operation.force.is_some()) => {
                format!("forced, without the host: {}", said(&error))
            }
            Err(error) => {
                unsure |= error.kind == ErrorKind::OutcomeUnknown;
                return undrained(cx, live, &record, (attempts, unsure), &error).await;
            }
        };
        // Somebody may have been faster than the drain.
        if let Err(error) = nobody_uses(cx, live, target).await {
            return undrained(cx, live, &record, (attempts, true), &error).await;
        }
        return done(cx, live, index, evidence, None).await;
    }
}

/// The host can't be made to let go from here. The fabric takes the GPU away all the same, and the operation
/// says so for good.
async fn not_possible(cx: &Context, live: &Live, index: u32, reason: &str) -> Result<(), Halt> {
    let record = live.step(index)?;
    tracing::warn!(operation = %live.id, step = %record.step, reason, "not drained");
    let mut line = StepLine::new(index, StepState::NotPossible);
    line.attempts = record.attempts;
    line.evidence = Some(format!("not drained: {reason}"));
    note::outcome(cx, live, line, None, Way::Do).await
}

async fn undrained(
    cx: &Context,
    live: &Live,
    record: &StepRecord,
    (attempts, unsure): (u32, bool),
    error: &DriverError,
) -> Result<(), Halt> {
    let message = format!("{}: {}", record.step, said(error));
    let mut line = StepLine::new(record.step.index, StepState::Failed);
    (line.attempts, line.unsure) = (attempts, unsure);
    // Where the drain may have begun, it is taken back first.
    let change = (attempts > 0 && !unsure).then_some(Change::DrainUndone);
    note::failed(cx, live, line, message, change).await
}

/// Takes back what a host was made to do: that it let go of GPUs, or that it made them ready.
pub(crate) async fn take_back(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let is_drain = record.step.verb == Verb::Drain;
    let mut pauses = cx.options.pauses();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut intent = StepLine::new(index, StepState::Undoing);
        intent.attempts = attempts;
        note::intent(cx, live, intent, None).await?;
        let pass = cx.pass(live, index, Way::Undo);
        let answer = match is_drain {
            true => cx.metal.undrain(target, pass).await?,
            false => cx.metal.unready(target, pass).await?,
        };
        note::acted(cx, live, index, Way::Undo).await;
        match answer {
            Ok(()) => break,
            Err(error) if error.kind == ErrorKind::CannotTell => break,
            Err(error) if attempts >= cx.options.undo_attempts => {
                let mut line = StepLine::new(index, StepState::Stuck);
                line.attempts = attempts;
                let message = format!("undo: {}: {}", record.step, said(&error));
                return note::stuck(cx, live, line, message).await;
            }
            Err(error) => {
                let what = if is_drain {
                    "take the GPUs back"
                } else {
                    "put the GPUs back as they were"
                };
                live.show(index, Some(format!("{} to {what} ({error})", target.host)));
                let pause = pauses.next().unwrap_or(cx.options.last_pause);
                live.pause(pause, None).await?;
            }
        }
    }
    let mut line = StepLine::new(index, StepState::Undone);
    line.attempts = attempts;
    let change = is_drain.then_some(Change::DrainUndone);
    note::outcome(cx, live, line, change, Way::Undo).await?;
    if !is_drain {
        return Ok(());
    }
    // It was attached before; one look says whether it is again.
    if let Ok(Confirmation::Seen { .. }) = cx.metal.verify(target).await {
        let entry = Entry {
            lines: vec![],
            changes: vec![(index, Change::Confirmed)],
            begins: Begins::Nothing,
            proof: None,
        };
        live.write(entry).await?;
    }
    Ok(())
}

/// Nobody uses the GPUs, or the host can't tell, or somebody gave a reason to pull them all the same.
/// The error names who does.
pub(crate) async fn nobody_uses(cx: &Context, live: &Live, target: &Target) -> Result<(), DriverError> {
    match live.ask(|operation| operation.force.is_some()) {
        true => Ok(()),
        false => used(cx, target).await,
    }
}

/// The same, whoever asks.
pub(crate) async fn used(cx: &Context, target: &Target) -> Result<(), DriverError> {
    match cx.metal.holders(target).await {
        Ok(holders) if holders.is_empty() => Ok(()),
        Ok(holders) => {
            let names: Vec<_> = holders.iter().map(name).collect();
            let message = format!("in use on {}: {}", target.host, names.join(", "));
            Err(DriverError::no_effect(message).with_hint("end it, or force with a reason"))
        }
        Err(error) if error.kind == ErrorKind::CannotTell => Ok(()),
        Err(error) => {
            let message = format!("{} doesn't say who uses it: {error}", target.host);
            Err(DriverError::no_effect(message).with_hint("see why, or force with a reason"))
        }
    }
}

/// Makes the host let go of GPUs that are unbound as an undo. Nothing was unbound if it fails.
pub(crate) async fn let_go(
    cx: &Context,
    target: &Target,
    pass: Pass<'_>,
) -> Result<Result<(), DriverError>, Halt> {
    Ok(match cx.metal.drain(target, pass).await? {
        Ok(()) => Ok(()),
        Err(error) if error.kind == ErrorKind::CannotTell => Ok(()),
        Err(error) => Err(DriverError::no_effect(format!(
            "{} does not let go of it: {error}",
            target.host
        ))),
    })
}

fn name(Holder { gpu, pid, command }: &Holder) -> String {
    match pid {
        Some(pid) => format!("{gpu} by {command} (process {pid})"),
        None => format!("{gpu} by {command}"),
    }
}

/// A look that failed: nothing was changed.
async fn failed(cx: &Context, live: &Live, record: &StepRecord, message: String) -> Result<(), Halt> {
    let line = StepLine::new(record.step.index, StepState::Failed);
    note::failed(cx, live, line, message, None).await
}
