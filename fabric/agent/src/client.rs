//! A manager's side: asks the agent on a host, and believes no more of its answers than they can show.
//!
//! Invariants: nobody but the agent of that one host is spoken to, by the name in its certificate; a request that changes
//! something and got no answer that can be read has an unknown outcome; an answer about what was not asked is refused.

mod certificates;
mod failure;
mod names;

use crate::wire::{
    self, AilingAsked, Answer, CertificateRequest, ConfirmationSaid, Done, HolderSaid, LARGEST_ANSWER,
    NewCertificate, PATH, ReadySaid, Request, RoomSaid,
};
use async_trait::async_trait;
use failure::{Sent, printable};
use poolwright_driver::{
    Ailment, Confirmation, Counted, DriverError, ErrorKind, Holder, HostSide, HostTarget, Learned, Reading,
    Room,
};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an unused one is kept.
const IDLE: Duration = Duration::from_secs(30);

/// The agent on one host.
#[derive(Debug, Clone)]
pub struct AgentHost {
    endpoint: ControlEndpointId,
    address: String,
    base: String,
    http: reqwest::Client,
}

impl AgentHost {
    /// `address` is where it listens, `HOST:PORT`; `name` is the one that its certificate must have, whatever the address.
    /// Nothing is asked yet.
    pub fn new(
        endpoint: ControlEndpointId,
        address: &str,
        name: &str,
        ca_pem: &str,
        client_cert_pem: &str,
        client_key_pem: &str,
    ) -> Result<Self, DriverError> {
        let refused = |what: String| DriverError::no_effect(format!("agent {endpoint}: {what}"));
        let port = address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        let port = port.ok_or_else(|| {
            refused(format!(
                "{} is no address such as 10.0.0.7:8444",
                printable(address)
            ))
        })?;
        let tls = certificates::config(ca_pem, client_cert_pem, client_key_pem).map_err(refused)?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // The name is the certificate's; where it is found is the address.
            .dns_resolver(Arc::new(Fixed(address.to_owned())))
            .https_only(true)
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .build()
            .map_err(|error| refused(failure::innermost(&error)))?;
        Ok(Self {
            base: format!("https://{name}:{port}{PATH}"),
            address: address.to_owned(),
            endpoint,
            http,
        })
    }

    /// What `agent inventory -o json` shows on the host.
    pub async fn inventory(&self, deadline: Duration) -> Result<serde_json::Value, DriverError> {
        self.look("inventory", &Request::default(), deadline).await
    }

    /// Has it make another key, and gives the request for its certificate.
    pub async fn renew(&self, deadline: Duration) -> Result<String, DriverError> {
        let said: CertificateRequest = self.act("renew", &Request::default(), deadline).await?;
        Ok(said.csr)
    }

    /// Gives it the certificate that it shows from now on.
    pub async fn renewed(&self, certificate: &str, deadline: Duration) -> Result<(), DriverError> {
        let given = NewCertificate {
            certificate: certificate.to_owned(),
        };
        let Done {} = self.act("renewed", &given, deadline).await?;
        Ok(())
    }

    /// Asks for something that changes nothing.
    pub async fn look<T: DeserializeOwned>(
        &self,
        verb: &str,
        request: &impl serde::Serialize,
        deadline: Duration,
    ) -> Result<T, DriverError> {
        Ok(self.ask(verb, request, deadline, ErrorKind::NoEffect).await?.1)
    }

    /// Asks for something that changes the host: an answer that can't be read leaves the outcome unknown.
    pub async fn act<T: DeserializeOwned>(
        &self,
        verb: &str,
        request: &impl serde::Serialize,
        deadline: Duration,
    ) -> Result<T, DriverError> {
        let asked = self.ask(verb, request, deadline, ErrorKind::OutcomeUnknown);
        Ok(asked.await?.1)
    }

