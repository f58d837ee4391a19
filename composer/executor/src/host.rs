//! The steps on the host's side: is there room, does it see the GPUs, who uses them.
//!
//! Looks change nothing, so they have no intent in the journal. A host side that can't tell is no
//! failure: the evidence says so.

use crate::context::Context;
use crate::gpus::Change;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::StepLine;
use crate::live::Live;
use crate::log;
use crate::note::{self, Way, looked, said};
use crate::operation::StepRecord;
use crate::pause::Pass;
use crate::restart;
use crate::state::StepState;
use poolwright_driver::{Confirmation, DriverError, ErrorKind, Learned, Room, in_use};
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
    // Before the answer: a start after it is seen as one.
    let boot = cx.metal.started(target).await.ok().flatten();
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
    let mut line = StepLine::new(index, StepState::Done);
    line.evidence = Some(evidence);
    line.boot = boot;
    note::carried(cx, live, line).await
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
            Ok(Confirmation::NotSeen { reason, learned }) if learned.is_empty() => reason,
            Ok(Confirmation::NotSeen { reason, learned }) => {
                return another(cx, live, &record, reason, learned).await;
            }
            // It may be back before the deadline.
            Err(error) => said(&error),
        };
        if tokio::time::Instant::now() >= until {
            let waited = cx.options.verify_deadline.as_secs_f32();
            let mut message = format!("{}: not within {waited} s: {missing}", record.step);
            if let Some(restarted) = restart::since_preflight(cx, live, target).await {
                message = format!("{message}; {restarted}");
            }
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
    match is_another(live, record, &learned).await {
        Some(why) => exchanged(cx, live, record, &why, learned).await,
        None => {
            let restarted = restart::since_preflight(cx, live, &record.step.target).await;
            let evidence = [evidence].into_iter().chain(restarted).collect::<Vec<_>>();
            note::confirmed(cx, live, record.step.index, evidence.join("; "), learned).await
        }
    }
}

/// Others sit in the slot than those that the fabric has bound there. What is known of them from before is not taken for
/// theirs: only where they are others than a host had told of is it kept what this one tells.
async fn another(
    cx: &Context,
    live: &Live,
    record: &StepRecord,
    reason: String,
    learned: Vec<Learned>,
) -> Result<(), Halt> {
    match is_another(live, record, &learned).await {
        Some(why) => exchanged(cx, live, record, &why, learned).await,
        None => exchanged(cx, live, record, &reason, Vec::new()).await,
    }
}

async fn is_another(live: &Live, record: &StepRecord, learned: &[Learned]) -> Option<String> {
    let unit = &record.step.target.unit;
    live.ask_gpus(|gpus| gpus.is_another(unit, learned)).await
}

/// It goes back at once: waiting brings nobody else.
async fn exchanged(
    cx: &Context,
    live: &Live,
    record: &StepRecord,
    why: &str,
    learned: Vec<Learned>,
) -> Result<(), Halt> {
    let mut line = StepLine::new(record.step.index, StepState::Failed);
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

/// Makes the host let go of the GPUs. It stops new work and sees who uses them by itself: asked before that, what a hook
/// would have ended would hold them.
pub(crate) async fn drain(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let record = live.step(index)?;
    let target = &record.step.target;
    let (mut attempts, mut unsure) = (record.attempts, record.state != StepState::Pending);
    loop {
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
        let mut line = note::is_done(live, index, evidence)?;
        line.left = match cx.metal.left(target).await {
            Ok(left) => left,
            Err(error) if live.ask(|operation| operation.force.is_some()) => vec![untold(&error)],
            Err(error) => return undrained(cx, live, &record, (attempts, true), &error).await,
        };
        if let (Some(evidence), false) = (&mut line.evidence, line.left.is_empty()) {
            evidence.push_str(&format!(
                ", and could not put all of it back as it was: {}",
                line.left.join("; ")
            ));
        }
        return note::outcome(cx, live, line, None, Way::Do).await;
    }
}

/// Who can't be asked may have left anything.
pub(crate) fn untold(error: &DriverError) -> String {
    format!("its host does not say what it was left at: {}", said(error))
}

/// The host can't be made to let go from here. The fabric takes the GPU away all the same, and the operation
/// says so for good.
async fn not_possible(cx: &Context, live: &Live, index: u32, reason: &str) -> Result<(), Halt> {
    let record = live.step(index)?;
    let host = &record.step.target.host;
    // One line for each host of an operation: the host gives the same answer for each of its GPUs.
    let first_of = live.ask(|operation| {
        let is_unchecked = |other: &&StepRecord| {
            let of_host = other.step.verb == Verb::Drain && other.step.target.host == *host;
            of_host && (other.state == StepState::NotPossible || !other.state.is_through())
        };
        let mut unchecked = operation.steps.iter().filter(is_unchecked);
        let first = unchecked.next().filter(|first| first.step.index == index)?;
        let of = |record: &StepRecord| record.step.target.gpus.len();
        Some(of(first) + unchecked.map(of).sum::<usize>())
    });
    if let Some(gpus) = first_of {
        log::use_not_checked(host, gpus, reason);
    }
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
    let left_nothing = attempts > 0 && !unsure;
    let change = left_nothing.then_some(Change::DrainRefused);
    note::failed(cx, live, line, message, change).await
}

/// The host took it back, and may have it in another state than before; one look says whether it is attached again.
async fn look_again(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let target = live.step(index)?.step.target;
    if let Ok(Confirmation::Seen { .. }) = cx.metal.verify(&target).await {
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
    match is_drain {
        true => look_again(cx, live, index).await,
        false => Ok(()),
    }
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
        Ok(holders) => Err(in_use(&format!(" on {}", target.host), &holders)),
        Err(error) if error.kind == ErrorKind::CannotTell => Ok(()),
        Err(error) => {
            let message = format!("{} doesn't say who uses it: {error}", target.host);
            Err(DriverError::no_effect(message).with_hint("see why, or force with a reason"))
        }
    }
}

/// Makes the host let go of GPUs that are unbound as an undo, and gives what it could not put back on them. Nothing was
/// unbound if it fails.
pub(crate) async fn let_go(
    cx: &Context,
    target: &Target,
    pass: Pass<'_>,
) -> Result<Result<Vec<String>, DriverError>, Halt> {
    let drained = cx.metal.drain(target, pass).await?;
    let told = match drained {
        Ok(()) => cx.metal.left(target).await,
        Err(error) => Err(error),
    };
    Ok(match told {
        Ok(left) => Ok(left),
        Err(error) if error.kind == ErrorKind::CannotTell => Ok(Vec::new()),
        Err(error) => Err(DriverError::no_effect(format!(
            "{} does not let go of it: {error}",
            target.host
        ))),
    })
}

/// How the host is asked for what a bind has brought it. One that has not confirmed it by its names is asked for its slot:
/// what sits there is to go, whoever it is.
pub(crate) fn as_it_came(live: &Live, target: &Target) -> Target {
    let is_confirmed = live.ask(|operation| {
        let verify = operation.step_of(Verb::Verify, target);
        verify.is_some_and(|record| record.state == StepState::Done)
    });
    match target.slot.is_some() && !is_confirmed {
        true => Target {
            known_as: Vec::new(),
            ..target.clone()
        },
        false => target.clone(),
    }
}

/// A look that failed: nothing was changed.
async fn failed(cx: &Context, live: &Live, record: &StepRecord, message: String) -> Result<(), Halt> {
    let line = StepLine::new(record.step.index, StepState::Failed);
    note::failed(cx, live, line, message, None).await
}
