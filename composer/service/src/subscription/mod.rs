//! Who is sent what happens: destinations that clients chose, and what of them is kept.

mod destination;

pub use destination::{Allowed, Destination, Network, Refused, Verdict};

use crate::accounts::AccountVersion;
use jiff::Timestamp;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Subscriptions of one account at a time, and of all.
pub const MOST_OF_ONE: usize = 20;
pub const MOST: usize = 100;

/// A destination of events. What is sent there beside them (a token, usually) is kept sealed, elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// The account as it was when it subscribed, or resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<AccountVersion>,
    pub destination: String,
    /// What the client calls it: sent with each event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default)]
    pub chosen: Chosen,
    #[serde(default)]
    pub retry: Retry,
    pub created: Timestamp,
    /// There are headers, sealed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_headers: bool,
    /// Why nothing is sent there any more, until somebody resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// The last entry of the log that was delivered, or left out; a while ago.
    #[serde(default)]
    pub upto: u64,
}

impl Stored for Subscription {
    const KIND: &'static str = "subscription";
    fn id(&self) -> &str {
        &self.id
    }
}

impl Subscription {
    /// Whether it belongs to this account, also if the account was changed since.
    pub fn is_of(&self, version: &AccountVersion) -> bool {
        self.bound_to
            .as_ref()
            .is_some_and(|bound_to| bound_to.id == version.id)
    }
}

/// What of all that happens is sent there. Each list that is not empty must hold what is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chosen {
    /// Reports of the pool in numbers, instead of events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reports: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub registry_prefixes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub message_ids: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origin_resources: Vec<String>,
}

/// What is done once a destination failed as often as it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    #[default]
    Suspend,
    /// The subscription is removed.
    Terminate,
    Forever,
}

/// What somebody wants to be sent, and where.
#[derive(Debug, Clone)]
pub struct NewSubscription {
    pub destination: Destination,
    pub context: Option<String>,
    pub chosen: Chosen,
    pub retry: Retry,
    pub headers: Headers,
}

/// Headers that are sent with events. Their values are secrets: never shown, and kept sealed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// What is changed of a subscription; what is not said stays.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionChange {
    pub context: Option<String>,
    pub retry: Option<Retry>,
    pub headers: Option<Headers>,
    /// `Some(None)`: it goes on, with what happens from now on.
    pub suspended: Option<Option<String>>,
}
