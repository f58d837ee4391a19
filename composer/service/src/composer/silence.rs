//! Endpoints that give no answer: what is shown of them is as old as their last one, and is told as such.

use super::asking::Check;
use super::staleness::tellers;
use super::{Composer, Thing, Turn, tell};
use crate::error::{ErrorCode, ServiceError};
use crate::sight::{Reachability, Sight};
use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_store::{Batch, Stored, read_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{MutexGuard, PoisonError};

/// An endpoint that did not answer when it was asked last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Silent {
    pub endpoint: ControlEndpointId,
    /// When it answered last; `None`: not since the manager started.
    pub last_answer: Option<Timestamp>,
    pub because: String,
    /// It answers, and what it says is not believed.
    #[serde(default)]
    pub answers: bool,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            endpoint, because, ..
        } = self;
        if self.answers {
            return match self.last_answer {
                Some(at) => write!(f, "{endpoint} is shown as it was at {at}: {because}"),
                None => write!(f, "{endpoint} is not believed: {because}"),
            };
        }
        match self.last_answer {
            Some(at) => write!(f, "{endpoint} has not answered since {at}: {because}"),
            None => write!(
                f,
                "{endpoint} has not answered since the manager started: {because}"
            ),
        }
    }
}

impl Silent {
    /// `None` of an endpoint that answers, and is believed, and of one that nobody has asked yet.
    pub(super) fn of(sight: &Sight) -> Option<Self> {
        let reachability = sight.reachability();
        if reachability == Reachability::Reachable {
            return None;
        }
        let look = sight.look();
        Some(Self {
            answers: reachability == Reachability::NotTrusted,
            endpoint: look.view.source,
            last_answer: sight.read_last().map(|began| began.at),
            because: look
                .view
                .faults
                .into_iter()
                .next()
                .map(|fault| fault.message)
                .unwrap_or_default(),
        })
    }
}

/// By default a manager logs this target at `info`, and all others at `warn`.
const TARGET: &str = "poolwright::endpoint";

/// Logs that an endpoint was lost, recovered or stopped being trusted, if that is new.
pub(super) fn log_turn(before: Reachability, sight: &Sight) {
    if sight.reachability() == before {
        return;
    }
    let endpoint = sight.endpoint();
    let Some(silent) = Silent::of(sight) else {
        return tracing::info!(target: TARGET, %endpoint, "endpoint recovered");
    };
    let last_answer = silent.last_answer.map(|at| at.to_string());
    let reason = silent.because;
    match silent.answers {
        true => tracing::warn!(target: TARGET, %endpoint, last_answer, reason, "endpoint not trusted"),
        false => tracing::warn!(target: TARGET, %endpoint, last_answer, reason, "endpoint lost"),
    }
}

/// The composable GPUs, by whether an endpoint answers for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ComposableGpus {
    pub reachable: usize,
    /// Of those that are reachable.
    pub free: usize,
    pub unreachable: usize,
    /// The last answer for the GPU that is unreachable for longest; `None`: none since the manager started.
    pub since: Option<Timestamp>,
}

impl fmt::Display for ComposableGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} composable, {} free", self.reachable, self.free)?;
        match (self.unreachable, self.since) {
            (0, _) => Ok(()),
            (n, Some(since)) => write!(f, "; {n} unreachable since {since}"),
            (n, None) => write!(f, "; {n} unreachable since the manager started"),
        }
    }
}

/// An endpoint of which a manager told that it gives no answer: once it does again that is told, also by a manager that was
/// started since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToldLost {
    id: String,
    endpoint: ControlEndpointId,
    home: String,
}

impl ToldLost {
    pub fn new(endpoint: ControlEndpointId, home: &str) -> Self {
        Self {
            id: format!("{endpoint}@{home}"),
            endpoint,
            home: home.to_owned(),
        }
    }
}

impl Stored for ToldLost {
    const KIND: &'static str = "told-lost";
    fn id(&self) -> &str {
        &self.id
    }
}

impl Composer {
    /// Tells that an endpoint gives no answer, or does again, unless that was told last. Each manager tells what it sees.
    pub(super) async fn tell_silence(&self, endpoint: &ControlEndpointId) -> Result<(), ServiceError> {
        if self.untold_turn(endpoint).is_none() {
            return Ok(());
        }
        // Several look at an endpoint at a time, and one of them tells.
        let _telling = self.telling_silence.lock().await;
        let Some(became) = self.untold_turn(endpoint) else {
            return Ok(());
        };
        let note = ToldLost::new(endpoint.clone(), self.home());
        let is_lost = matches!(became, Turn::Lost { .. });
        let mut batch = Batch::new();
        match is_lost {
            true => drop(batch.put(&note)?),
            false => drop(batch.delete(ToldLost::KIND, note.id())),
        }
        let thing = Thing::Endpoint(endpoint.clone());
        tell(&mut batch, self.clock.now(), thing, became)?;
        self.store.commit(batch).await?;
        match is_lost {
            true => self.lock_lost().insert(endpoint.clone()),
            false => self.lock_lost().remove(endpoint),
        };
        Ok(())
    }

