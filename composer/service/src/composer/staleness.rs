//! What is known of an endpoint grows old, and is told as such. What a change rests on must not be.
//!
//! An endpoint is stale that does not answer, or where it was read longer ago than two of its own polls who is bound
//! where. That is asked only of what a change touches, so that one that is silent holds up nobody else; and only
//! after another look at it.

use super::Composer;
use super::planning::Basis;
use super::polling::period;
use super::requests::Request;
use super::silence::Silent;
use crate::error::{ErrorCode, ServiceError};
use crate::sight::Sight;
use jiff::Timestamp;
use poolwright_executor::OperationKind;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId};
use poolwright_model::step::Verb;
use poolwright_model::topology::{Gpu, Host};
use poolwright_planner::Plan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// So many of its own polls ago an endpoint must have been read.
const POLLS: u32 = 2;

/// For another look at what a change touches, before it is refused.
const BRIEFLY: Duration = Duration::from_secs(10);

/// An endpoint of which it is not known who is bound where just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stale {
    pub endpoint: ControlEndpointId,
    /// When it was read last; `None`: never since the manager started.
    pub read: Option<Timestamp>,
    pub because: String,
}

/// Something that endpoints showed, and how old that is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Observed{T}"))]
pub struct Observed<T> {
    #[serde(flatten)]
    pub what: T,
    /// When it was read last who is bound where at the endpoint that shows it; `None`: never since the manager
    /// started.
    #[serde(default)]
    pub observed_at: Option<Timestamp>,
    /// That is too long ago to rest a change on, or the endpoint does not answer.
    #[serde(default)]
    pub stale: bool,
}

/// When endpoints were read last, and whether that is too long ago.
pub(super) type Ages = BTreeMap<ControlEndpointId, (Option<Timestamp>, bool)>;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            endpoint, because, ..
        } = self;
        match self.read {
            Some(at) => write!(f, "{endpoint} was read last at {at}: {because}"),
            None => write!(f, "{endpoint} was not read since the manager started: {because}"),
        }
    }
}

impl Stale {
    fn unread(endpoint: &ControlEndpointId) -> Self {
        Self {
            endpoint: endpoint.clone(),
            read: None,
            because: "it was not looked at yet".to_owned(),
        }
    }
}

impl<T> Observed<T> {
    /// What was seen a moment ago.
    pub fn now(what: T) -> Self {
        Self {
            what,
            observed_at: None,
            stale: false,
        }
    }

    /// As new as the newest of these endpoints.
    fn by<'e>(what: T, endpoints: impl Iterator<Item = &'e ControlEndpointId>, ages: &Ages) -> Self {
        let known: Vec<_> = endpoints.filter_map(|id| ages.get(id)).collect();
        Self {
            what,
            observed_at: known.iter().filter_map(|(at, _)| *at).max(),
            stale: known.iter().all(|(_, stale)| *stale),
        }
    }
}

/// Who tells what is so of a GPU: those that bind it, else those that show it.
pub(super) fn tellers(gpu: &Gpu) -> BTreeSet<&ControlEndpointId> {
    match gpu.control.is_empty() {
        true => gpu.seen_by.iter().collect(),
        false => gpu.control.iter().map(|at| &at.endpoint).collect(),
    }
}

/// The same of a host: its BMC.
fn tellers_of_host(host: &Host) -> BTreeSet<&ControlEndpointId> {
    match &host.bmc {
        Some(bmc) => BTreeSet::from([bmc]),
        None => host.seen_by.iter().collect(),
    }
}

