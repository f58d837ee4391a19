//! Runs a plan: journaled steps, read-back, undo, recovery.
//!
//! * [`Executor`]: submit, watch, cancel, resolve and recover operations.
//! * [`operation`]: an operation and its steps; [`state`]: their states and every legal transition.
//! * [`record`]: what is kept in the store beside it: claims, GPUs, compositions, plans, keys.
//! * [`Pause`]: what somebody stopped.
//! * [`event`]: what is told to whoever listens.
//!
//! How a step runs: read what is expected; journal the intent; ask the hardware; read what became of it;
//! journal the outcome. Nothing is sent before its intent is on the disk, and nothing counts as done
//! before it was read back. On a failure everything done is undone in reverse, decided by what the fabric
//! shows and not by what the journal hopes. All or nothing; or, where that was asked for, what can be done
//! ([`LeftOut`]).
//!
//! Invariants:
//! * A unit belongs to one operation at a time (its claim), from the submission's commit to the end's.
//! * A run begins wherever the journal ends, so recovery is a run like any other, and doing it twice has
//!   one effect.
//! * An unknown outcome is read back, or held as *Indeterminate* for as long as it may still come; an undo that fails ends in
//!   *Quarantined*. Neither is success, and neither is cleared by time.
//! * Every wait is bounded, or holds an operation that says what it waits for and that an operator can
//!   [resolve](Executor::resolve).

pub mod documents;
pub mod event;
pub mod operation;
pub mod record;
pub mod state;

mod alarm;
mod charge;
mod clock;
mod drivers;
mod executor;
mod hooks;
mod key;
mod line;
mod options;
mod order;
mod pause;
mod resolve;
mod restart;
mod retention;
mod submit;

mod binding;
mod context;
mod deadline;
mod finish;
mod gpus;
mod host;
mod journal;
mod late;
mod ledger;
mod left_out;
mod live;
mod load;
mod locks;
mod log;
mod make_ready;
mod note;
mod observed;
mod reset;
mod run;
mod unreadable;

pub use alarm::{Alarm, Severity};
pub use charge::{Alone, Charge, Tenure};
pub use clock::{Clock, SystemClock};
pub use drivers::Drivers;
pub use event::Event;
pub use executor::{CancelError, Executor, Recovered};
pub use hooks::{Hooks, Moment, Point};
pub use key::{Key, KeyAnswer, KeyRecord, KeyUsed};
pub use left_out::LeftOut;
pub use line::{Line, Noted, StepLine};
pub use operation::{Operation, OperationKind, StepRecord, Stop, StopCause};
pub use options::Options;
pub use order::TakenOrder;
pub use pause::{Pause, Paused};
pub use record::{Claim, CompositionRecord, GpuRecord, PlanRecord};
pub use resolve::{Resolution, Resolve, ResolveError, Said};
pub use retention::Pruned;
pub use state::{OperationState, StepState};
pub use submit::{Submission, SubmitError};
