//! The facade [`Composer`], and what runs by the clock.
//!
//! * [`Composer`]: everything that anybody asks of Poolwright, be it at the CLI or through a service.
//! * [`runner`]: looks at the hardware and recompositions by the calendar.
//! * [`demand`], [`schedule`], [`window`], [`endpoint`]: what people write, and what is kept of it.
//! * [`occurrence`]: openings of a window that give way, wait, or are left out.
//! * [`lend`], [`ladder`], [`hooks`]: what is lent, and how it comes back.
//! * [`job`], [`tenant`]: demands that wait in the queue, and what tenants are promised there.
//! * [`drift`](mod@drift): what is recorded against what is found.
//! * [`size`], [`phases`]: from what people write about a model, or a run over time, to sizing's answer.
//! * [`Course`]: the windows of a demand with phases.
//! * [`keep`]: what is done with GPUs that will be wanted soon.
//! * `wants`: how many GPUs were wanted, for forecasts.
//! * [`spans`]: lengths of time as people write them. [`misread`]: what of that can't be read, in a sentence.
//! * [`subscription`]: who is sent what happens.
//! * [`limits`]: how much may happen by itself.
//! * [`leases`]: several managers on one store.
//! * [`accounts`], [`sessions`]: authentication; [`access`]: session and lockout limits. [`audit`]: audit log.
//! * [`closure`]: hosts that are closed for a time. [`uplink`]: uplink capacities.
//! * [`agent`]: agents on hosts, and how they are enrolled.
//! * [`clock`]: the only place that knows what time it is.

pub mod access;
pub mod accounts;
pub mod agent;
pub mod audit;
mod books;
pub mod clock;
pub mod closure;
mod composer;
mod connections;
mod course;
pub mod demand;
pub mod drift;
pub mod early;
pub mod endpoint;
mod error;
pub mod hooks;
pub mod host;
mod identity;
mod ids;
pub mod job;
pub mod keep;
pub mod ladder;
pub mod leases;
pub mod lend;
pub mod limits;
pub mod misread;
mod missing;
pub mod occurrence;
mod owners;
pub mod phases;
pub mod quarantine;
pub mod returns;
mod run_times;
pub mod runner;
pub mod schedule;
mod sealed;
pub mod sessions;
mod shown;
mod sight;
mod simulation;
pub mod size;
pub mod spans;
pub mod stopping;
pub mod subscription;
pub mod suspicion;
pub mod telemetry;
pub mod tenant;
pub mod uplink;
mod vanishing;
mod view;
mod walk;
mod wants;
pub mod window;

// A crate that awaits an async method of another crate compiles its body again; a boxed future is compiled once, here.
pub(crate) use async_recursion::async_recursion as boxed;
pub use composer::documents;
pub use composer::{
    Accepting, Admitted, Adopting, Ahead, Asked, Became, Change, Check, CheckResult, Composer, Credentials,
    Declaration, Declared, DeclaredEntry, DeclaredKind, Difference, DoesNotFit, DueOpening, EndpointTest,
    Happened, Happening, HeldAhead, How, Kinds, LETTERBOXES, LastLook, LimitsStatus, LoggedEvent, Lost,
    MOST_AHEAD_H, MOST_HOURS, MOST_OPENINGS, MOST_PARTS, Moment, MovedMost, NO_FORECAST_YET, Observed,
    OperationAlarm, Options, Part, PinChange, Place, ProblemAhead, Queue, QueuedJob, RESERVED, Release,
    Reservation, Resolution, Rotated, RunningJob, ScheduleStatus, Seen, Silent, SkippedStep, Status,
    TenantForecast, TestEvent, Thing, Turn, UnservedAhead, What, Why, Wish, Wished, most_slots, openings_of,
    pool_kinds, schedule_of,
};
pub use course::Course;
pub use drift::{Drift, DriftKind};
pub use error::{ErrorCode, ServiceError};
pub use sealed::{ClusterKey, Keys};
pub use simulation::SimulationRequest;

// What the facade's answers are made of, so that those above it need no other room.
pub use poolwright_executor::{
    CompositionRecord, Operation, OperationKind, OperationState, Options as ExecuteOptions, Pause, Paused,
    Severity, StepState,
};
pub use poolwright_inventory::Snapshot;
pub use poolwright_planner::direct::Purpose;
pub use poolwright_planner::{Closure, Composition, Plan};
pub use poolwright_simulator::Simulated;
