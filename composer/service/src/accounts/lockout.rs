//! The counters of failed logins, and the delays that follow from them. Pure: `failures` stores them.
//!
//! There are three counters: of a name at a source, of a source, and of an account. From a threshold on each delays the
//! next attempt, twice as long with each failure. The last two have a higher threshold, so that one source does not keep
//! others from an account. Invariants: invented names and sources take a bounded number of documents of bounded size; a
//! refused attempt costs no hash.

use jiff::{SignedDuration, Timestamp};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The first delay is this part of the longest.
const PARTS: i32 = 60;
/// Thresholds of a source, and of an account, in multiples of that of a name at a source.
const WIDER: u32 = 10;
/// Wrong passwords that are checked during a delay. Without such checks the end of the delay could not be shown to a
/// client with the right password; with more, the delay would protect nothing.
const CHECKS: u32 = 3;
/// Sources of a page, and names of a source.
const SOURCES: usize = 16;
const NAMES: usize = 16;

/// The client that an address belongs to: with IPv6 a client has all of a /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl Source {
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lockout policy for wrong passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Consecutive wrong passwords at one account from one source before the first delay.
    pub threshold: u32,
    /// The longest delay.
    pub locked: SignedDuration,
    /// Time after the last wrong password, and the delay that followed it, until the counter resets.
    pub forgotten: SignedDuration,
}

impl Rule {
    /// The threshold of a source, and of an account.
    fn wide(&self) -> u32 {
        self.threshold.saturating_mul(WIDER)
    }

    fn delay(&self, times: u32, threshold: u32) -> SignedDuration {
        match times.checked_sub(threshold) {
            None => SignedDuration::ZERO,
            Some(doublings) => (self.locked / PARTS * (1 << doublings.min(6))).min(self.locked),
        }
    }
}

/// Failures that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Counter {
    times: u32,
    last: Timestamp,
    /// Wrong passwords that were checked during the delay.
    #[serde(default, skip_serializing_if = "is_zero")]
    checks: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Counter {
    fn none(now: Timestamp) -> Self {
        Self {
            times: 0,
            last: now,
            checks: 0,
        }
    }

    /// Until when it delays attempts, if it does.
    fn until(&self, rule: &Rule, threshold: u32, now: Timestamp) -> Option<Timestamp> {
        let delay = rule.delay(self.times, threshold);
        let passed = now.duration_since(self.last);
        // A clock that was set back must not prolong it.
        (passed < delay && passed > -delay).then(|| self.last + delay)
    }

    fn is_forgotten(&self, rule: &Rule, threshold: u32, now: Timestamp) -> bool {
        now.duration_since(self.last) >= rule.delay(self.times, threshold) + rule.forgotten
    }

    fn count(&mut self, now: Timestamp) {
        self.times = self.times.saturating_add(1);
        self.last = now;
        self.checks = 0;
    }

    fn forgive(&mut self, times: u32) {
        self.times = self.times.saturating_sub(times);
    }

    /// Takes one of the checks of a delay, if one is left.
    fn take_check(&mut self) -> Admission {
        if self.checks >= CHECKS {
            return Admission::Refused;
        }
        self.checks += 1;
        Admission::Early
    }

    /// [`make_room`] drops the counter with the fewest failures, and of several the oldest.
    fn weight(&self) -> (u32, Timestamp) {
        (self.times, self.last)
    }
}

/// The failures of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OfSource {
    all: Counter,
    /// Those at each name. A name that no account has is counted as one that an account has: else the delay would tell
    /// which accounts there are.
    names: BTreeMap<String, Counter>,
}

/// The failures of some sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFailures {
    pub(super) page: String,
    sources: BTreeMap<String, OfSource>,
}

impl Stored for SourceFailures {
    const KIND: &'static str = "login-failures-of-sources";
    fn id(&self) -> &str {
        &self.page
    }
}

