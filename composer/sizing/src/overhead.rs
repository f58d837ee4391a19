//! What a GPU holds beside the tensors of a job: the runtime's context, and the buffers of the communication library.
//!
//! The context depends on the software and its version. The library keeps buffers for each channel of each connection,
//! so they follow from the communicators that a layout needs: rings (and trees) for each way in which it is divided;
//! connections with the neighbours of a pipeline stage; and with every other GPU where tokens go to experts. All of it
//! falls or stays as it is when replicas are added to three or more, which the search relies on.

mod rows;

use crate::constants::Constants;
use crate::estimate::{ESTIMATE, Term, whole};
use crate::named::named;
use crate::parallel::Parallel;
use crate::version::Version;
use poolwright_model::profile::{FormFactor, GpuKind};
use poolwright_model::units::Bytes;
pub use rows::Overheads;
use rows::{Collectives, Linked};

named! {
    /// Whose runtime it is.
    Maker("vendor") {
        Nvidia = "nvidia",
        Amd = "amd",
        Other = "other",
    }
}

named! {
    /// What joins GPUs of NVIDIA.
    Links("links") {
        /// NVLink through switches that send to all at once.
        Multicast = "multicast",
        NvLink = "nvlink",
        Pcie = "pcie",
    }
}

/// What of a GPU decides about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Card {
    pub(crate) maker: Maker,
    /// None: not known, counted as those that take most.
    pub(crate) links: Option<Links>,
    /// Servers take larger batches by default. None: not known, counted as if.
    pub(crate) large: Option<bool>,
}

impl Card {
    pub fn new(vendor: &str, links: Option<Links>) -> Self {
        Card {
            maker: vendor.parse().unwrap_or(Maker::Other),
            links,
            large: None,
        }
    }

    pub fn of(kind: &GpuKind) -> Self {
        Card::new(&kind.vendor, Links::of(kind)).with_memory(Some(&kind.name), kind.usable())
    }

    /// With what its memory decides: the defaults that vLLM has for GPUs of at least 70 GiB except A100
    /// (`vllm/engine/arg_utils.py`, `get_batch_defaults`).
    pub(crate) fn with_memory(self, kind: Option<&str>, memory: Bytes) -> Self {
        let large = memory.gib() >= 70.0 && kind.is_none_or(|kind| !kind.starts_with("a100"));
        Card {
            large: Some(large),
            ..self
        }
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for Card {
    fn from(vendor: &T) -> Self {
        Card::new(vendor.as_ref(), None)
    }
}

impl Links {
    /// Those of a kind of NVIDIA's GPUs.
    pub fn of(kind: &GpuKind) -> Option<Links> {
        if !kind.vendor.eq_ignore_ascii_case("nvidia") {
            return None;
        }
        let joined = kind.interconnect.is_some();
        let switched = matches!(kind.form_factor, FormFactor::Sxm | FormFactor::Superchip);
        let newer = ["Hopper", "Blackwell"];
        let multicast = newer.iter().any(|name| kind.architecture.contains(name));
        Some(match (joined, switched && multicast) {
            (true, true) => Links::Multicast,
            (true, false) => Links::NvLink,
            (false, _) => Links::Pcie,
        })
    }
}

/// What runs on it: a framework or an engine, with the versions of PyTorch and CUDA where they are stated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Software<'a> {
    pub name: &'a str,
    pub version: Option<Version>,
    pub cuda: Option<Version>,
    pub purpose: Purpose,
}

/// The use of the software, which decides about kernels beside the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A server, whose own figure has them.
    Server,
    /// PyTorch that generates.
    Serving,
    /// PyTorch that trains.
    Training,
}

/// Buffers for one purpose, MiB.
struct Buffers {
    name: &'static str,
    point: f64,
    safe: f64,
    what: What,
}

/// What they are for, to be put into words.
enum What {
    Rings {
        communicators: u64,
        most: u64,
        multicast: f64,
        at_once: bool,
    },
    Peers {
        peers: u64,
        channels: f64,
    },
    Network {
        peers: u64,
    },
}

