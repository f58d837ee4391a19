//! The certificates of agents are renewed by the clock, long before they end: an agent outlives weeks in which its manager
//! does not reach it.

use super::Composer;
use crate::agent::Agent;
use crate::audit::{Kind, Record};
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_model::id::HostId;
use poolwright_store::{Batch, Stored, Versioned};
use serde_json::Map;
use std::time::Duration;

/// Between two looks at what is to be renewed.
const HOURLY: Duration = Duration::from_secs(3600);
/// For an agent to answer.
const PATIENCE: Duration = Duration::from_secs(30);

impl Composer {
    /// Renews what ends soon, for as long as it is polled.
    pub(crate) async fn keep_renewing_agents(&self) {
        loop {
            if let Err(error) = self.renew_agents().await {
                tracing::warn!("which agents there are can't be read: {error}");
            }
            tokio::time::sleep(HOURLY).await;
        }
    }

    /// Renews what ends soon, and is this manager's to renew. One that can't be renewed now is told of, and left for the
    /// next time.
    pub async fn renew_agents(&self) -> Result<(), ServiceError> {
        let (now, agents) = (self.clock.now(), self.agents().await?);
        for agent in agents.into_iter().filter(|agent| agent.is_to_be_renewed(now)) {
            if !self.is_in_charge_of(&agent) {
                continue;
            }
            if let Err(error) = self.renew_agent(&agent.host).await {
                tracing::warn!(
                    host = %agent.host,
                    "the certificate of its agent ends {}, and is not renewed yet: {error}", agent.ends
                );
            }
        }
        Ok(())
    }

    fn is_in_charge_of(&self, agent: &Agent) -> bool {
        self.leases
            .as_ref()
            .is_none_or(|leases| leases.has(&agent.endpoint()))
    }

    /// Has an agent make another key, and gives it a certificate for that.
    #[crate::boxed]
    pub async fn renew_agent(&self, host: &HostId) -> Result<Agent, ServiceError> {
        let kept = self.kept_agent(host).await?;
        if !kept.value.speaks() {
            let message = format!("the agent of {host} was revoked");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("enrol it again: poolwright host token"));
        }
        self.audit().note(record(Kind::Began, host, None)).await?;
        let renewed = self.given_another(kept).await;
        let outcome = match &renewed {
            Ok(agent) => format!("good until {}", agent.ends),
            Err(error) => error.to_string(),
        };
        self.audit()
            .note(record(Kind::Ended, host, Some(outcome)))
            .await?;
        renewed
    }

    async fn given_another(&self, kept: Versioned<Agent>) -> Result<Agent, ServiceError> {
        let Versioned {
            value: agent,
            revision,
        } = kept;
        let connected = self.connections.agents.reach(&agent).await?;
        let authority = self.connections.agents.authority().ok_or_else(|| {
            ServiceError::new(ErrorCode::Internal, "nobody signs certificates of agents here")
        })?;
        let request = connected.renewal.request(PATIENCE).await?;
        let now: Timestamp = self.clock.now();
        let signed = authority.sign_agent(&request, &agent.names(), now)?;
        // It is written down when the agent has it: one that was not given is asked for again.
        connected.renewal.give(&signed.certificate, PATIENCE).await?;
        let renewed = Agent {
            key: signed.key,
            ends: signed.ends,
            renewed: Some(now),
            ..agent
        };
        let mut batch = Batch::new();
        batch
            .expect(Agent::KIND, renewed.id(), Some(revision))
            .put(&renewed)?;
        self.store.commit(batch).await?;
        self.connections.agents.note(renewed.clone());
        Ok(renewed)
    }
}

fn record(kind: Kind, host: &HostId, outcome: Option<String>) -> Record {
    let mut said = Map::new();
    if let Some(outcome) = outcome {
        said.insert(
            "outcome".to_owned(),
            outcome.chars().take(256).collect::<String>().into(),
        );
    }
    Record {
        said,
        ..Record::without_request(kind, "agents", "renew".to_owned(), format!("agent/{host}"))
    }
}
