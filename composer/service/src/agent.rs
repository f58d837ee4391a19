//! Agents on hosts: the tokens by which they are enrolled, and what is kept of each.
//!
//! A token is told once; of it a digest is kept. Each enrolment has a name of its own, which the agent's certificates
//! carry and by which the manager asks for it: one that was revoked, or replaced after a reimage, is spoken to no more,
//! whatever keys somebody still has.

use crate::accounts::AccountVersion;
use crate::error::{ErrorCode, ServiceError};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::{DriverError, HostSide};
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How long a certificate of an agent is good, and how long before its end it is renewed.
pub const GOOD_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
pub const RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(10 * 24);
/// How long a token may be good, and how many hosts it may be for.
pub const LONGEST_TOKEN: SignedDuration = SignedDuration::from_hours(7 * 24);
pub const MOST_HOSTS: usize = 1_000;
/// Hexadecimal digits of a token's name, and of the secret that follows it.
const ID_DIGITS: usize = 32;
const SECRET_BYTES: usize = 32;

/// An agent that speaks for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent {
    pub host: HostId,
    /// SMBIOS UUID of the host, lower case.
    pub uuid: String,
    /// `HOST:PORT` at which it listens.
    pub address: String,
    /// Another one with each enrolment.
    pub enrolment: String,
    /// SHA-256 of its public key as of its last certificate, in hexadecimal digits.
    pub key: String,
    pub enrolled: Timestamp,
    /// Who made the token.
    pub by: String,
    /// When its certificate ends.
    pub ends: Timestamp,
    #[serde(default)]
    pub renewed: Option<Timestamp>,
    #[serde(default)]
    pub revoked: Option<Timestamp>,
}

impl Stored for Agent {
    const KIND: &'static str = "agent";
    fn id(&self) -> &str {
        self.host.as_str()
    }
}

impl Agent {
    /// What its certificates are for. The manager asks for the one that belongs to this enrolment alone.
    pub fn names(&self) -> [String; 2] {
        let plain = format!("agent-{}", self.uuid);
        [format!("{}.{plain}", self.enrolment), plain]
    }

    /// The endpoint that it is.
    pub fn endpoint(&self) -> ControlEndpointId {
        ControlEndpointId::from_lossy(&format!("agent-{}", self.host))
    }

    /// It speaks for its host.
    pub fn speaks(&self) -> bool {
        self.revoked.is_none()
    }

    pub fn is_to_be_renewed(&self, now: Timestamp) -> bool {
        self.speaks() && self.ends > now && self.ends.duration_since(now) <= RENEWED_BEFORE
    }
}

/// A token, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentToken {
    pub id: String,
    /// SHA-256 of its secret part, in hexadecimal digits.
    pub digest: String,
    /// The hosts that it is for; empty: any, once.
    #[serde(default)]
    pub uuids: BTreeSet<String>,
    /// Those that were enrolled by it.
    #[serde(default)]
    pub used: BTreeSet<String>,
    /// How many hosts may be enrolled by it.
    pub uses: u32,
    pub made: Timestamp,
    pub by: String,
    /// The account that made it, as it was then. Tokens of earlier versions have none, and enrol no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<AccountVersion>,
    pub ends: Timestamp,
}

impl Stored for AgentToken {
    const KIND: &'static str = "agent-token";
    fn id(&self) -> &str {
        &self.id
    }
}

/// What a token is to be good for.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// SMBIOS UUIDs of the hosts that it is for; with none it is for any host that has no agent yet, once.
    #[serde(default)]
    pub uuids: Vec<String>,
    /// For how long; an hour, if nothing is said.
    #[serde(default)]
    pub seconds: Option<u32>,
    /// For how many of these hosts; all of them, if nothing is said.
    #[serde(default)]
    pub uses: Option<u32>,
}

/// A token that was made just now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenMade {
    /// It is told once, and kept nowhere.
    pub token: String,
    pub id: String,
    pub uuids: BTreeSet<String>,
    pub uses: u32,
    pub ends: Timestamp,
}

