//! What operations left behind is looked at once they are over, at each endpoint by itself.

use crate::kit::{ME, Pool};
use jiff::Timestamp;
use poolwright_service::{Change, How};

impl Pool {
    async fn attach_at(&self, gpu: &str, host: &str) -> Change {
        let (gpus, host) = (self.gpu_ids(&[gpu]).await, self.host_id(host).await);
        let attach = self.composer().attach(&gpus, &host, ME, &How::default());
        attach.await.unwrap()
    }

    async fn observed_at(&self, endpoint: &str) -> Option<Timestamp> {
        let kept = self.composer().endpoint(&endpoint.parse().unwrap()).await;
        kept.unwrap().observed_at
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_keeps_nobody_from_seeing_the_others() {
    let pool = Pool::of("demo").await;
    let far = pool.attach_at("box-2/gpu-1", "host-1").await;
    pool.done(&far).await;
    // The look at what that left gets no answer for as long as it has patience.
    pool.silence("box-2");
    let (near, far) = (pool.observed_at("box-1").await, pool.observed_at("box-2").await);
    let change = pool.attach_at("box-1/gpu-1", "host-2").await;
    pool.done(&change).await;
    pool.until("the quick one is looked at", async || {
        pool.observed_at("box-1").await > near
    })
    .await;
    let silent = pool.composer().endpoint(&"box-2".parse().unwrap()).await.unwrap();
    assert!(
        silent.silent.is_none() && silent.observed_at == far,
        "the look at the slow one is under way still: {silent:?}"
    );
    pool.emulation.clear_faults();
    pool.until("so is the slow one", async || {
        pool.observed_at("box-2").await > far
    })
    .await;
    pool.all_is_well().await;
}
