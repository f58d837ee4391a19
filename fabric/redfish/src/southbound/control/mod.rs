//! Binding, unbinding and reading back, in the three ways of the field.
//!
//! One skeleton, three [`Way`]s. Before a write the precondition is read from the service; the write carries
//! the ETags of what was read, so that it is refused if somebody changed it in between (then everything is
//! read again, a bounded number of times, for a refusal says that nothing was done); after a yes the binding
//! is read back once, because a yes alone proves nothing. Nothing is kept between calls. Some services refuse the
//! ETags that they give: the write is then sent once without one, if no other client is logged in.

mod blocks;
mod connections;
mod fabric;
mod identity;
mod known;
mod locator;
mod mark;
mod password;
mod reset;
mod turns;
mod zones;

pub(crate) use turns::Turns;

use crate::client::{Answer, Client, Error, Resource, WriteOptions};
use crate::southbound::errors::{driver_error, is_stale};
use crate::southbound::observe::SERVICE_ROOT;
use crate::southbound::quirks;
use async_trait::async_trait;
use known::Known;
use poolwright_driver::{
    Bindings, Bound, DriverError, ErrorKind, GpuIdentity, Late, ResetSeen, Whereabouts, read_each,
};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::fault::FaultKind;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// How often a change is tried again after the service said that something had changed since it was read.
const STALE_RETRIES: u32 = 5;

/// How much longer than the deadline the client may take to say that it passed.
const GRACE: Duration = Duration::from_millis(500);

/// What is read of a unit before it is changed.
pub(crate) struct Unit {
    bound: Bound,
    etag: Option<String>,
    /// Why it can't be bound although it is free, in the service's words.
    closed: Option<String>,
}

/// One way to bind.
#[async_trait]
trait Way: Sync {
    /// Reads where the unit is bound.
    async fn look(&self, call: &Call<'_>, unit: &str) -> Result<Unit, DriverError>;

    /// Sends the change that binds a unit that was found free.
    async fn bind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed>;

    /// Sends the change that unbinds a unit that was found bound to this port.
    async fn unbind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed>;

    /// Whether changes at one port must take turns, because each rewrites what all share.
    fn takes_turns(&self) -> bool;
}

/// Why a change did not come about.
pub(crate) enum Failed {
    /// Refused because something changed since it was read. Nothing was done.
    Stale(Error),
    Ended(DriverError),
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Self {
        Self::Ended(error)
    }
}

/// One call of the driver, with its deadline.
pub(crate) struct Call<'a> {
    client: Client,
    turns: &'a Turns,
    until: Instant,
    /// What was read already, where many units are looked at in one call.
    known: Option<Known>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(client: Client, turns: &'a Turns, deadline: Duration) -> Self {
        Self {
            client,
            turns,
            until: Instant::now() + deadline,
            known: None,
        }
    }

    /// A call that reads nothing twice: what several units share is asked for once.
    pub(crate) fn remembering(self) -> Self {
        Self {
            known: Some(Known::default()),
            ..self
        }
    }

