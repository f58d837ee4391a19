//! The sweep: every registered kind of operation × every request of every step, done and undone × everything
//! that can become of a request: an error, a crash before it has its effect or after, or that it arrives twice.
//!
//! All of it is swept twice: with one manager, which starts again after a crash; and with several, where the one that is
//! at work stops and another takes over under its lease, while the first is not gone and goes on when it can.
//!
//! Nothing here knows the operations. What is swept is what an undisturbed run asks of the rack, so a kind that
//! is added is swept too; and the sweep fails if it did not come by everything that it should.

use crate::kit::{Kit, ended};
use crate::rack::{Call, How};
use crate::registered::{Form, Managers, each_form, prepared, still_usable, verbs};
use crate::runs::{Calm, Crash, Moments, Start, Told, Way, bindings, calm, go, id_of, recover, without};
use poolwright_executor::{Operation, OperationKind, OperationState, Resolution, Resolve};
use poolwright_model::step::{Step, Verb};
use poolwright_planner::{Composition, Plan};
use std::collections::BTreeSet;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It goes wrong like this once.
    Error(How),
    /// So often that the step is given up.
    Errors(How),
    CrashBefore,
    CrashAfter,
    Twice,
}

/// The faults as one counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Error,
    CrashBefore,
    CrashAfter,
    Twice,
}

const SORTS: [Sort; 4] = [Sort::Error, Sort::CrashBefore, Sort::CrashAfter, Sort::Twice];

const HOWS: [How; 9] = [
    How::Refuse,
    How::LostBefore,
    How::LostAfter,
    How::Lie,
    How::HangBefore,
    How::HangAfter,
    How::CannotTell,
    How::CredentialsRefused,
    How::Panic,
];

impl Fault {
    fn sort(self) -> Sort {
        match self {
            Self::Error(_) | Self::Errors(_) => Sort::Error,
            Self::CrashBefore => Sort::CrashBefore,
            Self::CrashAfter => Sort::CrashAfter,
            Self::Twice => Sort::Twice,
        }
    }

    fn how(self) -> How {
        match self {
            Self::Error(how) | Self::Errors(how) => how,
            Self::CrashBefore => How::HangBefore,
            Self::CrashAfter => How::HangAfter,
            Self::Twice => How::Twice,
        }
    }

    fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }
}

/// The request by which a step is done or undone; the others are looks, or clear the way.
fn own_call(kind: OperationKind, verb: Verb, way: Way) -> Option<Call> {
    Some(match (verb, way) {
        // What is taken over is only looked at.
        (Verb::Bind, Way::Do) if kind == OperationKind::Adopt => Call::Bound,
        (_, Way::Undo) if kind == OperationKind::Adopt => return None,
        (Verb::Preflight, Way::Do) => Call::Preflight,
        (Verb::Verify, Way::Do) => Call::Verify,
        (Verb::Bind, Way::Do) | (Verb::Unbind, Way::Undo) => Call::Bind,
        (Verb::Unbind, Way::Do) | (Verb::Bind, Way::Undo) => Call::Unbind,
        (Verb::Ready, Way::Do) => Call::Ready,
        (Verb::Ready, Way::Undo) => Call::Unready,
        (Verb::Drain, Way::Do) => Call::Drain,
        (Verb::Drain, Way::Undo) => Call::Undrain,
        (Verb::Reset, _) => Call::Reset,
        (Verb::Preflight | Verb::Verify, Way::Undo) => return None,
    })
}

/// One request of an operation, and what becomes of it.
#[derive(Debug)]
struct Case {
    form: Form,
    way: Way,
    call: Call,
    unit: String,
    /// Which of the same requests on this way.
    nth: u32,
    /// Whose own request it is.
    verb: Option<Verb>,
    fault: Fault,
}

impl Case {
    /// How often the request goes wrong.
    fn times(&self) -> u32 {
        match (self.fault, self.verb, self.way) {
            (Fault::Errors(_), Some(Verb::Verify), _) | (Fault::Errors(_), _, Way::Undo) => 100_000,
            // Whoever doesn't know asks once more. No oftener, so that the undo works.
            (Fault::Errors(_), ..) => 2,
            _ => 1,
        }
    }