/// Context and buffers of a process whose job is laid out like this.
pub fn terms(card: Card, software: &Software<'_>, ways: &Parallel) -> Vec<Term> {
    let mut terms = vec![context(card, software)];
    terms.extend(kernels(card, software));
    terms.extend(collectives(card, software, ways));
    terms
}

pub fn context(card: Card, software: &Software<'_>) -> Term {
    let row = Constants::builtin().overhead.context(card, software);
    let term = Term::constant("context", &row.held);
    Term {
        formula: format!("{}: {}", row.name, term.formula),
        ..term
    }
}

/// Kernels that PyTorch loads while it computes.
pub fn kernels(card: Card, software: &Software<'_>) -> Option<Term> {
    let row = Constants::builtin().overhead.context(card, software);
    let loaded = row.kernels(software.purpose)?;
    Some(Term::constant("kernels", loaded))
}

/// Buffers of the communication library (NCCL, RCCL); none for a GPU alone.
pub fn collectives(card: Card, software: &Software<'_>, ways: &Parallel) -> Vec<Term> {
    let overhead = &Constants::builtin().overhead;
    let row = overhead.links(card);
    let at_once = overhead.collectives.connects_at_once(software);
    let buffers = buffers(row, &overhead.collectives, at_once, ways);
    let term = |held: Buffers| Term {
        name: held.name.to_owned(),
        formula: words(row, &overhead.collectives, &held),
        point: mib(held.point),
        safe: mib(held.safe),
        estimate: row.channels.evidence.starts_with(ESTIMATE)
            || row.peer_channels.evidence.starts_with(ESTIMATE),
    };
    buffers.into_iter().map(term).collect()
}

/// The bound of all terms together.
pub(crate) fn safe(card: Card, software: &Software<'_>, ways: &Parallel) -> Bytes {
    let overhead = &Constants::builtin().overhead;
    let row = overhead.context(card, software);
    let loaded = row.kernels(software.purpose).map_or(0.0, |range| range.safe);
    let held = &row.held;
    let at_once = overhead.collectives.connects_at_once(software);
    let buffers = buffers(overhead.links(card), &overhead.collectives, at_once, ways);
    let collectives: Bytes = buffers.iter().map(|held| mib(held.safe)).sum();
    Bytes::from_gib(held.safe.max(held.point)) + Bytes::from_gib(loaded) + collectives
}

fn mib(held: f64) -> Bytes {
    whole(held * f64::from(1 << 20))
}

fn buffers(row: &Linked, collectives: &Collectives, at_once: bool, ways: &Parallel) -> Vec<Buffers> {
    if ways.gpus() <= 1 {
        return Vec::new();
    }
    let mut all = vec![rings(row, collectives, at_once, ways)];
    if ways.pipeline > 1 {
        let peers = if ways.pipeline > 2 { 2 } else { 1 };
        all.push(peer_to_peer(row, collectives, "stage links", peers, ways.gpus()));
    }
    if ways.context > 1 {
        let span = ways.context.saturating_mul(ways.tensor);
        all.push(peer_to_peer(row, collectives, "context ring", 1, span));
    }
    if ways.expert > 1 {
        all.push(exchange(row, collectives, ways));
    }
    all
}

/// Rings of each communicator for collectives: one of the replicas, one of a group that shares matrices; at most one of
/// all GPUs, and one of those that hold the same experts, too.
fn rings(row: &Linked, collectives: &Collectives, at_once: bool, ways: &Parallel) -> Buffers {
    let connected = row.channels.value * collectives.connection_mib.value;
    let sent = row
        .multicast_channels
        .as_ref()
        .map_or(0.0, |channels| channels.value);
    let multicast = sent * collectives.multicast_mib.value * collectives.host.value;
    let (mut point, mut safe) = (row.state.point * 1024.0, row.state.safe * 1024.0);
    let mut add = |gpus: u64, is_sure: bool| {
        // Two GPUs are the same ring as tree.
        let (trees, multicast) = if gpus > 2 {
            (connected, multicast)
        } else {
            (0.0, 0.0)
        };
        if is_sure {
            point += connected + multicast + if at_once { trees } else { 0.0 };
        }
        safe += connected + multicast + trees;
    };
    let sure = [ways.replicas(), ways.tensor].map(|gpus| (gpus, true));
    let several = [ways.replicas(), ways.tensor, ways.pipeline]
        .iter()
        .filter(|w| **w > 1)
        .count()
        > 1;
    let of_all = several.then_some((ways.gpus(), false));
    let of_experts = (ways.expert > 1).then_some((ways.replicas(), false));
    let (mut communicators, mut most) = (0, 0);
    for (gpus, is_sure) in sure.into_iter().chain(of_all).chain(of_experts) {
        if gpus > 1 {
            add(gpus, is_sure);
            communicators += u64::from(is_sure);
            most += 1;
        }
    }
    Buffers {
        name: "collectives",
        point,
        safe,
        what: What::Rings {
            communicators,
            most,
            multicast,
            at_once,
        },
    }
}

