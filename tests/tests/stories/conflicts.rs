//! GPUs of which it can't be said which is which.

use crate::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::fault::FaultKind;
use poolwright_model::topology::Gpu;
use poolwright_service::{ErrorCode, How};

const KIND: &str = "h100-pcie-80gb";
/// So many of them has the rack.
const ALL: u32 = 24;

/// What of a GPU's identity another one claims as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed {
    Serial,
    Uuid,
    Both,
}

/// The rack, of which two GPUs say that they are one.
fn rack(claimed: Claimed, [one, other]: [&str; 2]) -> Rack {
    let mut rack = Rack::builtin("demo").unwrap();
    let (one, other) = (rack.gpu_named(one).unwrap(), rack.gpu_named(other).unwrap());
    let (uuid, serial) = (rack.gpus[one.0].uuid, rack.gpus[one.0].serial.clone());
    if claimed != Claimed::Uuid {
        rack.gpus[other.0].serial = serial;
    }
    if claimed != Claimed::Serial {
        rack.gpus[other.0].uuid = uuid;
    }
    rack
}

impl Pool {
    async fn in_conflict(&self) -> Vec<Gpu> {
        let snapshot = self.snapshot().await;
        let gpus = snapshot.topology.gpus.iter();
        let conflict = |gpu: &&Gpu| {
            let why = gpu.composability.0.as_ref();
            why.is_some_and(|why| why.kind == WhyNotKind::Conflict)
        };
        gpus.filter(conflict).cloned().collect()
    }
}

/// Fault 41: told, and given to nobody, whoever asks and how; the others are as free as ever.
#[tokio::test(start_paused = true)]
async fn gpus_that_claim_one_identity_are_told_and_go_to_nobody() {
    let within = ["box-1/gpu-1", "box-1/gpu-2"];
    let between = ["box-1/gpu-1", "box-2/gpu-1"];
    for pair in [within, between] {
        for claimed in [Claimed::Serial, Claimed::Uuid, Claimed::Both] {
            let pool = Pool::with(rack(claimed, pair)).await;
            let manager = pool.composer();
            let conflict = pool.in_conflict().await;
            let usable = manager.snapshot().await.unwrap();
            let usable = usable.topology.gpus.iter().filter(|gpu| {
                let of_kind = gpu.profile.as_deref() == Some(KIND);
                of_kind && gpu.composability.is_composable()
            });
            assert_eq!(
                usable.count(),
                ALL as usize - 2,
                "{pair:?}, {claimed:?}: neither is composable"
            );
            assert!(!conflict.is_empty(), "{pair:?}, {claimed:?}");
            let faults = &pool.snapshot().await.faults;
            assert!(
                faults.iter().any(|fault| fault.kind == FaultKind::Conflict),
                "{pair:?}, {claimed:?}: {faults:?}"
            );
            let host = pool.host_id("host-1").await;
            for gpu in conflict {
                let one = [gpu.id.clone()];
                manager
                    .attach(&one, &host, ME, &How::default())
                    .await
                    .unwrap_err();
            }
            let refused = pool.compose(gpus("all", KIND, ALL)).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::Unplaced, "{refused}");
            pool.composed(gpus("rest", KIND, ALL - 2)).await;
            let bound = pool.truth();
            assert_eq!(bound.len(), ALL as usize - 2);
            for gpu in pair {
                assert!(!bound.contains_key(gpu), "{pair:?}, {claimed:?}: {gpu} is bound");
            }
        }
    }
}