    /// Where units are bound; without a unit, whether the service answers.
    pub(crate) async fn bindings(&self, units: &[ControlPoint]) -> Result<Bindings, DriverError> {
        if units.is_empty() {
            self.read::<IgnoredAny>(SERVICE_ROOT).await?;
            return Ok(Bindings::default());
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let read = |unit: ControlPoint, _| async move {
            match self.read_if_there::<IgnoredAny>(&unit.address).await? {
                Some(_) => self.bound(&unit).await,
                None => {
                    let gone = DriverError::no_effect(format!("{} is gone", unit.address));
                    Err(gone.with_fault(FaultKind::Missing))
                }
            }
        };
        read_each(units, left, read).await
    }

    pub(crate) async fn bind(&self, unit: &ControlPoint, port: &ControlPoint) -> Result<(), DriverError> {
        let way = way(unit, Some(port))?;
        let _turn = self.turn(way, port).await?;
        for _ in 0..=STALE_RETRIES {
            let found = way.look(self, &unit.address).await?;
            match &found.bound {
                Bound::Free => {}
                Bound::To { port_address } if *port_address == port.address => {
                    return Err(conflict(format!(
                        "{} is bound to {port_address} already",
                        unit.address
                    )));
                }
                holder => return Err(conflict(format!("{} is {}", unit.address, told(holder)))),
            }
            if let Some(why) = &found.closed {
                return Err(conflict(format!("{} can't be bound now: {why}", unit.address)));
            }
            match way.bind(self, &unit.address, &found, &port.address).await {
                Ok(()) => {
                    let wanted = Bound::To {
                        port_address: port.address.clone(),
                    };
                    return self.confirm(way, unit, &wanted).await;
                }
                Err(Failed::Stale(error)) => tracing::debug!(%error, "changed in between; reading again"),
                Err(Failed::Ended(error)) => return Err(error),
            }
        }
        Err(too_busy(unit, port))
    }

    pub(crate) async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint) -> Result<(), DriverError> {
        let way = way(unit, Some(port))?;
        let _turn = self.turn(way, port).await?;
        for _ in 0..=STALE_RETRIES {
            let found = way.look(self, &unit.address).await?;
            let here = Bound::To {
                port_address: port.address.clone(),
            };
            if found.bound != here {
                let message = format!(
                    "{} is {}, not bound to {}",
                    unit.address,
                    told(&found.bound),
                    port.address
                );
                return Err(conflict(message));
            }
            match way.unbind(self, &unit.address, &found, &port.address).await {
                Ok(()) => return self.confirm(way, unit, &Bound::Free).await,
                Err(Failed::Stale(error)) => tracing::debug!(%error, "changed in between; reading again"),
                Err(Failed::Ended(error)) => return Err(error),
            }
        }
        Err(too_busy(unit, port))
    }

    pub(crate) async fn bound(&self, unit: &ControlPoint) -> Result<Bound, DriverError> {
        Ok(way(unit, None)?.look(self, &unit.address).await?.bound)
    }

    pub(crate) async fn identify(&self, unit: &ControlPoint) -> Result<Vec<GpuIdentity>, DriverError> {
        identity::identify(self, unit).await
    }

    pub(crate) async fn reset(&self, unit: &ControlPoint) -> Result<ResetSeen, DriverError> {
        match self.bound(unit).await? {
            Bound::Free => reset::reset(self, unit).await,
            holder => Err(conflict(format!(
                "{} is {}: not reset",
                unit.address,
                told(&holder)
            ))),
        }
    }

    pub(crate) async fn set_mark(
        &self,
        mark: Option<&str>,
        instead: Option<&str>,
    ) -> Result<(), DriverError> {
        mark::set(self, mark, instead).await
    }

    pub(crate) async fn locate(&self, at: &Whereabouts, lit: bool) -> Result<(), DriverError> {
        locator::set(self, at, lit).await
    }

    /// Where our account is.
    pub(crate) async fn account(&self, username: &str) -> Result<String, DriverError> {
        password::account(self, username).await
    }

    /// Gives an account another password.
    pub(crate) async fn change_password(&self, account: &str, new: &str) -> Result<(), DriverError> {
        password::change(self, account, new).await
    }

    /// The service said yes: see that it is so. From here on an error never says that nothing was done.
    async fn confirm(&self, way: &dyn Way, unit: &ControlPoint, wanted: &Bound) -> Result<(), DriverError> {
        match way.look(self, &unit.address).await {
            Ok(found) if found.bound == *wanted => Ok(()),
            Ok(found) => Err(DriverError::unknown(format!(
                "the service said that it was done, but {} is {}",
                unit.address,
                told(&found.bound)
            ))
            .with_hint("read it back again in a moment; if it stays so, the service does not do what it says")
            .with_late(Late::Never)),
            Err(error) => Err(DriverError::unknown(format!(
                "the service said that it was done; reading {} back failed: {error}",
                unit.address
            ))
            .with_fault(error.fault)),
        }
    }

    async fn turn(&self, way: &dyn Way, port: &ControlPoint) -> Result<Option<turns::Turn>, DriverError> {
        if !way.takes_turns() {
            return Ok(None);
        }
        self.within(
            format!("its turn to change {}", port.address),
            self.turns.take(&port.address),
        )
        .await
        .map(Some)
    }

