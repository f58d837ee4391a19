//! What is over leaves its GPUs free, but for those of which that tells nothing.

use crate::support::Rack;
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::settled::settle;
use poolwright_sizing::need::Need;

#[test]
fn what_is_let_go_of_is_free_and_what_is_lost_stays_lost() {
    let mut rack = Rack::new()
        .gpus("f/s", "red", 80.0, 4)
        .host("a", "f/s", 8)
        .want("job", Need::of_kind("red", 4));
    rack.apply(1);
    let held = &rack.held[0].held;
    let units = held.iter().map(|held| held.unit.clone()).collect();
    let lost = [GpuState::Missing, GpuState::Quarantined, GpuState::Indeterminate];
    let ids: Vec<String> = held.iter().map(|held| held.gpus[0].to_string()).collect();
    for (id, state) in ids.iter().zip(lost) {
        rack.gpu_mut(id).state = state;
    }
    let was = ids
        .iter()
        .map(|id| rack.gpu_mut(id).host.clone())
        .collect::<Vec<_>>();
    settle(rack.topology(), &[], &units);
    for (id, state) in ids.iter().zip(lost.into_iter().chain([GpuState::Free])) {
        let gpu = rack.gpu_mut(id).clone();
        assert_eq!(
            (gpu.state, gpu.host.is_none()),
            (state, state == GpuState::Free),
            "{id}"
        );
    }
    // And what stands is attached where it stands, whatever was seen last.
    let held = rack.held.clone();
    settle(rack.topology(), &held, &units);
    let last = rack.gpu_mut(&ids[3]).clone();
    assert_eq!((last.state, last.host), (GpuState::Attached, was[3].clone()));
}