    /// How the operation ends; for requests beside a step `None`: as it was, or as it should be.
    fn end(&self, plan: &Plan) -> Option<OperationState> {
        let (Fault::Error(how) | Fault::Errors(how)) = self.fault else {
            return Some(self.calm_end());
        };
        let often = matches!(self.fault, Fault::Errors(_));
        match (self.way, self.verb) {
            _ if how == How::Panic => Some(self.calm_end()),
            (Way::Do, None) => None,
            (Way::Undo, None) => Some(OperationState::Cancelled),
            (Way::Do, Some(verb)) => Some(self.end_forward(verb, how, often, plan)),
            (Way::Undo, Some(verb)) => Some(match is_undone(verb, how, often) {
                true => OperationState::Cancelled,
                false => OperationState::Quarantined,
            }),
        }
    }

    fn calm_end(&self) -> OperationState {
        match self.way {
            Way::Do => OperationState::Completed,
            Way::Undo => OperationState::Cancelled,
        }
    }

    fn end_forward(&self, verb: Verb, how: How, often: bool, plan: &Plan) -> OperationState {
        use How as H;
        let unanswered = is_asked_again(how);
        let effect = matches!(how, H::LostAfter | H::HangAfter);
        let done = match verb {
            Verb::Preflight => how == H::CannotTell,
            // A look that failed is made again, until the host's time is over.
            Verb::Verify => !often || how == H::CannotTell,
            // The fabric takes a GPU also from a host that can't be asked to let go of it.
            Verb::Drain | Verb::Ready => matches!(how, H::CannotTell | H::Lie) || (unanswered && !often),
            // What can't be read is not taken over.
            Verb::Bind if self.form.kind == OperationKind::Adopt => how == H::Lie,
            Verb::Bind | Verb::Unbind => effect || (unanswered && !often),
            // Not seen to be reset it stays dirty: no failure, but closed to the next tenant.
            Verb::Reset => {
                let reset = unanswered && !often && how != H::CannotTell;
                reset || !self.goes_to_another_tenant(plan)
            }
        };
        match done || self.goes_on_without(plan) {
            true => OperationState::Completed,
            false => OperationState::RolledBack,
        }
    }

    /// Whether something is left to be done without the unit that fails.
    fn goes_on_without(&self, plan: &Plan) -> bool {
        self.form.partial_ok && hangs_on(&self.unit, plan) != units(plan)
    }
}

fn units(plan: &Plan) -> BTreeSet<&str> {
    plan.steps.iter().map(|step| step.target.unit.as_str()).collect()
}

/// A unit, and all that can't be done without it.
fn hangs_on<'a>(unit: &'a str, plan: &'a Plan) -> BTreeSet<&'a str> {
    let unit_of = |index: &u32| plan.steps[*index as usize].target.unit.as_str();
    let mut hang = BTreeSet::from([unit]);
    // Each round finds at least one, or all are found.
    for _ in &plan.steps {
        let waits = |step: &&Step| step.after.iter().any(|index| hang.contains(unit_of(index)));
        let more: Vec<_> = plan.steps.iter().filter(waits).collect();
        hang.extend(more.into_iter().map(|step| step.target.unit.as_str()));
    }
    hang
}

impl Case {
    fn goes_to_another_tenant(&self, plan: &Plan) -> bool {
        let tenant = |compositions: &[Composition]| {
            let holds = |c: &&Composition| c.held.iter().any(|held| held.unit.as_str() == self.unit);
            compositions.iter().find(holds).map(|c| c.tenant.clone())
        };
        tenant(&plan.composes).is_some_and(|next| tenant(&plan.releases) != Some(next))
    }
}

/// Nobody knows what became of it.
fn is_asked_again(how: How) -> bool {
    use How as H;
    matches!(
        how,
        H::LostBefore | H::LostAfter | H::HangBefore | H::HangAfter | H::CannotTell
    )
}

/// Whether the undo of a step gets through all the same.
fn is_undone(verb: Verb, how: How, often: bool) -> bool {
    match verb {
        Verb::Reset => true,
        Verb::Drain | Verb::Ready => !often || how == How::CannotTell,
        // Asking again may lock the account.
        _ if how == How::CredentialsRefused => false,
        _ => !often || matches!(how, How::LostAfter | How::HangAfter),
    }
}

