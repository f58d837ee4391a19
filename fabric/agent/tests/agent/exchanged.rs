//! Another GPU than the one that is known sits in its slot: it is told by its own names, and goes by its place.

use super::asked::pool_with;
use super::kernel::{Kernel, Mood};
use super::{LONG, SERIAL, target};
use crate::tree::{GPU, library};
use poolwright_driver::{Confirmation, ErrorKind, HostSide};

/// That of the GPU in the tree, by the stand-in for the driver's library.
const UUID: &str = "GPU-00000000-0000-0000-0000-000001000000";
const OTHER: &str = "GPU-1536a21c-5202-4040-8e1c-e1f07f82ee3f";

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_with_its_own_names_and_let_go_of_by_its_slot() {
    let pool = pool_with(|host| Some(library(host))).await;
    let kernel = Kernel::of(&pool.host, Mood::Willing);
    let known = pool
        .manager
        .verify(&target(Some("10"), &[UUID]), LONG)
        .await
        .unwrap();
    assert!(matches!(known, Confirmation::Seen { .. }), "{known:?}");

    let other = target(Some("10"), &[OTHER]);
    let Confirmation::NotSeen { reason, learned } = pool.manager.verify(&other, LONG).await.unwrap() else {
        panic!("another GPU passed for the one that is known")
    };
    assert_eq!(reason, format!("slot 10 holds {UUID}, and {OTHER} is expected"));
    let [told] = &learned[..] else {
        panic!("{learned:?}")
    };
    assert_eq!((told.gpu.as_str(), told.address.as_str()), ("gpu-1", GPU));
    assert_eq!(told.uuid.as_deref(), Some(UUID));
    assert_eq!(told.pcie_serial.as_deref(), Some(SERIAL));

    // Nothing is done to it under the other's name.
    let held = pool.manager.holders(&other, LONG).await.unwrap_err();
    assert!(held.message.contains(&reason), "{held}");
    let drained = pool.manager.drain(&other, LONG).await.unwrap_err();
    assert_eq!(drained.kind, ErrorKind::NoEffect, "{drained}");
    assert!(kernel.is_bound());

    let whoever = target(Some("10"), &[]);
    assert_eq!(pool.manager.holders(&whoever, LONG).await.unwrap(), []);
    pool.manager.drain(&whoever, LONG).await.unwrap();
    assert!(!kernel.is_there());
    pool.agent.stop().await;
}

/// Without its slot it is nowhere, and nobody else's names are told.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_looked_for_by_its_name_alone_is_not_there() {
    let pool = pool_with(|host| Some(library(host))).await;
    let other = target(None, &[OTHER]);
    let Confirmation::NotSeen { learned, .. } = pool.manager.verify(&other, LONG).await.unwrap() else {
        panic!("another GPU passed for the one that is known")
    };
    assert_eq!(learned, []);
    pool.agent.stop().await;
}
