//! A pod is larger than a rack: the same holds, and it is still done.

use crate::stories::kit::{ME, Pool, gpus, spec};
use poolwright_emulator::Rack;
use poolwright_service::{How, OperationKind};

const POD: &str = r#"
name = "pod-1024"
style = "zones"

[[box]]
count = 32
switches = 4
gpus = [{ kind = "h100-pcie-80gb", count = 32 }]

[[host]]
count = 256
slots = 8
"#;

#[tokio::test(start_paused = true)]
async fn two_hundred_demands_on_a_thousand_gpus() {
    let pool = Pool::with(Rack::from_toml("pod-1024.toml", POD).unwrap()).await;
    let manager = pool.composer();
    let snapshot = manager.discover(&()).await.unwrap();
    assert_eq!(
        (snapshot.topology.gpus.len(), snapshot.topology.hosts.len()),
        (1024, 256)
    );
    assert!(snapshot.faults.is_empty());
    for n in 0..200 {
        // From one GPU to as many as take two hosts.
        let demand = gpus(&format!("d{n}"), "h100-pcie-80gb", 1 + n % 9);
        manager.add_demand(spec(demand)).await.unwrap();
    }
    let plan = manager.plan().await.unwrap();
    assert!(plan.unplaced.is_empty());
    assert_eq!(
        plan.summary().gpus_bound,
        (0..200).map(|n| 1 + n % 9).sum::<usize>()
    );
    // Whether it may be applied is judged by the planner's check.
    let dry = How {
        dry_run: true,
        ..How::default()
    };
    manager.apply(plan, OperationKind::Apply, ME, &dry).await.unwrap();

    // One demand among so many neighbours.
    pool.composed(gpus("it", "h100-pcie-80gb", 8)).await;
    pool.all_is_well().await;
    pool.released("it").await;
    pool.all_is_well().await;
    let same = pool.snapshot().await;
    assert!(
        std::sync::Arc::ptr_eq(&same, &pool.snapshot().await),
        "nothing has changed, so nothing is made anew"
    );
}
