//! What agents measure of their GPUs: told with its age, and many errors on a link make a GPU suspect and no more.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus};
use crate::stories::tending::{Told, name_of, pool, pool_with};
use poolwright_driver::{Counted, Reading};
use poolwright_model::id::GpuId;
use poolwright_model::topology::{Gpu, Health};
use poolwright_service::{CheckResult, How, Thing, Turn, What};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

const EVERY: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than the manager takes between two looks.
const SOON: Duration = Duration::from_secs(95);

/// Sets the count of corrected errors on the link of a GPU.
fn counted(told: &Told, gpu: &Gpu, count: u64, since: &str) {
    let reading = Reading {
        address: "0000:41:00.0".to_owned(),
        known_as: vec![name_of(gpu)],
        correctable: Some(Counted {
            count,
            since: since.to_owned(),
        }),
        ..Reading::default()
    };
    told.lock().unwrap().readings = vec![reading];
}

impl Pool {
    async fn suspects(&self) -> Vec<GpuId> {
        let suspects = self.composer().suspects().await.unwrap();
        suspects.into_iter().map(|suspect| suspect.gpu).collect()
    }

    async fn health(&self, gpu: &GpuId) -> Health {
        self.snapshot().await.topology.gpu(gpu).unwrap().health
    }

    /// What became of GPUs, beside their coming and going.
    async fn told_of_gpus(&self) -> Vec<Turn> {
        let all = self.composer().happened_after(0, 10_000).await.unwrap().all;
        let turns = all.into_iter().filter_map(|happening| match happening.what {
            What::Thing {
                thing: Thing::Gpu { .. },
                became: became @ (Turn::Suspect { .. } | Turn::Sound),
            } => Some(became),
            _ => None,
        });
        turns.collect()
    }
}

/// Fault 51: a suspect GPU is reported and stays attached; the end of the suspicion, after a sound hour of its link, is
/// reported, too.
#[tokio::test(start_paused = true)]
async fn a_flood_of_correctable_errors_makes_a_gpu_suspect_until_its_link_is_sound_for_an_hour() {
    let (pool, told, clockwork, held) = pool().await;
    let gpu = &held[0].id;
    counted(&told, &held[0], 70_000, "boot-1");
    sleep(SOON).await;
    assert_eq!(pool.suspects().await, [], "nobody knows when those came");
    counted(&told, &held[0], 70_481, "boot-1");
    sleep(SOON).await;
    assert_eq!(pool.suspects().await, std::slice::from_ref(gpu));
    assert_eq!(pool.health(gpu).await, Health::Warning);
    assert_eq!(pool.out_of_use().await, [], "it stays in use");
    assert_eq!(pool.truth().len(), 3, "and where it is");
    let turns = pool.told_of_gpus().await;
    let [Turn::Suspect { because }] = &turns[..] else {
        panic!("{turns:?}")
    };
    assert!(because.contains("481 correctable errors"), "{because}");
    let checks = pool.composer().doctor().await.unwrap();
    let links = checks.iter().find(|check| check.name == "links").unwrap();
    assert_eq!(links.result, CheckResult::Warning);
    assert!(links.message.contains(gpu.as_str()), "{}", links.message);

    sleep(HOUR / 2).await;
    assert_eq!(pool.suspects().await, std::slice::from_ref(gpu));
    sleep(HOUR).await;
    assert_eq!(pool.suspects().await, []);
    assert_eq!(pool.health(gpu).await, Health::Ok);
    assert_eq!(pool.told_of_gpus().await.last(), Some(&Turn::Sound));
    clockwork.stop().await;
}

/// Fault 51: a host that starts again, or a GPU that is plugged again, counts from zero, or from anywhere.
#[tokio::test(start_paused = true)]
async fn a_count_that_begins_anew_makes_nobody_suspect() {
    let (pool, told, clockwork, held) = pool().await;
    for (count, since) in [(9_000, "boot-1"), (0, "boot-1"), (7_000, "boot-2"), (1, "boot-3")] {
        counted(&told, &held[0], count, since);
        sleep(SOON).await;
        assert_eq!(pool.suspects().await, [], "{count} {since}");
    }
    // Nor does an agent that is silent, and what came meanwhile is spread over that time.
    told.lock().unwrap().silent = true;
    sleep(HOUR * 10).await;
    counted(&told, &held[0], 4_001, "boot-3");
    told.lock().unwrap().silent = false;
    sleep(SOON).await;
    assert_eq!(pool.suspects().await, [], "400 an hour");
    assert_eq!(pool.told_of_gpus().await, []);
    clockwork.stop().await;
}

