//! What joins the pool, leaves it or falls silent by itself is told to whoever listens, once.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::Pool;
use crate::stories::polling::{POLL, WALK};
use poolwright_service::{Thing, Turn, What};
use std::time::Duration;

const GPU: &str = "box-1/gpu-1";

/// A pool that is polled.
async fn polled() -> Pool {
    let mut pool = Pool::of("demo").await;
    pool.crash().await;
    (pool.options.poll, pool.options.walk) = (Some(POLL), WALK);
    pool.open().await;
    pool
}

impl Pool {
    /// What was told of things since an entry of the log: which, and what became of it.
    async fn told_since(&self, seq: u64) -> Vec<(String, &'static str)> {
        let happened = self.composer().happened_after(seq, 10_000).await.unwrap();
        let mut told = Vec::new();
        for happening in happened.all {
            let What::Thing { thing, became } = happening.what else {
                continue;
            };
            let name = match thing {
                Thing::Gpu { id, chassis } => {
                    assert!(chassis.is_some(), "it is told where {id} is");
                    id.to_string()
                }
                Thing::Endpoint(id) => id.to_string(),
                Thing::Account(name) => name,
            };
            let became = match became {
                Turn::Added => "added",
                Turn::Changed => "changed",
                Turn::Removed => "removed",
                Turn::Lost { because } => {
                    assert!(!because.is_empty(), "it is told why");
                    "lost"
                }
                Turn::Back => "back",
                Turn::Suspect { .. } => "suspect",
                Turn::Sound => "sound",
            };
            told.push((name, became));
        }
        told
    }

    async fn until_told(&self, seq: u64, wanted: &[(&str, &'static str)]) {
        let wanted: Vec<(String, &str)> = wanted
            .iter()
            .map(|(name, became)| ((*name).to_owned(), *became))
            .collect();
        self.until("it is told", async || self.told_since(seq).await == wanted)
            .await;
        // Nobody tells it again.
        tokio::time::sleep(WALK * 3 + Duration::from_secs(60)).await;
        assert_eq!(self.told_since(seq).await, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_is_pulled_and_put_back_is_told_once_each() {
    let mut pool = polled().await;
    let id = pool.gpu(GPU).await.id.to_string();
    let gpu = pool.gpu_ix(GPU);
    let before = pool.composer().last_happened().await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.emulation.with(|state, now| state.vanish(gpu, now));
    pool.until_told(before, &[(&id, "removed")]).await;
    clockwork.stop().await;

    // It comes back while the manager is down.
    pool.crash().await;
    pool.emulation.with(|state, _| state.reappear(gpu));
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.until_told(before, &[(&id, "removed"), (&id, "added")]).await;
    clockwork.stop().await;
}

/// Nobody else would ever take back that it gives no answer.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_answers_again_after_a_restart_is_told_to_be_back_once() {
    let mut pool = polled().await;
    let before = pool.composer().last_happened().await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.silence("box-2");
    pool.until_told(before, &[("box-2", "lost")]).await;
    clockwork.stop().await;
    // Silent still, and told already.
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.until_told(before, &[("box-2", "lost")]).await;
    pool.emulation.clear_faults();
    let lost_and_back = [("box-2", "lost"), ("box-2", "back")];
    pool.until_told(before, &lost_and_back).await;
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.until_told(before, &lost_and_back).await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_told_when_it_falls_silent_answers_again_is_removed_and_added() {
    let pool = polled().await;
    let before = pool.composer().last_happened().await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.silence("box-2");
    pool.until_told(before, &[("box-2", "lost")]).await;
    pool.emulation.clear_faults();
    pool.until_told(before, &[("box-2", "lost"), ("box-2", "back")])
        .await;
    let removed = pool.composer().remove_endpoint(&"box-2".parse().unwrap()).await;
    removed.unwrap();
    pool.add_endpoint("box-2").await;
    let all = [
        ("box-2", "lost"),
        ("box-2", "back"),
        ("box-2", "removed"),
        ("box-2", "added"),
    ];
    pool.until_told(before, &all).await;
    clockwork.stop().await;
}

/// What was told of the one that was there before is not told of the one that has its name now.
#[tokio::test(start_paused = true)]
async fn one_that_was_removed_while_silent_is_not_told_to_be_back_when_another_has_its_name() {
    let mut pool = polled().await;
    let before = pool.composer().last_happened().await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.silence("box-2");
    pool.until_told(before, &[("box-2", "lost")]).await;
    let removed = pool.composer().remove_endpoint(&"box-2".parse().unwrap()).await;
    removed.unwrap();
    pool.emulation.clear_faults();
    pool.add_endpoint("box-2").await;
    let all = [("box-2", "lost"), ("box-2", "removed"), ("box-2", "added")];
    pool.until_told(before, &all).await;
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.silence("box-2");
    let lost_again = [all[0], all[1], all[2], ("box-2", "lost")];
    pool.until_told(before, &lost_again).await;
    clockwork.stop().await;
}
