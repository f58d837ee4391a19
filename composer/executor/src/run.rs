//! The run of an operation: forward along its steps, or backward, from wherever the journal says it is.
//!
//! There is no other way to carry on after a restart: a run that begins in the middle is the same code.

use crate::alarm;
use crate::binding;
use crate::context::Context;
use crate::deadline;
use crate::finish;
use crate::host;
use crate::ledger::{self, Begins, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::log;
use crate::make_ready;
use crate::note::Way;
use crate::operation::{Operation, StepRecord};
use crate::reset;
use crate::state::{OperationState, StepState};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use poolwright_model::step::Verb;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use tracing::Instrument as _;

/// Runs the operation until it has ended, is quarantined, or has to pause.
pub(crate) async fn run(cx: &Context, live: &Live) -> Result<(), Halt> {
    loop {
        let (state, stopping) = live.ask(|operation| (operation.state, operation.stop.is_some()));
        match state {
            state if state.has_ended() || state == OperationState::Quarantined => return Ok(()),
            _ if stopping => {
                steps(cx, live, Way::Undo).await?;
                finish::rolled_back(cx, live).await?;
            }
            // It waited for so long that nothing of it is begun any more.
            OperationState::Pending if deadline::has_passed(cx, live.ask(|operation| operation.deadline)) => {
                deadline::stop(live).await?;
            }
            OperationState::Pending => started(live).await?,
            _ => {
                steps(cx, live, Way::Do).await?;
                finish::completed(cx, live).await?;
            }
        }
    }
}

async fn started(live: &Live) -> Result<(), Halt> {
    let entry = ledger::Entry {
        lines: vec![Line::Started],
        changes: vec![],
        begins: Begins::Step,
        proof: None,
    };
    match live.carry(entry).await {
        // Cancelled before it began.
        Err(Halt::Stopped) => Ok(()),
        result => result,
    }
}

/// Runs, or undoes, all steps that can be, side by side where none waits for another. Ends when none is
/// left, or when the operation changed its direction.
async fn steps(cx: &Context, live: &Live, way: Way) -> Result<(), Halt> {
    let mut running: FuturesUnordered<BoxFuture<'_, (u32, Result<(), Halt>)>> = FuturesUnordered::new();
    let mut in_flight: BTreeMap<u32, Way> = BTreeMap::new();
    let mut halt = None;
    let mut too_late = std::pin::pin!(deadline::passes(cx, live));
    let mut alarm = std::pin::pin!(alarm::is_due(cx, live));
    loop {
        let turned = way == Way::Do && live.ask(|operation| operation.stop.is_some());
        if halt.is_none() && !turned {
            for (index, way) in live.ask(|operation| ready(operation, way, &in_flight)) {
                if let Entry::Vacant(free) = in_flight.entry(index) {
                    free.insert(way);
                    let span = live.ask(|operation| log::step_span(operation, index));
                    let begun = async move { (index, begin(cx, live, index, way).await) };
                    running.push(begun.instrument(span).boxed());
                }
            }
        }
        let next = tokio::select! {
            biased;
            next = running.next() => next,
            () = &mut too_late, if way == Way::Do && !turned => {
                deadline::stop(live).await?;
                continue;
            }
            () = &mut alarm => {
                alarm::raise(live).await?;
                alarm.set(alarm::is_due(cx, live));
                continue;
            }
        };
        let Some((index, result)) = next else {
            return halt.map_or(Ok(()), Err);
        };
        in_flight.remove(&index);
        match result {
            // Stopped: this step did not begin; what begins now is the undo.
            Ok(()) | Err(Halt::Stopped) => {}
            // Whoever writes this journal now looks after the other steps too.
            Err(fenced @ Halt::Fenced { .. }) => return Err(fenced),
            // What was sent is waited for and written down.
            Err(other) => halt = Some(other),
        }
    }
}

/// The steps that can begin now, and which way each goes. What an operation on its way forward leaves out is undone
/// beside the rest, once nothing of it goes forward any more.
fn ready(operation: &Operation, way: Way, in_flight: &BTreeMap<u32, Way>) -> Vec<(u32, Way)> {
    let left_out = |index: &u32| operation.leaves_out(*index);
    let mut going = in_flight.iter();
    let undone = match way {
        Way::Undo => ready_to_undo(operation, |_| true),
        Way::Do if going.any(|(index, way)| *way == Way::Do && left_out(index)) => Vec::new(),
        Way::Do => ready_to_undo(operation, left_out),
    };
    let done = operation.steps.iter().filter(|record| {
        let goes = way == Way::Do && !left_out(&record.step.index);
        goes && waits_to_run(record) && all_before_are_through(operation, record)
    });
    let done = done.map(|record| (record.step.index, Way::Do));
    done.chain(undone.into_iter().map(|index| (index, Way::Undo)))
        .collect()
}

fn waits_to_run(record: &StepRecord) -> bool {
    matches!(
        record.state,
        StepState::Pending | StepState::Running | StepState::Indeterminate
    )
}

fn all_before_are_through(operation: &Operation, record: &StepRecord) -> bool {
    let mut before = record.step.after.iter().map(|index| operation.step(*index));
    before.all(|before| before.is_some_and(|before| before.state.is_through()))
}

/// Those of them to undo after which, however far behind, everything is back as it was. Steps come after those
/// that they wait for, so one walk from the end sees all that is behind a step before the step itself.
fn ready_to_undo(operation: &Operation, them: impl Fn(&u32) -> bool) -> Vec<u32> {
    let mut held_up: BTreeSet<u32> = BTreeSet::new();
    let mut ready = Vec::new();
    let steps = operation.steps.iter().rev();
    for record in steps.filter(|record| them(&record.step.index)) {
        let held_up_here = held_up.contains(&record.step.index);
        let open = record.needs_undo();
        if open && !held_up_here {
            ready.push(record.step.index);
        }
        if open || held_up_here || record.state == StepState::Stuck {
            held_up.extend(&record.step.after);
        }
    }
    ready
}

/// Takes a step up, once nothing keeps it from beginning. What has begun goes on: it is read back, and waits at
/// the last moment before something is sent.
async fn begin(cx: &Context, live: &Live, index: u32, way: Way) -> Result<(), Halt> {
    let record = live.step(index)?;
    if way == Way::Do && record.state == StepState::Pending {
        let endpoint = &record.step.target.unit_at.endpoint;
        cx.pass(live, index, way).through(endpoint).await?;
    }
    step(cx, live, index, way).await
}

fn step<'a>(cx: &'a Context, live: &'a Live, index: u32, way: Way) -> BoxFuture<'a, Result<(), Halt>> {
    let Some(verb) = live.ask(|operation| operation.step(index).map(|record| record.step.verb)) else {
        return futures_util::future::ready(Ok(())).boxed();
    };
    match (verb, way) {
        (Verb::Bind | Verb::Unbind, way) => binding::pursue(cx, live, index, way).boxed(),
        (Verb::Preflight, _) => host::preflight(cx, live, index).boxed(),
        (Verb::Verify, _) => host::verify(cx, live, index).boxed(),
        (Verb::Ready, Way::Do) => make_ready::make_ready(cx, live, index).boxed(),
        (Verb::Drain, Way::Do) => host::drain(cx, live, index).boxed(),
        (Verb::Drain | Verb::Ready, Way::Undo) => host::take_back(cx, live, index).boxed(),
        (Verb::Reset, Way::Do) => reset::reset(cx, live, index).boxed(),
        (Verb::Reset, Way::Undo) => reset::undo(cx, live, index).boxed(),
    }
}