/// Makes a GPU suspect by its errors, and checks that no other is.
async fn suspected(pool: &Pool, told: &Told, gpu: &Gpu) -> Vec<GpuId> {
    for count in [0, 500] {
        counted(told, gpu, count, "boot-1");
        sleep(SOON).await;
    }
    let suspects = pool.suspects().await;
    assert_eq!(suspects, std::slice::from_ref(&gpu.id));
    suspects
}

/// Fault 51: also by a manager that was started since; counts say nothing of the time before they are read.
#[tokio::test(start_paused = true)]
async fn who_is_suspect_stays_so_over_a_restart() {
    let (mut pool, told, clockwork, held) = pool().await;
    let suspects = suspected(&pool, &told, &held[0]).await;
    clockwork.stop().await;
    pool.restart().await;
    assert_eq!(pool.suspects().await, suspects);
    assert_eq!(pool.health(&held[0].id).await, Health::Warning);
}

/// Fault 51: new demands get other GPUs, as long as there are any.
#[tokio::test(start_paused = true)]
async fn a_plan_does_without_a_suspect_where_another_will_do() {
    let (pool, told, clockwork, held) = pool().await;
    counted(&told, &held[0], 0, "boot-1");
    sleep(SOON).await;
    counted(&told, &held[0], 500, "boot-1");
    sleep(SOON).await;
    pool.released("three").await;
    let suspect = held[0].id.clone();
    assert_eq!(pool.suspects().await, std::slice::from_ref(&suspect));
    let kind = "h100-pcie-80gb";
    let free = pool.snapshot().await;
    let of_kind = free.topology.gpus.iter();
    let of_kind = of_kind.filter(|gpu| gpu.profile.as_deref() == Some(kind) && gpu.host.is_none());
    let others = u32::try_from(of_kind.count()).unwrap() - 1;
    let has = async || -> BTreeSet<GpuId> {
        let all = pool.composer().compositions().await.unwrap();
        all.iter().flat_map(|one| one.gpus().cloned()).collect()
    };
    for n in 1..=others {
        pool.composed(gpus(&format!("one-{n}"), kind, 1)).await;
        assert!(!has().await.contains(&suspect), "{n} of {others}");
    }
    pool.composed(gpus("last", kind, 1)).await;
    assert!(has().await.contains(&suspect), "better than none");
    clockwork.stop().await;
}

