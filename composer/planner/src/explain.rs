//! A plan in sentences. All that show a plan to people take its words from here, so that the command line,
//! the API and the Redfish messages say the same.

use crate::composition::Composition;
use crate::plan::{Deferral, Deferred, Plan};
use crate::unplaced::{Busy, Help, Holder, Reason, Tried, Unplaced};
use crate::uplinks::FullUplink;
use poolwright_model::id::GpuId;
use std::fmt::{self, Display, Formatter};

/// The whole plan, a sentence a line: what ends, what begins, what is put off, what is not served.
pub fn explain(plan: &Plan) -> Vec<String> {
    let goes_on = |composition: &Composition| plan.keeps.contains(&composition.id);
    // GPUs attached by name serve no demand and are not composed.
    let by_name = |composition: &Composition| composition.demand.is_none() && composition.kept.is_none();
    let mut lines = Vec::new();
    for composition in &plan.releases {
        let verb = match (goes_on(composition), by_name(composition)) {
            (true, _) => "shrink",
            (false, true) => "detach",
            (false, false) => "release",
        };
        lines.push(format!("{verb} {}", sentence(composition, "from")));
    }
    for composition in &plan.composes {
        let verb = match (goes_on(composition), by_name(composition)) {
            (true, _) => "grow",
            (false, true) => "attach",
            (false, false) => "compose",
        };
        lines.push(format!("{verb} {}", sentence(composition, "on")));
    }
    lines.extend(plan.deferred.iter().map(Deferred::to_string));
    lines.extend(plan.unplaced.iter().map(Unplaced::to_string));
    if lines.is_empty() {
        lines.push("nothing to change".to_owned());
    }
    lines
}

/// Such as `web-1f09c3-1: 2 GPUs (gpu-1, gpu-2) on host-4 for web, part 1 of 2`.
fn sentence(composition: &Composition, preposition: &str) -> String {
    let Composition {
        id,
        host,
        part,
        parts,
        demand,
        ..
    } = composition;
    let names: Vec<&str> = composition.gpus().take(8).map(GpuId::as_str).collect();
    let count = composition.gpu_count();
    let more = if names.len() < count as usize { ", …" } else { "" };
    let names = names.join(", ");
    let demand = demand
        .as_ref()
        .map_or(String::new(), |demand| format!(" for {demand}"));
    let part = if *parts > 1 {
        format!(", part {part} of {parts}")
    } else {
        String::new()
    };
    format!(
        "{id}: {} ({names}{more}) {preposition} {host}{demand}{part}",
        gpus(count)
    )
}

fn gpus(count: u32) -> String {
    counted(count, "GPU")
}

fn counted(count: u32, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn of_kind(kind: &Option<String>) -> String {
    kind.as_ref()
        .map_or(String::new(), |kind| format!(" of kind {kind}"))
}

impl Display for Unplaced {
    /// What was wanted, what is lacking where it comes nearest, and the gentlest thing that would help.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shortfall())?;
        match self.help() {
            Some(help) => write!(f, "; what helps: {help}"),
            None => Ok(()),
        }
    }
}

impl Unplaced {
    /// What was wanted, and what is lacking where it comes nearest. [`Unplaced::alternatives`] has the rest.
    pub fn shortfall(&self) -> String {
        let Self {
            demand,
            tenant,
            label,
            tried,
            holding,
        } = self;
        let lacks = match tried.split_first() {
            None => "its need names no GPUs".to_owned(),
            Some((Tried { set, reason, .. }, others)) => {
                // A demand for GPUs by number is called by its only set.
                let set = set.to_string();
                let nearest = match set == *label {
                    true => reason.to_string(),
                    false => format!("{set}: {reason}"),
                };
                match others.len() {
                    0 => nearest,
                    n => format!(
                        "{nearest}; {} came no nearer",
                        counted(n as u32, "other alternative")
                    ),
                }
            }
        };
        let holding: Vec<&str> = holding.iter().map(|id| id.as_str()).collect();
        let keeps = match holding.as_slice() {
            [] => String::new(),
            holding => format!("; until then it keeps {}", holding.join(", ")),
        };
        format!("demand {demand} of {tenant} ({label}) is not served: {lacks}{keeps}")
    }

    /// The gentlest thing that would help where it comes nearest.
    pub fn help(&self) -> Option<String> {
        self.tried.first()?.helps.first().map(Help::to_string)
    }

    /// Everything that was tried, the nearest first: each with its reason and all that would help.
    pub fn alternatives(&self) -> Vec<String> {
        self.tried.iter().map(Tried::to_string).collect()
    }
}