impl Composer {
    /// The GPUs that are seen, with how old that is.
    #[crate::boxed]
    pub async fn gpus(&self) -> Result<Vec<Observed<Gpu>>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let ages = self.ages();
        let observed = snapshot.topology.gpus.iter();
        let observed = observed.map(|gpu| Observed::by(gpu.clone(), tellers(gpu).into_iter(), &ages));
        Ok(observed.collect())
    }

    /// One of them, without a copy of the others.
    #[crate::boxed]
    pub async fn gpu(&self, id: &GpuId) -> Result<Option<Observed<Gpu>>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let found = snapshot.topology.gpus.iter().find(|gpu| gpu.id == *id);
        Ok(found.map(|gpu| {
            let tellers = tellers(gpu);
            let ages = self.ages_of(|endpoint| tellers.contains(endpoint));
            Observed::by(gpu.clone(), tellers.into_iter(), &ages)
        }))
    }

    /// The hosts that are seen, with how old that is.
    #[crate::boxed]
    pub async fn hosts(&self) -> Result<Vec<Observed<Host>>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let ages = self.ages();
        let observed = snapshot.topology.hosts.iter();
        let observed =
            observed.map(|host| Observed::by(host.clone(), tellers_of_host(host).into_iter(), &ages));
        Ok(observed.collect())
    }

    /// One of them, without a copy of the others.
    #[crate::boxed]
    pub async fn host(&self, id: &HostId) -> Result<Option<Observed<Host>>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let found = snapshot.topology.hosts.iter().find(|host| host.id == *id);
        Ok(found.map(|host| {
            let tellers = tellers_of_host(host);
            let ages = self.ages_of(|endpoint| tellers.contains(endpoint));
            Observed::by(host.clone(), tellers.into_iter(), &ages)
        }))
    }

    pub(super) fn ages(&self) -> Ages {
        self.ages_of(|_| true)
    }

    fn ages_of(&self, wanted: impl Fn(&ControlEndpointId) -> bool) -> Ages {
        let ages = self.last_looks(|sight| {
            let id = &sight.last_walk().view.source;
            if !wanted(id) {
                return None;
            }
            let read = sight.read_last().map(|began| began.at);
            Some((id.clone(), (read, self.stale_sight(sight).is_some())))
        });
        ages.into_iter().collect()
    }

    fn stale_sight(&self, sight: &Sight) -> Option<Stale> {
        let last = sight.read_last();
        if sight.is_recalled() {
            return Some(Stale::unread(sight.endpoint()));
        }
        let because = match (Silent::of(sight), self.options.poll, last) {
            (Some(silent), ..) => format!("it does not answer ({})", silent.because),
            (None, Some(every), Some(last)) => {
                let every = period(every, sight.reading_takes());
                let age = last.instant.elapsed();
                if age <= every * POLLS {
                    return None;
                }
                format!(
                    "that is {} s ago, and it is to be read every {} s",
                    age.as_secs(),
                    every.as_secs()
                )
            }
            _ => return None,
        };
        Some(Stale {
            endpoint: sight.last_walk().view.source.clone(),
            read: last.map(|began| began.at),
            because,
        })
    }

    fn stale_at(&self, endpoint: &ControlEndpointId) -> Option<Stale> {
        self.with_sight(endpoint, |sight| self.stale_sight(sight))
            .unwrap_or_else(|| Some(Stale::unread(endpoint)))
    }

    /// Where the last look at an endpoint did not tell where a unit is, as fresh as the rest may be.
    fn untold(&self, unit: &ControlPoint) -> Option<Stale> {
        let told = self.with_sight(&unit.endpoint, |sight| (sight.tells(unit), sight.read_last()))?;
        let (false, read) = told else { return None };
        Some(Stale {
            endpoint: unit.endpoint.clone(),
            read: read.map(|began| began.at),
            because: format!("that did not tell where {} is", unit.address),
        })
    }

    /// The endpoints on which it rests what a plan gives away: those that bind it, and those that speak for its hosts.
    fn rests_on(&self, plan: &Plan) -> BTreeSet<ControlEndpointId> {
        let binds = plan.steps.iter().filter(|step| step.verb == Verb::Bind);
        let ends = binds.flat_map(|step| {
            let speaker = self.connections.speaker(&step.target.host);
            speaker.into_iter().chain([step.target.unit_at.endpoint.clone()])
        });
        ends.collect()
    }

    /// What the plan gives away is known as it is now. What it only lets go of, the operation itself reads first.
    pub(super) fn is_fresh(&self, request: &Request<'_>, plan: &Plan) -> Result<(), ServiceError> {
        const NAMED: usize = 3;
        if request.how.allow_stale || request.kind == OperationKind::Adopt {
            return Ok(());
        }
        let endpoints = self.rests_on(plan);
        let mut stale: Vec<Stale> = endpoints.iter().filter_map(|id| self.stale_at(id)).collect();
        let binds = plan.steps.iter().filter(|step| step.verb == Verb::Bind);
        stale.extend(binds.filter_map(|step| self.untold(&step.target.unit_at)));
        let Some(first) = stale.first() else { return Ok(()) };
        let mut told: Vec<String> = stale.iter().take(NAMED).map(ToString::to_string).collect();
        if stale.len() > NAMED {
            told.push(format!("and {} more", stale.len() - NAMED));
        }
        let message = format!("too little is known of what this touches: {}", told.join("; "));
        let hint = format!(
            "nothing was done; see why: poolwright endpoint test {}; to go by what was seen last: --allow-stale",
            first.endpoint
        );
        Err(ServiceError {
            stale: stale.into_iter().map(|stale| stale.endpoint).collect(),
            ..ServiceError::new(ErrorCode::Stale, message).with_hint(hint)
        })
    }

    /// Whether a request was refused because of what is stale, and that was looked at again since.
    pub(super) async fn looked_again(&self, refused: &ServiceError) -> bool {
        if refused.stale.is_empty() {
            return false;
        }
        match tokio::time::timeout(BRIEFLY, self.read_owners_of(&refused.stale)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("what is stale can't be looked at again: {error}"),
            Err(_) => tracing::debug!("what is stale does not answer within {} s", BRIEFLY.as_secs()),
        }
        true
    }

    /// Whether a request was refused for want of GPUs, and an endpoint that another manager added was looked at since.
    pub(super) async fn met_new(&self, refused: &ServiceError) -> Result<bool, ServiceError> {
        if self.options.sharing.is_none() || refused.code != ErrorCode::Unplaced {
            return Ok(false);
        }
        let kept = self.kept_endpoints().await?.into_iter();
        let new: BTreeSet<ControlEndpointId> =
            kept.filter(|id| self.with_sight(id, |_| ()).is_none()).collect();
        if new.is_empty() {
            return Ok(false);
        }
        match tokio::time::timeout(BRIEFLY, self.look_again(&new)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("what was added elsewhere can't be looked at: {error}"),
            Err(_) => tracing::debug!(
                "what was added elsewhere does not answer within {} s",
                BRIEFLY.as_secs()
            ),
        }
        Ok(true)
    }

    /// Leaves what is stale out of what may be given away. Says whether there is any.
    pub(super) fn leave_out_stale(&self, basis: &mut Basis) -> bool {
        let stale = self.last_looks(|sight| self.stale_sight(sight));
        let stale: BTreeMap<ControlEndpointId, Stale> = stale
            .into_iter()
            .map(|stale| (stale.endpoint.clone(), stale))
            .collect();
        if !stale.is_empty() {
            basis.leave_out(&stale, |host| self.connections.speaker(host));
        }
        !stale.is_empty()
    }
}
