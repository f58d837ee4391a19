//! The locator of a failed GPU: lit for the technician, put out when the GPU is back, and never a cause of another
//! failure.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool};
use crate::stories::quarantine::pool;
use poolwright_emulator::clock::Clock as RackClock;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::rack::GpuIx;
use poolwright_emulator::{Emulation, Rack};
use poolwright_executor::Paused;
use poolwright_model::id::GpuId;
use poolwright_model::topology::Gpu;
use poolwright_service::ErrorCode;
use poolwright_service::endpoint::Standing;
use poolwright_service::quarantine::{Cause, Failure, Light};
use std::time::Duration;

impl Pool {
    /// GPUs whose lights are on, as the rack calls them.
    fn lit(&self) -> Vec<String> {
        let rack = self.emulation.rack();
        let all = (0..rack.gpus.len()).map(GpuIx);
        let lit = all.filter(|gpu| self.emulation.with(|state, _| state.lit(*gpu)));
        lit.map(|gpu| rack.gpu_name(gpu)).collect()
    }

    fn name_of(&self, gpu: &Gpu) -> String {
        let rack = self.emulation.rack();
        let same = |at: &GpuIx| Some(&rack[*at].serial) == gpu.serial.as_ref();
        rack.gpu_name((0..rack.gpus.len()).map(GpuIx).find(same).unwrap())
    }

    /// The last action on the locator of a GPU, once there is one.
    async fn light(&self, gpu: &GpuId) -> Light {
        let light = async || self.composer().gpu_history(gpu).await.unwrap().light;
        self.until("somebody saw to its light", async || light().await.is_some())
            .await;
        light().await.unwrap()
    }

    /// Replaces a GPU by another one while no manager runs.
    async fn another_comes_to(&mut self, place: &str) {
        self.crash().await;
        let mut rack = Rack::builtin("demo").unwrap();
        let ix = rack.gpu_named(place).unwrap();
        let other = &mut rack.gpus[ix.0];
        other.serial = "S-OTHER".to_owned();
        other.uuid = "0e2b7f0c-9a51-4c1e-8f7a-4d2f9c1b7a99".parse().unwrap();
        let clock = RackClock::Real {
            start: self.emulation.clock().now(),
            since: tokio::time::Instant::now(),
        };
        self.emulation = Emulation::new(rack, clock);
        self.open().await;
    }

    /// Lights a locator by hand.
    fn lit_by_hand(&self, place: &str) {
        let ix = self.gpu_ix(place);
        self.emulation.with(|state, _| state.set_lit(ix, true));
    }

    async fn shows_lit(&self, gpu: &GpuId) -> bool {
        let snapshot = self.snapshot().await;
        let gpu = snapshot.topology.gpus.iter().find(|seen| seen.id == *gpu);
        gpu.unwrap().locator.as_ref().unwrap().lit
    }
}