    /// Reads a resource.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Resource<T>, DriverError> {
        let answer = self.within(format!("GET {path}"), self.get(path)).await?;
        answer.map_err(|error| driver_error(&error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Resource<T>, Error> {
        match &self.known {
            Some(known) => known.read(&self.client, path).await,
            None => self.client.read(path).await,
        }
    }

    /// Reads a resource that may be gone.
    async fn read_if_there<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<Resource<T>>, DriverError> {
        match self.within(format!("GET {path}"), self.get(path)).await? {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(driver_error(&error)),
        }
    }

    /// Reads all members of a collection. One that can't be read is an error: what it would say is not known.
    async fn members<T: DeserializeOwned + Send>(&self, path: &str) -> Result<Vec<Resource<T>>, DriverError> {
        if self.known.is_some() {
            let mut members = Vec::new();
            for path in self.paths(path).await? {
                members.push(self.read(&path).await?);
            }
            return Ok(members);
        }
        let collection = self
            .within(format!("GET {path}"), self.client.read_members::<T>(path))
            .await?;
        let collection = collection.map_err(|error| driver_error(&error))?;
        if let Some(error) = collection.faults.first() {
            return Err(driver_error(error));
        }
        let members = collection.members.into_iter();
        members
            .map(|member| member.outcome.map_err(|error| driver_error(&error)))
            .collect()
    }

    /// The paths of all members of a collection.
    async fn paths(&self, collection: &str) -> Result<Vec<String>, DriverError> {
        let list = async {
            match &self.known {
                Some(known) => known.paths(&self.client, collection).await,
                None => self.client.collection_members(collection).await,
            }
        };
        let found = self.within(format!("GET {collection}"), list).await?;
        let found = found.map_err(|error| driver_error(&error))?;
        match found.faults.first() {
            Some(error) => Err(driver_error(error)),
            None => Ok(found.members),
        }
    }

    async fn post<B: Serialize + Sync>(&self, target: &str, body: &B) -> Result<Answer, Failed> {
        self.write(target, |options| self.client.post(target, body, options))
            .await
    }

    async fn patch<B: Serialize + Sync>(
        &self,
        path: &str,
        body: &B,
        etag: Option<String>,
    ) -> Result<Answer, Failed> {
        self.conditional(path, etag, |options| self.client.patch(path, body, options))
            .await
    }

    async fn delete(&self, path: &str, etag: Option<String>) -> Result<Answer, Failed> {
        self.conditional(path, etag, |options| self.client.delete(path, options))
            .await
    }

    /// Sends a write with `If-Match`. If the service refuses the ETag that it still gives, sends the write once without
    /// `If-Match`, provided that no other client is logged in.
    async fn conditional<F>(
        &self,
        path: &str,
        etag: Option<String>,
        send: impl Fn(WriteOptions) -> F,
    ) -> Result<Answer, Failed>
    where
        F: Future<Output = Result<Answer, Error>>,
    {
        let outcome = self
            .write(path, |options| send(options.if_match(etag.clone())))
            .await;
        let is_412 = matches!(&outcome, Err(Failed::Stale(refused)) if refused.status() == Some(412));
        if !is_412 || etag.is_none() {
            return outcome;
        }
        // With another ETag by now, or gone, it was changed: the caller reads it again.
        let now = self.read_if_there::<IgnoredAny>(path).await?;
        if now.is_none_or(|now| now.etag != etag) {
            return outcome;
        }
        if self.client.found_refused_etag() {
            tracing::warn!(
                endpoint = %self.client.base(),
                path,
                quirk = quirks::ETAG_REFUSED.name,
                "service refuses the ETag that it gives"
            );
        }
        let message = format!("{path} was not changed: the service refuses the ETag that it gives (412)");
        self.check_alone(message).await?;
        self.write(path, send).await
    }

    /// An error unless the service shows that no other client is logged in.
    async fn check_alone(&self, message: String) -> Result<(), DriverError> {
        let asked = "whether other clients are logged in".to_owned();
        let why = match self.within(asked, self.client.other_sessions()).await? {
            Ok(Some(0)) => return Ok(()),
            Ok(Some(others)) => format!("other clients are logged in ({others} sessions)"),
            Ok(None) => "the service doesn't show its sessions".to_owned(),
            Err(error) => format!("the sessions can't be read: {error}"),
        };
        let message = format!("{message}; without If-Match another client's change may be lost: {why}");
        Err(DriverError::new(ErrorKind::Conflict, message)
            .with_hint("log other clients out of the service, use a session of its SessionService, or install newer firmware")
            .with_fault(FaultKind::Conflict))
    }

    /// Sends a write, once.
    async fn write<F>(&self, path: &str, send: impl FnOnce(WriteOptions) -> F) -> Result<Answer, Failed>
    where
        F: Future<Output = Result<Answer, Error>>,
    {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.too_late(format!("the time to change {path}")).into());
        }
        match tokio::time::timeout_at(self.until + GRACE, send(WriteOptions::default().deadline(left))).await
        {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_stale(&error) => Err(Failed::Stale(error)),
            Ok(Err(error)) => Err(driver_error(&error).into()),
            Err(_) => {
                let message = format!("the deadline passed while {path} was being changed");
                Err(DriverError::unknown(message)
                    .with_fault(FaultKind::Timeout)
                    .into())
            }
        }
    }