impl Display for Tried {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.set, self.reason)?;
        let helps: Vec<String> = self.helps.iter().map(Help::to_string).collect();
        match helps.as_slice() {
            [] => Ok(()),
            helps => write!(f, "; what helps: {}", helps.join(", or ")),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKind { kind, seen: 0 } => write!(f, "the pool has no GPU{}", of_kind(kind)),
            Self::NoKind { kind, seen } => {
                let none = if *seen == 1 { "it can't" } else { "none can" };
                write!(
                    f,
                    "{}{} {} seen, but {none} be moved",
                    gpus(*seen),
                    of_kind(kind),
                    are(*seen)
                )
            }
            Self::MemoryTooSmall {
                kind,
                needed,
                largest,
            } => write!(
                f,
                "each GPU needs {needed}, and the largest{} has {largest}",
                of_kind(kind)
            ),
            Self::NotEnoughGpus {
                kind, needed, pool, ..
            } => write!(
                f,
                "the pool has {} of kind {kind}, and {needed} are needed",
                gpus(*pool)
            ),
            Self::AllBusy {
                kind,
                needed,
                free,
                busy,
                held_by,
            } => {
                write!(
                    f,
                    "{needed} of kind {kind} are needed and {free} {} free",
                    are(*free)
                )?;
                write_busy(f, busy, held_by)
            }
            Self::NoHost {
                off,
                cordoned,
                unbindable,
                keeps,
            } => {
                let counts = [
                    (off, "off"),
                    (cordoned, "closed"),
                    (unbindable, "without a port to bind to"),
                    (keeps, "keeping GPUs that can't be let go of just now"),
                ];
                let counts = counts.iter().filter(|(n, _)| **n > 0);
                let counts: Vec<String> = counts
                    .map(|(n, what)| format!("{} {} {what}", counted(**n, "host"), are(**n)))
                    .collect();
                match counts.as_slice() {
                    [] => f.write_str("there is no host"),
                    counts => write!(f, "no host may be given GPUs: {}", counts.join(", ")),
                }
            }
            Self::NoHostWithSlots {
                needed,
                best,
                largest,
            } => write!(
                f,
                "one host needs {} free; the best has {best}, and the largest has {largest} in all",
                counted(*needed, "slot")
            ),
            Self::NotReachable {
                kind,
                needed,
                free,
                best,
            } => write!(
                f,
                "{} of kind {kind} {} free, but no host reaches more than {best} of the {needed} needed",
                gpus(*free),
                are(*free)
            ),
            Self::Fragmented {
                kind,
                needed,
                free,
                largest,
            } => write!(
                f,
                "{} of kind {kind} {} free, but scattered: at most {largest} of the {needed} needed can be had \
                 together",
                gpus(*free),
                are(*free)
            ),
            Self::Uplinks {
                kind,
                needed,
                free,
                largest,
                full,
                ..
            } => {
                let full: Vec<String> = full.iter().map(FullUplink::to_string).collect();
                write!(
                    f,
                    "{} of kind {kind} {} free, but at most {largest} of the {needed} needed can be had together: {}",
                    gpus(*free),
                    are(*free),
                    full.join("; ")
                )
            }
            Self::TenantLimit {
                tenant,
                needed,
                holds,
                most,
            } => write!(
                f,
                "it needs {}, and tenant {tenant} holds {holds} beside it and may hold {most} at most",
                gpus(*needed)
            ),
            Self::Promised {
                tenant,
                demand,
                gpus: count,
            } => write!(
                f,
                "it would be more than its tenant is guaranteed, and {} {} left for what tenant {tenant} is guaranteed \
                 and wants: demand {demand}",
                gpus(*count),
                are(*count)
            ),
            Self::Owed {
                lender,
                lent_to,
                due,
                gpus: count,
            } => write!(
                f,
                "demand {lender} lent to {lent_to} and is owed it back at {due}: {} of that would be missing",
                gpus(*count)
            ),
        }
    }
}