#[tokio::test(start_paused = true)]
async fn the_light_of_a_gpu_that_failed_is_lit_until_its_burn_in_has_passed() {
    let (pool, _, gpu) = pool(&["burn-in"]).await;
    let name = pool.name_of(&gpu);
    assert_eq!(pool.lit(), <[String; 0]>::default());
    let kept = pool.fails(&gpu.id).await;
    assert!(kept.evidence.firmware.is_some());
    pool.until("it is lit", async || pool.lit() == [name.clone()])
        .await;
    pool.until("it is shown", async || pool.shows_lit(&gpu.id).await)
        .await;
    let light = pool.light(&gpu.id).await;
    assert!(light.lit && light.failed.is_none(), "{light}");

    pool.burnt_in(&gpu.id).await;
    pool.until("it is put out", async || pool.lit().is_empty()).await;
    pool.until("it is shown", async || !pool.shows_lit(&gpu.id).await)
        .await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn the_light_of_one_that_was_replaced_is_put_out_also_where_nobody_shows_it_any_more() {
    let (pool, _, gpu) = pool(&[]).await;
    let name = pool.name_of(&gpu);
    pool.fails(&gpu.id).await;
    pool.until("it is lit", async || pool.lit() == [name.clone()])
        .await;
    let ix = pool.gpu_ix(&name);
    pool.emulation.with(|state, now| state.vanish(ix, now));
    pool.composer().discover(&()).await.unwrap();
    let topology = &pool.snapshot().await.topology;
    let other = topology.gpus.iter().find(|other| other.id != gpu.id).unwrap();
    pool.composer().replace_gpu(&gpu.id, &other.id, ME).await.unwrap();
    pool.until("it is put out", async || pool.lit().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn by_hand_it_is_switched_and_who_did_it_is_kept() {
    let pool = Pool::of("demo").await;
    let gpu = pool.gpu("box-1/gpu-2").await.id;
    let lit = pool.composer().locate_gpu(&gpu, true, ME).await.unwrap();
    assert_eq!(pool.lit(), ["box-1/gpu-2"]);
    assert!(pool.shows_lit(&gpu).await);
    assert_eq!(lit.light.unwrap().by, ME);
    pool.composer().locate_gpu(&gpu, true, ME).await.unwrap();
    pool.composer().locate_gpu(&gpu, false, ME).await.unwrap();
    assert_eq!(pool.lit(), <[String; 0]>::default());
    let nobody = GpuId::from_lossy("gpu-nobody");
    let unknown = pool.composer().locate_gpu(&nobody, true, ME).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
}

/// A box without lights, one that is silent, one that is paused and one that is only observed: the GPU is out of use all the
/// same, and it is written down why no light is lit.
#[tokio::test(start_paused = true)]
async fn a_gpu_is_out_of_use_whatever_comes_of_its_light() {
    for (why, words) in [
        ("dark", "no locator"),
        ("silent", "box-1"),
        ("paused", "paused"),
        ("observed", "only observed"),
    ] {
        let mut rack = Rack::builtin("demo").unwrap();
        rack.options.locators = why != "dark";
        let store = std::sync::Arc::new(poolwright_store::SqliteStore::in_memory().unwrap());
        let mut pool = Pool::bare(rack, store);
        pool.open().await;
        match why {
            "observed" => pool.add_endpoint_as("box-1", Standing::Observed).await,
            _ => pool.add_endpoint("box-1").await,
        }
        let gpu = pool.gpu("box-1/gpu-1").await.id;
        match why {
            "silent" => pool.silence("box-1"),
            "paused" => drop(pool.composer().pause(Paused::All, ME, "a look").await.unwrap()),
            _ => {}
        }
        pool.fails(&gpu).await;
        assert!(pool.is_out_of_use(&gpu).await);
        let failed = pool.light(&gpu).await.failed.unwrap_or_default();
        assert!(failed.contains(words), "{why}: {failed}");
        assert_eq!(pool.lit(), <[String; 0]>::default());
        pool.composer().locate_gpu(&gpu, true, ME).await.unwrap_err();
    }
}

/// After an outage or a pause ends, the manager lights the pending locators; one that was put out by hand meanwhile
/// stays out.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_lit_is_tried_again() {
    let (mut pool, _, gpu) = pool(&["burn-in"]).await;
    pool.crash().await;
    pool.options.poll = Some(Duration::from_secs(30));
    pool.open().await;
    let name = pool.name_of(&gpu);
    let what = Paused::All;
    pool.composer().pause(what.clone(), ME, "a look").await.unwrap();
    pool.fails(&gpu.id).await;
    assert!(pool.light(&gpu.id).await.failed.is_some());
    let clockwork = Clockwork::of(&pool);
    pool.until("it is tried again", async || pool.light(&gpu.id).await.tries > 2)
        .await;
    pool.composer().resume(&what, ME).await.unwrap();
    pool.until("it is lit", async || pool.lit() == [name.clone()])
        .await;
    pool.composer().pause(what.clone(), ME, "a look").await.unwrap();
    pool.composer().locate_gpu(&gpu.id, false, ME).await.unwrap_err();
    pool.composer().resume(&what, ME).await.unwrap();
    let light = pool
        .composer()
        .locate_gpu(&gpu.id, false, ME)
        .await
        .unwrap()
        .light;
    assert_eq!(light.unwrap().tries, 0);
    pool.settles().await;
    assert_eq!(pool.lit(), <[String; 0]>::default(), "somebody put it out");
    clockwork.stop().await;
}

/// State that a host left on a GPU is fixed remotely: no visit is needed.
#[tokio::test(start_paused = true)]
async fn a_manager_that_died_has_its_lights_lit_by_the_next_and_none_where_nobody_has_to_go() {
    let (mut pool, _, gpu) = pool(&[]).await;
    let unclean = Failure {
        cause: Cause::Unclean,
        says: String::new(),
        firmware: None,
        event: None,
    };
    let other = pool.gpu("box-1/gpu-3").await.id;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("GET", "/redfish/v1/Chassis/*/PCIeDevices/*"));
    pool.composer()
        .quarantine_gpu(&other, &unclean, ME)
        .await
        .unwrap();
    pool.fails(&gpu.id).await;
    pool.crash().await;
    assert_eq!(pool.lit(), <[String; 0]>::default());
    pool.options.poll = Some(Duration::from_secs(30));
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    let name = pool.name_of(&gpu);
    pool.until("it is lit", async || pool.lit() == [name.clone()])
        .await;
    pool.settles().await;
    assert_eq!(pool.lit(), [name]);
    clockwork.stop().await;
}

/// A GPU's location is as old as the last poll: another GPU in its slot is not lit for it, and that GPU's own locator
/// is not put out for it.
#[tokio::test(start_paused = true)]
async fn another_one_in_its_place_is_neither_lit_nor_put_out_for_it() {
    let mut pool = Pool::of("demo").await;
    let before = pool.gpu("box-1/gpu-2").await.id;
    pool.composer().locate_gpu(&before, true, ME).await.unwrap();
    pool.another_comes_to("box-1/gpu-2").await;
    let refused = pool.composer().locate_gpu(&before, true, ME).await.unwrap_err();
    assert!(refused.message.contains("another one"), "{refused}");
    assert_eq!(pool.lit(), <[String; 0]>::default());

    pool.composer().discover(&()).await.unwrap();
    let here = pool.gpu("box-1/gpu-2").await.id;
    assert_ne!(here, before);
    pool.composer().locate_gpu(&here, true, ME).await.unwrap();
    let dark = pool.composer().locate_gpu(&before, false, ME).await.unwrap();
    assert!(!dark.light.unwrap().lit);
    assert_eq!(pool.lit(), ["box-1/gpu-2"], "it is lit for the other");
    pool.composer().locate_gpu(&here, false, ME).await.unwrap();
    assert_eq!(pool.lit(), <[String; 0]>::default());
}

/// The locator may be lit by hand for the current GPU. Only if that GPU is the recorded replacement is no visit needed
/// any more.
#[tokio::test(start_paused = true)]
async fn what_is_lit_where_another_one_sits_is_put_out_only_where_that_came_in_its_place() {
    const PLACE: &str = "box-1/gpu-2";
    let mut pool = Pool::of("demo").await;
    let before = pool.gpu(PLACE).await.id;
    pool.fails(&before).await;
    pool.until("it is lit", async || pool.lit() == [PLACE]).await;
    pool.light(&before).await;
    pool.another_comes_to(PLACE).await;
    pool.lit_by_hand(PLACE);
    let refused = pool.composer().locate_gpu(&before, false, ME).await.unwrap_err();
    assert!(refused.message.contains("another one"), "{refused}");
    assert_eq!(pool.lit(), [PLACE], "whoever lit it is looking for the other");
    let light = pool.light(&before).await;
    assert!(light.failed.is_some(), "why is written down: {light}");

    pool.composer().discover(&()).await.unwrap();
    let here = pool.gpu(PLACE).await.id;
    pool.composer().replace_gpu(&before, &here, ME).await.unwrap();
    pool.composer().locate_gpu(&before, false, ME).await.unwrap();
    assert_eq!(pool.lit(), <[String; 0]>::default());
    assert_eq!(pool.light(&before).await.failed, None);
}
