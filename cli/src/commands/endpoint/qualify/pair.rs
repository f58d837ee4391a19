//! Which GPU and which host port are tried.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_inventory::Snapshot;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Host, HostPort};

/// A GPU and a host port that one manager can bind.
pub(super) struct Pair {
    pub(super) gpu: Gpu,
    pub(super) host: Host,
    pub(super) port: HostPort,
    pub(super) unit_at: ControlPoint,
    pub(super) port_at: ControlPoint,
}

/// A free GPU, and a host port in reach with a free slot: the first of both, in the order of their ids.
pub(super) fn choose(
    snapshot: &Snapshot,
    gpu: Option<&GpuId>,
    host: Option<&HostId>,
) -> Result<Pair, Failure> {
    let topology = &snapshot.topology;
    let missing = |kind: &str, id: &str| {
        Failure::new(ExitCode::NotFound, format!("there is no {kind} {id}"))
            .with_hint("poolwright discover shows what there is")
    };
    if let Some(id) = gpu {
        let found = topology.gpu(id).ok_or_else(|| missing("GPU", id.as_str()))?;
        if found.state != GpuState::Free || !found.composability.is_composable() {
            let why = found
                .composability
                .0
                .as_ref()
                .map_or_else(|| found.state.name().to_owned(), ToString::to_string);
            return Err(
                Failure::new(ExitCode::Conflict, format!("{id} is not spare: {why}"))
                    .with_hint("name another GPU, or leave --gpu out"),
            );
        }
    }
    if let Some(id) = host {
        topology.host(id).ok_or_else(|| missing("host", id.as_str()))?;
    }
    let graph = topology.switch_graph();
    let spare =
        |candidate: &&Gpu| candidate.state == GpuState::Free && candidate.composability.is_composable();
    let gpus = topology
        .gpus
        .iter()
        .filter(spare)
        .filter(|candidate| gpu.is_none_or(|id| candidate.id == *id));
    for gpu in gpus {
        for candidate in topology
            .hosts
            .iter()
            .filter(|candidate| host.is_none_or(|id| candidate.id == *id))
        {
            for port in &candidate.ports {
                let bound = topology
                    .gpus
                    .iter()
                    .filter(|gpu| gpu.host_port.as_ref() == Some(&port.id))
                    .count();
                let Some(port_at) = &port.control else { continue };
                let same_manager =
                    |at: &&ControlPoint| at.endpoint == port_at.endpoint && at.style == port_at.style;
                let Some(unit_at) = gpu.control.iter().find(same_manager) else {
                    continue;
                };
                if bound < port.slots as usize && graph.hops(port, gpu).is_some() {
                    return Ok(Pair {
                        gpu: gpu.clone(),
                        host: candidate.clone(),
                        port: port.clone(),
                        unit_at: unit_at.clone(),
                        port_at: port_at.clone(),
                    });
                }
            }
        }
    }
    Err(Failure::new(
        ExitCode::Conflict,
        "there is no spare GPU with a host port in reach that has a free slot",
    )
    .with_hint("poolwright discover shows which GPUs are composable, and which hosts have slots"))
}