/// Tells whether it went on without something.
async fn one(case: &Case, calm: &Calm) -> bool {
    let _told = Told(format!("{case:?}"));
    let (kit, plan) = prepared(case.form).await;
    let (moved, how) = (kit.rack.moves().len(), case.fault.how());
    let moments = Moments::new(match case.fault.is_crash() {
        true => Crash::InCall,
        false => Crash::Never,
    });
    let start = Start::Submit(case.form, &plan, case.way);
    let went = go(&kit, &moments, start, |rack| {
        rack.break_down_after(case.nth, case.call, Some(&case.unit), how, case.times());
    });
    let mut done = match (went.await, case.fault.is_crash()) {
        (Some(done), false) => done,
        (None, true) => recover(&kit, &id_of(&plan)).await,
        (Some(_), true) => panic!("it did not crash"),
        (None, false) => panic!("it is lost"),
    };
    assert!(kit.rack.was_hit(), "the fault was never met");
    kit.rack.mend();
    let expected = case.end(&plan);
    assert!(
        expected.is_none_or(|end| end == done.state),
        "expected {expected:?}, ended as {}: {:?}",
        done.state,
        done.error()
    );
    if done.state == OperationState::Quarantined {
        done = held_until_resolved(&kit, &done, &case.unit).await;
        assert_eq!(done.state, OperationState::Cancelled, "{:?}", done.error());
    }
    match done.state {
        OperationState::Completed | OperationState::Cancelled => {
            assert_eq!(bindings(&kit), calm.bindings_after(&done));
            let moves = without(kit.rack.moves_since(moved), &done);
            assert_eq!(
                moves,
                calm.moves_without(&done),
                "moved (left), and in a run without a fault"
            );
        }
        OperationState::RolledBack => assert_eq!(bindings(&kit), calm.before),
        other => panic!("ended as {other}: {:?}", done.error()),
    }
    if done.is_partial() {
        let left_out = done.units_left_out();
        let left_out: BTreeSet<_> = left_out.iter().map(|unit| unit.as_str()).collect();
        assert_eq!(left_out, hangs_on(&case.unit, &plan));
    }
    kit.all_is_well().await;
    still_usable(&kit, &plan).await;
    done.is_partial()
}

/// A quarantined operation holds what it has, also after a restart, until an operator says: try again.
async fn held_until_resolved(kit: &Kit, operation: &Operation, unit: &str) -> Operation {
    kit.taken_over().await;
    let executor = kit.executor();
    executor.recover().await.unwrap();
    let claims = executor.claims().await.unwrap();
    assert!(
        claims.iter().any(|claim| claim.unit.as_str() == unit),
        "{claims:?}"
    );
    assert_eq!(kit.gpu(unit).await.state.name(), "quarantined");
    assert_eq!(kit.rack.sins(), Vec::<String>::new());
    let retry = Resolve {
        resolution: Resolution::Retry,
        by: "operator".to_owned(),
        reason: "mended".to_owned(),
    };
    executor.resolve(&operation.id, retry).await.unwrap();
    ended(&executor, &operation.id).await
}

/// A step, done or undone, and what was tried with its own request.
type Tried = BTreeSet<(u32, Way, Sort)>;

/// What was swept of a kind.
struct Swept {
    plan: Plan,
    tried: Tried,
    cases: usize,
    /// Those that ended as done, without something.
    in_part: usize,
}

async fn sweep(form: Form) -> Swept {
    let (mut tried, mut cases, mut in_part) = (Tried::new(), 0, 0);
    for way in form.ways().iter().copied() {
        let calm = calm(form, way, |_| {}).await;
        for (n, (call, unit)) in calm.calls.iter().enumerate() {
            let same = calm.calls[..n].iter().filter(|(c, u)| c == call && u == unit);
            let nth = u32::try_from(same.count()).unwrap();
            let mut of_unit = calm.plan.steps.iter().filter(|s| s.target.unit.as_str() == unit);
            let own = of_unit.find(|step| nth == 0 && own_call(form.kind, step.verb, way) == Some(*call));
            for fault in faults(own.map(|step| step.verb), way) {
                let case = Case {
                    form,
                    way,
                    call: *call,
                    unit: unit.clone(),
                    nth,
                    verb: own.map(|step| step.verb),
                    fault,
                };
                in_part += usize::from(one(&case, &calm).await);
                cases += 1;
                tried.extend(own.map(|step| (step.index, way, fault.sort())));
            }
        }
    }
    let (_, plan) = prepared(form).await;
    Swept {
        plan,
        tried,
        cases,
        in_part,
    }
}

