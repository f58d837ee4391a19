//! A manager's calendar as a [problem over time](crate::horizon): the demands by time and tenant, in the pool after all
//! operations in progress; and the manager's own actions as a plan of that problem.
//!
//! * `slots`: moments as slots. * `pool`, `reach`, `uplinks`: hosts and GPUs. * `needs`, `wishes`, `closed`: demands.
//!   * `tenants`: guarantees. * `own`: the manager's own plan.
//!
//! Invariants: demands and holdings are sampled at the same moments, one in each slot. So a rule that the manager's
//! plan keeps at every moment also holds for its plan in slots. [`Posed::not_said`] lists the facts that the problem
//! can't express.

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

/// The input of a problem.
#[derive(Debug, Clone, Copy)]
pub struct Outlook<'a> {
    /// The pool after all operations in progress. Its demands and its timed cordons are ignored.
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

/// A demand for a period.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub demand: Demand,
    pub from: Timestamp,
    pub until: Timestamp,
    /// It is a phase of a run: what follows it at once belongs to it.
    pub phase: bool,
    /// For a job that may be stopped: the time from the notice to the stop.
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
    /// The cost of that plan, or the rule of the problem that it breaks.
    pub judged: Result<Cost, Broken>,
    /// What the problem and the manager's plan don't say, for people.
    pub not_said: Vec<String>,
}

/// Makes a problem of a calendar.
///
/// # Errors
/// The part of the calendar that no problem may have.
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
        // Running demands stay, even on GPUs that another tenant's guarantee covers by now.
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