    /// Waits for something that changes nothing.
    async fn within<T>(&self, what: String, wait: impl Future<Output = T>) -> Result<T, DriverError> {
        match tokio::time::timeout_at(self.until, wait).await {
            Ok(done) => Ok(done),
            Err(_) => Err(self.too_late(what)),
        }
    }

    fn too_late(&self, what: String) -> DriverError {
        DriverError::no_effect(format!("the deadline passed, waiting for {what}"))
            .with_hint("allow more time, or look why the service is slow")
            .with_fault(FaultKind::Timeout)
    }
}

/// The way of these control points. Two ends of a binding are bound in one way.
fn way(unit: &ControlPoint, port: Option<&ControlPoint>) -> Result<&'static dyn Way, DriverError> {
    if let Some(port) = port.filter(|port| port.style != unit.style || port.endpoint != unit.endpoint) {
        return Err(DriverError::no_effect(format!(
            "{} at {} ({}) can't be bound to {} at {} ({}): they are not in one fabric",
            unit.address, unit.endpoint, unit.style, port.address, port.endpoint, port.style
        )));
    }
    match unit.style {
        ControlStyle::Zones => Ok(&zones::Zones),
        ControlStyle::Connections => Ok(&connections::Connections),
        ControlStyle::ResourceBlocks => Ok(&blocks::Blocks),
        ControlStyle::ReadOnly => Err(DriverError::cannot_tell(format!(
            "{} is only shown, and can't be changed",
            unit.address
        ))),
    }
}

fn conflict(message: String) -> DriverError {
    DriverError::new(ErrorKind::Conflict, message)
        .with_hint("discover again to see who holds what")
        .with_fault(FaultKind::Conflict)
}

fn too_busy(unit: &ControlPoint, port: &ControlPoint) -> DriverError {
    conflict(format!(
        "{} and {} were changed by somebody else {} times in a row, each time after they were read",
        unit.address,
        port.address,
        STALE_RETRIES + 1
    ))
}

fn told(bound: &Bound) -> String {
    match bound {
        Bound::Free => "free".into(),
        Bound::To { port_address } => format!("bound to {port_address}"),
        Bound::Several { port_addresses } => format!("bound to several: {}", port_addresses.join(", ")),
    }
}

/// What a list of hosts' ends says.
fn bound_to(mut ports: Vec<String>) -> Bound {
    ports.sort();
    ports.dedup();
    match ports.len() {
        0 => Bound::Free,
        1 => Bound::To {
            port_address: ports.remove(0),
        },
        _ => Bound::Several {
            port_addresses: ports,
        },
    }
}

/// A link, as it is sent.
#[derive(Debug, Clone, Serialize)]
struct Link<'a> {
    #[serde(rename = "@odata.id")]
    odata_id: &'a str,
}

fn link(odata_id: &str) -> Link<'_> {
    Link { odata_id }
}
