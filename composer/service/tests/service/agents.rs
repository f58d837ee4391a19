//! Agents of hosts, from their tokens to their end, at managers whose hosts a BMC shows.

use crate::deaf::Deaf;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::{DriverError, Observation};
use poolwright_executor::Clock as Now;
use poolwright_model::enrolment::{Enrolled, Enrolment};
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::topology::{Host, PowerState};
use poolwright_service::accounts::{AccountVersion, Source};
use poolwright_service::agent::{
    self, Agent, AgentSpec, Authority, ConnectedAgent, Identity, NewToken, Renewal, Signed,
};
use poolwright_service::clock::Clock;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Standing, Trust};
use poolwright_service::{Composer, ErrorCode, Options, ServiceError};
use poolwright_store::{Batch, SqliteStore, Store};
use serde_json::json;
use serde_json::value::to_raw_value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ONE: &str = "4c4c4544-0042-3510-8052-b4c04f4d3701";
const TWO: &str = "4c4c4544-0042-3510-8052-b4c04f4d3702";
const STRANGE: &str = "4c4c4544-0042-3510-8052-b4c04f4d3703";
const MONTH: SignedDuration = SignedDuration::from_hours(30 * 24);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A clock that the test moves.
struct Hands(Mutex<Timestamp>);

impl Now for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[async_trait]
impl Clock for Hands {
    async fn sleep_until(&self, _: Timestamp) {
        std::future::pending().await
    }
}

/// Signs whatever it is given.
struct Pen;

impl Authority for Pen {
    fn certificate(&self) -> String {
        "the authority".to_owned()
    }

    fn sign_agent(&self, csr: &str, names: &[String], now: Timestamp) -> Result<Signed, ServiceError> {
        if csr.is_empty() {
            return Err(ServiceError::bad_request("no request"));
        }
        Ok(Signed {
            certificate: format!("{csr} for {}", names.join(" and ")),
            key: format!("key of {csr}"),
            ends: now + MONTH,
        })
    }

    fn identity(&self, _: Timestamp) -> Result<Identity, ServiceError> {
        let [certificate, key] = ["the manager", "its key"].map(str::to_owned);
        Ok(Identity { certificate, key })
    }
}

/// Everybody out there: a BMC that shows two hosts, and agents.
#[derive(Default)]
struct World {
    /// By what names agents were asked for.
    asked: Mutex<Vec<String>>,
    /// What they were given.
    given: Mutex<Vec<String>>,
    silent: Mutex<bool>,
}

struct Everybody(Arc<World>);

#[async_trait]
impl Connector for Everybody {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let bmc = bmc(spec.id.clone());
        Ok(Connected {
            fabric: bmc.clone(),
            host_side: bmc,
        })
    }

    async fn connect_agent(&self, spec: &AgentSpec) -> Result<ConnectedAgent, DriverError> {
        self.0.asked.lock().unwrap().push(spec.name.clone());
        Ok(ConnectedAgent {
            host_side: bmc(spec.endpoint.clone()),
            renewal: Arc::new(AtAgent(self.0.clone())),
        })
    }
}

struct AtAgent(Arc<World>);

#[async_trait]
impl Renewal for AtAgent {
    async fn request(&self, _: Duration) -> Result<String, DriverError> {
        match *self.0.silent.lock().unwrap() {
            true => Err(DriverError::no_effect("it does not answer")),
            false => Ok("another key".to_owned()),
        }
    }

    async fn give(&self, certificate: &str, _: Duration) -> Result<(), DriverError> {
        self.0.given.lock().unwrap().push(certificate.to_owned());
        Ok(())
    }
}

/// A BMC that only shows hosts.
fn bmc(name: ControlEndpointId) -> Arc<Deaf> {
    let host = |(host, uuid): (&str, &str)| Host {
        id: HostId::from_lossy(host),
        name: host.to_owned(),
        power_state: PowerState::On,
        power_restore_policy: None,
        ports: Vec::new(),
        uuid: Some(uuid.to_owned()),
        serial: None,
        model: None,
        bmc: Some(name.clone()),
        seen_by: BTreeSet::from([name.clone()]),
    };
    let mut shows = Observation::default();
    shows.topology.hosts = [("one", ONE), ("two", TWO)].map(host).into();
    Arc::new(Deaf {
        name,
        shows: Some(shows),
        ended: Arc::default(),
    })
}

