//! The way to the metal: which driver speaks for what, and each call with a deadline and in its turn.

use crate::charge::{self, Charge};
use crate::ledger::Halt;
use crate::options::Options;
use crate::pause::Pass;
use async_trait::async_trait;
use poolwright_driver::{
    Bound, Confirmation, ControlPoint, DriverError, ErrorKind, Fabric, GpuIdentity, Holder,
};
use poolwright_driver::{HostSide, HostTarget, ResetSeen, Room, TaskSeen, refuse_other_gpus};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::identity::Match;
use poolwright_model::step::Target;
use poolwright_model::units::Bytes;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Which driver speaks for what. Asked anew for each call, so endpoints may come and go. One that can't be reached is an
/// error; nothing was asked of it then.
#[async_trait]
pub trait Drivers: Send + Sync {
    /// `None`: nobody knows that endpoint.
    async fn fabric(&self, endpoint: &ControlEndpointId) -> Result<Option<Arc<dyn Fabric>>, DriverError>;

    /// `None` where nothing speaks for the host: the fabric's word must do.
    async fn host(&self, host: &HostId) -> Result<Option<Arc<dyn HostSide>>, DriverError>;

    /// The control endpoint at which a host is made to let go of GPUs, as far as that is known; asks nobody.
    fn drains_at(&self, _host: &HostId) -> Option<ControlEndpointId> {
        None
    }

    /// The address of the unit in the latest observation of its endpoint, if known. Sends no request.
    fn observed_at(&self, _target: &Target) -> Option<ControlPoint> {
        None
    }
}

/// How many reads a look at a unit takes at most: its GPUs at the recorded address, at the observed one, its binding.
const READS: u32 = 3;

/// Every call to the hardware goes through here.
pub(crate) struct Metal {
    drivers: Arc<dyn Drivers>,
    charge: Arc<dyn Charge>,
    per_endpoint: usize,
    read_deadline: Duration,
    act_deadline: Duration,
    host_deadline: Duration,
    /// For a place at an endpoint.
    turn_deadline: Duration,
    turns: Mutex<HashMap<ControlEndpointId, Arc<Semaphore>>>,
}

type Answer<T> = Result<T, DriverError>;
/// What came of a write; or why it was not sent, and is not to be now.
type Write<T> = Result<Answer<T>, Halt>;

impl Metal {
    pub fn new(drivers: Arc<dyn Drivers>, charge: Arc<dyn Charge>, options: &Options) -> Self {
        Self {
            drivers,
            charge,
            per_endpoint: options.per_endpoint.max(1),
            read_deadline: options.read_deadline,
            act_deadline: options.act_deadline,
            host_deadline: options.host_deadline,
            turn_deadline: options.turn_deadline,
            turns: Mutex::default(),
        }
    }

    /// The binding of the unit. An error if its address shows another GPU, since a binding there is not the unit's.
    pub async fn bound(&self, target: &Target) -> Answer<Bound> {
        let fabric = self.fabric(target).await?;
        let call = async {
            let at = self.address(&*fabric, target).await?;
            fabric.bound(&at, self.read_deadline).await
        };
        // Whatever its kind: a read changes nothing.
        self.call(fabric.endpoint(), self.read_deadline * READS, call)
            .await
    }

    pub async fn bind(&self, target: &Target, pass: Pass<'_>) -> Write<()> {
        let bind = |fabric: Arc<dyn Fabric>, at: ControlPoint| async move {
            fabric.bind(&at, &target.port_at, self.act_deadline).await
        };
        self.write_to_unit(target, pass, bind).await
    }

    pub async fn unbind(&self, target: &Target, pass: Pass<'_>) -> Write<()> {
        let unbind = |fabric: Arc<dyn Fabric>, at: ControlPoint| async move {
            fabric.unbind(&at, &target.port_at, self.act_deadline).await
        };
        self.write_to_unit(target, pass, unbind).await
    }

