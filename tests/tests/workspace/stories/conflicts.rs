//! GPUs of which it can't be said which is which.

use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::fault::FaultKind;
use poolwright_model::topology::Gpu;
use poolwright_service::{ErrorCode, How};

const KIND: &str = "h100-pcie-80gb";
/// So many of them has the rack.
const ALL: u32 = 24;

/// A rack in which two GPUs show one UUID, or also one serial number. The serial number alone may be that of their board.
fn rack(with_serial: bool, [one, other]: [&str; 2]) -> Rack {
    let mut rack = Rack::builtin("demo").unwrap();
    let (one, other) = (rack.gpu_named(one).unwrap(), rack.gpu_named(other).unwrap());
    let (uuid, serial) = (rack.gpus[one.0].uuid, rack.gpus[one.0].serial.clone());
    rack.gpus[other.0].uuid = uuid;
    if with_serial {
        rack.gpus[other.0].serial = serial;
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

/// Fault 41: reported, and never composed; the other GPUs stay free.
#[tokio::test(start_paused = true)]
async fn gpus_that_claim_one_identity_are_told_and_go_to_nobody() {
    let within = ["box-1/gpu-1", "box-1/gpu-2"];
    let between = ["box-1/gpu-1", "box-2/gpu-1"];
    for pair in [within, between] {
        for with_serial in [false, true] {
            let pool = Pool::with(rack(with_serial, pair)).await;
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
                "{pair:?}, {with_serial}: neither is composable"
            );
            assert!(!conflict.is_empty(), "{pair:?}, {with_serial}");
            let faults = &pool.snapshot().await.faults;
            assert!(
                faults.iter().any(|fault| fault.kind == FaultKind::Conflict),
                "{pair:?}, {with_serial}: {faults:?}"
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
                assert!(
                    !bound.contains_key(gpu),
                    "{pair:?}, {with_serial}: {gpu} is bound"
                );
            }
        }
    }
}