struct Pool {
    world: Arc<World>,
    clock: Arc<Hands>,
    store: Arc<dyn Store>,
}

impl Pool {
    fn new() -> Self {
        Self {
            world: Arc::default(),
            clock: Arc::new(Hands(Mutex::new("2026-03-02T12:00:00Z".parse().unwrap()))),
            store: Arc::new(SqliteStore::in_memory().unwrap()),
        }
    }

    /// A manager of the pool's store.
    async fn manager(&self) -> Composer {
        let options = Options {
            poll: None,
            ..Options::default()
        };
        let line = Arc::new(Everybody(self.world.clone()));
        let composer = Composer::open(self.store.clone(), line, self.clock.clone(), options);
        let composer = composer.await.unwrap();
        composer.signs_for_agents(Arc::new(Pen));
        composer
    }

    async fn first_manager(&self) -> Composer {
        let composer = self.manager().await;
        let bmc = EndpointSpec {
            id: ControlEndpointId::from_lossy("bmc"),
            url: "https://bmc".to_owned(),
            username: None,
            password: None,
            sealed: None,
            password_file: None,
            trust: Trust::System,
            insecure_http: false,
        };
        composer.add_endpoint(bmc, Standing::Observed).await.unwrap();
        write_account(&composer, &maker()).await;
        composer
    }

    fn pass(&self, time: SignedDuration) {
        *self.clock.0.lock().unwrap() += time;
    }
}

/// The account that makes tokens, as the pool's store has it.
fn maker() -> AccountVersion {
    AccountVersion {
        id: "9f86d081884c7d659a2feaa0c55ad015".to_owned(),
        generation: 1,
    }
}

/// Writes the account of this version.
async fn write_account(composer: &Composer, version: &AccountVersion) {
    let account = json!({
        "name": "kim", "id": version.id, "generation": version.generation, "password_hash": "none",
    });
    let mut batch = Batch::new();
    batch.put_json("account", "kim", to_raw_value(&account).unwrap());
    composer.store().commit(batch).await.unwrap();
}

fn source(address: &str) -> Source {
    Source::of(address.parse().unwrap())
}

async fn token(composer: &Composer, uuids: &[&str]) -> String {
    let new = NewToken {
        uuids: uuids.iter().map(|uuid| (*uuid).to_owned()).collect(),
        ..NewToken::default()
    };
    composer
        .make_agent_token(new, "kim", &maker())
        .await
        .unwrap()
        .token
}

fn asked(token: &str, uuid: &str) -> Enrolment {
    Enrolment {
        token: token.to_owned(),
        uuid: uuid.to_owned(),
        address: "10.0.0.7:8444".to_owned(),
        csr: "a key".to_owned(),
    }
}

/// As the door does it.
async fn enrol(composer: &Composer, token: &str, uuid: &str) -> Result<Enrolled, ServiceError> {
    let asked = asked(token, uuid);
    let admitted = composer.may_enrol(&asked, source("10.0.0.7")).await?;
    assert_eq!(admitted.expect("a token that there is").by, "kim");
    composer.enrol(&asked).await
}

#[track_caller]
fn refused(result: Result<Enrolled, ServiceError>, code: ErrorCode, words: &str) {
    let error = result.unwrap_err();
    assert!(error.code == code && error.message.contains(words), "{error:?}");
    assert!(error.hint.is_some(), "{error:?}");
}

