//! Another password at an endpoint, drawn here and told to nobody: sealed in the store before the endpoint is asked,
//! tried by a login, and only then the one that counts. Whatever is cut off in between is carried on by what is kept.
//!
//! Invariants:
//! * Both passwords are kept from before the endpoint is asked until a login has shown which one it has.
//! * Where several managers share the store it is done by the one that is in charge of the endpoint: each commit expects
//!   that.
//! * While that is not known nobody but this logs in there, and it counts each login before it is sent: after three
//!   that may have been refused nothing is sent any more, so that no account is locked.

use super::credentials::name_of;
use super::{Composer, Options};
use crate::endpoint::{Connected, Endpoint, EndpointSpec, Password, Standing};
use crate::error::{ErrorCode, ServiceError};
use crate::sealed::Sealed;
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_executor::Charge;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Expectation, Store, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Logins that may have been refused, of one change in all: services lock accounts after five, as a rule.
const MOST_REFUSALS: u32 = 3;
/// For asking an endpoint to take it.
const DEADLINE: Duration = Duration::from_secs(60);
/// Some take a moment to believe their own new password.
const PAUSE: Duration = Duration::from_secs(5);
/// What was left half done is looked for so often,
const MINUTELY: Duration = Duration::from_secs(60);
/// and carried on once nobody has touched it for so long.
const LEFT: SignedDuration = SignedDuration::from_mins(2);
/// For what a manager sent that died to be over,
const OVER: Duration = Duration::from_secs(120);
/// and for the next look whether it is.
const TEND: Duration = Duration::from_millis(500);
/// IPMI takes 20 characters at most.
const LENGTH: usize = 20;

/// A change of an endpoint's password that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rotation {
    endpoint: ControlEndpointId,
    /// When something was done about it last.
    touched: Timestamp,
    /// The endpoint is asked, or may have been: which password it has is not known.
    asked: bool,
    /// Logins that were refused, or may have been.
    refusals: u32,
}

impl Stored for Rotation {
    const KIND: &'static str = "rotation";
    fn id(&self) -> &str {
        self.endpoint.as_str()
    }
}

/// A password was changed, and works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rotated {
    pub endpoint: ControlEndpointId,
    pub username: String,
    pub at: Timestamp,
}

/// Nobody logs in while it is not known which password an endpoint has.
pub(crate) async fn may_log_in(
    store: &dyn Store,
    id: &ControlEndpointId,
) -> Result<Result<(), DriverError>, StoreError> {
    let found = read::<Rotation>(store, id.as_str()).await?;
    Ok(match found {
        Some(found) if found.value.asked => Err(DriverError::no_effect(format!(
            "the password of endpoint {id} is being changed, and which one it has is not known yet"
        ))
        .with_hint(format!("carry it on: poolwright endpoint rotate-password {id}"))),
        _ => Ok(()),
    })
}

/// Under which name the password is sealed that an endpoint is to have.
fn new_name_of(spec: &EndpointSpec) -> String {
    format!("new {}", name_of(spec))
}

/// Forgets a change of an endpoint's password, with what it was to be.
pub(super) fn forget(spec: &EndpointSpec, batch: &mut Batch) {
    batch
        .delete(Rotation::KIND, spec.id.as_str())
        .delete(Sealed::KIND, &new_name_of(spec));
}

/// 20 characters with capitals, small letters, digits and a sign, each as likely as any other.
fn draw() -> Result<Password, ServiceError> {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    loop {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("no password can be drawn: {error}"))
        })?;
        let text: String = bytes
            .iter()
            .map(|byte| char::from(SIGNS[usize::from(byte % 64)]))
            .collect();
        let has = |is: fn(&char) -> bool| text.chars().any(|c| is(&c));
        let all_kinds = has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit)
            && has(char::is_ascii_punctuation);
        if all_kinds {
            return Ok(Password::new(text));
        }
    }
}

type Place = Mutex<Option<ControlEndpointId>>;

fn locked(place: &Place) -> std::sync::MutexGuard<'_, Option<ControlEndpointId>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint stays with this manager until this is dropped, also where nobody waits any more.
struct Stays<'p>(&'p Place);

