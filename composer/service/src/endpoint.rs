//! The management services that the manager asks and tells: which ones, and how to reach them.

use crate::agent::{AgentSpec, ConnectedAgent};
use crate::composer::Silent;
use crate::error::ServiceError;
use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_driver::{DriverError, Fabric, HostSide};
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::Stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How to reach a management service. Its password is kept sealed in the store, for every manager of it; or
/// `password_file` says where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointSpec {
    #[schemars(with = "String")]
    pub id: ControlEndpointId,
    /// `https://address[:port]`; the service root is looked for under it.
    pub url: String,
    #[serde(default)]
    pub username: Option<String>,
    /// As whoever adds the endpoint tells it. It is written nowhere but sealed.
    #[serde(default, skip_serializing)]
    pub password: Option<Password>,
    /// Which password is kept sealed for it: another one has another name. Told by managers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
    /// A file on the manager's machine, readable by the manager only: instead of a password that is kept.
    #[serde(default)]
    pub password_file: Option<String>,
    #[serde(default)]
    pub trust: Trust,
    /// Plain http to another machine, which anybody on the way can read and change.
    #[serde(default)]
    pub insecure_http: bool,
}

/// Host and port.
pub type Address = (String, u16);

impl EndpointSpec {
    /// Where these are the same, it is one service. `None` where the URL can't be understood.
    pub fn address(&self) -> Option<Address> {
        let url = url::Url::parse(&self.url).ok()?;
        Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
    }

    /// Whether nothing differs but where files lie: of the password, and of the authority that is believed.
    pub fn differs_in_files_alone(&self, other: &Self) -> bool {
        let without_files = |spec: &Self| Self {
            password_file: spec.password_file.as_ref().map(|_| String::new()),
            trust: match &spec.trust {
                Trust::CaFile(_) => Trust::CaFile(String::new()),
                trust => trust.clone(),
            },
            ..spec.clone()
        };
        self != other && without_files(self) == without_files(other)
    }
}

/// A password in memory. It is not shown, and can't be written down as it is.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// To send it where it belongs, or to seal it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Whose certificate is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The machine's own certificate authorities.
    #[default]
    System,
    /// These certificate authorities, in PEM form: every manager of the store believes them.
    CaPem(String),
    /// Certificate authorities in a PEM file on the manager's machine.
    CaFile(String),
    /// Exactly the certificate with this SHA-256 fingerprint, in hexadecimal digits; or one of two.
    Pinned(Pins),
    /// Anybody's. For tests on a closed bench only.
    InsecureAnyone,
}

/// Fingerprints of certificates. The second is pinned in advance, while a certificate is about to be renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "what belongs there: a fingerprint, or a list of two")]
pub enum Pins {
    One(String),
    Two([String; 2]),
}

/// An endpoint as the manager keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    #[serde(flatten)]
    pub spec: EndpointSpec,
    pub added: Timestamp,
    #[serde(default = "Standing::before")]
    pub standing: Standing,
    #[serde(default)]
    pub repair: Repair,
    /// Who answered there last, and how far driving it can be relied upon. Not kept: it is as the last look
    /// saw it, and `None` until there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<DriverLabel>,
    /// It did not answer when it was asked last. Not kept either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Silent>,
    /// When it was read last who is bound where. Not kept either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Timestamp>,
    /// That is too long ago to rest a change on, or it does not answer. Not kept either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// Whether the manager may change anything at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "EndpointStanding")]
pub enum Standing {
    /// It is looked at, and nothing else, until somebody adopts it.
    Observed,
    /// The manager drives it. What others have bound there stays theirs all the same.
    Adopted,
}

/// What is done about a GPU that a composition holds and that is bound to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// It is told, and nothing else: whoever changed the fabric may have meant it.
    #[default]
    Report,
    /// It is bound again.
    Rebind,
}

impl Standing {
    /// Of endpoints that were kept before this was asked: they were driven.
    fn before() -> Self {
        Self::Adopted
    }
}

impl Stored for Endpoint {
    const KIND: &'static str = "endpoint";
    fn id(&self) -> &str {
        self.spec.id.as_str()
    }
}

/// Both sides of the metal, as far as one endpoint has them.
#[derive(Clone)]
pub struct Connected {
    pub fabric: Arc<dyn Fabric>,
    pub host_side: Arc<dyn HostSide>,
}

/// Makes drivers. The wiring hands one in, so that the service names no concrete driver.
#[async_trait]
pub trait Connector: Send + Sync {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError>;

    /// The way to an agent; nothing need be sent yet.
    async fn connect_agent(&self, spec: &AgentSpec) -> Result<ConnectedAgent, DriverError> {
        let message = format!(
            "{} can't be reached: this connector knows no agents",
            spec.endpoint
        );
        Err(DriverError::no_effect(message))
    }

    /// Somebody asks by name: credentials that were refused so often that they are sent no more may be sent once
    /// more there.
    fn allow_one_more_try(&self, _spec: &EndpointSpec) {}
}

impl From<DriverError> for ServiceError {
    fn from(error: DriverError) -> Self {
        use crate::error::ErrorCode;
        use poolwright_driver::ErrorKind;
        let code = match error.kind {
            ErrorKind::NoEffect => ErrorCode::Unavailable,
            ErrorKind::CredentialsRefused => ErrorCode::CredentialsRefused,
            ErrorKind::Conflict => ErrorCode::Conflict,
            ErrorKind::OutcomeUnknown => ErrorCode::Indeterminate,
            ErrorKind::CannotTell => ErrorCode::BadRequest,
        };
        Self {
            hint: error.hint.clone(),
            ..Self::new(code, error.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As each earlier version of the tables has them; and one of today, which is read back as it is.
    #[test]
    fn endpoints_that_were_kept_by_earlier_versions_are_read() {
        let before_adopting = json!({
            "id": "box-1", "url": "https://box-1", "username": "admin", "password_file": "/etc/pw",
            "trust": {"ca-file": "/etc/ca.pem"}, "insecure_http": false, "added": "2026-03-01T00:00:00Z",
        });
        let mut before_sealing = before_adopting.clone();
        before_sealing["standing"] = json!("observed");
        before_sealing["repair"] = json!("rebind");
        for (kept, standing) in [
            (before_adopting, Standing::Adopted),
            (before_sealing, Standing::Observed),
        ] {
            let endpoint: Endpoint = serde_json::from_value(kept).unwrap();
            assert_eq!(endpoint.standing, standing);
            assert_eq!(endpoint.spec.password_file.as_deref(), Some("/etc/pw"));
            assert_eq!((&endpoint.spec.password, &endpoint.spec.sealed), (&None, &None));
            let again = serde_json::to_value(&endpoint).unwrap();
            assert_eq!(serde_json::from_value::<Endpoint>(again).unwrap(), endpoint);
        }
    }

    #[test]
    fn a_password_is_written_nowhere() {
        let told =
            json!({"id": "box-1", "url": "https://box-1", "username": "admin", "password": "very secret"});
        let spec: EndpointSpec = serde_json::from_value(told).unwrap();
        assert_eq!(spec.password.as_ref().unwrap().reveal(), "very secret");
        let written = serde_json::to_string(&spec).unwrap();
        assert!(!written.contains("secret"), "{written}");
        assert!(!format!("{spec:?}").contains("secret"), "{spec:?}");
    }
}
