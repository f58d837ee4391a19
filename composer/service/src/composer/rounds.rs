//! Polling rounds: asks hosts at a set rate, independently and with a concurrency limit.
//!
//! A slow host delays no other: after a moment it frees its slot, and its answer or error is awaited alongside the next
//! rounds. A host with a pending answer is not asked again. Hosts that were slow the last time are asked last.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use poolwright_model::id::HostId;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

/// Hosts that have a place at a time.
const AT_ONCE: usize = 16;
/// So long a host that does not answer keeps its place.
const MOMENT: Duration = Duration::from_secs(1);

/// The rounds, with the questions that are not answered yet.
pub(super) struct Rounds<'a, T> {
    every: Duration,
    next: Instant,
    places: Arc<Semaphore>,
    asked: BTreeSet<HostId>,
    slow: BTreeSet<HostId>,
    under_way: FuturesUnordered<BoxFuture<'a, Answer<T>>>,
}

struct Answer<T> {
    host: HostId,
    said: T,
    in_time: bool,
}

impl<'a, T: Send + 'a> Rounds<'a, T> {
    /// The first begins when this time has passed.
    pub fn new(every: Duration) -> Self {
        Self {
            every,
            next: Instant::now() + every,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            asked: BTreeSet::new(),
            slow: BTreeSet::new(),
            under_way: FuturesUnordered::new(),
        }
    }

    /// Asks the hosts that have no pending answer.
    pub fn begin<F>(&mut self, hosts: BTreeSet<HostId>, ask: impl Fn(&HostId) -> F)
    where
        F: Future<Output = T> + Send + 'a,
    {
        self.slow.retain(|host| hosts.contains(host));
        let free = hosts.into_iter().filter(|host| !self.asked.contains(host));
        let (slow, prompt): (Vec<HostId>, Vec<HostId>) = free.partition(|host| self.slow.contains(host));
        for host in prompt.into_iter().chain(slow) {
            let work = ask(&host);
            self.asked.insert(host.clone());
            let places = self.places.clone();
            self.under_way.push(Box::pin(in_turn(host, places, work)));
        }
    }

    /// The next answer. `None`: it is time for the next round.
    #[crate::boxed]
    pub async fn answer(&mut self) -> Option<(HostId, T)> {
        tokio::select! {
            biased;
            Some(answer) = self.under_way.next() => {
                self.asked.remove(&answer.host);
                match answer.in_time {
                    true => self.slow.remove(&answer.host),
                    false => self.slow.insert(answer.host.clone()),
                };
                Some((answer.host, answer.said))
            }
            () = sleep_until(self.next) => {
                // A round that was missed is not made up for.
                self.next = (self.next + self.every).max(Instant::now());
                None
            }
        }
    }
}

async fn in_turn<T>(host: HostId, places: Arc<Semaphore>, work: impl Future<Output = T>) -> Answer<T> {
    // The semaphore is never closed.
    let place = places.acquire().await;
    let mut work = pin!(work);
    let soon = timeout(MOMENT, work.as_mut()).await;
    drop(place);
    let in_time = soon.is_ok();
    let said = match soon {
        Ok(said) => said,
        Err(_) => work.await,
    };
    Answer { host, said, in_time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tokio::time::sleep;

    const EVERY: Duration = Duration::from_secs(5);
    /// What a host that hangs is given.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn hosts(range: std::ops::Range<u32>) -> BTreeSet<HostId> {
        range
            .map(|n| HostId::from_lossy(&format!("host-{n:03}")))
            .collect()
    }

    /// Seconds at which each host was asked, over `rounds` rounds.
    async fn asked(
        all: &BTreeSet<HostId>,
        hang: &BTreeSet<HostId>,
        rounds: u32,
    ) -> BTreeMap<HostId, Vec<u64>> {
        let start = Instant::now();
        let mut log: BTreeMap<HostId, Vec<u64>> = BTreeMap::new();
        let mut under_way = Rounds::new(EVERY);
        for _ in 0..rounds {
            while let Some((host, at)) = under_way.answer().await {
                log.entry(host).or_default().push(at);
            }
            under_way.begin(all.clone(), |host| {
                let hangs = hang.contains(host);
                async move {
                    let at = start.elapsed().as_secs();
                    if hangs {
                        sleep(DEADLINE).await;
                    }
                    at
                }
            });
        }
        while let Some((host, at)) = under_way.answer().await {
            log.entry(host).or_default().push(at);
        }
        log
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_hangs_holds_up_nobody_and_is_asked_again_once_it_is_given_up() {
        let (all, hang) = (hosts(0..3), hosts(0..1));
        let log = asked(&all, &hang, 12).await;
        let each: Vec<u64> = (1..=12).map(|round| round * EVERY.as_secs()).collect();
        for host in all.difference(&hang) {
            assert_eq!(log[host], each, "{host}");
        }
        assert_eq!(log[hang.first().unwrap()], [5, 25, 45]);
    }

    /// More than there are places: the first time the others wait for a moment or two, and then no more.
    #[tokio::test(start_paused = true)]
    async fn many_that_hang_hold_up_the_others_once_and_shortly() {
        let (all, hang) = (hosts(0..100), hosts(0..40));
        let log = asked(&all, &hang, 12).await;
        for host in all.difference(&hang) {
            let first = log[host][0];
            assert!((5..=5 + 3).contains(&first), "{host}: {first}");
            assert_eq!(log[host].len(), 12, "{host}");
            assert!(
                log[host][1..].iter().all(|at| at % EVERY.as_secs() == 0),
                "{host}"
            );
        }
        assert!(
            hang.iter().all(|host| log[host].len() >= 2),
            "nor are those forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_asked_at_a_time_than_there_are_places() {
        let now = &std::sync::atomic::AtomicUsize::new(0);
        let most = &std::sync::atomic::AtomicUsize::new(0);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let mut rounds = Rounds::new(EVERY);
        rounds.begin(hosts(0..50), |_| async move {
            most.fetch_max(now.fetch_add(1, relaxed) + 1, relaxed);
            sleep(MOMENT / 2).await;
            now.fetch_sub(1, relaxed);
        });
        let mut answers = 0;
        while rounds.answer().await.is_some() {
            answers += 1;
        }
        assert_eq!((answers, most.load(relaxed)), (50, AT_ONCE));
    }
}
