//! Drivers for Redfish services.

use super::endpoint_files::EndpointFiles;
use crate::access::read_password;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::stop::Stop;
use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_redfish::client::{
    Auth, Client, Endpoint, Error, ErrorKind, Limits, NotSent, Refusals, Secret, Tls, TlsFault, Transport,
};
use poolwright_redfish::southbound::RedfishDriver;
pub use poolwright_redfish::southbound::hides_machines;
use poolwright_redfish::southbound::record::{self, Manifest, RecordError};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Pins, Trust};
use poolwright_terminal::manager::{fingerprint, read_authority};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

#[cfg(test)]
mod tests;

/// Connects to Redfish services. Endpoints that are believed by the same rule share their connections; whoever
/// connects to one again goes on counting where its credentials were refused before.
#[derive(Default)]
pub struct RedfishConnector {
    /// Requests under way at once at one endpoint; what suits a BMC, if `None`.
    pub concurrency: Option<usize>,
    /// Files that endpoints may name.
    pub(super) files: EndpointFiles,
    transports: Mutex<Vec<(Tls, Transport)>>,
    /// By address and account: the password that was tried last, and how often it was refused.
    refused: Mutex<BTreeMap<(Url, String), (Secret, Refusals)>>,
}

impl RedfishConnector {
    pub fn with_concurrency(concurrency: Option<usize>) -> Self {
        Self {
            concurrency,
            ..Self::default()
        }
    }

    /// One whose endpoints may name these files.
    pub fn reading(files: EndpointFiles) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// Connects and logs in.
    pub async fn driver(&self, spec: &EndpointSpec) -> Result<RedfishDriver, DriverError> {
        let endpoint = self.endpoint(spec).map_err(as_driver_error)?;
        let transport = self.transport(&endpoint).map_err(as_driver_error)?;
        RedfishDriver::connect_over(spec.id.clone(), endpoint, transport).await
    }

    /// The address with everything that is needed to speak there. Fails where files or addresses are wrong;
    /// nothing is sent yet.
    pub fn endpoint(&self, spec: &EndpointSpec) -> Result<Endpoint, Failure> {
        let limits = self
            .concurrency
            .map_or_else(Limits::default, Limits::with_concurrency);
        let mut endpoint = Endpoint::new(&spec.url)
            .map_err(failure)?
            .tls(believed(&spec.trust, &self.files)?)
            .limits(limits);
        endpoint.insecure_http = spec.insecure_http;
        endpoint.check().map_err(failure)?;
        if let Some(username) = &spec.username {
            let password = Secret::new(password(spec, &self.files)?);
            endpoint.refusals = self.refusals(endpoint.base(), username, &password);
            endpoint = endpoint.auth(Auth::session(username, password));
        }
        Ok(endpoint)
    }

    /// Fails where the endpoint names a file that is not read for endpoints.
    pub(super) fn admits(&self, spec: &EndpointSpec) -> Result<(), Failure> {
        let authority = match &spec.trust {
            Trust::CaFile(file) => Some(file),
            _ => None,
        };
        let mut named = spec.password_file.iter().chain(authority);
        named.try_for_each(|file| self.files.permitted(Path::new(file)).map(drop))
    }

    /// The count of refusals of an account. Another password is a new try.
    fn refusals(&self, base: &Url, username: &str, password: &Secret) -> Refusals {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let account = (base.clone(), username.to_owned());
        let (tried, refusals) = refused
            .entry(account)
            .or_insert_with(|| (password.clone(), Refusals::default()));
        if tried != password {
            (*tried, *refusals) = (password.clone(), Refusals::default());
        }
        refusals.clone()
    }

    fn transport(&self, endpoint: &Endpoint) -> Result<Transport, Failure> {
        if endpoint.base().scheme() == "http" {
            return Transport::for_endpoint(endpoint).map_err(failure);
        }
        let mut known = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, transport)) = known.iter().find(|(tls, _)| *tls == endpoint.tls) {
            return Ok(transport.clone());
        }
        let transport = Transport::for_endpoint(endpoint).map_err(failure)?;
        known.push((endpoint.tls.clone(), transport.clone()));
        Ok(transport)
    }
}

