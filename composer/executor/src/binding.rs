//! Binding and unbinding, forward and as an undo: the steps after which somebody else owns a GPU.
//!
//! All four are one pursuit of a goal that can be read back:
//!
//! 1. Read. The goal holds: done, and nothing is sent. Something else than expected: stop.
//! 2. Journal the intent. Ask the fabric. Read again, whatever it answered.
//! 3. The goal holds: done. The old state: if nobody knew what became of the request, ask once more; if
//!    the fabric said "done", it lied, and that is a failure. Unreadable: *Indeterminate*; keep both ends
//!    and retry the read, for as long as it takes.
//!
//! A request whose answer nobody got (a time-out, a crash) may come true late. So the old state counts only
//! after it has been seen for a while, and neither is anything undone on a first look.
//!
//! After a restart a pursuit goes on at 1, so there is no other code for recovery.

use crate::context::Context;
use crate::gpus::Change;
use crate::host;
use crate::ledger::Halt;
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, said};
use crate::options::Pauses;
use crate::state::StepState;
use poolwright_driver::{Bound, DriverError, ErrorKind};
use poolwright_model::step::{Step, Target, Verb};

/// What is to be seen at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Bound,
    Free,
}

/// What was seen, against the goal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Goal,
    /// The state from which the goal is reached by asking.
    Start,
    /// Bound, but to another port than ours.
    Elsewhere(String),
    /// Bound to several ports at once, which must never be.
    Several(String),
}

/// How a request went, as far as the fabric told.
#[derive(Debug, Clone, Default)]
struct Asked {
    attempts: u32,
    /// It said that it is done.
    said_done: bool,
    /// It said that what was expected is not so.
    conflict: bool,
    /// A request may still have its effect.
    unsure: bool,
    /// Asking again may lock the account.
    credentials: bool,
    error: Option<String>,
}

struct Pursuit<'a> {
    cx: &'a Context,
    live: &'a Live,
    index: u32,
    step: Step,
    way: Way,
    goal: Goal,
    /// To be undone, and nobody knows whether it is still to come.
    late: bool,
}

/// Runs or undoes a bind or unbind step until its outcome is in the journal.
pub(crate) async fn pursue(cx: &Context, live: &Live, index: u32, way: Way) -> Result<(), Halt> {
    let record = live.step(index)?;
    let goal = if (record.step.verb == Verb::Bind) == (way == Way::Do) {
        Goal::Bound
    } else {
        Goal::Free
    };
    let pursuit = Pursuit {
        cx,
        live,
        index,
        step: record.step.clone(),
        way,
        goal,
        late: way == Way::Undo
            && (record.unsure || matches!(record.state, StepState::Running | StepState::Indeterminate)),
    };
    // What an earlier run sent may be on its way, or done. An undo has all its tries after a restart.
    let carried_on = way == Way::Do && record.state != StepState::Pending;
    let asked = Asked {
        attempts: if carried_on { record.attempts } else { 0 },
        unsure: carried_on,
        error: record.error.clone().filter(|_| carried_on),
        ..Asked::default()
    };
    let port = &pursuit.target().host_port;
    live.show(index, Some(format!("its turn at {port}")));
    loop {
        let turn = cx
            .locks
            .turn(pursuit.target(), &live.id, cx.options.turn_deadline);
        match live.unless_halted(way == Way::Do, turn).await? {
            Ok(_turn) => return pursuit.run(asked).await,
            Err(busy) if way == Way::Do => {
                let message = format!("{}: {busy}", pursuit.what());
                return pursuit.fail(&asked, message, None).await;
            }
            // What was done must be undone: wait for whoever is there, and say so.
            Err(busy) => live.show(index, Some(format!("its turn at {port} ({busy})"))),
        }
    }
}