    /// The boot id, and what was said. `lost` is the kind of an error after the request may have arrived.
    async fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        request: &impl serde::Serialize,
        deadline: Duration,
        lost: ErrorKind,
    ) -> Result<(String, T), DriverError> {
        let sent = self
            .http
            .post(format!("{}{verb}", self.base))
            .json(request)
            .send();
        let answered = tokio::time::timeout(deadline, async {
            let response = sent.await.map_err(|error| self.failed(&error, lost))?;
            let ok = response.status().is_success();
            self.body(response, lost).await.map(|bytes| (ok, bytes))
        });
        let (ok, bytes) = answered.await.unwrap_or_else(|_| {
            let what = format!("gave no answer to {verb} within {} s", deadline.as_secs_f32());
            Err(self.error(lost, what).with_fault(FaultKind::Timeout))
        })?;
        let garbled = |what: String| self.error(lost, what).with_fault(FaultKind::Malformed);
        let unreadable = |error: serde_json::Error| {
            let why = printable(&error.to_string());
            garbled(format!("answers {verb} with what can't be read: {why}"))
        };
        // Of another version nothing else may be as it is here.
        let answer: Answer = serde_json::from_slice(&bytes).map_err(unreadable)?;
        if !wire::is_understood(&answer.version) {
            let versions = format!(
                "version {}, and this manager {}",
                printable(&answer.version),
                wire::VERSION
            );
            return Err(garbled(format!("speaks {versions}"))
                .with_hint("let their first numbers be the same: update the older one"));
        }
        if let Some(refused) = answer.error {
            let mut error = self.error(refused.kind.of_error(), printable(&refused.message));
            error.hint = refused.hint.as_deref().map(printable);
            return Err(error);
        }
        let boot_id = answer.boot_id.filter(|id| uuid::Uuid::parse_str(id).is_ok());
        match (ok, boot_id, answer.said) {
            (true, Some(boot_id), Some(said)) => {
                let said = serde_json::from_value(said).map_err(unreadable)?;
                Ok((boot_id, said))
            }
            (_, None, _) => Err(garbled(format!(
                "does not say which start of its host it speaks of, in its answer to {verb}"
            ))),
            _ => Err(garbled(format!("says nothing in its answer to {verb}"))),
        }
    }

    async fn body(&self, mut response: reqwest::Response, lost: ErrorKind) -> Result<Vec<u8>, DriverError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.failed(&error, lost))?
        {
            if bytes.len() + chunk.len() > LARGEST_ANSWER {
                let what = format!("answers with more than {LARGEST_ANSWER} bytes");
                return Err(self.error(lost, what).with_fault(FaultKind::TooLarge));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn failed(&self, error: &reqwest::Error, lost: ErrorKind) -> DriverError {
        let failure = failure::of(error);
        let kind = match failure.sent {
            Sent::No => ErrorKind::NoEffect,
            Sent::Perhaps => lost,
        };
        let mut told = self.error(kind, failure.message).with_fault(failure.fault);
        told.hint = failure.hint;
        told
    }

    fn error(&self, kind: ErrorKind, what: String) -> DriverError {
        DriverError::new(kind, format!("{} at {} {what}", self.endpoint, self.address))
    }

    /// What is told of other GPUs than those that were asked about is no answer; nor are names that are none.
    fn about(&self, target: &HostTarget, learned: &[Learned]) -> Result<(), DriverError> {
        if let Some(other) = learned.iter().find(|learned| !target.gpus.contains(&learned.gpu)) {
            return Err(self.stranger(&other.gpu));
        }
        match learned.iter().find_map(names::refused) {
            Some(what) => Err(self.malformed(what)),
            None => Ok(()),
        }
    }

    fn stranger(&self, gpu: &impl std::fmt::Display) -> DriverError {
        self.malformed(format!("answers for {gpu}, which it was not asked about"))
    }

    /// Nothing was asked to change.
    fn malformed(&self, what: String) -> DriverError {
        self.error(ErrorKind::NoEffect, what)
            .with_fault(FaultKind::Malformed)
    }
}

/// One address for every name.
struct Fixed(String);

impl Resolve for Fixed {
    fn resolve(&self, _: Name) -> Resolving {
        let address = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[async_trait]
impl HostSide for AgentHost {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.endpoint
    }

    async fn started(&self, target: &HostTarget, deadline: Duration) -> Result<Option<String>, DriverError> {
        let request = Request::from(target);
        let asked = self.ask::<Done>("hello", &request, deadline, ErrorKind::NoEffect);
        Ok(Some(asked.await?.0))
    }

    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError> {
        let said: RoomSaid = self.look("preflight", &Request::from(target), deadline).await?;
        Ok(said.into())
    }

    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError> {
        let said: ConfirmationSaid = self.look("verify", &Request::from(target), deadline).await?;
        Ok(match said {
            ConfirmationSaid::Seen { evidence, learned } => {
                self.about(target, &learned)?;
                let evidence = format!("agent {}: {}", self.endpoint, printable(&evidence));
                Confirmation::Seen { evidence, learned }
            }
            ConfirmationSaid::NotSeen { reason, learned } => {
                self.about(target, &learned)?;
                let reason = printable(&reason);
                Confirmation::NotSeen { reason, learned }
            }
            ConfirmationSaid::CannotTell { reason } => Confirmation::CannotTell {
                reason: printable(&reason),
            },
        })
    }

    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        let said: Vec<HolderSaid> = self.look("holders", &Request::from(target), deadline).await?;
        if let Some(other) = said.iter().find(|holder| !target.gpus.contains(&holder.gpu)) {
            return Err(self.stranger(&other.gpu));
        }
        let shown = said.into_iter().map(|holder| Holder {
            command: printable(&holder.command),
            ..holder.into()
        });
        Ok(shown.collect())
    }

    async fn ailing(&self, expected: &[HostTarget], deadline: Duration) -> Result<Vec<Ailment>, DriverError> {
        let expected = expected
            .iter()
            .map(|target| Request::from(target).target)
            .collect();
        let asked = AilingAsked { expected };
        let said: Vec<Ailment> = self.look("ailing", &asked, deadline).await?;
        Ok(said.into_iter().map(shown).collect())
    }

    async fn readings(&self, deadline: Duration) -> Result<Vec<Reading>, DriverError> {
        let said: Vec<Reading> = self.look("telemetry", &Request::default(), deadline).await?;
        Ok(said.into_iter().map(measured).collect())
    }

    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        let Done {} = self.act("drain", &Request::from(target), deadline).await?;
        Ok(())
    }

    async fn left(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<String>, DriverError> {
        let said: Vec<String> = self.look("left", &Request::from(target), deadline).await?;
        Ok(said.iter().map(|what| printable(what)).collect())
    }

    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        let Done {} = self.act("undrain", &Request::from(target), deadline).await?;
        Ok(())
    }

    fn can_make_ready(&self) -> bool {
        true
    }

    async fn make_ready(&self, target: &HostTarget, deadline: Duration) -> Result<String, DriverError> {
        let said: ReadySaid = self.act("ready", &Request::from(target), deadline).await?;
        Ok(format!("agent {}: {}", self.endpoint, printable(&said.evidence)))
    }

    async fn unready(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        let Done {} = self.act("unready", &Request::from(target), deadline).await?;
        Ok(())
    }
}

/// With nothing in it that a terminal would take for a command.
fn shown(ailment: Ailment) -> Ailment {
    Ailment {
        address: printable(&ailment.address),
        slot: ailment.slot.as_deref().map(printable),
        known_as: ailment.known_as.iter().map(|name| printable(name)).collect(),
        failing: ailment.failing,
        event: printable(&ailment.event),
        says: printable(&ailment.says),
    }
}

/// The same.
fn measured(reading: Reading) -> Reading {
    let counted = |counted: Counted| Counted {
        since: printable(&counted.since),
        ..counted
    };
    Reading {
        address: printable(&reading.address),
        slot: reading.slot.as_deref().map(printable),
        known_as: reading.known_as.iter().map(|name| printable(name)).collect(),
        correctable: reading.correctable.map(counted),
        ..reading
    }
}