/// What is tried with a step's own request, and with one beside it.
fn faults(verb: Option<Verb>, way: Way) -> Vec<Fault> {
    let crashes = [Fault::CrashBefore, Fault::CrashAfter];
    if verb.is_none() {
        let errors = [Fault::Error(How::LostBefore), Fault::Error(How::Panic)];
        return errors.into_iter().chain(crashes).collect();
    }
    // A host that says that it took something back, and didn't, can't be caught.
    let of_host = matches!(verb, Some(Verb::Drain | Verb::Ready));
    let caught = move |how: &How| !(of_host && (way, *how) == (Way::Undo, How::Lie));
    let once = HOWS.into_iter().filter(caught).map(Fault::Error);
    // A driver that panics each time is no failure that an operation could end with; a call that is cut off is like
    // one whose answer is lost; and there are errors of which one is enough on the way there.
    let alike = |how: &How| matches!(how, How::Panic | How::HangBefore | How::HangAfter);
    let more = move |how: &How| way == Way::Undo || verb == Some(Verb::Verify) || is_asked_again(*how);
    let often = HOWS
        .into_iter()
        .filter(move |how| caught(how) && !alike(how) && more(how));
    let often = often.map(Fault::Errors);
    once.chain(often).chain(crashes).chain([Fault::Twice]).collect()
}

/// All that should be tried with the steps of a plan.
fn due(form: Form, plan: &Plan) -> Tried {
    let is_undone = |step: &Step| form.kind != OperationKind::Adopt && is_undone_by_asking(step, plan);
    let asks = |step: &&Step, way| way == Way::Do || is_undone(step);
    let mut due = Tried::new();
    for way in form.ways().iter().copied() {
        for step in plan.steps.iter().filter(|step| asks(step, way)) {
            due.extend(SORTS.map(|sort| (step.index, way, sort)));
        }
    }
    due
}

/// Whether undoing a step asks anything of anybody.
fn is_undone_by_asking(step: &Step, plan: &Plan) -> bool {
    let binds = |other: &Step| other.verb == Verb::Bind && other.target.unit == step.target.unit;
    match step.verb {
        Verb::Preflight | Verb::Verify => false,
        // What nobody was given since needs no other reset.
        Verb::Reset => plan.steps.iter().any(binds),
        Verb::Bind | Verb::Ready | Verb::Drain | Verb::Unbind => true,
    }
}

fn sweep_all(managers: Managers) {
    let swept = each_form(managers, sweep);
    let mut all = BTreeSet::new();
    for (form, swept) in &swept {
        let Swept {
            plan, tried, cases, ..
        } = swept;
        eprintln!(
            "{form:?}: {} steps, {cases} cases, {} done in part",
            plan.steps.len(),
            swept.in_part
        );
        assert_eq!(
            *tried,
            due(*form, plan),
            "{form:?}: tried (left), and what should be"
        );
        let there: BTreeSet<_> = plan.steps.iter().map(|step| step.verb).collect();
        assert_eq!(there, verbs(form.kind).iter().copied().collect(), "{form:?}");
        let units = units(plan);
        let has_parts = units.iter().any(|unit| hangs_on(unit, plan) != units);
        assert_eq!(swept.in_part > 0, form.partial_ok && has_parts, "{form:?}");
        all.extend(there);
    }
    assert_eq!(all, BTreeSet::from(Verb::ALL), "some steps are in no operation");
    let cases: usize = swept.iter().map(|(_, swept)| swept.cases).sum();
    eprintln!("{} forms of operations, {cases} cases", swept.len());
}

/// Fault 19: going on without what fails, an operation leaves out that unit and what waits for it, and nothing else.
/// Fault 3: each request of each step arrives twice, or is made again after a crash: it has one effect.
/// Fault 4: so does each request of each undo.
/// Fault 5: an undo that never works ends in quarantine, which holds both ends and is left by `resolve`.
#[test]
fn every_request_of_every_operation_goes_wrong_in_every_way() {
    sweep_all(Managers::Alone);
}

/// Fault 3: nor where the manager stops at any request, goes on once another has taken over, and finds its lease gone.
/// Fault 4: at those of the undo, too.
/// Fault 8: whatever it was at, it changes nothing any more.
#[test]
fn every_request_goes_wrong_in_every_way_where_managers_take_over_from_each_other() {
    sweep_all(Managers::Several);
}

/// The names that a register should have: those that may be read.
fn names<T: serde::de::DeserializeOwned>() -> usize {
    let error = serde_json::from_str::<T>("\"no such name\"")
        .err()
        .unwrap()
        .to_string();
    // unknown variant `no such name`, expected one of `a`, `b`, `c`
    error.matches('`').count() / 2 - 1
}

#[test]
fn nothing_is_missing_in_the_registers() {
    let kinds: BTreeSet<_> = OperationKind::ALL
        .iter()
        .map(|kind| format!("{kind:?}"))
        .collect();
    // What can't be read is never begun.
    assert!(!OperationKind::ALL.contains(&OperationKind::Unreadable));
    assert_eq!(kinds.len() + 1, names::<OperationKind>());
    assert_eq!(BTreeSet::from(Verb::ALL).len(), names::<Verb>());
}
