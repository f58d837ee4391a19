//! The log of operations: constant messages with fields, within spans that name the operation and the step.

use crate::kit::{Kit, ended, run, submission, until};
use crate::plans::{Draft, attach, composition, release};
use crate::rack::{Call, How};
use poolwright_executor::{Executor, OperationState, StepState, Submission};
use poolwright_model::id::OperationId;
use tempfile::NamedTempFile;
use tracing_subscriber::util::SubscriberInitExt as _;

struct Log(NamedTempFile);

impl Log {
    /// Captures the log of this thread until the second value is dropped.
    fn captured() -> (Self, impl Sized) {
        let file = NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_writer(file.reopen().unwrap())
            .finish();
        (Self(file), subscriber.set_default())
    }

    /// The lines with this message.
    fn lines(&self, message: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.0.path()).unwrap();
        let found = log.lines().filter(|line| line.contains(message));
        found.map(str::to_owned).collect()
    }

    /// The only line with this message. It has all of these words.
    fn has(&self, message: &str, words: &[&str]) {
        let lines = self.lines(message);
        assert_eq!(lines.len(), 1, "{message}: {lines:?}");
        for word in words {
            assert!(lines[0].contains(word), "{word}: {lines:?}");
        }
    }
}

/// An attach whose bind goes wrong in this way, once the operation is in this state.
async fn attaching(kit: &Kit, how: How, state: OperationState) -> (Executor, OperationId) {
    kit.rack.break_down(Call::Bind, Some("u1"), how, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, |operation| operation.state == state).await;
    (executor, id)
}

const SPAN: &str = "operation{id=op-attach kind=Apply}: ";

/// Fault 77: an operation is logged when it starts, and when it ends.
#[tokio::test(start_paused = true)]
async fn the_start_and_the_end_of_an_operation_are_logged() {
    let (log, _guard) = Log::captured();
    Kit::new().given(attach()).await;
    log.has("operation started", &["INFO", SPAN, "by=\"tester\"", "units=1"]);
    log.has("operation ended", &["INFO", SPAN, "state=completed", "seconds=0"]);
    assert!(log.lines("operation failed").is_empty());
}

/// Fault 77: a failure is logged when the undo begins, with its reason.
#[tokio::test(start_paused = true)]
async fn the_failure_of_an_operation_is_logged_with_its_reason() {
    let (log, _guard) = Log::captured();
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, None, How::Refuse, 9);
    assert_eq!(
        run(&kit.executor(), attach()).await.state,
        OperationState::RolledBack
    );
    log.has(
        "operation failed",
        &["WARN", SPAN, "step=1", "reason=\"", "bind u1"],
    );
    log.has("operation ended", &["INFO", SPAN, "state=rolled-back", "bind u1"]);
}

/// Fault 77: an operation that goes on without some of its units logs them.
#[tokio::test(start_paused = true)]
async fn units_that_an_operation_leaves_out_are_logged() {
    let (log, _guard) = Log::captured();
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, Some("u1"), How::Refuse, 9);
    let plan = Draft::new("attach").compose(composition("a", "red", "h1", &["u1", "u2"]));
    let partial = Submission {
        partial_ok: true,
        ..submission(plan.plan())
    };
    let executor = kit.executor();
    let id = executor.submit(partial).await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    log.has(
        "units left out",
        &["WARN", SPAN, "units=1", "first=u1", "bind u1"],
    );
}

/// Fault 77: a cancellation is no failure.
#[tokio::test(start_paused = true)]
async fn a_cancelled_operation_is_logged_with_its_reason() {
    let (log, _guard) = Log::captured();
    let kit = Kit::new();
    let (executor, id) = attaching(&kit, How::HangAfter, OperationState::Running).await;
    executor.cancel(&id, "operator", "a mistake").await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Cancelled);
    log.has(
        "operation cancelled",
        &["INFO", SPAN, "cancelled by operator: a mistake"],
    );
    log.has("operation ended", &[SPAN, "state=cancelled"]);
    assert!(log.lines("operation failed").is_empty());
}

/// Fault 77: a start after a crash logs each operation that it resumes, with the number of steps done.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_resumed_after_a_crash_is_logged() {
    let kit = Kit::new();
    // A task that never ends.
    let (executor, id) = attaching(&kit, How::Overdue, OperationState::Indeterminate).await;
    drop(executor);

    let (log, _guard) = Log::captured();
    let executor = kit.executor();
    assert_eq!(executor.recover().await.unwrap().adopted, [id]);
    let resumed = ["INFO", SPAN, "state=indeterminate", "steps_done=1"];
    log.has("operation resumed", &resumed);
    assert!(log.lines("operation started").is_empty(), "it had started before");
}

/// Fault 77: an endpoint that falls silent leaves many steps of an operation with an unknown outcome.
#[tokio::test(start_paused = true)]
async fn steps_with_an_unknown_outcome_are_one_warning() {
    let (log, _guard) = Log::captured();
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, None, How::Overdue, 2);
    let executor = kit.executor();
    let plan = Draft::new("attach")
        .compose(composition("a", "red", "h1", &["u1"]))
        .compose(composition("b", "red", "h2", &["u2"]));
    let id = executor.submit(submission(plan.plan())).await.unwrap();
    until(&executor, &id, |operation| {
        let unknown = operation
            .steps
            .iter()
            .filter(|record| record.state == StepState::Indeterminate);
        unknown.count() == 2
    })
    .await;
    log.has("outcome unknown", &["WARN", SPAN, "unit=\"u1\"", "reason="]);
}

/// Fault 77: the log messages of a step name its unit and its endpoint.
#[tokio::test(start_paused = true)]
async fn the_log_messages_of_a_step_name_its_unit_and_its_endpoint() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.break_down(Call::Drain, None, How::CannotTell, 1);
    let (log, _guard) = Log::captured();
    kit.given(release()).await;
    let step = "operation{id=op-release kind=Apply}:step{unit=u1 endpoint=box-1 verb=drain}: ";
    log.has("use not checked", &["INFO", step]);
}
