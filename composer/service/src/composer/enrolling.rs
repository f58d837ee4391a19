//! Agents on hosts are enrolled by tokens, and may be revoked.
//!
//! A host is one that a BMC or a fabric shows, by the UUID of its SMBIOS. Wrong tokens are
//! counted as wrong passwords are.

use super::Composer;
use crate::accounts::failures::Failures;
use crate::accounts::lockout::{self, Attempt};
use crate::accounts::{self, AccountVersion, Source};
use crate::agent::{self, Agent, AgentToken, Authority, NewToken, OpenToken, TokenMade};
use crate::error::{ErrorCode, ServiceError};
use crate::host::RetiredHosts;
use poolwright_model::enrolment::{Enrolled, Enrolment};
use poolwright_model::id::HostId;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use std::sync::Arc;

/// How often an enrolment is tried that others come in the way of, at other managers.
const TRIES: usize = 16;

/// Wrong tokens are counted as failures at this name.
const TOKENS: &str = "tokens of agents";

/// While agents are enrolled.
pub(super) struct Enrolling {
    /// Wrong tokens, by their source.
    wrong: Failures,
    /// One at a time: many may come with one token.
    turn: tokio::sync::Mutex<()>,
}

impl Enrolling {
    pub fn new(wrong: Failures) -> Self {
        Self {
            wrong,
            turn: tokio::sync::Mutex::default(),
        }
    }
}

/// An enrolment that a token allows, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub host: HostId,
    /// The token's name; it opens nothing.
    pub token: String,
    /// Who made it.
    pub by: String,
}

/// What an enrolment rests on.
struct Admission {
    token: Versioned<AgentToken>,
    before: Option<Versioned<Agent>>,
    host: HostId,
    uuid: String,
    /// The revision of what says which hosts are retired: this one is not.
    closed: Option<u64>,
}

impl Composer {
    /// Who signs the certificates of agents, from now on.
    pub fn signs_for_agents(&self, authority: Arc<dyn Authority>) {
        self.connections.agents.signed_by(authority);
    }

    /// Makes a token. Those that are over are forgotten meanwhile.
    #[crate::boxed]
    pub async fn make_agent_token(
        &self,
        new: NewToken,
        by: &str,
        version: &AccountVersion,
    ) -> Result<TokenMade, ServiceError> {
        let now = self.clock.now();
        let (token, text) = new.make(self.new_id(), by, version, now)?;
        let mut batch = Batch::new();
        for found in read_all::<AgentToken>(self.store.as_ref()).await? {
            if found.value.is_over(now) {
                batch.delete(AgentToken::KIND, &found.value.id);
            }
        }
        batch.put(&token)?;
        self.store.commit(batch).await?;
        Ok(TokenMade {
            token: text,
            id: token.id,
            uuids: token.uuids,
            uses: token.uses,
            ends: token.ends,
        })
    }

    /// Those that still enrol somebody, in the order in which they end.
    #[crate::boxed]
    pub async fn open_agent_tokens(&self) -> Result<Vec<OpenToken>, ServiceError> {
        let now = self.clock.now();
        let mut open: Vec<OpenToken> = Vec::new();
        for Versioned { value, .. } in read_all::<AgentToken>(self.store.as_ref()).await? {
            let maker = accounts::version_of(self.store.as_ref(), &value.by).await?;
            if value.check_maker(maker.as_ref()).is_ok() {
                open.extend(value.open(now));
            }
        }
        open.sort_by(|a, b| (a.ends, &a.id).cmp(&(b.ends, &b.id)));
        Ok(open)
    }