impl SourceFailures {
    fn empty(page: &str) -> Self {
        Self {
            page: page.to_owned(),
            sources: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Names that must wait at a source.
    pub(super) fn delayed(self, rule: &Rule, now: Timestamp) -> impl Iterator<Item = String> {
        let names = self.sources.into_values().flat_map(|source| source.names);
        let delayed = move |counter: &Counter| counter.until(rule, rule.threshold, now).is_some();
        names.filter_map(move |(name, counter)| delayed(&counter).then_some(name))
    }

    /// Ends the delays of a name, and those of the sources themselves: they delay the name, too.
    pub(super) fn unlock(&mut self, name: &str) {
        self.sources.retain(|_, source| {
            source.names.remove(name);
            source.all.times = 0;
            !source.names.is_empty()
        });
    }

    fn forget(&mut self, rule: &Rule, now: Timestamp) {
        self.sources.retain(|_, source| {
            source
                .names
                .retain(|_, counter| !counter.is_forgotten(rule, rule.threshold, now));
            if source.all.is_forgotten(rule, rule.wide(), now) {
                source.all = Counter::none(now);
            }
            source.all.times > 0 || !source.names.is_empty()
        });
    }

    /// Counts a failure. Returns the end of the delay for this name.
    fn count(&mut self, source: &str, name: &str, rule: &Rule, now: Timestamp) -> Option<Timestamp> {
        self.forget(rule, now);
        make_room(&mut self.sources, source, SOURCES, |source| source.all.weight());
        let source = self.sources.entry(source.to_owned()).or_insert_with(|| OfSource {
            all: Counter::none(now),
            names: BTreeMap::new(),
        });
        source.all.count(now);
        make_room(&mut source.names, name, NAMES, Counter::weight);
        let of_name = source
            .names
            .entry(name.to_owned())
            .or_insert_with(|| Counter::none(now));
        of_name.count(now);
        of_name.until(rule, rule.threshold, now)
    }

    /// Deletes the failures of a name at a source, and returns their number.
    fn forgive(&mut self, source: &str, name: &str) -> u32 {
        let Some(of_source) = self.sources.get_mut(source) else {
            return 0;
        };
        let times = of_source.names.remove(name).map_or(0, |counter| counter.times);
        of_source.all.forgive(times);
        if of_source.all.times == 0 && of_source.names.is_empty() {
            self.sources.remove(source);
        }
        times
    }
}

/// Drops the lightest entry where another one does not fit.
fn make_room<V>(
    entries: &mut BTreeMap<String, V>,
    new: &str,
    most: usize,
    weight: impl Fn(&V) -> (u32, Timestamp),
) {
    if entries.len() < most || entries.contains_key(new) {
        return;
    }
    let lightest = entries.iter().min_by_key(|(_, entry)| weight(entry));
    if let Some(key) = lightest.map(|(key, _)| key.clone()) {
        entries.remove(&key);
    }
}

/// The failures at one account, from all sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountFailures {
    /// Its id.
    pub(super) account: String,
    all: Counter,
}

impl Stored for AccountFailures {
    const KIND: &'static str = "login-failures-of-account";
    fn id(&self) -> &str {
        &self.account
    }
}

impl AccountFailures {
    fn none(account: &str) -> Self {
        Self {
            account: account.to_owned(),
            all: Counter::none(Timestamp::UNIX_EPOCH),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.times == 0
    }

    pub(super) fn is_delayed(&self, rule: &Rule, now: Timestamp) -> bool {
        self.all.until(rule, rule.wide(), now).is_some()
    }
}

/// A login attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The key of its failure counter: the account's id, or a few bits of a name that no account has. Such a name may
    /// be a password in the wrong field, so it is not stored.
    name: String,
    pub account: Option<String>,
    source: String,
    pub page: String,
}

impl Attempt {
    /// `account`: the id of the account of this name, if there is one.
    pub fn at(name: &str, account: Option<&str>, source: Source) -> Self {
        let source = source.to_string();
        let digest: [u8; 32] = Sha256::digest(&source).into();
        Self {
            name: account.map_or_else(|| shortened(name), str::to_owned),
            account: account.map(str::to_owned),
            page: format!("{:02x}", digest[0]),
            source,
        }
    }
}

fn shortened(name: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(name).into();
    format!("{:02x}{:02x}", digest[0], digest[1])
}

/// How an attempt is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Its password is checked. It counts as a failure until it is forgiven; the next one waits until then.
    Counted(Option<Timestamp>),
    /// It comes during a delay. Its password is checked all the same, to show the end of the delay for a right one.
    Early,
    /// It comes during a delay, and its password is not checked.
    Refused,
}