    pub async fn task(&self, target: &Target, task: &str) -> Answer<TaskSeen> {
        let fabric = self.fabric(target).await?;
        let call = fabric.task(task, self.read_deadline);
        self.call(fabric.endpoint(), self.read_deadline, call).await
    }

    pub async fn reset(&self, target: &Target, pass: Pass<'_>) -> Write<ResetSeen> {
        let reset = |fabric: Arc<dyn Fabric>, at: ControlPoint| async move {
            fabric.reset(&at, self.act_deadline).await
        };
        self.write_to_unit(target, pass, reset).await
    }

    /// A write to a unit's fabric, at the address at which the unit was just identified.
    async fn write_to_unit<T, F: Future<Output = Answer<T>>>(
        &self,
        target: &Target,
        pass: Pass<'_>,
        act: impl Fn(Arc<dyn Fabric>, ControlPoint) -> F,
    ) -> Write<T> {
        let fabric = match self.fabric(target).await {
            Ok(fabric) => fabric,
            Err(error) => return Ok(Err(error)),
        };
        let call = |_, at: Option<ControlPoint>| {
            let at = at.unwrap_or_else(|| target.unit_at.clone());
            act(in_this_session(&fabric), at)
        };
        let unit = Some((&*fabric, target));
        self.write((fabric.endpoint(), self.act_deadline), pass, unit, call)
            .await
    }

