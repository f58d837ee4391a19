//! Taking over what somebody else bound: it is looked at, and nothing is ever sent.

use crate::kit::{Kit, ended, submission};
use crate::plans::{Draft, composition};
use crate::rack::Call;
use poolwright_executor::{OperationKind, OperationState, StepState};
use poolwright_model::lifecycle::GpuState;

#[tokio::test(start_paused = true)]
async fn what_is_bound_is_taken_over_and_what_is_not_is_not_bound() {
    let kit = Kit::new();
    let adopting = |plan: &str| {
        let found = composition("a", "red", "h1", &["u1", "u2"]);
        let mut adopting = submission(Draft::new(plan).compose(found).plan());
        adopting.kind = OperationKind::Adopt;
        adopting
    };
    let executor = kit.executor();

    // One of them has gone by now.
    kit.rack.rebind("u1", &["h1/p0"]);
    let id = executor.submit(adopting("p1")).await.unwrap();
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let error = done.error().unwrap();
    assert!(error.contains("u2 is bound to nothing any more"), "{error}");
    assert!(kit.compositions().await.is_empty());
    assert_eq!(kit.gpu("u1").await.state, GpuState::Foreign);

    kit.rack.rebind("u2", &["h1/p0"]);
    let id = executor.submit(adopting("p2")).await.unwrap();
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert!(done.steps.iter().any(|step| step.state == StepState::Skipped));
    assert_eq!(kit.compositions().await["a"].composition.gpu_count(), 2);
    kit.all_is_well().await;
    for call in [Call::Bind, Call::Unbind, Call::Reset] {
        for unit in ["u1", "u2"] {
            assert_eq!(kit.rack.times_asked(call, unit), 0, "{call:?} {unit}");
        }
    }
}