    /// From now on it enrols nobody: an enrolment is committed on the token as it was read. Whoever was enrolled by it stays.
    #[crate::boxed]
    pub async fn withdraw_agent_token(&self, id: &str) -> Result<(), ServiceError> {
        let open = self.open_agent_tokens().await?;
        if !open.iter().any(|token| token.id == id) {
            let message = format!("no open token is called {id}");
            return Err(ServiceError::new(ErrorCode::NotFound, message).with_hint(
                "it may be used up, over, or withdrawn; poolwright host tokens has those that are open",
            ));
        }
        let mut batch = Batch::new();
        batch.delete(AgentToken::KIND, id);
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Whether a request from a source may enrol an agent; `None`: there is no such token. Only wrong tokens count, and
    /// are delayed: other hosts may have the same address.
    #[crate::boxed]
    pub async fn may_enrol(&self, asked: &Enrolment, from: Source) -> Result<Option<Admitted>, ServiceError> {
        if let Some(admission) = self.admission(asked).await? {
            return Ok(Some(Admitted {
                host: admission.host,
                token: admission.token.value.id,
                by: admission.token.value.by,
            }));
        }
        match self
            .enrolling
            .wrong
            .admit(&Attempt::at(TOKENS, None, from))
            .await?
        {
            lockout::Admission::Counted(_) => Ok(None),
            lockout::Admission::Early | lockout::Admission::Refused => {
                let message = format!("too many wrong tokens from {from}");
                Err(ServiceError::new(ErrorCode::Unavailable, message)
                    .with_hint("check the token, and try again later: each wrong one doubles the delay"))
            }
        }
    }

    /// Enrols an agent: its key is signed, and from now on it speaks for its host, instead of any before it.
    #[crate::boxed]
    pub async fn enrol(&self, asked: &Enrolment) -> Result<Enrolled, ServiceError> {
        let _turn = self.enrolling.turn.lock().await;
        for _ in 0..TRIES {
            let Some(admission) = self.admission(asked).await? else {
                return Err(ServiceError::new(
                    ErrorCode::Conflict,
                    "the token was withdrawn, or was over, just before",
                ));
            };
            match self.try_to_enrol(asked, admission).await {
                // Somebody else enrols at another manager.
                Err(StoreError::Conflict { .. }) => {}
                result => return result?,
            }
        }
        let message = "others enrol agents at other managers just now";
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint("try again in a moment"))
    }

    async fn admission(&self, asked: &Enrolment) -> Result<Option<Admission>, ServiceError> {
        let Some((id, secret)) = agent::parts(&asked.token) else {
            return Ok(None);
        };
        let token = read::<AgentToken>(self.store.as_ref(), id).await?;
        let Some(token) = token.filter(|found| found.value.opens(secret)) else {
            return Ok(None);
        };
        let maker = accounts::version_of(self.store.as_ref(), &token.value.by).await?;
        token.value.check_maker(maker.as_ref())?;
        let uuid = agent::canonical(&asked.uuid)?;
        agent::check_address(&asked.address)?;
        let host = self.host_of(&uuid).await?;
        let (retired, closed) = self.retired_hosts().await?;
        if let Some(retired) = retired.of(&host) {
            return Err(retired.refusal());
        }
        let before = read::<Agent>(self.store.as_ref(), host.as_str()).await?;
        let agent = before.as_ref().map(|found| &found.value);
        token.value.admits(&uuid, agent, self.clock.now())?;
        Ok(Some(Admission {
            token,
            before,
            host,
            uuid,
            closed,
        }))
    }

