//! A management service that restarts while something is asked of it: it gives no answers for a while, and forgets what
//! it had in hand.

use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::rack::Home;
use poolwright_service::{How, OperationState};
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";
const BINDS: &str = "/redfish/v1/Fabrics/*/Zones/*";

impl Pool {
    /// The service of this GPU's box restarts: it is silent for so long, and what it had in hand is lost.
    async fn restart_the_box_of(&self, gpu: &str, silent: Duration) {
        let Home::Box(of_box, _) = self.emulation.rack()[self.gpu_ix(gpu)].home else {
            panic!("{gpu} is in no box");
        };
        self.silence(gpu.split('/').next().unwrap());
        self.emulation
            .with(|state, now| state.restart_manager(of_box, now));
        tokio::time::sleep(silent).await;
        self.emulation.clear_faults();
    }
}

/// Fault 40: what it had in hand is lost with the restart; it is read back, asked for again, and done.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_restarts_in_the_middle_of_a_compose_is_waited_for_and_asked_again() {
    for silent in [5, 60, 600] {
        let pool = Pool::of("demo").await;
        // With its third bind it would never be done.
        let stuck = Fault::new(FaultKind::TaskNeverEnds)
            .at("box-1")
            .on("PATCH", BINDS);
        pool.fault(stuck.after(2).times(1));
        let names: Vec<String> = (1..=4).map(|n| format!("box-1/gpu-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (gpus, host) = (pool.gpu_ids(&names).await, pool.host_id("host-1").await);
        let how = How::default();
        let change = pool.composer().attach(&gpus, &host, ME, &how).await.unwrap();
        pool.until("some are bound, and some are not", async || {
            pool.truth().len() == 2
        })
        .await;
        pool.restart_the_box_of("box-1/gpu-1", Duration::from_secs(silent))
            .await;
        let done = pool.done(&change).await;
        assert_eq!(done.state, OperationState::Completed, "silent for {silent} s");
        assert_eq!(pool.truth().len(), 4);
        pool.quiet().await;
        pool.all_is_well().await;
    }
}

/// Fault 40: a release, of which one unbind is lost.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_restarts_in_the_middle_of_a_release_is_waited_for_and_asked_again() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", KIND, 4)).await;
    let of_box = pool.truth().into_keys().next().unwrap();
    let stuck = Fault::new(FaultKind::TaskNeverEnds).on("PATCH", BINDS);
    pool.fault(stuck.after(3).times(1));
    let change = pool.release("chat").await.unwrap();
    pool.until("one is left", async || pool.truth().len() == 1).await;
    pool.restart_the_box_of(&of_box, Duration::from_secs(90)).await;
    pool.done(&change).await;
    assert!(pool.truth().is_empty());
    pool.quiet().await;
    pool.all_is_free().await;
}