impl<'p> Stays<'p> {
    fn at(place: &'p Place, id: &ControlEndpointId) -> Self {
        *locked(place) = Some(id.clone());
        Self(place)
    }
}

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        *locked(self.0) = None;
    }
}

/// One change, as it is carried on.
struct Underway {
    kept: Versioned<Endpoint>,
    rotation: Rotation,
    revision: u64,
    new: Password,
    /// What an endpoint may have been asked before may still come true.
    asked_before: bool,
}

impl Underway {
    fn id(&self) -> &ControlEndpointId {
        &self.kept.value.spec.id
    }

    fn username(&self) -> &str {
        self.kept.value.spec.username.as_deref().unwrap_or_default()
    }
}

impl Composer {
    /// Gives an endpoint another password, or carries on where that was cut off.
    #[crate::boxed]
    pub async fn rotate_password(&self, id: &ControlEndpointId) -> Result<Rotated, ServiceError> {
        let _one_at_a_time = self.rotating.lock().await;
        let _stays_here = Stays::at(&self.rotating_at, id);
        self.may_rotate_here(id).await?;
        let kept = self.kept_endpoint(id).await?;
        let under_way = match read::<Rotation>(self.store.as_ref(), id.as_str()).await? {
            Some(found) => self.rotation_found(kept, found).await?,
            None => self.begin_rotation(kept).await?,
        };
        self.carry_on_rotation(under_way).await
    }

    /// Carries on what was left half done, for as long as it is polled.
    pub(crate) async fn keep_rotating(&self) {
        loop {
            tokio::time::sleep(MINUTELY).await;
            let all = read_all::<Rotation>(self.store.as_ref())
                .await
                .unwrap_or_default();
            for Versioned { value, .. } in all {
                let left = self.clock.now().duration_since(value.touched) >= LEFT;
                if !left || value.refusals >= MOST_REFUSALS || self.in_charge(&value.endpoint).is_err() {
                    continue;
                }
                if let Err(error) = self.rotate_password(&value.endpoint).await {
                    tracing::warn!(endpoint = %value.endpoint, "its password is not changed yet: {error}");
                }
            }
        }
    }

    /// Waits, where this manager is in charge of the endpoint, until nothing of the one before is on its way.
    async fn may_rotate_here(&self, id: &ControlEndpointId) -> Result<(), ServiceError> {
        let until = Instant::now() + OVER;
        loop {
            let has_it = self
                .leases
                .as_ref()
                .is_some_and(|leases| leases.tenure(id).is_some());
            match self.in_charge(id) {
                Err(_) if has_it && Instant::now() < until => tokio::time::sleep(TEND).await,
                known => return known.map(drop),
            }
        }
    }