/// Fault 51: the threshold is set, and none is none.
#[tokio::test(start_paused = true)]
async fn without_a_threshold_nobody_is_suspect() {
    let (pool, told, clockwork, held) = pool_with(|options| options.suspect_above = None).await;
    counted(&told, &held[0], 0, "boot-1");
    sleep(SOON).await;
    counted(&told, &held[0], 1_000_000, "boot-1");
    sleep(SOON).await;
    assert_eq!(pool.suspects().await, []);
    assert!(told.lock().unwrap().measured > 0, "they are asked all the same");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_where_nothing_is_to_be_measured() {
    let (_pool, told, clockwork, _) = pool_with(|options| options.telemetry = None).await;
    sleep(EVERY * 10).await;
    assert_eq!(told.lock().unwrap().measured, 0);
    clockwork.stop().await;
}

/// Telemetry is reported with its age, whatever happened since; old telemetry is marked stale.
#[tokio::test(start_paused = true)]
async fn what_was_measured_is_told_with_how_old_it_is() {
    let (pool, told, clockwork, held) = pool().await;
    let gpu = held[1].id.clone();
    told.lock().unwrap().readings = vec![Reading {
        known_as: vec![name_of(&held[1])],
        utilization_percent: Some(42),
        power_mw: Some(71_250),
        ..Reading::default()
    }];
    sleep(SOON).await;
    let known = pool.composer().telemetry();
    let [now] = &known[..] else { panic!("{known:?}") };
    assert_eq!((&now.gpu, Some(&now.host)), (&gpu, held[1].host.as_ref()));
    assert_eq!((now.utilization_percent, now.power_mw), (Some(42), Some(71_250)));
    assert_eq!(now.energy_mj, None, "not told is no zero");
    assert!(!now.stale && now.age_s <= EVERY.as_secs(), "{now:?}");
    let of_one = pool.composer().telemetry_of(&gpu);
    assert_eq!(of_one.map(|one| one.power_mw), Some(Some(71_250)));
    assert_eq!(pool.composer().telemetry_of(&held[0].id), None);
    assert_eq!(pool.composer().measured_hosts().into_iter().next(), held[1].host);

    told.lock().unwrap().silent = true;
    sleep(HOUR).await;
    let shown = pool.composer().gpu_shown(&gpu).await.unwrap().unwrap();
    let old = shown.telemetry.unwrap();
    assert_eq!((old.at, old.utilization_percent), (now.at, Some(42)));
    assert!(old.stale && old.age_s >= HOUR.as_secs(), "{old:?}");
    sleep(HOUR * 25).await;
    assert_eq!(pool.composer().telemetry(), [], "a day later it says nothing");
    assert!(pool.composer().measured_hosts().is_empty());
    clockwork.stop().await;
}

/// A host's telemetry is accepted for its own GPUs only.
#[tokio::test(start_paused = true)]
async fn a_host_is_not_heard_about_what_another_s_gpu_measures() {
    let (pool, told, clockwork, held) = pool().await;
    let snapshot = pool.snapshot().await;
    let free = snapshot
        .topology
        .gpus
        .iter()
        .find(|gpu| gpu.host.is_none())
        .unwrap();
    let reading = |gpu: &Gpu| Reading {
        known_as: vec![name_of(gpu)],
        ..Reading::default()
    };
    let nobody = Reading {
        known_as: vec!["nobody's".to_owned()],
        ..Reading::default()
    };
    told.lock().unwrap().readings = vec![reading(&held[0]), reading(free), nobody];
    sleep(SOON).await;
    let known = pool.composer().telemetry().into_iter();
    let known: Vec<_> = known.map(|one| (one.gpu, Some(one.host))).collect();
    assert_eq!(known, [(held[0].id.clone(), held[0].host.clone())]);
    clockwork.stop().await;
}

/// Errors are counted by place: those of one host do not count at the next.
#[tokio::test(start_paused = true)]
async fn what_was_counted_at_one_host_is_not_told_of_another() {
    let (pool, told, clockwork, held) = pool().await;
    let [mine, other] = [held[0].host.clone().unwrap(), {
        let hosts = &pool.snapshot().await.topology.hosts;
        let other = hosts.iter().find(|host| Some(&host.id) != held[0].host.as_ref());
        other.unwrap().id.clone()
    }];
    let gpu = [held[0].id.clone()];
    pool.released("three").await;
    let errors = async |count: u64, boot: &str| {
        counted(&told, &held[0], 0, boot);
        sleep(SOON).await;
        counted(&told, &held[0], count, boot);
        sleep(SOON).await;
    };
    let attached = pool.composer().attach(&gpu, &mine, ME, &How::default()).await;
    pool.done(&attached.unwrap()).await;
    errors(400, "boot-1").await;
    let moved = pool.composer().move_to(&gpu, &other, ME, &How::default()).await;
    pool.done(&moved.unwrap()).await;
    errors(400, "boot-2").await;
    assert_eq!(pool.suspects().await, [], "800 within the hour, and 400 at each");
    let known = pool.composer().telemetry();
    let [now] = &known[..] else { panic!("{known:?}") };
    assert_eq!((&now.host, now.correctable_errors_in_hour), (&other, Some(400)));

    errors(500, "boot-3").await;
    let suspect = async || pool.composer().suspects().await.unwrap().remove(0);
    let there = suspect().await;
    assert_eq!(there.host, other);
    assert_eq!(there.place.as_ref().unwrap().slot, held[0].slot);
    let slot = held[0].slot.as_deref().unwrap();
    assert!(there.to_string().contains(slot), "{there}");
    // Back again: it stays told of where it was, until it is so here, too.
    let moved = pool.composer().move_to(&gpu, &mine, ME, &How::default()).await;
    pool.done(&moved.unwrap()).await;
    errors(100, "boot-4").await;
    assert_eq!(suspect().await, there);
    errors(500, "boot-5").await;
    let here = suspect().await;
    assert!(here.host == mine && here.since > there.since, "{here}");
    clockwork.stop().await;
}

/// Without counts no poll can clear the suspicion: its report has the old time, and is deleted after a day.
#[tokio::test(start_paused = true)]
async fn where_nobody_counts_any_more_a_suspect_is_told_as_of_then_and_forgotten_after_a_day() {
    let (mut pool, told, clockwork, held) = pool().await;
    let suspects = suspected(&pool, &told, &held[0]).await;
    clockwork.stop().await;
    (pool.options.telemetry, pool.options.poll) = (None, None);
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    sleep(HOUR * 12).await;
    assert_eq!(pool.suspects().await, suspects);
    let checks = pool.composer().doctor().await.unwrap();
    let links = checks.iter().find(|check| check.name == "links").unwrap();
    assert!(
        links.message.contains("error counting is off"),
        "{}",
        links.message
    );
    sleep(HOUR * 13).await;
    assert_eq!(pool.suspects().await, []);
    assert_eq!(pool.told_of_gpus().await.last(), Some(&Turn::Sound));
    clockwork.stop().await;
}
