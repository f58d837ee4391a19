//! What operations left behind is looked at once they are over, at each endpoint by itself.

use crate::stories::kit::{ME, Pool};
use jiff::Timestamp;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::{Change, How};
use std::time::Duration;

impl Pool {
    async fn attach_at(&self, gpu: &str, host: &str) -> Change {
        let (gpus, host) = (self.gpu_ids(&[gpu]).await, self.host_id(host).await);
        let how = How::default();
        self.composer().attach(&gpus, &host, ME, &how).await.unwrap()
    }

    async fn observed_at(&self, endpoint: &str) -> Option<Timestamp> {
        let kept = self.composer().endpoint(&endpoint.parse().unwrap()).await;
        kept.unwrap().observed_at
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_keeps_nobody_from_seeing_the_others() {
    let pool = Pool::of("demo").await;
    // Whoever looks at all that it has waits for long.
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(30),
    });
    pool.fault(slow.at("box-2").on("GET", "/redfish/v1"));
    let (near, far) = (pool.observed_at("box-1").await, pool.observed_at("box-2").await);
    let change = pool.attach_at("box-2/gpu-1", "host-1").await;
    pool.done(&change).await;
    let change = pool.attach_at("box-1/gpu-1", "host-2").await;
    pool.done(&change).await;
    pool.until("the quick one is looked at", async || {
        pool.observed_at("box-1").await > near
    })
    .await;
    assert_eq!(
        pool.observed_at("box-2").await,
        far,
        "the look at the slow one goes on"
    );
    pool.until("so is the slow one", async || {
        pool.observed_at("box-2").await > far
    })
    .await;
    pool.all_is_well().await;
}