/// Direct connections with so many peers among GPUs that span so many: between hosts they share buffers. The bound has
/// those as well: few GPUs may be on several hosts, too.
fn peer_to_peer(
    row: &Linked,
    collectives: &Collectives,
    name: &'static str,
    peers: u64,
    span: u64,
) -> Buffers {
    let (held, what) = if span as f64 <= collectives.host.value {
        let channels = row.peer_channels.value;
        (
            peers as f64 * channels * collectives.connection_mib.value,
            What::Peers { peers, channels },
        )
    } else {
        (collectives.network_mib.value, What::Network { peers: 0 })
    };
    Buffers {
        name,
        point: held,
        safe: held.max(collectives.network_mib.value),
        what,
    }
}

/// Tokens go to all GPUs that share the experts.
fn exchange(row: &Linked, collectives: &Collectives, ways: &Parallel) -> Buffers {
    let name = "all-to-all";
    let factor = collectives.exchange_safe.value;
    let span = ways.expert.saturating_mul(ways.tensor);
    let host = collectives.host.value as u64;
    if span <= host {
        let near = peer_to_peer(row, collectives, name, ways.expert - 1, span);
        return Buffers {
            safe: near.safe.max(near.point * factor),
            ..near
        };
    }
    let peers = (host / ways.tensor).clamp(1, ways.expert) - 1;
    let channels = collectives.network_channels.value.min(row.peer_channels.value);
    let held = peers as f64 * channels * collectives.connection_mib.value + collectives.network_mib.value;
    Buffers {
        name,
        point: held,
        safe: held * factor,
        what: What::Network { peers },
    }
}

fn words(row: &Linked, collectives: &Collectives, held: &Buffers) -> String {
    let each = collectives.connection_mib.value;
    let counted = match held.what {
        What::Rings {
            communicators,
            most,
            multicast,
            at_once,
        } => format!(
            "{} GiB + {communicators} communicators x ({} channels x {each} MiB{} + {multicast} of multicast beyond 2 \
             GPUs), at most {} GiB and {most} communicators with trees",
            row.state.point,
            row.channels.value,
            if at_once { " x 2 with trees" } else { "" },
            row.state.safe
        ),
        What::Peers { peers, channels } => format!(
            "{peers} peers x {channels} channels x {each} MiB, at most {:.0} MiB",
            held.safe
        ),
        What::Network { peers: 0 } => {
            format!(
                "{} MiB for all peers on other hosts",
                collectives.network_mib.value
            )
        }
        What::Network { peers } => format!(
            "{peers} peers on the host x {} channels x {each} MiB + {} MiB for those on others",
            collectives.network_channels.value.min(row.peer_channels.value),
            collectives.network_mib.value
        ),
    };
    let evidence = match held.what {
        What::Rings { .. } => format!(
            "{}; {}; {}",
            row.state.evidence, row.channels.evidence, collectives.connects.evidence
        ),
        What::Peers { .. } => format!(
            "{}; {}; {}",
            row.peer_channels.evidence,
            collectives.connection_mib.evidence,
            collectives.exchange_safe.evidence
        ),
        What::Network { .. } => format!(
            "{}; {}",
            collectives.network_mib.evidence, collectives.network_channels.evidence
        ),
    };
    format!("{counted} ({}): {evidence}", row.name)
}

#[cfg(test)]
mod tests;
