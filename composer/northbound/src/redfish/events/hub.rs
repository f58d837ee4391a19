//! Where all listeners of a manager hear what happens: the log is read once, and each event written once, however many
//! listen. Nobody listens, nothing is read.
//!
//! Invariants: what waits for a listener is bounded, and one that is too slow is let go; what a listener missed for
//! another reason it finds in the log, because all that it hears says after which entry of the log it comes.

use super::news::{self, News, Report};
use crate::auth::Asker;
use crate::redfish::message::Refusal;
use crate::redfish::telemetry;
use jiff::Timestamp;
use poolwright_service::Composer;
use poolwright_service::accounts::AccountVersion;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, sleep};

/// How often the log is read while somebody listens.
const TICK: Duration = Duration::from_millis(250);
/// Where the store does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many entries are read at once.
pub(super) const PAGE: u32 = 500;
/// So much may wait for a listener: each is what one reading of the log gave.
const MOST_WAITING: usize = 256;
/// More streams are refused.
const MOST_STREAMS: usize = 2_000;

/// What a listener hears.
#[derive(Debug, Clone)]
pub(crate) enum Heard {
    /// The entries of the log after `after`, up to `upto`.
    Log {
        after: u64,
        upto: u64,
        news: Arc<Vec<News>>,
    },
    Report(Arc<Report>),
}

/// A stream that is open.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub id: String,
    pub account: String,
    pub version: AccountVersion,
    pub since: Timestamp,
    ends: Arc<watch::Sender<bool>>,
}

pub(crate) struct Hub {
    sender: broadcast::Sender<Heard>,
    streams: Mutex<BTreeMap<String, Open>>,
    somebody: Notify,
    closed: watch::Sender<bool>,
    /// The last report, and when it was made.
    report: tokio::sync::Mutex<Option<(Instant, Arc<Report>)>>,
}

/// A place among the listeners, until it is dropped.
pub(super) struct Seat {
    hub: Arc<Hub>,
    pub id: String,
    pub ends: watch::Receiver<bool>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.id);
    }
}

impl Hub {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::channel(MOST_WAITING).0,
            streams: Mutex::default(),
            somebody: Notify::new(),
            closed: watch::channel(false).0,
            report: tokio::sync::Mutex::default(),
        })
    }

    /// A seat for a stream; `None` where all are taken.
    pub(super) fn sit(
        self: &Arc<Self>,
        asker: &Asker,
        now: Timestamp,
    ) -> Option<(Seat, broadcast::Receiver<Heard>)> {
        let mut streams = self.lock();
        if streams.len() >= MOST_STREAMS || *self.closed.borrow() {
            return None;
        }
        let (ends, ended) = watch::channel(false);
        let id = uuid::Uuid::new_v4().simple().to_string();
        let open = Open {
            id: id.clone(),
            account: asker.account.clone(),
            version: asker.version.clone(),
            since: now,
            ends: Arc::new(ends),
        };
        streams.insert(id.clone(), open);
        let seat = Seat {
            hub: self.clone(),
            id,
            ends: ended,
        };
        Some((seat, self.listen()))
    }

    /// Hears what comes from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<Heard> {
        let heard = self.sender.subscribe();
        self.somebody.notify_one();
        heard
    }

    pub fn streams(&self) -> Vec<Open> {
        self.lock().values().cloned().collect()
    }

    pub fn stream(&self, id: &str) -> Option<Open> {
        self.lock().get(id).cloned()
    }

    /// Ends a stream; `false` where there is none.
    pub fn end(&self, id: &str) -> bool {
        let open = self.lock().remove(id);
        open.is_some_and(|open| {
            open.ends.send_replace(true);
            true
        })
    }

    /// Ends all of them, and the reading.
    pub fn close(&self) {
        self.closed.send_replace(true);
        for open in std::mem::take(&mut *self.lock()).into_values() {
            open.ends.send_replace(true);
        }
    }

    /// Resolves once it is closed.
    pub async fn closed(&self) {
        // It can't fail: the sender is our own.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Reads the log for whoever listens, until it is closed.
    pub async fn run(self: Arc<Self>, composer: Composer) {
        tokio::select! {
            () = self.closed() => {}
            () = self.read(&composer) => {}
        }
    }

    async fn read(&self, composer: &Composer) {
        let mut at = None;
        loop {
            if self.sender.receiver_count() == 0 {
                at = None;
                self.somebody.notified().await;
                continue;
            }
            let pause = match self.read_on(composer, &mut at).await {
                Ok(true) => Duration::ZERO,
                Ok(false) => TICK,
                Err(_) => PATIENCE,
            };
            if let Err(error) = self.report(composer).await {
                tracing::debug!("metric report failed: {error:?}");
            }
            sleep(pause).await;
        }
    }

    /// Reads one page; whether there may be more.
    async fn read_on(
        &self,
        composer: &Composer,
        at: &mut Option<u64>,
    ) -> Result<bool, poolwright_service::ServiceError> {
        let after = match *at {
            Some(at) => at,
            None => composer.last_happened().await?,
        };
        *at = Some(after);
        let happened = composer.happened_after(after, PAGE).await?;
        let upto = happened.upto;
        if upto == after {
            return Ok(false);
        }
        *at = Some(upto);
        let news = Arc::new(happened.all.iter().flat_map(news::of).collect());
        // Nobody listens any more: then it is of no use.
        let _ = self.sender.send(Heard::Log { after, upto, news });
        Ok(true)
    }

    /// The pool in numbers, at most a period old. One that is made now is sent to every listener.
    pub(super) async fn report(&self, composer: &Composer) -> Result<Arc<Report>, Refusal> {
        let mut last = self.report.lock().await;
        if let Some((made, report)) = &*last
            && made.elapsed() < telemetry::PERIOD
        {
            return Ok(report.clone());
        }
        let before = last.as_ref().map_or(0, |(_, report)| report.number());
        let report = Arc::new(telemetry::news(composer, before).await?);
        *last = Some((Instant::now(), report.clone()));
        // Fails without a listener; the next one is given this report.
        let _ = self.sender.send(Heard::Report(report.clone()));
        Ok(report)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Open>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
