//! Hosts that an operator closes, at once or for a time that is to come, as for maintenance. A closed host is given nothing
//! new; what it has stays.

use jiff::Timestamp;
use poolwright_model::id::HostId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// When a host is closed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Closure {
    pub host: HostId,
    pub from: Timestamp,
    /// It opens by itself then; nothing: when somebody opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    pub reason: String,
}

impl Closure {
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= at)
    }

    /// Whether it is closed at a moment.
    pub fn holds(&self, at: Timestamp) -> bool {
        self.from <= at && !self.is_over(at)
    }

    /// Whether it is closed at some time from a moment until another; with none, from then on.
    pub fn meets(&self, from: Timestamp, until: Option<Timestamp>) -> bool {
        self.holds(from) || (self.from > from && until.is_none_or(|until| self.from < until))
    }

    /// The next moment after this one at which it begins or ends.
    pub fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        let edges = [Some(self.from), self.until].into_iter().flatten();
        edges.filter(|edge| *edge > after).min()
    }

    /// As it goes after the host's name, seen from a moment: `is closed until …: why`.
    pub fn tell(&self, now: Timestamp) -> String {
        match self.holds(now) {
            true => format!("is {self}"),
            false => format!("will be {self}"),
        }
    }
}

impl fmt::Display for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from, until, reason, ..
        } = self;
        match until {
            Some(until) => write!(f, "closed from {from} until {until}: {reason}"),
            None => write!(f, "closed from {from} on, until somebody opens it: {reason}"),
        }
    }
}

/// The hosts that are closed at some time from a moment until another, with why.
pub fn closed_within<'c>(
    closures: impl IntoIterator<Item = &'c Closure>,
    from: Timestamp,
    until: Option<Timestamp>,
) -> BTreeMap<HostId, String> {
    let met = closures.into_iter().filter(|closure| closure.meets(from, until));
    met.map(|closure| (closure.host.clone(), closure.tell(from)))
        .collect()
}

/// The hosts that are closed at a moment, with why.
pub fn closed_at<'c>(
    closures: impl IntoIterator<Item = &'c Closure>,
    at: Timestamp,
) -> BTreeMap<HostId, String> {
    closed_within(closures, at, Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn maintenance(until: Option<&str>) -> Closure {
        Closure {
            host: "h".parse().unwrap(),
            from: at("2026-03-02T22:00:00Z"),
            until: until.map(at),
            reason: "new fans".to_owned(),
        }
    }

    #[test]
    fn it_holds_from_its_first_moment_to_before_its_last() {
        let closure = maintenance(Some("2026-03-02T23:00:00Z"));
        let holds = ["21:59:59", "22:00:00", "22:59:59", "23:00:00"]
            .map(|time| closure.holds(at(&format!("2026-03-02T{time}Z"))));
        assert_eq!(holds, [false, true, true, false]);
        assert!(closure.is_over(at("2026-03-02T23:00:00Z")));
        assert!(maintenance(None).holds(at("2036-03-02T22:00:00Z")));
        let edges = ["21:00:00", "22:00:00", "23:00:00"]
            .map(|time| closure.next_edge(at(&format!("2026-03-02T{time}Z"))));
        let told = [Some(closure.from), closure.until, None];
        assert_eq!(edges, told);
    }

    #[test]
    fn what_ends_before_it_or_begins_after_it_does_not_meet_it() {
        let closure = maintenance(Some("2026-03-02T23:00:00Z"));
        let meets = |from: &str, until: Option<&str>| closure.meets(at(from), until.map(at));
        assert!(!meets("2026-03-02T20:00:00Z", Some("2026-03-02T22:00:00Z")));
        assert!(meets("2026-03-02T20:00:00Z", Some("2026-03-02T22:00:01Z")));
        assert!(meets("2026-03-02T22:30:00Z", Some("2026-03-02T22:31:00Z")));
        assert!(!meets("2026-03-02T23:00:00Z", None));
        assert!(
            meets("2026-03-02T20:00:00Z", None),
            "it goes on for no one knows how long"
        );
    }

    #[test]
    fn it_is_told_as_it_is_or_will_be() {
        let closed = closed_within(&[maintenance(None)], at("2026-03-02T20:00:00Z"), None);
        let told: Vec<&String> = closed.values().collect();
        assert_eq!(
            told,
            ["will be closed from 2026-03-02T22:00:00Z on, until somebody opens it: new fans"]
        );
        assert_eq!(
            closed_at(&[maintenance(None)], at("2026-03-02T20:00:00Z")),
            [].into()
        );
    }
}