    /// What is otherwise with an endpoint than was told last. Of one that nobody has asked yet, nothing.
    fn untold_turn(&self, endpoint: &ControlEndpointId) -> Option<Turn> {
        let told = self.lock_lost().contains(endpoint);
        let (silent, answers) = self.with_sight(endpoint, |sight| (Silent::of(sight), sight.answers()))?;
        match silent {
            Some(silent) => (!told).then_some(Turn::Lost {
                because: silent.because,
            }),
            None => (told && answers).then_some(Turn::Back),
        }
    }

    /// Recalls which endpoints this manager told to be silent before it was started.
    pub(super) async fn recall_silence(&self) -> Result<(), ServiceError> {
        let told = read_all::<ToldLost>(self.store.as_ref()).await?;
        let ours = told.into_iter().map(|found| found.value);
        let kept = self.endpoints().await?;
        let (there, gone): (Vec<_>, Vec<_>) = ours
            .filter(|told| told.home == self.home())
            .partition(|told| kept.iter().any(|kept| kept.spec.id == told.endpoint));
        self.lock_lost()
            .extend(there.into_iter().map(|told| told.endpoint));
        if !gone.is_empty() {
            let mut batch = Batch::new();
            for told in &gone {
                batch.delete(ToldLost::KIND, told.id());
            }
            self.store.commit(batch).await?;
        }
        Ok(())
    }

    /// What stays of this manager over a restart, where several share a store.
    pub(super) fn home(&self) -> &str {
        let sharing = self.options.sharing.as_ref();
        sharing.map_or("", |sharing| sharing.home.as_str())
    }

    pub(super) fn lock_lost(&self) -> MutexGuard<'_, BTreeSet<ControlEndpointId>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoints that did not answer when they were asked last, in the order of their names.
    pub fn silent(&self) -> Vec<Silent> {
        self.last_looks(Silent::of)
    }

    /// The composable GPUs of a snapshot, by whether an endpoint answers for them now.
    pub(super) fn composable_gpus(&self, snapshot: &Snapshot) -> ComposableGpus {
        // Clients without a password can request this, so it copies no observations.
        let unreachable = self.last_looks(|sight| {
            let last_answer = sight.read_last().map(|began| began.at);
            let is_lost = sight.reachability() == Reachability::Unreachable;
            is_lost.then(|| (sight.endpoint().clone(), last_answer))
        });
        let unreachable: BTreeMap<ControlEndpointId, Option<Timestamp>> = unreachable.into_iter().collect();
        let (mut counts, mut last_answers) = (ComposableGpus::default(), Vec::new());
        let gpus = snapshot.topology.gpus.iter();
        for gpu in gpus.filter(|gpu| gpu.composability.is_composable()) {
            let tellers = tellers(gpu);
            let lost: Vec<Option<Timestamp>> = tellers
                .iter()
                .filter_map(|endpoint| unreachable.get(*endpoint).copied())
                .collect();
            if !lost.is_empty() && lost.len() == tellers.len() {
                last_answers.extend(lost.into_iter().max());
            } else {
                counts.reachable += 1;
                counts.free += usize::from(gpu.state == GpuState::Free);
            }
        }
        counts.unreachable = last_answers.len();
        counts.since = last_answers.into_iter().min().flatten();
        counts
    }

    /// Whether there are GPUs to compose. Asks no endpoint, and names none.
    pub(super) fn gpus_check(&self, snapshot: &Snapshot) -> Check {
        const HINT: &str = "see which endpoints do not answer: poolwright endpoint list";
        let gpus = self.composable_gpus(snapshot);
        match (gpus.unreachable, gpus.reachable) {
            (0, _) => Check::ok("gpus", gpus.to_string()),
            (_, 0) => Check::problem("gpus", gpus.to_string(), HINT),
            _ => Check::warning("gpus", gpus.to_string(), HINT),
        }
    }

    pub(super) fn silent_at(&self, endpoint: &ControlEndpointId) -> Option<Silent> {
        self.with_sight(endpoint, Silent::of)?
    }

    /// An error that something can't be had, with the endpoints that may have it and do not answer.
    pub(super) fn beside_silence(&self, error: ServiceError) -> ServiceError {
        const NAMED: usize = 3;
        let mut silent = self.silent();
        // What is not composable says so itself.
        silent.retain(|silent| !silent.answers);
        if silent.is_empty() || error.code != ErrorCode::Unplaced {
            return error;
        }
        let mut names: Vec<String> = silent
            .iter()
            .take(NAMED)
            .map(|one| one.endpoint.to_string())
            .collect();
        if silent.len() > NAMED {
            names.push(format!("{} more", silent.len() - NAMED));
        }
        let who = match silent.len() {
            1 => "1 endpoint does not answer".to_owned(),
            n => format!("{n} endpoints do not answer"),
        };
        let look = "see what is silent: poolwright doctor".to_owned();
        let hint = match error.hint {
            Some(hint) => format!("{look}; {hint}"),
            None => look,
        };
        ServiceError {
            message: format!("{}; {who} ({})", error.message, names.join(", ")),
            hint: Some(hint),
            ..error
        }
    }
}