/// The counters that an attempt meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Met {
    pub page: SourceFailures,
    pub account: Option<AccountFailures>,
}

impl Met {
    /// The counters of an attempt as they were found; without failures where there are none.
    pub fn of(attempt: &Attempt, page: Option<SourceFailures>, account: Option<AccountFailures>) -> Self {
        let id = attempt.account.as_deref();
        Self {
            page: page.unwrap_or_else(|| SourceFailures::empty(&attempt.page)),
            account: id.map(|id| account.unwrap_or_else(|| AccountFailures::none(id))),
        }
    }

    /// Until when the counters of the source delay an attempt: of the name there, and of all names.
    pub fn until(&self, attempt: &Attempt, rule: &Rule, now: Timestamp) -> [Option<Timestamp>; 2] {
        let source = self.page.sources.get(&attempt.source);
        let name = source.and_then(|source| source.names.get(&attempt.name));
        [
            name.and_then(|name| name.until(rule, rule.threshold, now)),
            source.and_then(|source| source.all.until(rule, rule.wide(), now)),
        ]
    }

    /// The counter of the source whose checks an attempt takes, and until when the source delays it.
    fn delaying(
        &mut self,
        attempt: &Attempt,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<(&mut Counter, Timestamp)> {
        let [of_name, of_source] = self.until(attempt, rule, now);
        let until = of_name.max(of_source)?;
        let source = self.page.sources.get_mut(&attempt.source)?;
        let counter = match of_name {
            Some(_) => source.names.get_mut(&attempt.name)?,
            None => &mut source.all,
        };
        Some((counter, until))
    }

    pub fn admit(&mut self, attempt: &Attempt, rule: &Rule, now: Timestamp) -> Admission {
        // Not counted any further: one source must not delay others.
        if let Some((counter, _)) = self.delaying(attempt, rule, now) {
            return counter.take_check();
        }
        let next = self.page.count(&attempt.source, &attempt.name, rule, now);
        let Some(account) = &mut self.account else {
            return Admission::Counted(next);
        };
        if account.all.is_forgotten(rule, rule.wide(), now) {
            account.all = Counter::none(now);
        }
        if account.all.until(rule, rule.wide(), now).is_some() {
            return account.all.take_check();
        }
        account.all.count(now);
        Admission::Counted(next.max(account.all.until(rule, rule.wide(), now)))
    }

    /// The password was right: deletes the failures of the name at the source, and subtracts them from the other
    /// counters.
    pub fn forgive(&mut self, attempt: &Attempt) {
        let times = self.page.forgive(&attempt.source, &attempt.name);
        if let Some(account) = &mut self.account {
            account.all.forgive(times);
        }
    }

    /// A right password gives back the check that it took. Only that one: else the password of any account would give
    /// endless guesses at others. Where only its account is delayed it was no failure. Returns the end of the delay,
    /// unless another right password ended the delay meanwhile.
    pub fn give_back(&mut self, attempt: &Attempt, rule: &Rule, now: Timestamp) -> Option<Timestamp> {
        if let Some((counter, until)) = self.delaying(attempt, rule, now) {
            counter.checks = counter.checks.saturating_sub(1);
            return Some(until);
        }
        self.page.forgive(&attempt.source, &attempt.name);
        let account = self.account.as_mut()?;
        account.all.checks = account.all.checks.saturating_sub(1);
        account.all.until(rule, rule.wide(), now)
    }
}

#[cfg(test)]
mod tests;