fn write_busy(f: &mut Formatter<'_>, busy: &Busy, held_by: &[Holder]) -> fmt::Result {
    let Busy {
        held,
        reserved,
        foreign,
        cordoned,
        unhealthy,
        unsettled,
        unbindable,
    } = *busy;
    let counts = [
        (reserved, "in use by running operations"),
        (foreign, "bound by somebody else"),
        (cordoned, "cordoned"),
        (unhealthy, "in critical health or quarantined"),
        (unsettled, "in an unsettled state"),
        (unbindable, "not bindable as a unit"),
    ];
    let mut parts: Vec<String> = Vec::new();
    if held > 0 {
        let holders = held_by.iter().take(5).map(|holder| match &holder.demand {
            Some(demand) => format!("{} by {} for {demand}", holder.gpus, holder.composition),
            None => format!("{} by {}", holder.gpus, holder.composition),
        });
        let holders: Vec<String> = holders.collect();
        let more = if held_by.len() > holders.len() {
            ", …"
        } else {
            ""
        };
        parts.push(format!("{held} held ({}{more})", holders.join(", ")));
    }
    let others = counts.iter().filter(|(gpus, _)| *gpus > 0);
    parts.extend(others.map(|(gpus, what)| format!("{gpus} {what}")));
    match parts.as_slice() {
        [] => Ok(()),
        parts => write!(f, ": {}", parts.join(", ")),
    }
}

impl Display for Help {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddGpus {
                kind,
                gpus: count,
                min_memory,
            } => {
                write!(f, "add {}{} to the pool", gpus(*count), of_kind(kind))?;
                match min_memory.0 {
                    0 => Ok(()),
                    _ => write!(f, ", each with {min_memory} or more"),
                }
            }
            Self::ReleaseGpus { kind, gpus: count } => write!(f, "release {} of kind {kind}", gpus(*count)),
            Self::WaitForOperations { gpus: count } => {
                write!(
                    f,
                    "plan again when the operations that use {} are done",
                    gpus(*count)
                )
            }
            Self::FreeForeign { gpus: count } => {
                write!(f, "adopt or free {} that somebody else bound", gpus(*count))
            }
            Self::Uncordon { gpus: 0, hosts } => write!(f, "open {}", counted(*hosts, "host")),
            Self::Uncordon { gpus: count, .. } => write!(f, "uncordon {}", gpus(*count)),
            Self::RepairGpus { gpus: count } => write!(f, "repair {}", gpus(*count)),
            Self::ResolveGpus { gpus: count } => {
                write!(f, "resolve the open outcome of {}", gpus(*count))
            }
            Self::SeeWhyNotComposable { gpus: count } => {
                write!(f, "see why {} can't be moved: poolwright get gpus", gpus(*count))
            }
            Self::PowerOnHosts { hosts } => write!(f, "power on {}", counted(*hosts, "host")),
            Self::FreeSlots { slots } => write!(f, "free {} on one host", counted(*slots, "more slot")),
            Self::AddHost { slots } => write!(f, "add a host with {}", counted(*slots, "slot")),
            Self::AllowSpanning => f.write_str("allow it to span hosts: so it would fit now"),
            Self::Connect => f.write_str("cable more of the GPUs and a host to one fabric"),
            Self::ReleaseAcross {
                fabric,
                switch,
                gpus: count,
            } => write!(
                f,
                "release {} attached across the uplinks of switch {fabric}/{switch}",
                gpus(*count)
            ),
            Self::RaiseUplinks {
                fabric,
                switch,
                gpus: count,
            } => write!(
                f,
                "let more be attached across: poolwright uplink set {fabric}/{switch} --gpus {count}"
            ),
            Self::ReleaseOf { tenant, gpus: count } => {
                write!(f, "release {} of tenant {tenant}", gpus(*count))
            }
            Self::RaiseLimit { tenant, most } => {
                write!(
                    f,
                    "let it hold more: poolwright tenant set {tenant} --most {most}"
                )
            }
            Self::WaitForReturn { due } => write!(f, "ask again once that is back, at {due}"),
            Self::ServeFirst { demand } => {
                write!(f, "ask again once demand {demand} is served, or withdrawn")
            }
            Self::Guarantee { tenant, gpus: count } => {
                write!(
                    f,
                    "guarantee it: poolwright tenant set {tenant} --guaranteed {count}"
                )
            }
        }
    }
}

impl Display for Deferred {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} stays as it is for now: {}", self.composition, self.because)
    }
}

impl Display for Deferral {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOperation { unit } => write!(f, "a running operation has {unit} in hand"),
            Self::Unsettled { gpu, state } => write!(f, "{gpu} is {state}"),
            Self::NotSeen { unit } => write!(f, "{unit} is not seen"),
            Self::InUse { unit, by } => write!(f, "{unit} is {by}, and is not pulled"),
            Self::Elsewhere { unit, recorded, seen } => {
                write!(f, "{unit} was recorded at {recorded} and is seen at {seen}")
            }
        }
    }
}