#[tokio::test]
async fn a_token_enrols_the_hosts_that_it_names_each_once_until_it_ends() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let bulk = token(&composer, &[ONE, TWO, STRANGE]).await;
    let enrolled = enrol(&composer, &bulk, &ONE.to_uppercase()).await.unwrap();
    assert_eq!(
        (enrolled.uuid.as_str(), enrolled.authority.as_str()),
        (ONE, "the authority")
    );
    assert!(
        enrolled.certificate.contains(&format!("agent-{ONE}")),
        "{enrolled:?}"
    );
    refused(
        enrol(&composer, &bulk, ONE).await,
        ErrorCode::Forbidden,
        "already",
    );
    refused(
        enrol(&composer, &bulk, STRANGE).await,
        ErrorCode::NotFound,
        STRANGE,
    );
    pool.pass(SignedDuration::from_hours(1));
    refused(
        enrol(&composer, &bulk, TWO).await,
        ErrorCode::Forbidden,
        "was good until",
    );
    let single = token(&composer, &[]).await;
    refused(
        enrol(&composer, &single, ONE).await,
        ErrorCode::Forbidden,
        "has an agent",
    );
    let ran = composer
        .enrol(&Enrolment {
            csr: String::new(),
            ..asked(&single, TWO)
        })
        .await;
    assert_eq!(ran.unwrap_err().code, ErrorCode::BadRequest);
    enrol(&composer, &single, TWO)
        .await
        .expect("what could not be signed has used up nothing");
    let agents = composer.agents().await.unwrap();
    assert_eq!(agents.len(), 2);
    assert!(agents.iter().all(Agent::speaks), "{agents:?}");
    // The one that was over was forgotten when the next was made.
    assert_eq!(
        composer.may_enrol(&asked(&bulk, TWO), source("10.0.0.7")).await,
        Ok(None)
    );
    composer.close().await;
}

#[tokio::test]
async fn a_token_that_was_withdrawn_enrols_nobody_at_any_manager_and_who_came_with_it_stays() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let other = pool.manager().await;
    let bulk = token(&composer, &[ONE, TWO]).await;
    let single = token(&composer, &[]).await;
    enrol(&composer, &bulk, ONE).await.unwrap();
    let open = async || {
        let open = other.open_agent_tokens().await.unwrap();
        let of = |token: agent::OpenToken| (token.id, token.uses_left);
        open.into_iter().map(of).collect::<BTreeSet<_>>()
    };
    let name = |text: &str| agent::name_of_token(text).to_owned();
    assert_eq!(
        open().await,
        BTreeSet::from([(name(&bulk), 1), (name(&single), 1)])
    );
    other.withdraw_agent_token(&name(&bulk)).await.unwrap();
    assert_eq!(open().await, BTreeSet::from([(name(&single), 1)]));
    for manager in [&composer, &other] {
        assert_eq!(
            manager.may_enrol(&asked(&bulk, TWO), source("10.0.0.7")).await,
            Ok(None)
        );
        let late = manager.enrol(&asked(&bulk, TWO)).await.unwrap_err();
        assert!(late.message.contains("withdrawn"), "{late:?}");
    }
    let agents = composer.agents().await.unwrap();
    assert_eq!(agents.iter().filter(|agent| agent.speaks()).count(), 1);
    // What is withdrawn, used up or over is told as what there is not.
    enrol(&composer, &single, TWO).await.unwrap();
    for gone in [&bulk, &single] {
        let refused = composer.withdraw_agent_token(&name(gone)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotFound);
        assert!(refused.hint.unwrap().contains("host tokens"));
    }
    composer.close().await;
    other.close().await;
}

#[tokio::test]
async fn who_tries_wrong_tokens_is_turned_away_and_a_right_one_is_not() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let good = token(&composer, &[ONE]).await;
    for _ in 0..5 {
        let wrong = asked(&"0".repeat(good.len()), ONE);
        assert_eq!(composer.may_enrol(&wrong, source("10.0.0.7")).await, Ok(None));
    }
    let wrong = asked(&"0".repeat(good.len()), ONE);
    let delayed = composer.may_enrol(&wrong, source("10.0.0.7")).await;
    assert_eq!(delayed.unwrap_err().code, ErrorCode::Unavailable);
    assert_eq!(composer.may_enrol(&wrong, source("10.0.0.8")).await, Ok(None));
    // Of another host behind the same address.
    let right = composer.may_enrol(&asked(&good, ONE), source("10.0.0.7")).await;
    assert!(right.unwrap().is_some());
    composer.close().await;
}

/// Fault 82: a token by which agents are enrolled.
#[tokio::test]
async fn a_token_enrols_nobody_once_its_account_is_another_one_or_was_changed() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let bulk = token(&composer, &[ONE, TWO]).await;
    enrol(&composer, &bulk, ONE).await.unwrap();
    let changed = AccountVersion {
        generation: 2,
        ..maker()
    };
    let of_the_same_name = AccountVersion {
        id: "60303ae22b998861bce3b28f33eec1be".to_owned(),
        ..maker()
    };
    for version in [changed, of_the_same_name] {
        write_account(&composer, &version).await;
        refused(
            enrol(&composer, &bulk, TWO).await,
            ErrorCode::Forbidden,
            "the account kim that made the token",
        );
        assert_eq!(composer.open_agent_tokens().await.unwrap(), []);
    }
    composer.close().await;
}