impl Pursuit<'_> {
    fn target(&self) -> &Target {
        &self.step.target
    }

    async fn run(&self, mut asked: Asked) -> Result<(), Halt> {
        let mut pauses = self.cx.options.pauses();
        loop {
            self.live.show(self.index, Some(self.reading()));
            let seen = match self.look(&asked).await {
                Ok(seen) => seen,
                Err(error) if self.way == Way::Do && asked.attempts == 0 && !asked.unsure => {
                    let message = format!(
                        "{}: can't read where it is bound, so nothing was sent: {error}",
                        self.what()
                    );
                    return self.fail(&asked, message, None).await;
                }
                Err(error) => {
                    self.lost(&asked, &error, &mut pauses).await?;
                    continue;
                }
            };
            match seen {
                Seen::Goal => return self.succeed(&asked).await,
                Seen::Elsewhere(what) => return self.elsewhere(&asked, &what).await,
                Seen::Several(what) => return self.not_ours(&asked, &what).await,
                Seen::Start if !self.may_ask(&asked) => return self.unchanged(&asked).await,
                Seen::Start => {}
            }
            if self.way == Way::Undo && asked.attempts > 0 {
                self.live.show(self.index, Some(self.next_try(&asked)));
                let pause = pauses.next().unwrap_or(self.cx.options.last_pause);
                self.live.pause(pause, false).await?;
            }
            if let Some(message) = self.not_clean().await {
                return self.fail(&asked, message, None).await;
            }
            self.ask(&mut asked).await?;
            let refused = asked.error.is_some() && !asked.unsure && !asked.conflict;
            if refused && self.way == Way::Do {
                let message = asked.error.clone().unwrap_or_default();
                return self.fail(&asked, message, Some(Change::Refused)).await;
            }
        }
    }

    /// Journals the intent, and asks the fabric.
    async fn ask(&self, asked: &mut Asked) -> Result<(), Halt> {
        asked.attempts += 1;
        let state = match self.way {
            Way::Do => StepState::Running,
            Way::Undo => StepState::Undoing,
        };
        let change = match self.goal {
            Goal::Bound => Change::AskBind,
            Goal::Free => Change::AskUnbind,
        };
        note::intent(self.cx, self.live, self.line(state, asked), Some(change)).await?;
        self.live.show(self.index, Some(self.what()));
        let answer = self.act().await;
        note::acted(self.cx, self.live, self.index, self.way).await;
        (asked.said_done, asked.conflict, asked.error) = (answer.is_ok(), false, None);
        if let Err(error) = answer {
            match error.kind {
                ErrorKind::NoEffect => {}
                ErrorKind::CredentialsRefused => asked.credentials = true,
                ErrorKind::Conflict => asked.conflict = true,
                // Whatever it can't tell: look.
                ErrorKind::OutcomeUnknown | ErrorKind::CannotTell => asked.unsure = true,
            }
            asked.error = Some(format!("{}: {}", self.what(), said(&error)));
        }
        Ok(())
    }

    async fn act(&self) -> Result<(), DriverError> {
        let (metal, target) = (&self.cx.metal, self.target());
        if self.goal == Goal::Bound {
            return metal.bind(target).await;
        }
        host::nobody_uses(self.cx, self.live, target).await?;
        if self.way == Way::Undo {
            host::let_go(self.cx, target).await?;
        }
        metal.unbind(target).await
    }

    /// Reads where the unit is bound. A fabric that said "done", or that may have something on its way, is
    /// given a while to show it.
    async fn look(&self, asked: &Asked) -> Result<Seen, DriverError> {
        let until = tokio::time::Instant::now() + self.cx.options.settle;
        let mut pauses = self.cx.options.pauses();
        loop {
            let seen = self.compare(self.cx.metal.bound(self.target()).await?);
            let may_change = match seen {
                Seen::Start => asked.said_done || asked.unsure,
                Seen::Goal => self.late && asked.attempts == 0,
                Seen::Elsewhere(_) | Seen::Several(_) => false,
            };
            let now = tokio::time::Instant::now();
            if !may_change || now >= until {
                return Ok(seen);
            }
            let pause = pauses.next().unwrap_or_default().min(until - now);
            tokio::time::sleep(pause).await;
        }
    }

    fn compare(&self, bound: Bound) -> Seen {
        let ours = &self.target().port_at.address;
        match (bound, self.goal) {
            (Bound::Free, Goal::Free) => Seen::Goal,
            (Bound::Free, Goal::Bound) => Seen::Start,
            (Bound::To { port_address }, Goal::Bound) if port_address == *ours => Seen::Goal,
            (Bound::To { port_address }, Goal::Free) if port_address == *ours => Seen::Start,
            (Bound::To { port_address }, _) => Seen::Elsewhere(format!("is bound to {port_address}")),
            (Bound::Several { port_addresses }, _) => Seen::Several(format!(
                "is bound to several ports at once: {}",
                port_addresses.join(", ")
            )),
        }
    }

    fn may_ask(&self, asked: &Asked) -> bool {
        match self.way {
            Way::Do => asked.attempts == 0 || (asked.attempts < 2 && !asked.said_done && !asked.conflict),
            Way::Undo => asked.attempts < self.cx.options.undo_attempts && !asked.credentials,
        }
    }

    /// A unit that another tenant held goes to nobody before its reset was seen. (An undo gives it back
    /// to whoever had it.)
    async fn not_clean(&self) -> Option<String> {
        let binds = self.way == Way::Do && self.goal == Goal::Bound;
        if !binds || self.cx.options.reuse_without_reset {
            return None;
        }
        let record = self.live.step(self.index).ok()?;
        let unit = &self.target().unit;
        let not_clean = self
            .live
            .ask_gpus(|gpus| gpus.not_clean_for(unit, record.tenant.as_ref()));
        let reason = not_clean.await?;
        Some(format!("{}: {reason}", self.what()))
    }

    async fn succeed(&self, asked: &Asked) -> Result<(), Halt> {
        let state = match self.way {
            Way::Undo => StepState::Undone,
            Way::Do if asked.attempts > 0 => StepState::Done,
            Way::Do => StepState::Skipped,
        };
        let change = match self.goal {
            Goal::Bound => Change::SeenBound,
            Goal::Free => Change::SeenFree,
        };
        let mut line = self.line(state, asked);
        line.error = None;
        line.unsure = false;
        line.evidence = Some(match state {
            StepState::Skipped => "read back from the fabric: it was so already".to_owned(),
            _ => "read back from the fabric".to_owned(),
        });
        self.outcome(line, Some(change)).await
    }

    /// Neither as it was nor as it should be.
    async fn elsewhere(&self, asked: &Asked, what: &str) -> Result<(), Halt> {
        if self.way == Way::Do || self.goal == Goal::Bound {
            return self.not_ours(asked, what).await;
        }
        // It is not bound to our port, which is all that the undo of a bind is for.
        let mut line = self.line(StepState::Undone, asked);
        let unit = &self.target().unit;
        line.evidence = Some(format!(
            "read back from the fabric: {unit} {what}, by somebody else"
        ));
        self.outcome(line, Some(Change::SeenForeign)).await
    }

    /// Somebody else's doing, and not ours to touch.
    async fn not_ours(&self, asked: &Asked, what: &str) -> Result<(), Halt> {
        let message = format!(
            "{}: {} {what}, which is not of our doing",
            self.what(),
            self.target().unit
        );
        self.fail(asked, message, Some(Change::SeenForeign)).await
    }

    /// Asked as often as may be, and it still is as it was.
    async fn unchanged(&self, asked: &Asked) -> Result<(), Halt> {
        let seen = match self.goal {
            Goal::Bound => Change::SeenFree,
            Goal::Free => Change::SeenBound,
        };
        let message = match &asked.error {
            _ if asked.said_done => {
                format!("{}: the fabric said that it is done, and it is not", self.what())
            }
            Some(error) => format!("{error} (read back: it is as it was)"),
            None => format!("{}: interrupted, and it is as it was", self.what()),
        };
        self.fail(asked, message, Some(seen)).await
    }

    async fn fail(&self, asked: &Asked, message: String, change: Option<Change>) -> Result<(), Halt> {
        let line = self.line(StepState::Failed, asked);
        match self.way {
            Way::Do => note::failed(self.cx, self.live, line, message, change).await,
            Way::Undo => note::stuck(self.cx, self.live, line, message).await,
        }
    }

    /// Nobody knows, and the fabric can't be asked: hold both ends, and try the read again later.
    async fn lost(&self, asked: &Asked, error: &DriverError, pauses: &mut Pauses) -> Result<(), Halt> {
        let reading = self.reading();
        if self.live.step(self.index)?.state != StepState::Indeterminate {
            let mut line = self.line(StepState::Indeterminate, asked);
            let cause = asked.error.clone().unwrap_or_else(|| self.what());
            line.error = Some(format!("{cause}; it can't be read back either: {error}"));
            self.outcome(line, Some(Change::Unknown)).await?;
        }
        tracing::warn!(operation = %self.live.id, step = %self.step, %error, "the outcome is unknown");
        self.live.show(self.index, Some(format!("{reading} ({error})")));
        let pause = pauses.next().unwrap_or(self.cx.options.last_pause);
        self.live.pause(pause, self.way == Way::Do).await
    }

    fn line(&self, state: StepState, asked: &Asked) -> StepLine {
        StepLine {
            attempts: asked.attempts,
            unsure: asked.unsure,
            error: asked.error.clone(),
            ..StepLine::new(self.index, state)
        }
    }

    async fn outcome(&self, line: StepLine, change: Option<Change>) -> Result<(), Halt> {
        note::outcome(self.cx, self.live, line, change, self.way).await
    }

    fn what(&self) -> String {
        match self.way {
            Way::Do => self.step.to_string(),
            Way::Undo => format!("undo: {}", self.step),
        }
    }

    fn reading(&self) -> String {
        let Target { unit, unit_at, .. } = self.target();
        format!("{} to say where {unit} is bound", unit_at.endpoint)
    }

    fn next_try(&self, asked: &Asked) -> String {
        let error = asked.error.as_deref().unwrap_or("it is as it was");
        format!("the next try to {} ({error})", self.what())
    }
}
