//! The time by which an operation must be done. What is not done then is undone, as if somebody had cancelled it; the
//! undo itself takes as long as it takes.

use crate::context::Context;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::operation::Stop;
use jiff::Timestamp;
use std::time::Duration;

/// The clock may be set meanwhile: it is looked at at least so often.
const LOOK: Duration = Duration::from_secs(30);

/// Returns once the operation should have been done; never where it has all the time.
pub(crate) async fn passes(cx: &Context, live: &Live) {
    let Some(deadline) = live.ask(|operation| operation.deadline) else {
        return std::future::pending().await;
    };
    loop {
        let left = deadline.duration_since(cx.clock.now());
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => tokio::time::sleep(left.min(LOOK)).await,
            _ => return,
        }
    }
}

/// Whether it should have been done by now.
pub(crate) fn has_passed(cx: &Context, deadline: Option<Timestamp>) -> bool {
    deadline.is_some_and(|deadline| deadline <= cx.clock.now())
}

/// Nothing more begins, and what was done is undone.
pub(crate) async fn stop(live: &Live) -> Result<(), Halt> {
    let entry = Entry {
        lines: vec![Line::Unwind(Stop::too_late(
            live.ask(|operation| operation.deadline),
        ))],
        changes: vec![],
        begins: Begins::Step,
        proof: None,
    };
    match live.write(entry).await {
        // Something else has turned it in the same moment.
        Err(Halt::Stopped) => Ok(()),
        result => result,
    }
}
