//! Bugs, at least one for each invariant. They sit in the store and in the drivers, so that the manager is
//! what it always is; a campaign with one of them must find violations.

mod disk;
mod metal;

use super::invariants::Invariant;
use clap::ValueEnum;
use disk::BadStore;
use metal::{BadFabric, BadHost};
use poolwright_driver::{Fabric, HostSide};
use poolwright_emulator::InProcess;
use poolwright_store::Store;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Plant {
    /// An acknowledged operation is not on the disk.
    LosesOperations,
    /// A claim does not last as long as its operation.
    DropsClaims,
    /// A claim outlives its operation.
    KeepsClaims,
    /// A composition is there twice.
    DoublesCompositions,
    /// A key is forgotten.
    ForgetsKeys,
    /// A demand's record is deleted while GPUs are held for it.
    OrphansCompositions,
    /// A commit is never answered.
    Hangs,
    /// Nobody is said to use a GPU.
    PullsInUse,
    /// What others bound is taken from them.
    TakesForeign,
    /// An unbind is believed that never happened.
    Leaks,
    /// A reset is believed that never happened.
    SkipsResets,
    /// A bind is believed that never happened.
    DreamsOfBinds,
    /// The identity of the GPU at an address is not checked.
    IgnoresIdentity,
}

impl Plant {
    /// What must be found to be violated.
    pub fn breaks(self) -> Invariant {
        match self {
            Self::LosesOperations => Invariant::NothingForgotten,
            Self::DropsClaims => Invariant::ClaimsCoverEffects,
            Self::KeepsClaims => Invariant::EndedHoldsNothing,
            Self::DoublesCompositions => Invariant::OneOwner,
            Self::ForgetsKeys => Invariant::OneEffectAKey,
            Self::OrphansCompositions => Invariant::HeldHasAnOwner,
            Self::Hangs => Invariant::EveryOperationEnds,
            Self::PullsInUse => Invariant::NothingInUsePulled,
            Self::TakesForeign => Invariant::NothingForeignTouched,
            Self::Leaks => Invariant::NothingLeaked,
            Self::SkipsResets => Invariant::CleanMeansClean,
            Self::DreamsOfBinds => Invariant::RecordedIsTrue,
            Self::IgnoresIdentity => Invariant::RightGpu,
        }
    }

    fn is_of_the_store(self) -> bool {
        match self {
            Self::LosesOperations
            | Self::DropsClaims
            | Self::KeepsClaims
            | Self::DoublesCompositions
            | Self::ForgetsKeys
            | Self::OrphansCompositions
            | Self::Hangs => true,
            Self::PullsInUse
            | Self::TakesForeign
            | Self::Leaks
            | Self::SkipsResets
            | Self::DreamsOfBinds
            | Self::IgnoresIdentity => false,
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("?", |value| value.get_name()))
    }
}

/// The store, with the bug if it is one of the store's.
pub fn store(plant: Option<Plant>, store: Arc<dyn Store>) -> Arc<dyn Store> {
    match plant.filter(|plant| plant.is_of_the_store()) {
        Some(plant) => Arc::new(BadStore {
            plant,
            store,
            commits: Mutex::default(),
        }),
        None => store,
    }
}

/// The drivers, with the bug if it is one of theirs.
pub fn drivers(plant: Option<Plant>, drivers: InProcess) -> InProcess {
    let Some(plant) = plant.filter(|plant| !plant.is_of_the_store()) else {
        return drivers;
    };
    let endpoints = drivers.endpoints.into_iter().map(|fabric| -> Arc<dyn Fabric> {
        Arc::new(BadFabric {
            plant,
            fabric,
            said: Mutex::default(),
        })
    });
    let hosts = drivers
        .hosts
        .into_iter()
        .map(|host| -> Arc<dyn HostSide> { Arc::new(BadHost { plant, host }) });
    InProcess {
        endpoints: endpoints.collect(),
        hosts: hosts.collect(),
    }
}
