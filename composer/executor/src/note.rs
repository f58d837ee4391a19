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
use poolwright_driver::{DriverError, Learned};

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
    let way = match line.state {
        StepState::Undoing => Way::Undo,
        _ => Way::Do,
    };
    begin(
        cx,
        live,
        line.index,
        entry(line.index, Line::Step(line), change),
        way,
    )
    .await
}

/// The same for a reset beside the steps.
pub(crate) async fn clean_up_intent(cx: &Context, live: &Live, line: StepLine) -> Result<(), Halt> {
    begin(
        cx,
        live,
        line.index,
        entry(line.index, Line::CleanUp(line), None),
        Way::Undo,
    )
    .await
}

async fn begin(cx: &Context, live: &Live, index: u32, mut entry: Entry, way: Way) -> Result<(), Halt> {
    let undoing = way == Way::Undo;
    entry.begins = if undoing { Begins::Undo } else { Begins::Step };
    entry.proof = charge::may_begin(cx, live, index).await?;
    cx.at(live, Some(index), undoing, Moment::BeforeIntent).await;
    live.write(entry).await?;
    cx.at(live, Some(index), undoing, Moment::AfterIntent).await;
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
    live.write(entry(line.index, Line::Step(line), change)).await?;
    cx.at(live, step, way == Way::Undo, Moment::AfterOutcome).await;
    Ok(())
}

/// The same of a reset beside the steps.
pub(crate) async fn clean_up_outcome(
    cx: &Context,
    live: &Live,
    line: StepLine,
    change: Option<Change>,
) -> Result<(), Halt> {
    let step = Some(line.index);
    live.write(entry(line.index, Line::CleanUp(line), change)).await?;
    cx.at(live, step, true, Moment::AfterOutcome).await;
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
pub(crate) async fn looked(cx: &Context, live: &Live, index: u32, evidence: String) -> Result<(), Halt> {
    let line = is_done(live, index, evidence)?;
    live.carry(entry(index, Line::Step(line), None)).await?;
    cx.at(live, Some(index), false, Moment::AfterOutcome).await;
    Ok(())
}

/// The same where the host sees the GPUs, with what it told of them.
pub(crate) async fn confirmed(
    cx: &Context,
    live: &Live,
    index: u32,
    evidence: String,
    learned: Vec<Learned>,
) -> Result<(), Halt> {
    let mut line = is_done(live, index, evidence)?;
    line.learned = learned;
    let seen = entry(index, Line::Step(line), Some(Change::Confirmed));
    live.carry(seen).await?;
    cx.at(live, Some(index), false, Moment::AfterOutcome).await;
    Ok(())
}

/// The same with more in its line; also for a step of which nothing was asked.
pub(crate) async fn carried(cx: &Context, live: &Live, line: StepLine) -> Result<(), Halt> {
    let index = line.index;
    live.carry(entry(index, Line::Step(line), None)).await?;
    cx.at(live, Some(index), false, Moment::AfterOutcome).await;
    Ok(())
}

/// The line of a step that is done, by this evidence.
pub(crate) fn is_done(live: &Live, index: u32, evidence: String) -> Result<StepLine, Halt> {
    let mut line = StepLine::new(index, StepState::Done);
    let record = live.step(index)?;
    (line.attempts, line.boot) = (record.attempts, record.boot);
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
    let mut failed = entry(step, Line::Step(line), change);
    failed.lines.extend(and);
    live.write(failed).await?;
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

fn entry(index: u32, line: Line, change: Option<Change>) -> Entry {
    Entry {
        changes: change.map(|change| (index, change)).into_iter().collect(),
        lines: vec![line],
        begins: Begins::Nothing,
        proof: None,
    }
}
