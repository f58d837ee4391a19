//! Binding and unbinding, forward and as an undo: the steps after which somebody else owns a GPU.
//!
//! All four are one pursuit of a goal that can be read back:
//!
//! 1. Read. The goal holds: done, and nothing is sent; but what is found bound before anything was sent is somebody
//!    else's. Something else than expected: stop.
//! 2. Journal the intent. Before an unbind the host lets go, where it has not: what it could not put back is journaled,
//!    too. Ask the fabric. Read again, whatever it answered.
//! 3. The goal holds: done. The old state: if nobody knew what became of the request, ask once more; if
//!    the fabric said "done", it lied, and that is a failure. Unreadable: *Indeterminate*; keep both ends
//!    and retry the read, for as long as it takes.
//!
//! A request whose answer nobody got (a time-out, a crash) may come true late ([`crate::late`]). So neither
//! the old state nor an undo that has nothing to do is believed before that can't be any more: the step is
//! *Indeterminate* until then, and the claims stay.
//!
//! After a restart a pursuit goes on at 1, so there is no other code for recovery.

use crate::context::Context;
use crate::gpus::Change;
use crate::host;
use crate::late::{self, Looked, Outstanding};
use crate::ledger::Halt;
use crate::line::StepLine;
use crate::live::Live;
use crate::note::{self, Way, said};
use crate::operation::OperationKind;
use crate::options::Pauses;
use crate::restart;
use crate::state::StepState;
use poolwright_driver::{Bound, DriverError, ErrorKind, TaskSeen};
use poolwright_model::step::{Step, Target, Verb};
use tokio::time::Instant;

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
#[derive(Debug, Clone)]
struct Asked {
    attempts: u32,
    /// It said that it is done.
    said_done: bool,
    /// It said that what was expected is not so.
    conflict: bool,
    /// Nobody knows what became of a request.
    unsure: bool,
    /// For how long it may still have its effect.
    outstanding: Outstanding,
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
    let unfinished = matches!(record.state, StepState::Running | StepState::Indeterminate);
    let pursuit = Pursuit {
        cx,
        live,
        index,
        step: record.step.clone(),
        way,
        goal,
        late: way == Way::Undo && (record.unsure || unfinished),
    };
    // What an earlier run sent may be on its way, or done. An undo has all its tries after a restart.
    let carried_on = way == Way::Do && record.state != StepState::Pending;
    let outstanding = match &record.task {
        // The way forward has waited for it already.
        None if record.state == StepState::Failed => Outstanding::within(cx.options.settle),
        task if carried_on || pursuit.late => Outstanding::of_before(task.as_ref(), &cx.options),
        _ => Outstanding::Nothing,
    };
    let asked = Asked {
        attempts: if carried_on { record.attempts } else { 0 },
        said_done: false,
        conflict: false,
        unsure: carried_on,
        outstanding,
        credentials: false,
        error: record.error.clone().filter(|_| carried_on),
    };
    let port = &pursuit.target().host_port;
    live.show(index, Some(format!("its turn at {port}")));
    let pass = cx.pass(live, index, way);
    let endpoint = &pursuit.target().unit_at.endpoint;
    loop {
        let since = pass.pauses();
        let turn = cx
            .locks
            .turn(pursuit.target(), &live.id, cx.options.turn_deadline);
        match live.unless_halted(pursuit.forward(), turn).await? {
            Ok(_turn) => return pursuit.run(asked).await,
            // Whoever is there is held up by nobody but itself. Another step of this operation is held up by the same
            // as this one, such as a store that does not answer: that is no reason to undo it all.
            Err(busy)
                if way == Way::Do
                    && busy.holder.as_ref() != Some(&live.id)
                    && pass.is_open(endpoint)
                    && pass.pauses() == since =>
            {
                let message = format!("{}: {busy}", pursuit.what());
                return pursuit.fail(&asked, message, None).await;
            }
            // What was done must be undone, and what is paused goes on later: wait for whoever is there, and
            // say so.
            Err(busy) => live.show(index, Some(format!("its turn at {port} ({busy})"))),
        }
    }
}