#[async_trait]
impl Connector for RedfishConnector {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let driver = Arc::new(self.driver(spec).await?);
        Ok(Connected {
            fabric: driver.clone(),
            host_side: driver,
        })
    }

    fn allow_one_more_try(&self, spec: &EndpointSpec) {
        // Where it can't even be read, nothing is sent either, and connecting says why.
        if let Ok(endpoint) = self.endpoint(spec) {
            endpoint.refusals.allow_one_more();
        }
    }
}

/// As it was told, or from its file.
fn password(spec: &EndpointSpec, files: &EndpointFiles) -> Result<String, Failure> {
    match (&spec.password, &spec.password_file) {
        (Some(password), _) => Ok(password.reveal().to_owned()),
        (None, Some(file)) => read_password(&files.permitted(Path::new(file))?),
        (None, None) => Err(
            Failure::usage(format!("{}: an account is given, and no password", spec.id))
                .with_hint("give --password-file FILE with it"),
        ),
    }
}

pub(super) fn as_driver_error(failure: Failure) -> DriverError {
    let error = DriverError::no_effect(failure.message);
    match failure.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn believed(trust: &Trust, files: &EndpointFiles) -> Result<Tls, Failure> {
    Ok(match trust {
        Trust::System => Tls::SystemRoots,
        Trust::CaPem(text) => Tls::Ca(text.clone().into_bytes()),
        Trust::CaFile(file) => {
            let path = files.permitted(Path::new(file))?;
            Tls::Ca(read_authority(&path)?.into_bytes())
        }
        Trust::Pinned(Pins::One(pin)) => Tls::Pinned(fingerprint(pin)?),
        Trust::Pinned(Pins::Two([one, next])) => Tls::PinnedEither(fingerprint(one)?, fingerprint(next)?),
        Trust::InsecureAnyone => Tls::Insecure,
    })
}

/// An error of the Redfish client as people see it.
fn failure(error: Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::NotSent(NotSent::BadAddress(_) | NotSent::PlainHttp)
        | ErrorKind::Tls(TlsFault::BadCa(_)) => ExitCode::Usage,
        // A service that starts or stops hangs up: a retry may help.
        ErrorKind::Tls(TlsFault::HungUp(_)) => ExitCode::Unavailable,
        ErrorKind::CredentialsRefused { .. } | ErrorKind::Tls(_) => ExitCode::Authentication,
        _ if matches!(error.status(), Some(401 | 403)) => ExitCode::Authentication,
        _ => ExitCode::Unavailable,
    };
    Failure::new(code, error.to_string()).with_hint(error.hint())
}

/// Copies what a service shows, redacted, into a new folder.
pub async fn record(
    connector: &RedfishConnector,
    spec: &EndpointSpec,
    folder: &Path,
    today: jiff::civil::Date,
    progress: &dyn poolwright_driver::Progress,
    stop: &Stop,
) -> Result<Manifest, Failure> {
    let client = Client::connect(connector.endpoint(spec)?);
    let client = stop.or_soon(client).await?.map_err(failure)?;
    let recorded = stop.or(record::record(&client, folder, today, progress)).await;
    let closing = async {
        if let Err(error) = client.close().await {
            tracing::warn!("the session could not be deleted: {error}");
        }
    };
    stop.goodbye(closing).await;
    recorded?.map_err(|error| {
        let (code, hint) = match &error {
            RecordError::NotEmpty(_) => (ExitCode::Usage, "give a folder that does not exist yet"),
            RecordError::Unreadable(_) => (
                ExitCode::Unavailable,
                "check the account: it must be allowed to read",
            ),
            RecordError::Io { .. } => (ExitCode::Generic, "check the folder, who owns it, and the disk"),
        };
        Failure::new(code, error.to_string()).with_hint(hint)
    })
}
