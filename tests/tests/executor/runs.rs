//! One operation from its submission to its end: forward, or turned back at the last moment; and cut off by a
//! crash on the way.

use crate::kit::{FOREVER, Kit, submission_of};
use crate::rack::Rack;
use crate::registered::Form;
use async_trait::async_trait;
use poolwright_executor::{Executor, Hooks, Moment, Operation, OperationKind, Point};
use poolwright_model::id::OperationId;
use poolwright_planner::Plan;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Says which case it was that failed.
pub struct Told(pub String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case that failed: {}", self.0);
        }
    }
}

/// Which way an operation is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To its end.
    Do,
    /// All steps are done, and then an operator cancels it: every step is undone.
    Undo,
}

/// When the manager is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Never,
    /// At the n-th moment.
    At(usize),
    /// Once the rack leaves a call without an answer.
    InCall,
}

/// Writes down every moment, and stops the world where it is to crash.
pub struct Moments {
    seen: Mutex<Vec<Point>>,
    crash: Crash,
    crashed: Notify,
    turns_back: AtomicBool,
    before_the_end: Notify,
    turned: Notify,
}

impl Moments {
    pub fn new(crash: Crash) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            crash,
            crashed: Notify::new(),
            turns_back: AtomicBool::new(false),
            before_the_end: Notify::new(),
            turned: Notify::new(),
        })
    }

    pub fn seen(&self) -> Vec<Point> {
        self.seen.lock().unwrap().clone()
    }
}

fn is_before_the_end(point: &Point) -> bool {
    point.step.is_none() && point.moment == Moment::BeforeIntent
}

#[async_trait]
impl Hooks for Moments {
    async fn at(&self, point: Point) {
        let n = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(point.clone());
            seen.len() - 1
        };
        // Whatever runs beside it stops here too.
        if matches!(self.crash, Crash::At(at) if n >= at) {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
        if is_before_the_end(&point) && self.turns_back.swap(false, Ordering::SeqCst) {
            self.before_the_end.notify_one();
            self.turned.notified().await;
        }
    }
}

/// How a run begins.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    Submit(Form, &'a Plan, Way),
    Recover(&'a OperationId),
}

pub fn id_of(plan: &Plan) -> OperationId {
    submission_of(OperationKind::Apply, plan.clone()).id
}

/// Runs until it is settled; `None` where it crashed. The trouble begins with the submission, or at the moment
/// at which it turns back.
pub async fn go(
    kit: &Kit,
    moments: &Arc<Moments>,
    start: Start<'_>,
    trouble: impl FnOnce(&Rack),
) -> Option<Operation> {
    if matches!(start, Start::Recover(_)) {
        kit.taken_over().await;
    }
    let executor = kit.executor_with(Arc::clone(moments) as _);
    let going = async {
        let id = match start {
            Start::Submit(form, plan, way) => {
                moments.turns_back.store(way == Way::Undo, Ordering::SeqCst);
                let submission = form.submission(plan.clone());
                if way == Way::Do {
                    trouble(&kit.rack);
                    executor.submit(submission).await.unwrap()
                } else {
                    let id = executor.submit(submission).await.unwrap();
                    moments.before_the_end.notified().await;
                    trouble(&kit.rack);
                    executor.cancel(&id, "tester", "").await.unwrap();
                    moments.turned.notify_one();
                    id
                }
            }
            Start::Recover(id) => {
                trouble(&kit.rack);
                executor.recover().await.unwrap();
                id.clone()
            }
        };
        executor.wait(&id, FOREVER).await.unwrap()
    };
    let in_call = async {
        match moments.crash {
            Crash::InCall => kit.rack.hangs.notified().await,
            _ => std::future::pending().await,
        }
    };
    let done = tokio::select! {
        biased;
        () = moments.crashed.notified() => None,
        () = in_call => None,
        done = going => done,
    };
    match &kit.leased {
        // Whoever takes over can't know whether it is gone.
        Some(leased) if done.is_none() => leased.stop(executor),
        _ => crash(executor).await,
    }
    done
}

/// Carries the operation on, with nothing in its way.
pub async fn recover(kit: &Kit, id: &OperationId) -> Operation {
    let calm = Moments::new(Crash::Never);
    go(kit, &calm, Start::Recover(id), |_| {}).await.unwrap()
}

/// Kills it, and gives tasks that were cut off the time to be gone.
pub async fn crash(executor: Executor) {
    drop(executor);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A run in which nothing goes wrong, and what it comes to.
pub struct Calm {
    pub plan: Plan,
    /// What is bound where before and after, whichever way it goes.
    pub before: Vec<(String, Vec<String>)>,
    pub after: Vec<(String, Vec<String>)>,
    /// Everything that the rack is asked on that way.
    pub calls: Vec<(crate::rack::Call, String)>,
    /// The binds and unbinds from the submission to the end.
    pub moves: Vec<(crate::rack::Call, String)>,
    /// The moments on that way.
    pub moments: std::ops::Range<usize>,
    /// The trouble was met.
    pub was_hit: bool,
}

pub fn bindings(kit: &Kit) -> Vec<(String, Vec<String>)> {
    kit.rack.bindings().into_iter().collect()
}

impl Calm {
    /// What is bound where once an operation has ended like this: as after a calm run, but for what it left out.
    pub fn bindings_after(&self, done: &Operation) -> Vec<(String, Vec<String>)> {
        let left_out = done.units_left_out();
        let is_left_out = |unit: &str| left_out.iter().any(|left| left.as_str() == unit);
        let changed = self.after.iter().filter(|(unit, _)| !is_left_out(unit));
        let stays = self.before.iter().filter(|(unit, _)| is_left_out(unit));
        let all: BTreeMap<_, _> = changed.chain(stays).cloned().collect();
        all.into_iter().collect()
    }

    /// The binds and unbinds of the others.
    pub fn moves_without(&self, done: &Operation) -> Vec<(crate::rack::Call, String)> {
        without(self.moves.clone(), done)
    }
}

/// What was not done about units that were left out.
pub fn without(
    mut moves: Vec<(crate::rack::Call, String)>,
    done: &Operation,
) -> Vec<(crate::rack::Call, String)> {
    moves.retain(|(_, moved)| done.left_out.iter().all(|left| left.unit.as_str() != moved));
    moves
}

pub async fn calm(form: Form, way: Way, trouble: impl FnOnce(&Rack)) -> Calm {
    let (kit, plan) = crate::registered::prepared(form).await;
    let (before, moved) = (bindings(&kit), kit.rack.moves().len());
    let moments = Moments::new(Crash::Never);
    let mut asked = 0;
    go(&kit, &moments, Start::Submit(form, &plan, way), |rack| {
        asked = rack.asked().len();
        trouble(rack);
    })
    .await
    .unwrap();
    kit.all_is_well().await;
    let seen = moments.seen();
    // The moment before the end is the last one on the way there.
    let turn = seen.iter().position(is_before_the_end).unwrap() + 1;
    Calm {
        plan,
        before,
        after: bindings(&kit),
        calls: kit.rack.asked().split_off(asked),
        moves: kit.rack.moves_since(moved),
        moments: match way {
            Way::Do => 0..seen.len(),
            Way::Undo => turn..seen.len(),
        },
        was_hit: kit.rack.was_hit(),
    }
}
