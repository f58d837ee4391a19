//! The passwords of endpoints: sealed in the store, so that every manager of it can log in at an endpoint that was
//! added at another, and whoever reads the store or a backup learns nothing.
//!
//! What is sealed is bound to the account, the address and the name of its endpoint: a password is never sent to
//! another address than the one that it was given for.

use super::{Composer, EndpointTest, may_log_in, rotating};
use crate::endpoint::{Endpoint, EndpointSpec, Password};
use crate::error::{ErrorCode, ServiceError};
use crate::sealed::{Keys, Sealed};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read, read_all};
use serde::Deserialize;

/// Another account at an endpoint, or another password.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The account that it has already, if `None`.
    #[serde(default)]
    pub username: Option<String>,
    /// To be kept sealed.
    #[serde(default)]
    pub password: Option<Password>,
    /// Or its file in the manager's directory for such files (`serve --endpoint-files`).
    #[serde(default)]
    pub password_file: Option<String>,
}

/// Under which name an endpoint's password is sealed.
pub(super) fn name_of(spec: &EndpointSpec) -> String {
    let username = spec.username.as_deref().unwrap_or_default();
    format!("password of {username} at {} for endpoint {}", spec.url, spec.id)
}

/// How many bytes of a password are sent to a service.
const LONGEST: usize = 1024;

/// What is asked for can be kept.
pub(super) fn check(spec: &EndpointSpec) -> Result<(), ServiceError> {
    let refused = |why: &str, hint: &str| {
        let message = format!("endpoint {}: {why}", spec.id);
        Err(ServiceError::bad_request(message).with_hint(hint))
    };
    if spec.sealed.is_some() {
        return refused(
            "sealed is told by the manager, and not to it",
            "give the password itself",
        );
    }
    match (&spec.username, &spec.password, &spec.password_file) {
        (_, Some(_), Some(_)) => refused("a password and a file with it are given", "give one of them"),
        (None, Some(_), None) | (None, None, Some(_)) => {
            refused("a password is given, and no account", "give its username, too")
        }
        (Some(_), None, None) => refused(
            "an account is given, and no password",
            "give its password, or a file in the directory of serve --endpoint-files",
        ),
        (_, Some(password), _) if password.reveal().is_empty() || password.reveal().len() > LONGEST => {
            refused(
                "the password is empty or too long",
                "a password has 1 to 1024 bytes",
            )
        }
        _ => Ok(()),
    }
}

/// With its password, where that is kept sealed: what a driver needs.
pub(crate) async fn unsealed(
    store: &dyn Store,
    keys: &Keys,
    spec: &EndpointSpec,
) -> Result<Result<EndpointSpec, Unopened>, StoreError> {
    if spec.sealed.is_none() {
        return Ok(Ok(spec.clone()));
    }
    let name = name_of(spec);
    let found = read::<Sealed>(store, &name).await?;
    let opened = found.and_then(|found| keys.opened(&found.value));
    Ok(match opened {
        Some(text) => Ok(EndpointSpec {
            password: Some(Password::new(text)),
            ..spec.clone()
        }),
        None => Err(Unopened {
            name,
            endpoint: spec.id.clone(),
        }),
    })
}

/// A password that this manager can't read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {name} can't be opened with the keys that this manager has, so nothing is sent there")]
pub(crate) struct Unopened {
    name: String,
    endpoint: ControlEndpointId,
}

impl Unopened {
    pub fn hint(&self) -> String {
        format!(
            "start it with the --cluster-key-file of the manager that was given the password, or with DIR/secret-key of \
             the data directory that was backed up; or give the password again: poolwright endpoint set {} \
             --endpoint-password-file FILE",
            self.endpoint
        )
    }
}

impl From<Unopened> for ServiceError {
    fn from(unopened: Unopened) -> Self {
        let hint = unopened.hint();
        Self::new(ErrorCode::Conflict, unopened.to_string()).with_hint(hint)
    }
}

impl Composer {
    /// What a driver needs to log in there.
    pub(super) async fn ready_to_connect(&self, spec: &EndpointSpec) -> Result<EndpointSpec, ServiceError> {
        let refused = |error| ServiceError {
            code: ErrorCode::Conflict,
            ..error
        };
        self.connector.admits(spec).map_err(refused)?;
        may_log_in(self.store.as_ref(), &spec.id).await??;
        Ok(unsealed(self.store.as_ref(), &self.options.keys, spec).await??)
    }

