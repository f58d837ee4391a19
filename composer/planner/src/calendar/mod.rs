//! A manager's calendar as a [problem over time](crate::horizon): what is wanted when, by whom, in the pool as it is once
//! all that is under way is done; and what the manager will do by itself as a plan of that problem.
//!
//! * `slots`: moments as slots. * `pool`, `reach`, `uplinks`: hosts and GPUs. * `needs`, `wishes`, `closed`: what is wanted.
//!   * `tenants`: what is promised. * `own`: the manager's own plan.
//!
//! Invariants: what is wanted and what is held is looked at at the same moments, one in each slot, so that what the
//! manager's plan keeps to at every moment, its plan in slots keeps to as well; and what the problem can't say is told in
//! [`Posed::not_said`].

mod closed;
mod needs;
mod own;
mod pool;
mod reach;
mod slots;
mod tenants;
mod uplinks;
mod wishes;

use crate::closure::Closure;
use crate::demand::Demand;
use crate::horizon::cps1::Invalid;
use crate::horizon::file::File;
use crate::horizon::{Assignment, Broken, Cost, Problem, check};
use crate::plan::World;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, GpuId, HostId};
use std::collections::BTreeSet;

/// All that the problem is made of.
#[derive(Debug, Clone, Copy)]
pub struct Outlook<'a> {
    /// The pool, once all that is under way is done. Its demands are not looked at, nor which hosts are closed for a time.
    pub world: World<'a>,
    pub closures: &'a [Closure],
    /// One of a demand does not begin before its last one is over.
    pub wishes: &'a [Wish],
    /// What the manager will hold.
    pub holdings: &'a [Holding],
    pub from: Timestamp,
    pub until: Timestamp,
    /// How long a slot is: whole seconds, above none.
    pub slot: SignedDuration,
}

/// What is wanted for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub demand: Demand,
    pub from: Timestamp,
    pub until: Timestamp,
    /// It is a phase of a run: what follows it at once belongs to it.
    pub phase: bool,
    /// A job that may be stopped, so long after it was told.
    pub stops_after: Option<SignedDuration>,
}

/// GPUs that are at a host for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub host: HostId,
    /// `None`: attached by name, or kept.
    pub demand: Option<DemandId>,
    pub gpus: BTreeSet<GpuId>,
    pub from: Timestamp,
    pub until: Timestamp,
}

/// A calendar as a problem, and what the manager will do as a plan of it.
#[derive(Debug, Clone)]
pub struct Posed {
    pub file: File,
    pub problem: Problem,
    /// What the manager will do.
    pub own: Assignment,
    /// What that costs, where it keeps to all that the problem says.
    pub judged: Result<Cost, Broken>,
    /// What the problem and the manager's plan don't say, for people.
    pub not_said: Vec<String>,
}

/// Makes a problem of a calendar.
///
/// # Errors
/// What of it no problem may have.
pub fn pose(outlook: &Outlook<'_>) -> Result<Posed, Invalid> {
    let slots = slots::Slots::of(outlook);
    let mut not_said = slots.not_said(outlook);
    let pool = pool::Pool::of(&outlook.world);
    not_said.extend(pool.not_said());
    let mut wanted = wishes::Asked::of(outlook, &slots, &pool);
    let closed = closed::Closed::of(outlook, &slots, &pool, &mut wanted);
    not_said.append(&mut wanted.not_said);
    let mut file = File::of("the pool", slots.count() as u64, slots.seconds() as f64);
    file.source = format!("the calendar of a manager; slot 0 begins at {}", slots.begins());
    file.hosts = pool.hosts(&closed);
    file.gpus = pool.gpus();
    file.hops = pool.hops();
    file.switches = pool.switches();
    (file.tenants, not_said) = tenants::told(&outlook.world, &pool, &wanted, not_said);
    file.demands = wanted.entries(&pool);
    let guarantees = file.tenants.iter().any(|tenant| tenant.guaranteed_gpus > 0);
    let problem = match file.problem() {
        // What runs stays, also where it has what another is guaranteed by now.
        Err(invalid) if guarantees => {
            not_said.push(format!("what tenants are guaranteed is left out: {invalid}"));
            file.tenants
                .iter_mut()
                .for_each(|tenant| tenant.guaranteed_gpus = 0);
            file.problem()?
        }
        read => read?,
    };
    let own = own::plan(outlook, &slots, &pool, &wanted, &problem, &mut not_said);
    let judged = check(&problem, &own);
    if let Err(broken) = &judged {
        not_said.push(format!(
            "what the manager will do is no plan of this problem, and has no cost in it: {broken}"
        ));
    }
    Ok(Posed {
        file,
        problem,
        own,
        judged,
        not_said,
    })
}

/// The first few of several, for people.
fn few(names: &[String]) -> String {
    const TOLD: usize = 3;
    match names.len() {
        0..=TOLD => names.join(", "),
        all => format!("{} and {} more", names[..TOLD].join(", "), all - TOLD),
    }
}