    /// What holds for as long as this manager is in charge of the endpoint; an error if it is not. Nothing where there
    /// are no others.
    pub(super) fn in_charge(&self, id: &ControlEndpointId) -> Result<Option<Expectation>, ServiceError> {
        let Some(leases) = &self.leases else {
            return Ok(None);
        };
        match leases.tenure(id) {
            Some(tenure) if tenure.from.is_none_or(|from| from <= Instant::now()) => Ok(tenure.proof),
            _ => {
                let message = format!("{} holds the lease of endpoint {id}", leases.holder(id));
                Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint("ask that one (--server); or try again in a minute, if it is gone"))
            }
        }
    }

    /// A commit that only whoever is in charge of the endpoint can make.
    fn batch_in_charge(&self, id: &ControlEndpointId) -> Result<Batch, ServiceError> {
        let mut batch = Batch::new();
        if let Some(proof) = self.in_charge(id)? {
            batch.expect(&proof.kind, &proof.id, proof.revision);
        }
        Ok(batch)
    }

    /// The endpoint whose password is changed here.
    pub(super) fn rotating_at(&self) -> Option<ControlEndpointId> {
        locked(&self.rotating_at).clone()
    }

    async fn rotation_found(
        &self,
        kept: Versioned<Endpoint>,
        found: Versioned<Rotation>,
    ) -> Result<Underway, ServiceError> {
        let name = new_name_of(&kept.value.spec);
        let sealed = read::<Sealed>(self.store.as_ref(), &name).await?;
        let opened = sealed.and_then(|sealed| self.options.keys.opened(&sealed.value));
        let Some(new) = opened else {
            let message = format!("the {name} can't be opened with the keys that this manager has");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("ask the manager that began it, or start this one with its --cluster-key-file"));
        };
        Ok(Underway {
            kept,
            asked_before: found.value.asked,
            rotation: found.value,
            revision: found.revision,
            new: Password::new(new),
        })
    }

    /// Keeps what is wanted, before anything is sent.
    async fn begin_rotation(&self, kept: Versioned<Endpoint>) -> Result<Underway, ServiceError> {
        let spec = &kept.value.spec;
        may_rotate(&kept.value, &self.options)?;
        self.may_change(&spec.id).await?;
        self.nobody_works_at(&spec.id).await?;
        let new = draw()?;
        let rotation = Rotation {
            endpoint: spec.id.clone(),
            touched: self.clock.now(),
            asked: false,
            refusals: 0,
        };
        let mut batch = self.batch_in_charge(&spec.id)?;
        if let Some(key) = self.options.keys.sealing() {
            batch.put(&key.seal(&new_name_of(spec), new.reveal())?)?;
        }
        batch
            .expect(Rotation::KIND, rotation.id(), None)
            .expect(Endpoint::KIND, spec.id.as_str(), Some(kept.revision))
            .put(&rotation)?;
        let revision = self.store.commit(batch).await?.revision;
        Ok(Underway {
            kept,
            rotation,
            revision,
            new,
            asked_before: false,
        })
    }

    async fn carry_on_rotation(&self, mut under_way: Underway) -> Result<Rotated, ServiceError> {
        let id = under_way.id().clone();
        if !under_way.rotation.asked {
            // Which password it has is known: as ever, and so is who is connected.
            let reached = self.connections.reach(&id).await;
            let reached =
                reached.map_err(|error| ServiceError::new(ErrorCode::Unavailable, error.to_string()))?;
            let connected = reached.ok_or_else(|| ServiceError::not_found("endpoint", id.as_str()))?;
            self.ask_to_take(&mut under_way, &connected).await?;
        }
        loop {
            if let Some(connected) = self.try_password(&mut under_way, true).await? {
                connected.fabric.close().await;
                return self.settle_rotation(under_way).await;
            }
            let Some(connected) = self.try_password(&mut under_way, false).await? else {
                continue;
            };
            tokio::time::sleep(PAUSE).await;
            let asked = self.ask_to_take(&mut under_way, &connected).await;
            connected.fabric.close().await;
            asked?;
        }
    }

    /// Asks the endpoint to take the new password. An error is the end of it: it certainly has not.
    async fn ask_to_take(&self, under_way: &mut Underway, connected: &Connected) -> Result<(), ServiceError> {
        self.may_change(under_way.id()).await?;
        under_way.rotation.asked = true;
        self.note_rotation(under_way).await?;
        let (username, new) = (under_way.username().to_owned(), under_way.new.reveal());
        let asked = connected.fabric.change_password(&username, new, DEADLINE).await;
        let asked_before = std::mem::replace(&mut under_way.asked_before, true);
        match asked {
            Ok(()) => Ok(()),
            Err(error) if error.kind == ErrorKind::OutcomeUnknown || asked_before => {
                // A login tells.
                tracing::warn!(endpoint = %under_way.id(), "whether it took its new password is not known: {error}");
                Ok(())
            }
            Err(error) => {
                let mut batch = self.batch_in_charge(under_way.id())?;
                batch.expect(Rotation::KIND, under_way.id().as_str(), Some(under_way.revision));
                forget(&under_way.kept.value.spec, &mut batch);
                self.store.commit(batch).await?;
                Err(ServiceError::from(error))
            }
        }
    }

    /// Tries the new password, or the old one. `None`: it is refused.
    async fn try_password(
        &self,
        under_way: &mut Underway,
        with_new: bool,
    ) -> Result<Option<Connected>, ServiceError> {
        if under_way.rotation.refusals >= MOST_REFUSALS {
            return Err(stopped(under_way.id()));
        }
        // Before it is sent: a manager that dies meanwhile must not begin to count anew.
        under_way.rotation.refusals += 1;
        self.note_rotation(under_way).await?;
        let kept = &under_way.kept.value.spec;
        let spec = match with_new {
            true => EndpointSpec {
                password: Some(under_way.new.clone()),
                sealed: None,
                ..kept.clone()
            },
            false => super::credentials::unsealed(self.store.as_ref(), &self.options.keys, kept).await??,
        };
        match self.connector.connect(&spec).await {
            Ok(connected) => {
                under_way.rotation.refusals -= 1;
                Ok(Some(connected))
            }
            Err(error) if error.kind == ErrorKind::CredentialsRefused => Ok(None),
            Err(error) => {
                // It was not refused: it could not be asked.
                under_way.rotation.refusals -= 1;
                self.note_rotation(under_way).await?;
                let id = under_way.id();
                let message =
                    format!("endpoint {id} can't be logged in to, with its new password or its old: {error}");
                let hint = format!(
                    "it is tried again every few minutes; or now: poolwright endpoint rotate-password {id}"
                );
                Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint(hint))
            }
        }
    }

    async fn note_rotation(&self, under_way: &mut Underway) -> Result<(), ServiceError> {
        under_way.rotation.touched = self.clock.now();
        let mut batch = self.batch_in_charge(under_way.id())?;
        batch
            .expect(Rotation::KIND, under_way.rotation.id(), Some(under_way.revision))
            .put(&under_way.rotation)?;
        under_way.revision = self.store.commit(batch).await?.revision;
        Ok(())
    }

    /// The endpoint has the new password: from now on it is the one that counts.
    async fn settle_rotation(&self, under_way: Underway) -> Result<Rotated, ServiceError> {
        let (id, username) = (under_way.id().clone(), under_way.username().to_owned());
        let Versioned { value, revision } = under_way.kept;
        let wanted = EndpointSpec {
            password: Some(under_way.new),
            sealed: None,
            ..value.spec.clone()
        };
        let mut batch = self.batch_in_charge(&id)?;
        batch.expect(Endpoint::KIND, id.as_str(), Some(revision)).expect(
            Rotation::KIND,
            id.as_str(),
            Some(under_way.revision),
        );
        let spec = self.seal_password(&wanted, &mut batch)?;
        forget(&spec, &mut batch);
        batch.put(&Endpoint { spec, ..value })?;
        self.store.commit(batch).await?;
        self.connections.drop_driver(&id).await;
        let at = self.clock.now();
        tracing::info!(endpoint = %id, "its password was changed");
        Ok(Rotated {
            endpoint: id,
            username,
            at,
        })
    }
}