    /// What is kept of an endpoint: its password goes into the batch, sealed, and is not in what is returned.
    pub(super) fn seal_password(
        &self,
        spec: &EndpointSpec,
        batch: &mut Batch,
    ) -> Result<EndpointSpec, ServiceError> {
        let mut kept = spec.clone();
        let Some(password) = kept.password.take() else {
            return Ok(kept);
        };
        let key = self.options.keys.sealing().ok_or_else(|| {
            let message = format!(
                "the password for endpoint {} can't be kept: this manager has no key to seal it with",
                spec.id
            );
            ServiceError::new(ErrorCode::Conflict, message).with_hint(
                "start it with --cluster-key-file, or give a file in the directory of serve --endpoint-files",
            )
        })?;
        batch.put(&key.seal(&name_of(&kept), password.reveal())?)?;
        kept.sealed = Some(self.new_id());
        Ok(kept)
    }

    /// Forgets the password of an endpoint that is no more, or has another one.
    pub(super) fn forget_password(spec: &EndpointSpec, batch: &mut Batch) {
        if spec.sealed.is_some() {
            batch.delete(Sealed::KIND, &name_of(spec));
        }
    }

    /// Logs in with other credentials, looks once, and keeps them. Those that are refused there are not kept.
    #[crate::boxed]
    pub async fn set_credentials(
        &self,
        id: &ControlEndpointId,
        credentials: Credentials,
    ) -> Result<EndpointTest, ServiceError> {
        let Versioned {
            value: kept,
            revision,
        } = self.kept_endpoint(id).await?;
        let wanted = EndpointSpec {
            username: credentials.username.or_else(|| kept.spec.username.clone()),
            password: credentials.password,
            sealed: None,
            password_file: credentials.password_file,
            ..kept.spec.clone()
        };
        check(&wanted)?;
        self.connector.admits(&wanted)?;
        self.connector.allow_one_more_try(&wanted);
        let connected = self.connector.connect(&wanted).await?;
        let observed = self.observe(&connected).await;
        connected.fabric.close().await;
        let tested = EndpointTest::of(&observed?, kept.standing);
        let mut batch = Batch::new();
        batch.expect(Endpoint::KIND, id.as_str(), Some(revision));
        let spec = self.seal_password(&wanted, &mut batch)?;
        if spec.sealed.is_none() || name_of(&spec) != name_of(&kept.spec) {
            Self::forget_password(&kept.spec, &mut batch);
        }
        // Whichever password it was to have: it has this one.
        rotating::forget(&kept.spec, &mut batch);
        batch.put(&Endpoint { spec, ..kept })?;
        self.store.commit(batch).await?;
        // Whoever needs it next logs in with what is kept now, here and at other managers.
        self.connections.drop_driver(id).await;
        Ok(tested)
    }

    /// The names of stored secrets that were sealed with another key than this manager has.
    #[crate::boxed]
    pub async fn unopened_secrets(&self) -> Result<Vec<String>, ServiceError> {
        let all = read_all::<Sealed>(self.store.as_ref()).await?;
        let unopened = all
            .iter()
            .filter(|found| self.options.keys.opened(&found.value).is_none());
        Ok(unopened.map(|found| found.value.id().to_owned()).collect())
    }

    /// Seals with the cluster's key what this manager had sealed for itself alone.
    pub(super) async fn share_secrets(&self) -> Result<(), ServiceError> {
        if self.options.keys.cluster.is_none() {
            return Ok(());
        }
        for Versioned { value, revision } in read_all::<Sealed>(self.store.as_ref()).await? {
            let Some(shared) = self.options.keys.shared(&value)? else {
                continue;
            };
            let mut batch = Batch::new();
            batch
                .expect(Sealed::KIND, value.id(), Some(revision))
                .put(&shared)?;
            match self.store.commit(batch).await {
                // Somebody gave another one meanwhile.
                Err(StoreError::Conflict { .. }) => {}
                result => drop(result?),
            }
        }
        Ok(())
    }
}