    /// `largest_bar` is what the largest register of the GPUs wants, where that is known.
    pub async fn preflight(&self, target: &Target, largest_bar: Option<Bytes>) -> Answer<Room> {
        let (host, mut question) = self.host(target).await?;
        question.largest_bar = largest_bar;
        let call = host.preflight(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn verify(&self, target: &Target) -> Answer<Confirmation> {
        let (host, question) = self.host(target).await?;
        let call = host.verify(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    /// Which start of the host it is, where that can be told.
    pub async fn started(&self, target: &Target) -> Answer<Option<String>> {
        let (host, question) = self.host(target).await?;
        let call = host.started(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn holders(&self, target: &Target) -> Answer<Vec<Holder>> {
        let (host, question) = self.host(target).await?;
        let call = host.holders(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    /// See [`Drivers::drains_at`].
    pub fn drains_at(&self, host: &HostId) -> Option<ControlEndpointId> {
        self.drivers.drains_at(host)
    }

    pub async fn drain(&self, target: &Target, pass: Pass<'_>) -> Write<()> {
        let (host, question) = match self.host(target).await {
            Ok(host) => host,
            Err(error) => return Ok(Err(error)),
        };
        if !host.can_drain() {
            // It says so, and sends nothing: nobody need be in charge for that.
            let answer = host.drain(&question, self.host_deadline);
            return Ok(self.call(host.endpoint(), self.host_deadline, answer).await);
        }
        let call = |epoch, _| {
            let (host, question) = (&host, under(&question, epoch));
            async move { host.drain(&question, self.act_deadline).await }
        };
        self.write((host.endpoint(), self.act_deadline), pass, None, call)
            .await
    }

    /// What the host could not put back as it was when it let go of the GPUs, as far as anybody there can tell.
    pub async fn left(&self, target: &Target) -> Answer<Vec<String>> {
        let (host, question) = self.host(target).await?;
        let call = host.left(&question, self.host_deadline);
        match self.call(host.endpoint(), self.host_deadline, call).await {
            Err(error) if error.kind == ErrorKind::CannotTell => Ok(Vec::new()),
            told => told,
        }
    }

    pub async fn undrain(&self, target: &Target, pass: Pass<'_>) -> Write<()> {
        let (host, question) = match self.host(target).await {
            Ok(host) => host,
            Err(error) => return Ok(Err(error)),
        };
        if !host.can_drain() {
            let answer = host.undrain(&question, self.host_deadline);
            return Ok(self.call(host.endpoint(), self.host_deadline, answer).await);
        }
        let call = |epoch, _| {
            let (host, question) = (&host, under(&question, epoch));
            async move { host.undrain(&question, self.act_deadline).await }
        };
        self.write((host.endpoint(), self.act_deadline), pass, None, call)
            .await
    }

    /// Whether what speaks for the host can make GPUs ready; `CannotTell` where not.
    pub async fn can_make_ready(&self, target: &Target) -> Answer<()> {
        self.ready_side(target).await.map(drop)
    }

    pub async fn make_ready(&self, target: &Target, pass: Pass<'_>) -> Write<String> {
        let (host, question) = match self.ready_side(target).await {
            Ok(side) => side,
            Err(error) => return Ok(Err(error)),
        };
        let call = |epoch, _| {
            let (host, question) = (&host, under(&question, epoch));
            async move { host.make_ready(&question, self.act_deadline).await }
        };
        self.write((host.endpoint(), self.act_deadline), pass, None, call)
            .await
    }

    /// Takes that back.
    pub async fn unready(&self, target: &Target, pass: Pass<'_>) -> Write<()> {
        let (host, question) = match self.ready_side(target).await {
            Ok(side) => side,
            Err(error) => return Ok(Err(error)),
        };
        let call = |epoch, _| {
            let (host, question) = (&host, under(&question, epoch));
            async move { host.unready(&question, self.act_deadline).await }
        };
        self.write((host.endpoint(), self.act_deadline), pass, None, call)
            .await
    }

    /// What speaks for the host and makes GPUs ready there; `CannotTell` where nothing does.
    async fn ready_side(&self, target: &Target) -> Answer<(Arc<dyn HostSide>, HostTarget)> {
        let (host, question) = self.host(target).await?;
        match host.can_make_ready() {
            true => Ok((host, question)),
            false => Err(no_way_to_make_ready(&*host)),
        }
    }

    /// Where the unit's GPUs are: at the recorded address, or where they were observed last. An error if neither shows them.
    async fn address(&self, fabric: &dyn Fabric, target: &Target) -> Answer<ControlPoint> {
        let Err(error) = self.shows(fabric, target, &target.unit_at).await else {
            return Ok(target.unit_at.clone());
        };
        let observed = self.drivers.observed_at(target);
        let observed = observed.filter(|_| error.kind != ErrorKind::CredentialsRefused);
        let Some(at) = observed.filter(|at| *at != target.unit_at) else {
            return Err(error);
        };
        self.shows(fabric, target, &at).await?;
        Ok(at)
    }

    /// The same before a write: an error says that nothing was changed.
    async fn checked_address(&self, fabric: &dyn Fabric, target: &Target) -> Answer<ControlPoint> {
        let look = self.address(fabric, target);
        let found = answered(fabric.endpoint(), self.read_deadline * READS, look).await;
        found.map_err(|error| match error.kind {
            ErrorKind::OutcomeUnknown => DriverError {
                kind: ErrorKind::NoEffect,
                ..error
            },
            _ => error,
        })
    }

    /// Whether an address shows the unit's GPUs; at another one than the recorded it must prove it. The recorded one may show
    /// no identity only if the latest observation has the unit at no other address, and no GPU only if it has the unit
    /// nowhere: a GPU that was pulled.
    async fn shows(&self, fabric: &dyn Fabric, target: &Target, at: &ControlPoint) -> Answer<()> {
        let compare = |found: &[GpuIdentity]| match target.compare(found) {
            Match::ByLocationOnly => match self.drivers.observed_at(target) {
                Some(_) if found.is_empty() => Match::Changed("it shows no GPU".to_owned()),
                Some(observed) if observed != *at => Match::Changed(format!(
                    "it shows no identity, and the unit was observed at {}",
                    observed.address
                )),
                _ if *at != target.unit_at => Match::Changed("it shows no identity".to_owned()),
                _ => Match::ByLocationOnly,
            },
            compared => compared,
        };
        refuse_other_gpus(fabric, (at, target.unit.as_str()), compare, self.read_deadline).await
    }

    async fn fabric(&self, target: &Target) -> Answer<Arc<dyn Fabric>> {
        let endpoint = &target.unit_at.endpoint;
        let fabric = self.reached(endpoint, self.drivers.fabric(endpoint)).await?;
        fabric.ok_or_else(|| {
            DriverError::no_effect(format!("there is no driver for control endpoint {endpoint}"))
                .with_hint("add the endpoint again: `poolwright endpoint add`")
        })
    }

    async fn host(&self, target: &Target) -> Answer<(Arc<dyn HostSide>, HostTarget)> {
        let host = self
            .reached(&target.host, self.drivers.host(&target.host))
            .await?;
        let host = host.ok_or_else(|| {
            DriverError::cannot_tell(format!("neither a BMC nor an agent speaks for {}", target.host))
        })?;
        let question = HostTarget {
            host: target.host.clone(),
            host_port: target.host_port.clone(),
            gpus: target.gpus.clone(),
            known_as: target.known_as.clone(),
            slot: target.slot.clone(),
            seen_at: Vec::new(),
            ids: target.ids.clone(),
            largest_bar: None,
            epoch: None,
        };
        Ok((host, question))
    }

    /// It may have to be connected to first.
    async fn reached<T>(&self, who: impl Display, way: impl Future<Output = Answer<T>>) -> Answer<T> {
        let patience = self.read_deadline;
        tokio::time::timeout(patience, way).await.unwrap_or_else(|_| {
            let message = format!("{who} can't be reached within {} s", patience.as_secs_f32());
            Err(DriverError::no_effect(message).with_fault(FaultKind::Timeout))
        })
    }

    /// A call that changes something: made only if this manager has been in charge of the endpoint since it intended or
    /// confirmed that and is at the very moment, and nothing is paused then. While it is paused it holds no place; once
    /// that is over it is confirmed anew that this manager may send it, for that may be long after its intent. A host's
    /// side may be another endpoint than the fabric's, which the intent was about: it is confirmed, too.
    ///
    /// The address of `unit` is verified first and passed to `call`. `call` begins before the last check of the lease and
    /// continues after it, so it uses a session that a manager that took over in between has ended. It gets the lease
    /// epoch under which it is sent.
    async fn write<T, F: Future<Output = Answer<T>>>(
        &self,
        (endpoint, deadline): (&ControlEndpointId, Duration),
        pass: Pass<'_>,
        unit: Option<(&dyn Fabric, &Target)>,
        call: impl Fn(Option<u64>, Option<ControlPoint>) -> F,
    ) -> Write<T> {
        loop {
            let waited = pass.through(endpoint).await?;
            if (waited || pass.proof(endpoint).is_none())
                && let Err(halt) = pass.confirm(endpoint).await
            {
                return match halt {
                    Halt::Fenced { message, .. } if !pass.belongs_at(endpoint) => {
                        Ok(Err(elsewhere(&message)))
                    }
                    halt => Err(halt),
                };
            }
            let _place = match self.place(endpoint).await {
                Ok(place) => place,
                Err(error) => return Ok(Err(error)),
            };
            let at = match unit {
                Some((fabric, target)) => match self.checked_address(fabric, target).await {
                    Ok(at) => Some(at),
                    Err(error) => return Ok(Err(error)),
                },
                None => None,
            };
            if pass.is_open(endpoint) {
                let proof = pass.proof(endpoint);
                let call = call(proof.as_ref().and_then(|tenure| tenure.epoch), at);
                charge::still(&*self.charge, endpoint, proof.as_ref())?;
                return Ok(answered(endpoint, deadline, call).await);
            }
        }
    }

    /// Waits for a free place at the endpoint, then for the answer. A call that got no place was never made.
    async fn call<T>(
        &self,
        endpoint: &ControlEndpointId,
        deadline: Duration,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let _place = self.place(endpoint).await?;
        answered(endpoint, deadline, call).await
    }

    async fn place(&self, endpoint: &ControlEndpointId) -> Answer<OwnedSemaphorePermit> {
        let turns = {
            let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = all.entry(endpoint.clone());
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(self.per_endpoint))))
        };
        let place = tokio::time::timeout(self.turn_deadline, turns.acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let message = format!(
                "waited {} s for one of the {} places at {endpoint}: all were taken by requests that it had not \
                 answered; nothing was sent",
                self.turn_deadline.as_secs_f32(),
                self.per_endpoint
            );
            let hint = "it is tried again; see how the endpoint fares: poolwright endpoint test";
            return Err(DriverError::no_effect(message)
                .with_hint(hint)
                .with_fault(FaultKind::Timeout));
        };
        Ok(place)
    }
}

/// An endpoint that came to speak for a host after the operation began, and is in other hands.
fn elsewhere(message: &str) -> DriverError {
    DriverError::no_effect(format!("{message}, so nothing was sent there"))
        .with_hint("ask for it again: the manager in charge of all of its endpoints does it then")
}

fn no_way_to_make_ready(host: &dyn HostSide) -> DriverError {
    DriverError::cannot_tell(format!(
        "{} neither checks nor sets GPUs, and tells nobody of them",
        host.endpoint()
    ))
    .with_hint("an agent on the host does: see docs/HOSTS.md")
}

/// The same question, asked under a lease.
fn under(question: &HostTarget, epoch: Option<u64>) -> HostTarget {
    HostTarget {
        epoch,
        ..question.clone()
    }
}

fn in_this_session(fabric: &Arc<dyn Fabric>) -> Arc<dyn Fabric> {
    fabric.in_this_session().unwrap_or_else(|| Arc::clone(fabric))
}

/// A driver ends by its deadline; one that doesn't is cut off, and then nobody knows what became of the call.
async fn answered<T>(
    endpoint: &ControlEndpointId,
    deadline: Duration,
    call: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    let patience = deadline + deadline / 4;
    tokio::time::timeout(patience, call).await.unwrap_or_else(|_| {
        let message = format!("{endpoint} gave no answer within {} s", patience.as_secs_f32());
        Err(DriverError::new(ErrorKind::OutcomeUnknown, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Alone;

    struct Nobody;

    #[async_trait]
    impl Drivers for Nobody {
        async fn fabric(&self, _: &ControlEndpointId) -> Answer<Option<Arc<dyn Fabric>>> {
            Ok(None)
        }

        async fn host(&self, _: &HostId) -> Answer<Option<Arc<dyn HostSide>>> {
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_place_ends_and_says_what_for() {
        let options = Options {
            per_endpoint: 1,
            turn_deadline: Duration::from_secs(30),
            ..Options::default()
        };
        let metal = Metal::new(Arc::new(Nobody), Arc::new(Alone), &options);
        let busy = ControlEndpointId::from_lossy("box-1");
        // Longer than anybody waits for a place.
        let deadline = Duration::from_secs(600);
        let slow = metal.call(&busy, deadline, async {
            tokio::time::sleep(deadline).await;
            Ok("slow")
        });
        let waits = async {
            tokio::task::yield_now().await;
            let began = tokio::time::Instant::now();
            let error = metal
                .call(&busy, deadline, async { Ok("quick") })
                .await
                .unwrap_err();
            assert_eq!(began.elapsed(), Duration::from_secs(30));
            let other = ControlEndpointId::from_lossy("box-2");
            let elsewhere = metal.call(&other, deadline, async { Ok("quick") }).await;
            (error, elsewhere)
        };
        let (slow, (error, elsewhere)) = tokio::join!(slow, waits);
        assert_eq!((slow.unwrap(), elsewhere.unwrap()), ("slow", "quick"));
        assert_eq!(error.kind, ErrorKind::NoEffect, "it was never sent");
        for word in ["30 s", "1 places at box-1", "nothing was sent"] {
            assert!(error.message.contains(word), "{error}");
        }
    }
}