fn may_rotate(endpoint: &Endpoint, options: &Options) -> Result<(), ServiceError> {
    let id = &endpoint.spec.id;
    let refused =
        |why: String, hint: String| Err(ServiceError::new(ErrorCode::Conflict, why).with_hint(hint));
    if endpoint.spec.sealed.is_none() || options.keys.sealing().is_none() {
        return refused(
            format!("the manager keeps no password for endpoint {id}, so it can keep no other"),
            format!(
                "give it: poolwright endpoint set {id} --endpoint-username NAME --endpoint-password-file FILE"
            ),
        );
    }
    if endpoint.standing == Standing::Observed {
        return refused(
            format!("endpoint {id} is only observed, so nothing is changed there"),
            format!("adopt it first: poolwright endpoint adopt {id} --yes"),
        );
    }
    Ok(())
}

fn stopped(id: &ControlEndpointId) -> ServiceError {
    let message = format!(
        "endpoint {id} has refused its new password and its old, {MOST_REFUSALS} times in all: nothing more is sent there, \
         so that the account is not locked"
    );
    let hint = format!(
        "set a password at the service by other means, then: poolwright endpoint set {id} --endpoint-password-file FILE"
    );
    ServiceError::new(ErrorCode::CredentialsRefused, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_long_of_all_kinds_and_never_the_same() {
        let drawn: std::collections::BTreeSet<String> =
            (0..100).map(|_| draw().unwrap().reveal().to_owned()).collect();
        assert_eq!(drawn.len(), 100);
        for text in drawn {
            assert_eq!(text.len(), LENGTH);
            assert!(
                text.contains(['-', '_']) && text.contains(|c: char| c.is_ascii_digit()),
                "{text}"
            );
        }
    }
}
