//! Writing down what a step intends and what became of it, with the moments at which tests cut in.

use crate::charge;
use crate::context::Context;
use crate::gpus::Change;
use crate::hooks::Moment;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::{Line, StepLine};
use crate::live::Live;
use crate::operation::{Stop, StopCause};
use crate::state::StepState;
use poolwright_driver::DriverError;

/// Which way an operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Do,
    Undo,
}

/// Writes an intent. Only when this returns may anything be sent.
pub(crate) async fn intent(
    cx: &Context,
    live: &Live,
    line: StepLine,
    change: Option<Change>,
) -> Result<(), Halt> {
    let (begins, undoing) = match line.state {
        StepState::Undoing => (Begins::Undo, true),
        _ => (Begins::Step, false),
    };
    let step = Some(line.index);
    let proof = charge::may_begin(cx, live, line.index).await?;
    cx.at(live, step, undoing, Moment::BeforeIntent).await;
    let mut entry = entry(vec![], line, change);
    (entry.begins, entry.proof) = (begins, proof);
    live.write(entry).await?;
    cx.at(live, step, undoing, Moment::AfterIntent).await;
    Ok(())
}

/// Something was sent, and answered or not.
pub(crate) async fn acted(cx: &Context, live: &Live, index: u32, way: Way) {
    cx.at(live, Some(index), way == Way::Undo, Moment::AfterAct).await;
}

/// Writes what was seen.
pub(crate) async fn outcome(
    cx: &Context,
    live: &Live,
    line: StepLine,
    change: Option<Change>,
    way: Way,
) -> Result<(), Halt> {
    let step = Some(line.index);
    live.write(entry(vec![], line, change)).await?;
    cx.at(live, step, way == Way::Undo, Moment::AfterOutcome).await;
    Ok(())
}

/// Writes that a step is done, and by what evidence.
pub(crate) async fn done(
    cx: &Context,
    live: &Live,
    index: u32,
    evidence: String,
    change: Option<Change>,
) -> Result<(), Halt> {
    outcome(cx, live, is_done(live, index, evidence)?, change, Way::Do).await
}

/// The same for a step that only looks: it is committed with what comes next.
pub(crate) async fn looked(
    cx: &Context,
    live: &Live,
    index: u32,
    evidence: String,
    change: Option<Change>,
) -> Result<(), Halt> {
    let line = is_done(live, index, evidence)?;
    live.carry(entry(vec![], line, change)).await?;
    cx.at(live, Some(index), false, Moment::AfterOutcome).await;
    Ok(())
}

fn is_done(live: &Live, index: u32, evidence: String) -> Result<StepLine, Halt> {
    let mut line = StepLine::new(index, StepState::Done);
    line.attempts = live.step(index)?.attempts;
    line.evidence = Some(evidence);
    Ok(line)
}

/// Writes that a step failed, and that the operation is undone from here on; or that it goes on without the step's
/// unit, where a part of it is better than nothing.
pub(crate) async fn failed(
    cx: &Context,
    live: &Live,
    mut line: StepLine,
    message: String,
    change: Option<Change>,
) -> Result<(), Halt> {
    line.state = StepState::Failed;
    line.error = Some(message.clone());
    let step = line.index;
    let and = live.ask(
        |operation| match operation.partial_ok && operation.stop.is_none() {
            true => match operation.without(step, &message) {
                // Another step has failed before it.
                none if none.is_empty() => None,
                units => Some(Line::LeftOut { units }),
            },
            false => Some(Line::Unwind(Stop {
                cause: StopCause::Failed(step),
                message,
            })),
        },
    );
    live.write(entry(and.into_iter().collect(), line, change)).await?;
    cx.at(live, Some(step), false, Moment::AfterOutcome).await;
    Ok(())
}

/// Writes that a step can't be undone.
pub(crate) async fn stuck(
    cx: &Context,
    live: &Live,
    mut line: StepLine,
    message: String,
) -> Result<(), Halt> {
    line.state = StepState::Stuck;
    line.error = Some(message);
    outcome(cx, live, line, Some(Change::UndoFailed), Way::Undo).await
}

/// An error with its hint.
pub(crate) fn said(error: &DriverError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

fn entry(and: Vec<Line>, line: StepLine, change: Option<Change>) -> Entry {
    Entry {
        changes: change.map(|change| (line.index, change)).into_iter().collect(),
        lines: std::iter::once(Line::Step(line)).chain(and).collect(),
        begins: Begins::Nothing,
        proof: None,
    }
}