#[tokio::test]
async fn an_enrolment_that_was_replaced_or_revoked_is_asked_for_no_more() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let first = token(&composer, &[ONE]).await;
    let host = enrol(&composer, &first, ONE).await.unwrap().host;
    let before = composer.agent(&host).await.unwrap();
    composer.renew_agent(&host).await.unwrap();
    let again = token(&composer, &[ONE]).await;
    enrol(&composer, &again, ONE).await.unwrap();
    let after = composer.agent(&host).await.unwrap();
    assert_ne!(after.enrolment, before.enrolment);
    composer.renew_agent(&host).await.unwrap();
    let asked = pool.world.asked.lock().unwrap().clone();
    assert_eq!(asked, [before.names()[0].clone(), after.names()[0].clone()]);

    // Whoever restarts, or comes beside it, knows it from the store.
    let other = pool.manager().await;
    other.renew_agent(&host).await.unwrap();
    let revoked = composer.revoke_agent(&host).await.unwrap();
    assert!(!revoked.speaks());
    assert_eq!(
        composer.revoke_agent(&host).await.unwrap(),
        revoked,
        "it is done once"
    );
    for manager in [&composer, &other] {
        let refused = manager.renew_agent(&host).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
    }
    composer.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_host_that_is_retired_has_no_agent_and_gets_none_before_it_is_back() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let other = pool.manager().await;
    let first = token(&composer, &[ONE]).await;
    let host = enrol(&composer, &first, ONE).await.unwrap().host;
    let again = token(&composer, &[ONE, TWO]).await;
    let life = composer.retire_host(&host, "sold", "kim").await.unwrap();
    let agent = life.agent.unwrap();
    assert_eq!(
        (agent.speaks(), agent.revoked),
        (false, Some(life.of.events[0].at)),
        "{agent:?}"
    );
    for manager in [&composer, &other] {
        assert_eq!(
            manager.renew_agent(&host).await.unwrap_err().code,
            ErrorCode::Conflict
        );
        let refused = manager
            .may_enrol(&asked(&again, ONE), source("10.0.0.7"))
            .await
            .unwrap_err();
        assert!(refused.message.contains("is retired since"), "{refused:?}");
        assert!(refused.hint.unwrap().contains("host reinstate"));
    }
    enrol(&other, &again, TWO).await.expect("another host");
    other.reinstate_host(&host, "kim").await.unwrap();
    assert!(
        !composer.agent(&host).await.unwrap().speaks(),
        "it is not back by itself"
    );
    enrol(&composer, &again, ONE).await.expect("enrolled anew");
    composer.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_ten_days_before_its_end_as_soon_as_the_agent_answers() {
    let pool = Pool::new();
    let composer = pool.first_manager().await;
    let token = token(&composer, &[ONE]).await;
    let host = enrol(&composer, &token, ONE).await.unwrap().host;
    let enrolled = composer.agent(&host).await.unwrap();
    pool.pass(19 * DAY);
    composer.renew_agents().await.unwrap();
    assert_eq!(
        composer.agent(&host).await.unwrap(),
        enrolled,
        "it is good for long"
    );
    pool.pass(2 * DAY);
    *pool.world.silent.lock().unwrap() = true;
    composer.renew_agents().await.unwrap();
    assert_eq!(
        composer.agent(&host).await.unwrap(),
        enrolled,
        "it did not answer"
    );
    // A week in which its manager does not reach it.
    pool.pass(7 * DAY);
    *pool.world.silent.lock().unwrap() = false;
    composer.renew_agents().await.unwrap();
    let renewed = composer.agent(&host).await.unwrap();
    assert_eq!(renewed.ends, enrolled.enrolled + 28 * DAY + MONTH);
    assert_eq!(
        (renewed.key.as_str(), renewed.enrolment),
        ("key of another key", enrolled.enrolment)
    );
    assert_eq!(pool.world.given.lock().unwrap().len(), 1);
    pool.pass(MONTH);
    let ended = composer.renew_agent(&host).await.unwrap_err();
    assert!(ended.message.contains("its certificate ended"), "{ended:?}");
    assert!(ended.hint.unwrap().contains("host token --uuid"));
    composer.close().await;
}
