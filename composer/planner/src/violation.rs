//! What can be wrong with a plan.

use poolwright_model::composable::WhyNot;
use poolwright_model::id::{
    CompositionId, DemandId, FabricId, GpuId, HostId, HostPortId, SwitchId, TenantId, UnitId,
};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_model::topology::PowerState;
use poolwright_model::units::Bytes;

/// One rule that a plan breaks. A plan that breaks any is not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    // The books: what stays, goes and comes.
    #[error("{composition} is kept, but nobody holds it")]
    KeptNotHeld { composition: CompositionId },
    #[error("{composition} is held and must be either kept or released as a whole")]
    NeitherKeptNorReleased { composition: CompositionId },
    #[error("{composition} is released with {unit}, which it doesn't hold like that")]
    ReleaseNotHeld {
        composition: CompositionId,
        unit: UnitId,
    },
    #[error("the id {composition} is taken")]
    IdTaken { composition: CompositionId },
    #[error("{composition} has no units")]
    Empty { composition: CompositionId },
    #[error("{composition} is put off, and changed all the same")]
    DeferredChanged { composition: CompositionId },
    #[error("demand {demand} is served and not served at once")]
    PlacedAndUnplaced { demand: DemandId },

    // Who may be given what.
    #[error("{gpu} would be in {one} and in {other}")]
    GpuTwice {
        gpu: GpuId,
        one: CompositionId,
        other: CompositionId,
    },
    #[error("{unit} is not a unit of exactly these GPUs")]
    NotTheUnit { unit: UnitId },
    #[error("{gpu} is bound already, and this plan doesn't release it")]
    NotOurs { gpu: GpuId },
    #[error("{gpu} is {state}")]
    NotFree { gpu: GpuId, state: GpuState },
    #[error("{gpu} can't be moved: {why}")]
    NotComposable { gpu: GpuId, why: WhyNot },
    #[error("the memory size or the kind of {gpu} is unknown")]
    UnknownGpu { gpu: GpuId },
    #[error("the health of {gpu} is critical")]
    Unhealthy { gpu: GpuId },
    #[error("{gpu} is cordoned")]
    GpuCordoned { gpu: GpuId },
    #[error("a running operation has {unit} in hand")]
    InOperation { unit: UnitId },
    #[error("{unit} is recorded at {recorded}, and bound elsewhere")]
    ReleasedElsewhere { unit: UnitId, recorded: HostPortId },

    // Where to.
    #[error("{port} is not a port of host {host}")]
    NoSuchPort { host: HostId, port: HostPortId },
    #[error("host {host} is {power:?}")]
    HostOff { host: HostId, power: PowerState },
    #[error("host {host} is closed")]
    HostCordoned { host: HostId },
    #[error("{gpu} can't be reached from {port}")]
    NotReachable { gpu: GpuId, port: HostPortId },
    #[error("{unit} and {port} are not named at one manager as the snapshot shows them")]
    ControlMismatch { unit: UnitId, port: HostPortId },
    #[error("{unit} is not known to its host by the names and PCI ids that the plan gives")]
    WrongNames { unit: UnitId },
    #[error("{port} may have to take {worst} GPUs at once, and takes {limit}")]
    TooManySlots {
        port: HostPortId,
        worst: i64,
        limit: i64,
    },

    #[error(
        "uplinks of switch {fabric}/{switch} may have to carry {worst} GPUs at once, and may carry {most}"
    )]
    TooManyAcross {
        fabric: FabricId,
        switch: SwitchId,
        worst: i64,
        most: u32,
    },

    // What for.
    #[error("{composition} is for demand {demand}, which nobody has made")]
    NoSuchDemand {
        composition: CompositionId,
        demand: DemandId,
    },
    #[error("{composition} is not in the name of its demand's tenant")]
    WrongTenant { composition: CompositionId },
    #[error("tenant {tenant} would hold {holds} GPUs, and may hold {most} at most")]
    AboveTheLimit { tenant: TenantId, holds: u32, most: u32 },
    #[error("{composition} has GPUs of several kinds: {}", kinds.join(", "))]
    SeveralKinds {
        composition: CompositionId,
        kinds: Vec<String>,
    },
    #[error("{gpu} has {has}, and demand {demand} needs {needed} of each")]
    MemoryTooSmall {
        demand: DemandId,
        gpu: GpuId,
        has: Bytes,
        needed: Bytes,
    },
    #[error("what demand {demand} would hold is none of the sets that it needs")]
    NeedNotMet { demand: DemandId },
    #[error("the compositions of demand {demand} are not all its parts, each on a host of its own")]
    GroupBroken { demand: DemandId },

    // In which order.
    #[error("step {step} is out of place, or waits for one that doesn't come before it")]
    StepPlace { step: u32 },
    #[error("{composition} has no step to {verb} {unit}")]
    StepMissing {
        composition: CompositionId,
        unit: UnitId,
        verb: Verb,
    },
    #[error("step {step} belongs to nothing that the plan changes")]
    StepExtra { step: u32 },
    #[error("step {step} is not done to what its composition says")]
    StepTarget { step: u32 },
    #[error("step {step} must wait for step {wait_for}")]
    StepOrder { step: u32, wait_for: u32 },

    // On what it rests.
    #[error("the plan changes {what} and doesn't say how it was seen")]
    NotRead { what: String },
}
