//! The management services that the manager asks and tells: which ones, and how to reach them.

use crate::agent::{AgentSpec, ConnectedAgent};
use crate::composer::Silent;
use crate::error::ServiceError;
use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_driver::{DriverError, Fabric, HostSide};
use poolwright_model::address::nobodys;
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How to reach a management service. Its password is kept sealed in the store, for every manager of it; or
/// `password_file` names its file in the manager's directory for such files (`serve --endpoint-files`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EndpointSpec {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
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
    /// A file in the manager's directory for such files, instead of a password that is kept. A path outside of it is
    /// refused.
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

    /// Why the URL can't be the address of any service. `others` are schemes other than HTTP; their connectors check
    /// them.
    pub fn misaddressed(&self, others: &[&str]) -> Option<String> {
        let url = match url::Url::parse(&self.url) {
            Ok(url) => url,
            Err(error) => return Some(format!("the URL can't be understood: {error}")),
        };
        if others.contains(&url.scheme()) {
            return None;
        }
        let address: Option<IpAddr> = match url.host() {
            None => return Some("the URL names no host".to_owned()),
            Some(url::Host::Ipv4(ip)) => Some(ip.into()),
            Some(url::Host::Ipv6(ip)) => Some(ip.into()),
            Some(url::Host::Domain(_)) => None,
        };
        let is_here = match address {
            Some(ip) => ip.is_loopback(),
            None => url.domain() == Some("localhost"),
        };
        if let Some(what) = address.and_then(nobodys) {
            return Some(format!("the URL's host is {what}, and no management service's"));
        }
        let path = url.path().trim_end_matches('/');
        let wrong = match url.scheme() {
            "https" | "http" if !url.username().is_empty() || url.password().is_some() => {
                "the URL holds an account: give username and password apart from it"
            }
            "https" | "http" if !matches!(path, "" | "/redfish" | "/redfish/v1") || url.query().is_some() => {
                "a service is known by its host and port: leave out the path and what follows it"
            }
            "http" if !is_here && !self.insecure_http => {
                "the URL is plain http to another machine: the connection can be read and changed on the way"
            }
            "https" | "http" => return None,
            other => return Some(format!("the scheme of the URL is {other}, and not https")),
        };
        Some(wrong.to_owned())
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
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The machine's own certificate authorities.
    #[default]
    System,
    /// These certificate authorities, in PEM form: every manager of the store believes them.
    CaPem(String),
    /// Certificate authorities in a PEM file in the manager's directory for such files. A path outside of it is refused.
    CaFile(String),
    /// Exactly the certificate with this SHA-256 fingerprint, in hexadecimal digits; or one of two.
    Pinned(Pins),
    /// Anybody's. For tests on a closed bench only.
    InsecureAnyone,
}

/// Fingerprints of certificates. The second is pinned in advance, while a certificate is about to be renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "what belongs there: a fingerprint, or a list of two")]
pub enum Pins {
    One(String),
    Two([String; 2]),
}

/// An endpoint as the manager keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", schemars(rename = "EndpointStanding"))]
pub enum Standing {
    /// It is looked at, and nothing else, until somebody adopts it.
    Observed,
    /// The manager drives it. What others have bound there stays theirs all the same.
    Adopted,
}

/// What is done about a GPU that a composition holds and that is bound to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    /// Schemes of URLs that it takes beside those of HTTP.
    fn other_schemes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Refuses an endpoint before anything is read or sent, such as one with a file that this manager does not read for
    /// endpoints. [`Connector::connect`] checks stored endpoints again.
    fn admits(&self, _spec: &EndpointSpec) -> Result<(), ServiceError> {
        Ok(())
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
            ErrorKind::NoEffect if error.fault == FaultKind::Tls => ErrorCode::Untrusted,
            ErrorKind::NoEffect => ErrorCode::Unavailable,
            ErrorKind::CredentialsRefused => ErrorCode::CredentialsRefused,
            ErrorKind::Conflict => ErrorCode::Conflict,
            ErrorKind::OutcomeUnknown => ErrorCode::Indeterminate,
            ErrorKind::CannotTell => ErrorCode::BadRequest,
        };
        let unconnected = matches!(
            error.fault,
            FaultKind::Unreachable | FaultKind::Timeout | FaultKind::Tls | FaultKind::NotRedfish
        );
        Self {
            hint: error.hint.clone(),
            unconnected: unconnected && matches!(code, ErrorCode::Unavailable | ErrorCode::Untrusted),
            ..Self::new(code, error.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_url_by_which_nobody_can_be_reached_is_wrong_whoever_answers() {
        let wrong = |url: &str| {
            let spec = json!({ "id": "box-1", "url": url });
            serde_json::from_value::<EndpointSpec>(spec)
                .unwrap()
                .misaddressed(&["lab"])
        };
        for (url, says) in [
            ("not a url", "can't be understood"),
            ("", "can't be understood"),
            ("ftp://box-1", "the scheme of the URL is ftp"),
            ("data:text", "names no host"),
            ("https://user:pw@box-1", "holds an account"),
            ("https://user@box-1", "holds an account"),
            ("https://box-1/redfish?x", "leave out the path"),
            ("https://box-1/elsewhere", "leave out the path"),
            ("http://box-1", "plain http"),
            ("https://169.254.169.254", "link-local or metadata address"),
            ("https://0xa9fea9fe:8443", "link-local or metadata address"),
            ("https://[::ffff:169.254.0.17]", "link-local or metadata address"),
            ("https://[fe80::1]", "a link-local address"),
            ("https://[fd00:ec2::254]", "a metadata address"),
            ("https://100.100.100.200", "a metadata address"),
            ("https://168.63.129.16", "a metadata address"),
            ("https://0.0.0.0", "this network"),
            ("https://[::]", "an unspecified"),
            ("https://224.0.0.1", "a multicast address"),
            ("https://255.255.255.255", "a reserved or broadcast address"),
        ] {
            let told = wrong(url).unwrap_or_default();
            assert!(told.contains(says) && !told.contains("pw"), "{url}: {told}");
        }
        for url in [
            "https://box-1",
            "https://10.0.0.7:8443/redfish/v1/",
            "https://192.168.1.7",
            "https://172.16.0.7",
            "https://100.64.0.7",
            "https://[fd12::7]",
            "https://127.0.0.1:8443",
            "https://203.0.113.7",
            "http://127.0.0.1:1",
            "http://[::1]:1/redfish",
            "http://localhost",
            "lab:///somewhere",
        ] {
            assert_eq!(wrong(url), None, "{url}");
        }
    }

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
