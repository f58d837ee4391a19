//! Who is in charge of a control endpoint, where several managers share one store.
//!
//! Whatever changes hardware at an endpoint is sent by the manager that is in charge of it:
//!
//! 1. before an intent is journaled, this manager must be in charge, and the requests of the one before must be
//!    over;
//! 2. the commit of the intent expects the document that puts it in charge ([`Tenure::proof`]), so that one that
//!    was replaced can't journal;
//! 3. just before the request goes out it looks once more, by its own clock and asking nobody: it must be in charge
//!    still, by the same document.
//!
//! A host's side is an endpoint, too, and may be another than the fabric's that binds its GPUs. What is sent there is
//! preceded by a commit that expects *its* document and by the same last look; an operation is worked at by whoever is
//! in charge of both ([`Operation::endpoints`](crate::Operation::endpoints)).
//!
//! Between 3 and the arrival of the request a manager may still be stopped for any time. Whoever takes over cuts
//! that off where the endpoint has sessions; else it is found by read-back.

use crate::context::Context;
use crate::ledger::Halt;
use crate::live::Live;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Expectation};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// What puts this manager in charge of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Holds for as long as nobody else took over; `None` where there is nobody else.
    pub proof: Option<Expectation>,
    /// Grows with every change of hands; what is asked is told it, for who knows a higher one refuses it.
    pub epoch: Option<u64>,
    /// Before this, requests of the manager before may still arrive. `None`: there are none.
    pub from: Option<Instant>,
}

/// Tells of which endpoints this manager is in charge.
pub trait Charge: Send + Sync {
    /// As far as this manager knows by its own clock; `None` where it is not in charge. Asks nobody.
    fn tenure(&self, endpoint: &ControlEndpointId) -> Option<Tenure>;

    /// An operation waits for somebody who is in charge of all of these.
    fn want(&self, endpoints: &BTreeSet<ControlEndpointId>);

    /// Somebody else waits for the endpoint: no operation begins at it here any more, so that it can change hands.
    fn is_wanted_elsewhere(&self, _endpoint: &ControlEndpointId) -> bool {
        false
    }

    /// Whether there may be other managers: then operations are adopted in the journal, and orders are left for
    /// whoever works at them.
    fn is_shared(&self) -> bool;

    /// Who is in charge, for people.
    fn holder(&self, endpoint: &ControlEndpointId) -> String;

    /// Whether somebody is in charge of it, or will be: it is an endpoint that the managers keep.
    fn keeps(&self, _endpoint: &ControlEndpointId) -> bool {
        true
    }
}

/// The only manager: in charge of everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Charge for Alone {
    fn tenure(&self, _: &ControlEndpointId) -> Option<Tenure> {
        Some(Tenure {
            proof: None,
            epoch: None,
            from: None,
        })
    }

    fn want(&self, _: &BTreeSet<ControlEndpointId>) {}

    fn is_shared(&self) -> bool {
        false
    }

    fn holder(&self, _: &ControlEndpointId) -> String {
        "this manager".to_owned()
    }
}

/// Not in charge: whoever is carries the operation on from its journal.
pub(crate) fn lost(charge: &dyn Charge, endpoint: &ControlEndpointId) -> Halt {
    Halt::Fenced {
        kind: "lease".to_owned(),
        message: format!("{} is in charge of {endpoint} now", charge.holder(endpoint)),
    }
}

/// Waits until this manager may begin something at the endpoint of the step's unit, and gives what its intent must
/// expect. What was proven for an intent before counts no more.
pub(crate) async fn may_begin(cx: &Context, live: &Live, index: u32) -> Result<Option<Expectation>, Halt> {
    let Some(endpoint) = endpoint_of(live, index) else {
        return Ok(None);
    };
    live.prove_anew(index);
    may_send(cx, live, index, &endpoint).await
}

fn endpoint_of(live: &Live, index: u32) -> Option<ControlEndpointId> {
    live.ask(|operation| {
        let record = operation.step(index);
        record.map(|record| record.step.target.unit_at.endpoint.clone())
    })
}

/// Waits until this manager may send something to an endpoint, and gives what a commit before that must expect.
async fn may_send(
    cx: &Context,
    live: &Live,
    index: u32,
    endpoint: &ControlEndpointId,
) -> Result<Option<Expectation>, Halt> {
    loop {
        let tenure = cx
            .charge
            .tenure(endpoint)
            .ok_or_else(|| lost(&*cx.charge, endpoint))?;
        let now = Instant::now();
        let Some(from) = tenure.from.filter(|from| *from > now) else {
            let proof = tenure.proof.clone();
            live.prove(index, endpoint, tenure);
            return Ok(proof);
        };
        let left = (from - now).as_secs() + 1;
        let waits =
            format!("what the manager before may have sent to {endpoint} to be over, at most {left} s more");
        live.show(index, Some(waits));
        // In small steps: it may be over sooner, or lost.
        live.pause((from - now).min(cx.options.first_pause), None).await?;
    }
}

/// [`may_begin`] with a commit that changes nothing: for what has no intent of its own.
pub(crate) async fn confirm(cx: &Context, live: &Live, index: u32) -> Result<(), Halt> {
    let Some(endpoint) = endpoint_of(live, index) else {
        return Ok(());
    };
    live.prove_anew(index);
    confirm_at(cx, live, index, &endpoint).await
}

/// The same for any endpoint that the step is about to write to.
pub(crate) async fn confirm_at(
    cx: &Context,
    live: &Live,
    index: u32,
    endpoint: &ControlEndpointId,
) -> Result<(), Halt> {
    let Some(proof) = may_send(cx, live, index, endpoint).await? else {
        return Ok(());
    };
    let mut batch = Batch::new();
    batch.expect(&proof.kind, &proof.id, proof.revision);
    live.patiently(|| cx.store.commit(batch.clone())).await?;
    Ok(())
}

/// The last look, with nothing but the request itself after it. Who lost an endpoint and got it back in between is
/// not in charge by what it intended then.
pub(crate) fn still(
    charge: &dyn Charge,
    endpoint: &ControlEndpointId,
    proven: Option<&Tenure>,
) -> Result<(), Halt> {
    match (charge.tenure(endpoint), proven) {
        (Some(tenure), Some(proven)) if tenure.proof == proven.proof => Ok(()),
        _ => Err(lost(charge, endpoint)),
    }
}