    /// The one host with this UUID.
    async fn host_of(&self, uuid: &str) -> Result<HostId, ServiceError> {
        let snapshot = self.snapshot().await?;
        let hosts = snapshot.topology.hosts.iter();
        let found: Vec<&HostId> = hosts
            .filter(|host| {
                host.uuid
                    .as_deref()
                    .and_then(|uuid| agent::canonical(uuid).ok())
                    .as_deref()
                    == Some(uuid)
            })
            .map(|host| &host.id)
            .collect();
        match found[..] {
            [host] => Ok(host.clone()),
            [] => {
                let message = format!("no BMC and no fabric shows a host with the UUID {uuid}");
                Err(ServiceError::new(ErrorCode::NotFound, message).with_hint(
                    "add its BMC first (poolwright endpoint add); poolwright get hosts -o json has the UUIDs",
                ))
            }
            _ => {
                let names: Vec<String> = found.iter().map(ToString::to_string).collect();
                let message = format!("{} all say that their UUID is {uuid}", names.join(", "));
                Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint("give each host a UUID of its own, in its firmware"))
            }
        }
    }

    async fn try_to_enrol(
        &self,
        asked: &Enrolment,
        admission: Admission,
    ) -> Result<Result<Enrolled, ServiceError>, StoreError> {
        let Some(authority) = self.connections.agents.authority() else {
            let message = "nobody signs certificates of agents here: the manager is not served";
            return Ok(Err(ServiceError::new(ErrorCode::Internal, message)));
        };
        let now = self.clock.now();
        let mut enrolled = Agent {
            host: admission.host,
            uuid: admission.uuid.clone(),
            address: asked.address.clone(),
            enrolment: self.new_id(),
            key: String::new(),
            enrolled: now,
            by: admission.token.value.by.clone(),
            ends: now,
            renewed: None,
            revoked: None,
        };
        let signed = match authority.sign_agent(&asked.csr, &enrolled.names(), now) {
            Ok(signed) => signed,
            Err(error) => return Ok(Err(error)),
        };
        (enrolled.key, enrolled.ends) = (signed.key, signed.ends);
        let mut token = admission.token.value;
        token.used.insert(admission.uuid);
        let before = admission.before.map(|found| found.revision);
        let mut batch = Batch::new();
        batch
            .expect(AgentToken::KIND, &token.id, Some(admission.token.revision))
            .expect(Agent::KIND, enrolled.id(), before)
            .expect(RetiredHosts::KIND, RetiredHosts::default().id(), admission.closed)
            .put(&token)?
            .put(&enrolled)?;
        self.store.commit(batch).await?;
        tracing::info!(host = %enrolled.host, address = enrolled.address, "an agent is enrolled");
        let answer = Enrolled {
            host: enrolled.host.clone(),
            uuid: enrolled.uuid.clone(),
            certificate: signed.certificate,
            authority: authority.certificate(),
            ends: enrolled.ends,
        };
        self.connections.agents.note(enrolled);
        Ok(Ok(answer))
    }

    /// Those that were ever enrolled, in the order of their hosts.
    #[crate::boxed]
    pub async fn agents(&self) -> Result<Vec<Agent>, ServiceError> {
        let all = read_all::<Agent>(self.store.as_ref()).await?;
        let mut all: Vec<Agent> = all.into_iter().map(|found| found.value).collect();
        all.sort_by(|a, b| a.host.cmp(&b.host));
        Ok(all)
    }

    /// That of a host.
    #[crate::boxed]
    pub async fn agent(&self, host: &HostId) -> Result<Agent, ServiceError> {
        Ok(self.kept_agent(host).await?.value)
    }

    pub(super) async fn kept_agent(&self, host: &HostId) -> Result<Versioned<Agent>, ServiceError> {
        let found = read::<Agent>(self.store.as_ref(), host.as_str()).await?;
        found.ok_or_else(|| {
            ServiceError::new(
                ErrorCode::NotFound,
                format!("no agent was ever enrolled for the host {host}"),
            )
            .with_hint("poolwright host agents has those that were")
        })
    }

    /// From now on nobody asks it, and the host's BMC speaks again.
    #[crate::boxed]
    pub async fn revoke_agent(&self, host: &HostId) -> Result<Agent, ServiceError> {
        let Versioned { value, revision } = self.kept_agent(host).await?;
        if !value.speaks() {
            return Ok(value);
        }
        let revoked = Agent {
            revoked: Some(self.clock.now()),
            ..value
        };
        let mut batch = Batch::new();
        batch
            .expect(Agent::KIND, host.as_str(), Some(revision))
            .put(&revoked)?;
        self.store.commit(batch).await?;
        self.connections.agents.note(revoked.clone());
        Ok(revoked)
    }
}
