//! What happens is sent to those who subscribed: one after the other, in order, until each was taken or given up.
//!
//! Invariants: before each sending all addresses of a destination are judged, and just those are dialled; no redirect is
//! followed, no proxy asked, and nothing of an answer told but whether it was a yes. One manager of a store sends. What was
//! sent when a manager dies may be sent once more.

use super::ear::{Ear, Wish};
use super::hub::Hub;
use super::news::Letter;
use crate::EventOptions;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use poolwright_service::accounts::Accounts;
use poolwright_service::subscription::{
    Destination, Refused, Retry, Subscription, SubscriptionChange, Verdict,
};
use poolwright_service::{Composer, ServiceError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// How often one event is sent again before a destination is given up.
pub(crate) const RETRIES: u32 = 3;
/// Where one is never given up, tries are at most so far apart, in units of the interval.
const SLOWEST: u32 = 30;
/// From the first word to the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// For its addresses to be found.
const LOOK_UP: Duration = Duration::from_secs(3);
/// A connection that nothing was sent over for so long is not used again: few collectors close one earlier.
const IDLE: Duration = Duration::from_secs(4);
/// How often it is read who subscribed, where nobody says that it changed.
const LOOK: Duration = Duration::from_secs(5);
/// How often it is noted how far a destination has come.
const NOTE: Duration = Duration::from_secs(2);

/// The account is not the one that subscribed, or was changed since.
const OTHER_ACCOUNT: &str = "its account was deleted, disabled, or given another password, role or scope; ResumeSubscription goes on with it";

/// The part of a manager that sends.
pub(crate) struct Post {
    pub options: EventOptions,
    /// Where this manager listens.
    pub listens: SocketAddr,
    pub composer: Composer,
    pub accounts: Arc<Accounts>,
    pub hub: Arc<Hub>,
    /// Told when somebody subscribed, or changed a subscription.
    pub changed: Notify,
    /// What keeps events from a destination just now, by subscription.
    trouble: Mutex<BTreeMap<String, String>>,
}

/// How a destination is reached, as long as its addresses are these.
struct Line {
    addresses: Vec<SocketAddr>,
    client: reqwest::Client,
}

/// Why something was not delivered. Never what was answered.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error("{0}")]
    Refused(#[from] Refused),
    #[error("its name is not found")]
    NoAddress,
    #[error("{0} is a private address that is not allowed: poolwright serve --event-allow NETWORK")]
    NotAllowed(IpAddr),
    #[error("it does not answer as it should")]
    NotTaken,
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl Post {
    pub fn new(
        options: EventOptions,
        listens: SocketAddr,
        composer: Composer,
        accounts: Arc<Accounts>,
        hub: Arc<Hub>,
    ) -> Self {
        Self {
            options,
            listens,
            composer,
            accounts,
            hub,
            changed: Notify::new(),
            trouble: Mutex::default(),
        }
    }

    /// What can be said of a destination before anything is sent: what is never open is refused at once.
    pub async fn admit(&self, destination: &Destination) -> Result<(), Refused> {
        if let Some(name) = destination.name() {
            self.options.allowed.judge_name(name)?;
        }
        for address in addresses(destination).await {
            self.judge(address, destination.port()).map(drop)?;
        }
        Ok(())
    }

    /// What keeps events from a destination, if it is known.
    pub fn trouble(&self, subscription: &Subscription) -> Option<String> {
        if let Some(why) = self.troubles().get(&subscription.id) {
            return Some(why.clone());
        }
        let destination = Destination::read(&subscription.destination).ok()?;
        let address = destination.address()?;
        match self.judge(address, destination.port()) {
            Ok(true) => None,
            Ok(false) => Some(Undelivered::NotAllowed(address).to_string()),
            Err(refused) => Some(refused.to_string()),
        }
    }

    /// Whether something may be sent to an address now.
    fn judge(&self, address: IpAddr, port: u16) -> Result<bool, Refused> {
        match self.options.allowed.judge(address) {
            Verdict::Never(what) => Err(Refused::Never(address, what)),
            _ if self.is_ours(address, port) => Err(Refused::Ours(address)),
            Verdict::Open => Ok(true),
            Verdict::NotAllowed => Ok(false),
        }
    }

    /// Whether it is this manager, or, but for loopback addresses, anything on this machine.
    fn is_ours(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        match address.is_loopback() {
            true => port == self.listens.port(),
            // Only an address of its own can be bound.
            false => address == self.listens.ip() || UdpSocket::bind((address, 0)).is_ok(),
        }
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends until the hub is closed.
    pub async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.hub.closed() => {}
            () = self.keep_sending() => {}
        }
    }

    async fn keep_sending(self: &Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut running: BTreeMap<String, (Subscription, AbortHandle)> = BTreeMap::new();
        loop {
            if let Ok(wanted) = self.wanted().await {
                self.troubles().retain(|id, _| wanted.contains_key(id));
                running.retain(|id, (was, task)| {
                    let stays = wanted.get(id).is_some_and(|now| is_same(was, now));
                    if !stays {
                        task.abort();
                    }
                    stays && !task.is_finished()
                });
                for (id, subscription) in wanted {
                    if let Entry::Vacant(place) = running.entry(id) {
                        let post = self.clone();
                        let one = subscription.clone();
                        let task = tasks.spawn(async move { post.serve(one).await });
                        place.insert((subscription, task));
                    }
                }
            }
            while tasks.try_join_next().is_some() {}
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Those that are to be sent to by this manager.
    async fn wanted(&self) -> Result<BTreeMap<String, Subscription>, ServiceError> {
        if self.composer.may_be_asked().is_err() || !self.composer.sends_events() {
            return Ok(BTreeMap::new());
        }
        let all = self.composer.subscriptions().await?;
        let open = all.into_iter().filter(|one| one.suspended.is_none());
        Ok(open.map(|one| (one.id.clone(), one)).collect())
    }

    /// Sends to one destination, until it is suspended.
    async fn serve(&self, subscription: Subscription) {
        let heard = self.hub.listen();
        let wish = Wish::Chosen(subscription.chosen.clone());
        let mut ear = Ear::new(self.composer.clone(), heard, wish, subscription.upto);
        let mut noted = (subscription.upto, Instant::now());
        let mut line = None;
        loop {
            let letter = timeout(NOTE, ear.next()).await;
            match letter {
                Ok(Ok(letter)) => {
                    if !self.is_bound(&subscription).await {
                        return self.give_up(&subscription, OTHER_ACCOUNT).await;
                    }
                    if let Err(why) = self.deliver(&subscription, &letter, &mut line).await {
                        let why = format!("it failed {} times: {why}", RETRIES + 1);
                        return self.give_up(&subscription, &why).await;
                    }
                }
                // Whoever looks after subscriptions begins this one again, from what was noted.
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            if ear.upto() > noted.0 && noted.1.elapsed() >= NOTE {
                // What is not noted is sent once more after a restart.
                let _ = self.composer.note_delivered(&subscription.id, ear.upto()).await;
                noted = (ear.upto(), Instant::now());
            }
        }
    }

    /// Sends one event until it is taken. Not where it is not allowed: what happens meanwhile is not kept for it.
    async fn deliver(
        &self,
        subscription: &Subscription,
        letter: &Letter,
        line: &mut Option<Line>,
    ) -> Result<(), Undelivered> {
        let mut failed = 0;
        loop {
            let Err(why) = self.send(subscription, letter, line).await else {
                self.troubles().remove(&subscription.id);
                return Ok(());
            };
            tracing::info!(subscription = %subscription.id, "an event is not delivered: {why}");
            let stays = matches!(why, Undelivered::NotAllowed(_));
            self.troubles().insert(subscription.id.clone(), why.to_string());
            if stays {
                return Ok(());
            }
            failed += 1;
            if failed > RETRIES && subscription.retry != Retry::Forever {
                return Err(why);
            }
            sleep(self.options.retry_interval * failed.min(SLOWEST)).await;
        }
    }

    async fn send(
        &self,
        subscription: &Subscription,
        letter: &Letter,
        line: &mut Option<Line>,
    ) -> Result<(), Undelivered> {
        let destination = Destination::read(&subscription.destination)?;
        if let Some(name) = destination.name() {
            self.options.allowed.judge_name(name)?;
        }
        let port = destination.port();
        let addresses = addresses(&destination).await;
        if addresses.is_empty() {
            return Err(Undelivered::NoAddress);
        }
        for address in &addresses {
            if !self.judge(*address, port)? {
                return Err(Undelivered::NotAllowed(*address));
            }
        }
        let headers = self.composer.subscription_headers(subscription).await?;
        let mut all = HeaderMap::new();
        for (name, value) in &headers.0 {
            let header = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
            // They were looked at as they came.
            if let (Ok(name), Ok(value)) = header {
                all.insert(name, value);
            }
        }
        let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, port));
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        addresses.sort_unstable();
        let line = match line {
            Some(line) if line.addresses == addresses => line,
            other => {
                let client = self.client(&destination, &addresses);
                let client = client.map_err(|_| Undelivered::NotTaken)?;
                other.insert(Line { addresses, client })
            }
        };
        let request = line
            .client
            .post(destination.url().clone())
            .headers(all)
            .header("content-type", "application/json")
            .body(with_context(&letter.payload, subscription.context.as_deref()));
        // Of an answer only the status is read.
        let answer = request.send().await.map_err(|_| Undelivered::NotTaken)?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(Undelivered::NotTaken),
        }
    }

    /// One that finds these addresses under the name, whatever it would resolve to now, and goes nowhere else.
    fn client(
        &self,
        destination: &Destination,
        addresses: &[SocketAddr],
    ) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder();
        if let Some(pem) = &self.options.ca {
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        let host = destination.url().host_str().unwrap_or_default();
        builder
            .resolve_to_addrs(host, addresses)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .https_only(true)
            .referer(false)
            .timeout(PATIENCE)
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("poolwright/", env!("CARGO_PKG_VERSION")))
            .build()
    }

    /// Whether its account is as it was when it subscribed. Goes on where that can't be read now.
    async fn is_bound(&self, subscription: &Subscription) -> bool {
        match self.accounts.principal(&subscription.account).await {
            Ok(account) => account.is_some_and(|account| subscription.bound_to == Some(account.version)),
            Err(_) => true,
        }
    }

    async fn give_up(&self, subscription: &Subscription, why: &str) {
        let id = &subscription.id;
        let done = match subscription.retry {
            Retry::Terminate => self.composer.unsubscribe(id).await,
            Retry::Suspend | Retry::Forever => {
                let change = SubscriptionChange {
                    suspended: Some(Some(why.to_owned())),
                    ..SubscriptionChange::default()
                };
                self.composer.change_subscription(id, change).await.map(drop)
            }
        };
        match done {
            Ok(()) => tracing::warn!(subscription = %id, "a destination of events is given up: {why}"),
            Err(error) => tracing::warn!(subscription = %id, "a destination can't be given up: {error}"),
        }
    }
}

/// But for how far it has come, which it notes itself.
fn is_same(a: &Subscription, b: &Subscription) -> bool {
    let same = Subscription {
        upto: a.upto,
        ..b.clone()
    };
    *a == same
}

/// All addresses of a destination; none where its name is not found in time.
async fn addresses(destination: &Destination) -> Vec<IpAddr> {
    if let Some(address) = destination.address() {
        return vec![address];
    }
    let name = destination.name().unwrap_or_default();
    match timeout(LOOK_UP, tokio::net::lookup_host((name, destination.port()))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    }
}

/// The payload with what its reader calls the subscription.
fn with_context(payload: &Bytes, context: Option<&str>) -> Bytes {
    let Some((b'{', rest)) = payload.split_first().filter(|_| context.is_some()) else {
        return payload.clone();
    };
    let context = serde_json::json!(context.unwrap_or_default()).to_string();
    [b"{\"Context\":", context.as_bytes(), b",", rest].concat().into()
}