/// A token that still enrols somebody, without what opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenToken {
    pub id: String,
    /// The hosts that it is for; none: any, once.
    pub uuids: BTreeSet<String>,
    /// Those of them that were enrolled by it.
    pub used: BTreeSet<String>,
    /// How many hosts may still be enrolled by it.
    pub uses_left: u32,
    pub made: Timestamp,
    /// Who made it.
    pub by: String,
    pub ends: Timestamp,
}

/// A certificate that was signed.
#[derive(Debug, Clone)]
pub struct Signed {
    pub certificate: String,
    /// SHA-256 of the public key, in hexadecimal digits.
    pub key: String,
    pub ends: Timestamp,
}

/// By what a manager is known to agents: a certificate and its key, in PEM. Kept nowhere.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Who signs the certificates of agents.
pub trait Authority: Send + Sync {
    /// Its own, in PEM.
    fn certificate(&self) -> String;

    /// A certificate for the key of a request, and for these names alone, whatever the request says.
    fn sign_agent(&self, csr: &str, names: &[String], now: Timestamp) -> Result<Signed, ServiceError>;

    /// Good for [`IDENTITY_GOOD_FOR`] at least.
    fn identity(&self, now: Timestamp) -> Result<Identity, ServiceError>;
}

/// For so long the manager shows one certificate of its own to agents.
pub const IDENTITY_GOOD_FOR: Duration = Duration::from_secs(12 * 3600);

/// How to reach an agent.
pub struct AgentSpec {
    pub endpoint: ControlEndpointId,
    /// `HOST:PORT`.
    pub address: String,
    /// The name that its certificate must be for.
    pub name: String,
    /// Who must have signed it, in PEM.
    pub authority: String,
    pub identity: Identity,
}

/// An agent that is connected.
#[derive(Clone)]
pub struct ConnectedAgent {
    pub host_side: Arc<dyn HostSide>,
    pub renewal: Arc<dyn Renewal>,
}

/// Another certificate for an agent, on another key.
#[async_trait]
pub trait Renewal: Send + Sync {
    /// Has it make a key, and gives its signing request, in PEM.
    async fn request(&self, deadline: Duration) -> Result<String, DriverError>;

    /// Gives it the certificate for that key.
    async fn give(&self, certificate: &str, deadline: Duration) -> Result<(), DriverError>;
}

impl NewToken {
    /// The token for this, and the text of it.
    pub fn make(
        self,
        id: String,
        by: &str,
        version: &AccountVersion,
        now: Timestamp,
    ) -> Result<(AgentToken, String), ServiceError> {
        let uuids = self.uuids.iter().map(|uuid| canonical(uuid));
        let uuids = uuids.collect::<Result<BTreeSet<String>, _>>()?;
        if uuids.len() > MOST_HOSTS {
            let message = format!(
                "a token for {} hosts is asked for, and {MOST_HOSTS} is the most",
                uuids.len()
            );
            return Err(ServiceError::bad_request(message).with_hint("make several"));
        }
        let most = u32::try_from(uuids.len().max(1)).unwrap_or(u32::MAX);
        let uses = self.uses.unwrap_or(most);
        if !(1..=most).contains(&uses) {
            let message = format!("{uses} uses are asked for, and a token for these hosts has 1 to {most}");
            return Err(ServiceError::bad_request(message)
                .with_hint("name each host that it is for: --uuid UUID; it is good once for each"));
        }
        let length = SignedDuration::from_secs(self.seconds.unwrap_or(3600).into());
        if length.is_zero() || length > LONGEST_TOKEN {
            let message = format!(
                "a token is good for 1 s to {} days",
                LONGEST_TOKEN.as_hours() / 24
            );
            return Err(ServiceError::bad_request(message).with_hint("such as --for 1h"));
        }
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("no token can be drawn: {error}"))
        })?;
        let secret = hexadecimal(&secret);
        let text = format!("{id}{secret}");
        let token = AgentToken {
            digest: digest(&secret),
            id,
            uuids,
            used: BTreeSet::new(),
            uses,
            made: now,
            by: by.to_owned(),
            bound_to: Some(version.clone()),
            ends: now + length,
        };
        Ok((token, text))
    }
}

