//! The rows of `hw-profiles/sizing/overhead.toml`, and which of them holds.

use super::{Card, Links, Maker, Purpose, Software};
use crate::constants::{Claim, Figure, Range};
use crate::version::Version;
use serde::Deserialize;

/// The figures, each with its evidence.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    context: Vec<Context>,
    links: Vec<Linked>,
    pub(super) collectives: Collectives,
}

/// What the runtime's context takes with some software.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub name: String,
    vendor: Option<Maker>,
    /// Frameworks and engines; None: all.
    software: Option<Vec<String>>,
    older_than: Option<OlderThan>,
    links: Option<Links>,
    /// After the first tensor.
    pub held: Range,
    /// And kernels that are loaded when a library serves, or trains.
    pub serving: Option<Range>,
    pub training: Option<Range>,
}

impl Context {
    /// What is loaded beside the context.
    pub fn kernels(&self, purpose: Purpose) -> Option<&Range> {
        match purpose {
            Purpose::Server => None,
            Purpose::Serving => self.serving.as_ref(),
            Purpose::Training => self.training.as_ref(),
        }
    }
}

/// Holds where either version is stated, and older.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct OlderThan {
    framework: Version,
    cuda: Version,
}

/// How many channels the library has over some links.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Linked {
    pub name: String,
    vendor: Option<Maker>,
    links: Option<Links>,
    pub channels: Figure,
    pub peer_channels: Figure,
    pub multicast_channels: Option<Figure>,
    /// Held once, whatever the communicators.
    pub state: Range,
}

/// How the library allocates, whatever the links.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Collectives {
    pub connection_mib: Figure,
    pub multicast_mib: Figure,
    pub network_mib: Figure,
    pub network_channels: Figure,
    /// GPUs that a host is taken to have.
    pub host: Figure,
    pub exchange_safe: Figure,
    older_than: OlderThan,
    pub connects: Claim,
}

impl OlderThan {
    fn holds(self, software: &Software<'_>) -> bool {
        let older = |stated: Option<Version>, than: Version| stated.is_some_and(|stated| stated < than);
        older(software.version, self.framework) || older(software.cuda, self.cuda)
    }
}

impl Collectives {
    /// Whether it connects everything as soon as a communicator is made.
    pub fn connects_at_once(&self, software: &Software<'_>) -> bool {
        self.older_than.holds(software)
    }
}

impl Overheads {
    pub(super) fn context(&self, card: Card, software: &Software<'_>) -> &Context {
        let holds = |row: &&Context| {
            let names = row.software.as_ref();
            row.vendor.is_none_or(|vendor| vendor == card.maker)
                && (row.links.is_none() || card.links.is_none() || row.links == card.links)
                && names.is_none_or(|names| names.iter().any(|name| name.eq_ignore_ascii_case(software.name)))
                && row.older_than.is_none_or(|than| than.holds(software))
        };
        let last = &self.context[self.context.len() - 1];
        self.context.iter().find(holds).unwrap_or(last)
    }

    pub(super) fn links(&self, card: Card) -> &Linked {
        let holds = |row: &&Linked| {
            row.vendor.is_none_or(|vendor| vendor == card.maker)
                && (row.links.is_none() || card.links.is_none() || row.links == card.links)
        };
        let last = &self.links[self.links.len() - 1];
        self.links.iter().find(holds).unwrap_or(last)
    }

    /// The last of each kind must hold for all.
    #[cfg(test)]
    pub(super) fn end_with_any(&self) -> bool {
        let any = |row: &Context| (&row.vendor, &row.software, &row.older_than) == (&None, &None, &None);
        self.context.last().is_some_and(any)
            && self
                .links
                .last()
                .is_some_and(|row| (row.vendor, row.links) == (None, None))
    }

    #[cfg(test)]
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&str, &Range)> {
        let contexts = self.context.iter().map(|row| (row.name.as_str(), &row.held));
        contexts.chain(self.links.iter().map(|row| (row.name.as_str(), &row.state)))
    }
}