impl Pursuit<'_> {
    fn target(&self) -> &Target {
        &self.step.target
    }

    /// The step, where it goes forward: its waits end when it is to be undone.
    fn forward(&self) -> Option<u32> {
        (self.way == Way::Do).then_some(self.index)
    }

    async fn run(&self, mut asked: Asked) -> Result<(), Halt> {
        let mut pauses = self.cx.options.pauses();
        loop {
            self.live.show(self.index, Some(self.reading()));
            let read_at = Instant::now();
            let seen = match self.cx.metal.bound(self.target()).await {
                Ok(bound) => self.compare(bound),
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
            if self.may_turn(&seen, &asked) && !asked.outstanding.is_over(read_at) {
                self.await_late(&mut asked, &mut pauses).await?;
                continue;
            }
            match seen {
                Seen::Goal if self.found_bound(&asked) => {
                    return self.not_ours(&asked, "is bound there already").await;
                }
                Seen::Goal => return self.succeed(&asked).await,
                Seen::Elsewhere(what) => return self.elsewhere(&asked, &what).await,
                Seen::Several(what) => return self.not_ours(&asked, &what).await,
                Seen::Start if self.only_looks() => {
                    let unit = &self.target().unit;
                    let message = format!("{unit} is bound to nothing any more, so it can't be taken over");
                    return self.fail(&asked, message, Some(Change::SeenFree)).await;
                }
                Seen::Start if !self.may_ask(&asked) => return self.unchanged(&asked).await,
                Seen::Start => {}
            }
            if self.way == Way::Undo && asked.attempts > 0 {
                self.live.show(self.index, Some(self.next_try(&asked)));
                let pause = pauses.next().unwrap_or(self.cx.options.last_pause);
                self.live.pause(pause, None).await?;
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
        let change = match self.goal {
            Goal::Bound => Change::AskBind,
            Goal::Free => Change::AskUnbind,
        };
        note::intent(self.cx, self.live, self.line(self.at_work(), asked), Some(change)).await?;
        self.live.show(self.index, Some(self.what()));
        let answer = self.act(asked).await?;
        note::acted(self.cx, self.live, self.index, self.way).await;
        (asked.said_done, asked.conflict, asked.error) = (answer.is_ok(), false, None);
        asked.outstanding = Outstanding::after(&answer, &self.cx.options);
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

    /// The state of the step while it is pursued.
    fn at_work(&self) -> StepState {
        match self.way {
            Way::Do => StepState::Running,
            Way::Undo => StepState::Undoing,
        }
    }

    async fn act(&self, asked: &Asked) -> Result<Result<(), DriverError>, Halt> {
        let (metal, target) = (&self.cx.metal, self.target());
        let pass = self.cx.pass(self.live, self.index, self.way);
        if self.goal == Goal::Bound {
            return metal.bind(target, pass).await;
        }
        let at_host = match self.way {
            Way::Do => target.clone(),
            Way::Undo => host::as_it_came(self.live, target),
        };
        if let Err(error) = host::nobody_uses(self.cx, self.live, &at_host).await {
            return Ok(Err(error));
        }
        let let_go = match self.way {
            Way::Undo => host::let_go(self.cx, &at_host, pass).await?,
            Way::Do => restart::drained(self.cx, self.live, target, pass).await?,
        };
        match let_go {
            Ok(left) => self.keep(asked, left).await?,
            Err(error) => return Ok(Err(error)),
        }
        metal.unbind(target, pass).await
    }

    /// Journals what the host could not put back as it was. Once the GPU is unbound nobody asks that host any more, so
    /// whoever carries on from there would never hear of it.
    async fn keep(&self, asked: &Asked, left: Vec<String>) -> Result<(), Halt> {
        if left.is_empty() {
            return Ok(());
        }
        let line = StepLine {
            left,
            ..self.line(self.at_work(), asked)
        };
        self.outcome(line, None).await
    }

    /// Whether what was seen may be different in a moment, because of what was sent before.
    fn may_turn(&self, seen: &Seen, asked: &Asked) -> bool {
        let goes_on = asked.outstanding.task().is_some();
        match seen {
            Seen::Start => asked.said_done || asked.unsure || goes_on,
            Seen::Goal => self.late && asked.attempts == 0,
            Seen::Elsewhere(_) | Seen::Several(_) => goes_on,
        }
    }

    /// Nothing was ever sent for it: somebody else has bound it, and it stays theirs.
    fn found_bound(&self, asked: &Asked) -> bool {
        let never_sent = asked.attempts == 0 && !asked.unsure;
        self.way == Way::Do && self.goal == Goal::Bound && never_sent && !self.only_looks()
    }

    /// Waits a little for something that may still come; holds the operation meanwhile.
    async fn await_late(&self, asked: &mut Asked, pauses: &mut Pauses) -> Result<(), Halt> {
        let options = &self.cx.options;
        let mut pause = pauses.next().unwrap_or(options.last_pause);
        let why = match asked.outstanding.clone() {
            Outstanding::Nothing => return Ok(()),
            Outstanding::Until(until) => {
                pause = pause.min(until.saturating_duration_since(Instant::now()));
                if asked.said_done && !asked.unsure {
                    // It says that it is done: it is given a moment to show it.
                    tokio::time::sleep(pause).await;
                    return Ok(());
                }
                "it may still come true".to_owned()
            }
            Outstanding::Task(task) => {
                match late::look_at(&self.cx.metal, self.target(), &task, options).await {
                    Looked::GoesOn(why) => why,
                    Looked::Ended(ended, outstanding) => {
                        asked.outstanding = outstanding;
                        asked.said_done |= ended == TaskSeen::Done;
                        if let TaskSeen::Failed { reason } = ended {
                            asked.error = Some(format!("{}: its task {task} failed: {reason}", self.what()));
                        }
                        *pauses = options.pauses();
                        return Ok(());
                    }
                }
            }
        };
        self.hold(asked, &why).await?;
        self.live
            .show(self.index, Some(format!("{}: {why}", self.reading())));
        self.live.pause(pause, self.forward()).await
    }

    /// Nobody knows what becomes of it: both ends are held, and that is written down.
    async fn hold(&self, asked: &Asked, why: &str) -> Result<(), Halt> {
        if self.live.step(self.index)?.state == StepState::Indeterminate {
            return Ok(());
        }
        let mut line = self.line(StepState::Indeterminate, asked);
        let cause = asked.error.clone().unwrap_or_else(|| self.what());
        line.error = Some(format!("{cause}; {why}"));
        self.outcome(line, Some(Change::Unknown)).await
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

    /// What is taken over is where it is already, or is not taken over.
    fn only_looks(&self) -> bool {
        self.live.ask(|operation| operation.kind == OperationKind::Adopt)
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
        if !binds {
            return None;
        }
        let record = self.live.step(self.index).ok()?;
        let unit = &self.target().unit;
        let not_clean = self.live.ask_gpus(|gpus| {
            gpus.not_clean_for(unit, record.tenant.as_ref(), self.cx.options.reuse_without_reset)
        });
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
        (line.error, line.unsure, line.task) = (None, false, None);
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
        self.hold(asked, &format!("it can't be read back either: {error}"))
            .await?;
        self.live
            .show(self.index, Some(format!("{} ({error})", self.reading())));
        let pause = pauses.next().unwrap_or(self.cx.options.last_pause);
        self.live.pause(pause, self.forward()).await
    }

    fn line(&self, state: StepState, asked: &Asked) -> StepLine {
        StepLine {
            attempts: asked.attempts,
            unsure: asked.unsure,
            task: asked.outstanding.task().cloned(),
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