/// The name of a token, also where somebody gives the whole of it: what opens it is to go nowhere.
pub fn name_of_token(text: &str) -> &str {
    parts(text).map_or(text, |(name, _)| name)
}

/// The name in a token, and its secret; `None` if it can't be one.
pub(crate) fn parts(text: &str) -> Option<(&str, &str)> {
    let is_one =
        text.len() == ID_DIGITS + 2 * SECRET_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| text.split_at(ID_DIGITS))
}

impl AgentToken {
    pub(crate) fn opens(&self, secret: &str) -> bool {
        digest(secret).as_bytes().ct_eq(self.digest.as_bytes()).into()
    }

    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.ends <= now
    }

    fn uses_left(&self) -> u32 {
        let used = u32::try_from(self.used.len()).unwrap_or(u32::MAX);
        self.uses.saturating_sub(used)
    }

    /// What is told of it while it still enrols somebody.
    pub(crate) fn open(self, now: Timestamp) -> Option<OpenToken> {
        let uses_left = self.uses_left();
        (uses_left > 0 && !self.is_over(now)).then_some(OpenToken {
            id: self.id,
            uuids: self.uuids,
            used: self.used,
            uses_left,
            made: self.made,
            by: self.by,
            ends: self.ends,
        })
    }

    /// Refuses it if the account that made it was changed or replaced since.
    pub(crate) fn check_maker(&self, now: Option<&AccountVersion>) -> Result<(), ServiceError> {
        match now.is_some() && self.bound_to.as_ref() == now {
            true => Ok(()),
            false => Err(forbidden(format!(
                "the account {} that made the token was deleted, disabled or changed since",
                self.by
            ))),
        }
    }

    /// Whether a host may be enrolled by it. `before`: the agent that it has.
    pub(crate) fn admits(
        &self,
        uuid: &str,
        before: Option<&Agent>,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let refused = |why: String| Err(forbidden(why));
        if self.is_over(now) {
            return refused(format!("the token was good until {}", self.ends));
        }
        if self.used.contains(uuid) {
            return refused(format!("the host {uuid} was enrolled by this token already"));
        }
        if self.uses_left() == 0 {
            return refused(format!(
                "the token was good for {} hosts, and is used up",
                self.uses
            ));
        }
        if !self.uuids.is_empty() && !self.uuids.contains(uuid) {
            return refused(format!("the token is not for the host {uuid}"));
        }
        match before {
            Some(agent) if agent.speaks() && self.uuids.is_empty() => refused(format!(
                "the host {} has an agent, enrolled {}, and only a token that names the host replaces it",
                agent.host, agent.enrolled
            )),
            _ => Ok(()),
        }
    }
}

fn forbidden(why: String) -> ServiceError {
    ServiceError::new(ErrorCode::Forbidden, why.clone())
        .with_details(vec![why])
        .with_hint("make another one at the manager: poolwright host token --uuid UUID")
}

/// A UUID as hosts are kept under it: lower case, with hyphens.
pub(crate) fn canonical(uuid: &str) -> Result<String, ServiceError> {
    let parsed = uuid::Uuid::try_parse(uuid.trim())
        .ok()
        .filter(|uuid| !uuid.is_nil() && !uuid.is_max());
    let parsed = parsed.map(|uuid| uuid.hyphenated().to_string());
    parsed.ok_or_else(|| {
        ServiceError::bad_request(format!("{:?} is no host's UUID", shortened(uuid)))
            .with_hint("it is what cat /sys/class/dmi/id/product_uuid shows on the host, and its BMC as UUID")
    })
}

/// `HOST:PORT`, and nothing else.
pub(crate) fn check_address(address: &str) -> Result<(), ServiceError> {
    let url = url::Url::parse(&format!("https://{address}/")).ok();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    let is_one = address.len() <= 255 && address.chars().all(plain) && has_port;
    match url.filter(|_| is_one) {
        Some(_) => Ok(()),
        None => Err(ServiceError::bad_request(format!(
            "{:?} is no address at which an agent can be reached",
            shortened(address)
        ))
        .with_hint("give it as HOST:PORT, such as 10.0.3.17:8444")),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn digest(secret: &str) -> String {
    hexadecimal(&Sha256::digest(secret))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
