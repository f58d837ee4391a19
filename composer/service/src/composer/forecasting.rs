//! How many GPUs tenants will want: what they want is noted as time passes, and forecast from that.
//!
//! Wanted is what is held, and the fewest GPUs that would serve what is not served. One manager notes, the one that has
//! the calendar.

use super::Composer;
use super::known_jobs::KnownJob;
use crate::error::{ErrorCode, ServiceError};
use crate::wants::{Shape, Wants};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, TenantId};
use poolwright_planner::forecast::{Forecast, History, Series, SeriesError, Window, forecast};
use poolwright_store::{Batch, Stored, Versioned, read_all};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Between two notes, in real time.
const NOTED_EVERY: Duration = Duration::from_secs(300);
const HOUR_S: i64 = 3_600;
/// How many hours ahead can be asked for: a week.
pub const MOST_AHEAD_H: u32 = 168;
/// Of more tenants and their kinds than these nothing is noted: who writes them down writes no longer soon.
const MOST_NOTED: usize = 512;
/// What is attached by name is no tenant's.
const BY_NAME: &str = "(by name)";
/// Of what any kind would do for.
const ANY: &str = "(any)";
/// Of GPUs of which nobody knows what they are.
const UNKNOWN: &str = "(unknown)";
/// All tenants together.
const ALL: &str = "(all)";

/// How the answer begins where too little was noted, which nobody has to mend.
pub const NO_FORECAST_YET: &str = "no forecast can be made yet";

/// Which kinds of GPU are asked about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Kinds {
    /// All together.
    #[default]
    Together,
    /// All together, and each by itself.
    Each,
    Only(String),
}

/// What a tenant wants, and is expected to want.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TenantForecast {
    pub tenant: String,
    /// Only GPUs of this kind; without it, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Since when it has been noted what anybody wants.
    pub since: Timestamp,
    pub wanted: f64,
    pub held: f64,
    /// GPUs that are attached and idle for what it is expected to want.
    pub kept: u32,
    #[serde(flatten)]
    pub forecast: Forecast,
}

/// GPUs wanted, and GPUs held.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Now {
    pub wanted: f64,
    pub held: f64,
}

/// What somebody wants of a kind, and has of it.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub tenant: String,
    pub demand: Option<DemandId>,
    pub kind: String,
    pub now: Now,
}

/// Whose, and of which kind; without one, of all.
type Key = (String, Option<String>);

impl Now {
    fn add(&mut self, other: Self) {
        self.wanted += other.wanted;
        self.held += other.held;
    }
}

impl Composer {
    /// Notes what is wanted, for as long as somebody waits for it.
    pub(crate) async fn keep_noting_wants(&self) {
        loop {
            tokio::time::sleep(NOTED_EVERY).await;
            self.has_calendar().await;
            if let Err(error) = self.note_wants(self.clock.now()).await {
                tracing::warn!("what is wanted now is not noted, and so missing from forecasts: {error}");
            }
            if let Err(error) = self.see_to_kept().await {
                tracing::warn!("what is kept for what is expected is not looked at: {error}");
            }
        }
    }

    /// Notes what each tenant wants and has, of all kinds and of each.
    #[crate::boxed]
    pub async fn note_wants(&self, now: Timestamp) -> Result<(), ServiceError> {
        let shapes = self.shapes_now().await?;
        let mut wanted: BTreeMap<Key, Now> = BTreeMap::new();
        for part in self.parts_now().await? {
            let of_all = (part.tenant.clone(), None);
            for key in [of_all, (part.tenant, Some(part.kind))] {
                wanted.entry(key).or_default().add(part.now);
            }
        }
        let known: Vec<Versioned<Wants>> = read_all(self.store.as_ref()).await?;
        let mut known: BTreeMap<Key, Versioned<Wants>> = known
            .into_iter()
            .map(|found| ((found.value.tenant.clone(), found.value.kind.clone()), found))
            .collect();
        for key in known.keys() {
            wanted.entry(key.clone()).or_default();
        }
        let mut batch = Batch::new();
        let (mut changed, mut written) = (false, known.len());
        for (key, is) in wanted {
            let before = known.remove(&key);
            let (tenant, kind) = (key.0.as_str(), key.1.as_deref());
            let revision = before.as_ref().map(|before| before.revision);
            if revision.is_none() && written >= MOST_NOTED {
                continue;
            }
            let mut wants = before.map_or_else(|| Wants::of(tenant, kind), |before| before.value);
            let shape = shapes.get(tenant).filter(|_| kind.is_none());
            let shape = shape.filter(|shape| wants.shape.as_ref() != Some(shape)).cloned();
            let is_new = wants.note(now, is.wanted, is.held) || shape.is_some();
            wants.shape = shape.or(wants.shape);
            if is_new {
                batch.expect(Wants::KIND, wants.id(), revision);
                batch.put(&wants)?;
                written += usize::from(revision.is_none());
            } else if wants.is_over(now) {
                batch.delete(Wants::KIND, wants.id());
            } else {
                continue;
            }
            changed = true;
        }
        if changed {
            self.store.commit(batch).await?;
        }
        Ok(())
    }

    /// The largest composition of each tenant: the GPUs of what it is expected to want are taken to be like these.
    async fn shapes_now(&self) -> Result<BTreeMap<String, Shape>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
        for composition in self.held().await?.iter().filter(|c| c.parts == 1) {
            let (Some(tenant), Some(_)) = (&composition.tenant, &composition.demand) else {
                continue;
            };
            let first = composition.gpus().next();
            let kind = first.and_then(|gpu| snapshot.topology.gpu(gpu)?.profile.clone());
            let gpus = composition.gpu_count();
            let known = shapes.get(tenant.as_str());
            if let Some(kind) = kind.filter(|_| known.is_none_or(|known| known.gpus < gpus)) {
                shapes.insert(tenant.to_string(), Shape { kind, gpus });
            }
        }
        Ok(shapes)
    }

    /// The tenants of which something is noted, with the shape of what they had last.
    pub(super) async fn shapes(&self) -> Result<Vec<(TenantId, Option<Shape>)>, ServiceError> {
        let known = read_all::<Wants>(self.store.as_ref()).await?.into_iter();
        let known = known
            .map(|found| found.value)
            .filter(|wants| wants.tenant != BY_NAME && wants.kind.is_none());
        Ok(known
            .map(|wants| (TenantId::from_lossy(&wants.tenant), wants.shape))
            .collect())
    }

    /// What each tenant wants and has.
    pub(super) async fn wants_now(&self) -> Result<BTreeMap<String, Now>, ServiceError> {
        let mut tenants: BTreeMap<String, Now> = BTreeMap::new();
        for part in self.parts_now().await? {
            tenants.entry(part.tenant).or_default().add(part.now);
        }
        Ok(tenants)
    }

    /// The same, one by one: what is held, and what is wanted beyond that.
    pub(super) async fn parts_now(&self) -> Result<Vec<Part>, ServiceError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut holds = BTreeMap::new();
        let held = self.held().await?;
        for composition in held.iter().filter(|c| c.kept.is_none()) {
            let tenant = composition.tenant.as_ref().map_or(BY_NAME, TenantId::as_str);
            let gpus = composition.gpu_count();
            if let Some(demand) = &composition.demand {
                *holds.entry(demand.clone()).or_insert(0) += gpus;
            }
            let kind = self.kind_held(std::slice::from_ref(composition)).await?;
            parts.push(Part {
                tenant: tenant.to_owned(),
                demand: composition.demand.clone(),
                kind: kind.unwrap_or_else(|| UNKNOWN.to_owned()),
                now: Now {
                    wanted: f64::from(gpus),
                    held: f64::from(gpus),
                },
            });
        }
        for demand in self.wanted_now().await? {
            let Some(fewest) = demand.need.alternatives.iter().min_by_key(|set| set.count) else {
                continue;
            };
            let held = holds.get(&demand.id).copied().unwrap_or(0);
            parts.push(Part {
                tenant: demand.tenant.to_string(),
                kind: fewest.kind.clone().unwrap_or_else(|| ANY.to_owned()),
                now: Now {
                    wanted: f64::from(fewest.count.saturating_sub(held)),
                    held: 0.0,
                },
                demand: Some(demand.id),
            });
        }
        parts.retain(|part| part.now.wanted > 0.0);
        Ok(parts)
    }

    /// What tenants are expected to want so many hours ahead, all of them first; `tenant`: only this one.
    #[crate::boxed]
    pub async fn forecast(
        &self,
        tenant: Option<&str>,
        kinds: &Kinds,
        ahead: &BTreeSet<u32>,
    ) -> Result<Vec<TenantForecast>, ServiceError> {
        self.forecast_without(tenant, kinds, ahead, None).await
    }

    /// The same as if a demand had ended.
    pub(super) async fn forecast_without(
        &self,
        tenant: Option<&str>,
        kinds: &Kinds,
        ahead: &BTreeSet<u32>,
        gone: Option<&DemandId>,
    ) -> Result<Vec<TenantForecast>, ServiceError> {
        let known = read_all::<Wants>(self.store.as_ref()).await?.into_iter();
        let now = self.clock.now();
        let question = Question {
            known: known.map(|wants| wants.value).collect(),
            jobs: self.known_jobs(gone).await?,
            now,
            tenant: tenant.map(str::to_owned),
            kinds: kinds.clone(),
            ahead: ahead.iter().map(|hours| *hours as usize).collect(),
        };
        let made = tokio::task::spawn_blocking(move || question.answer());
        let made = made.await.map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("the forecast broke off: {error}"))
        })?;
        let mut made = made?;
        let mut kept = Vec::new();
        for composition in self.held().await?.iter().filter(|c| c.kept.is_some()) {
            let kind = self.kind_held(std::slice::from_ref(composition)).await?;
            kept.push((composition.tenant.clone(), kind, composition.gpu_count()));
        }
        for one in &mut made {
            let of = |(tenant, kind, _): &&(Option<TenantId>, Option<String>, u32)| {
                (one.tenant == ALL || tenant.as_ref().is_some_and(|t| t.as_str() == one.tenant))
                    && (one.kind.is_none() || *kind == one.kind)
            };
            one.kept = kept.iter().filter(of).map(|(.., gpus)| gpus).sum();
        }
        Ok(made)
    }
}

/// All that a forecast rests on, and what is asked.
struct Question {
    known: Vec<Wants>,
    jobs: Vec<KnownJob>,
    now: Timestamp,
    tenant: Option<String>,
    kinds: Kinds,
    ahead: Vec<usize>,
}

impl Question {
    fn answer(&self) -> Result<Vec<TenantForecast>, ServiceError> {
        if let Some(tenant) = &self.tenant
            && !self.known.iter().any(|wants| wants.tenant == *tenant)
        {
            return Err(ServiceError::not_found("tenant", tenant));
        }
        let all_kinds: BTreeSet<&str> = self
            .known
            .iter()
            .filter_map(|wants| wants.kind.as_deref())
            .collect();
        let kinds: Vec<Option<&str>> = match &self.kinds {
            Kinds::Together => vec![None],
            Kinds::Each => [None]
                .into_iter()
                .chain(all_kinds.into_iter().map(Some))
                .collect(),
            Kinds::Only(kind) if all_kinds.contains(kind.as_str()) => vec![Some(kind)],
            Kinds::Only(kind) => return Err(ServiceError::not_found("kind", kind)),
        };
        let mut made = Vec::new();
        for kind in kinds {
            match self.of_kind(kind) {
                Ok(found) => made.extend(found),
                // Kinds may have been noted for a shorter time than what is wanted of all.
                Err(_) if self.kinds == Kinds::Each && kind.is_some() => {}
                Err(error) => return Err(unforecast(&error)),
            }
        }
        made.sort_by(|a, b| {
            let key = |one: &TenantForecast| (one.tenant != ALL, one.tenant.clone(), one.kind.clone());
            key(a).cmp(&key(b))
        });
        Ok(made)
    }

    /// All tenants together, and each; or the one that is asked about.
    fn of_kind(&self, kind: Option<&str>) -> Result<Vec<TenantForecast>, SeriesError> {
        let alike = self
            .known
            .iter()
            .filter(|wants| wants.kind.is_some() == kind.is_some());
        let first = alike.filter_map(|wants| Some(wants.noted.first()?.0)).min();
        let until = self.now.as_second();
        let window = Window {
            since: first.unwrap_or(until),
            until,
            step: HOUR_S,
        };
        let mut series: Vec<(String, Now, Series)> = Vec::new();
        for wants in self.known.iter().filter(|wants| wants.kind.as_deref() == kind) {
            let last = wants.noted.last().map_or(Now::default(), |last| Now {
                wanted: last.1,
                held: last.2,
            });
            let of_tenant = Series::of_samples(&wants.samples(), window)?;
            series.push((wants.tenant.clone(), last, of_tenant));
        }
        let Some(sum) = Series::sum(series.iter().map(|(_, _, series)| series)) else {
            return Err(SeriesError::TooShort {
                known: 0,
                step: HOUR_S,
            });
        };
        let mut all = Now::default();
        series.iter().for_each(|(_, last, _)| all.add(*last));
        series.insert(0, (ALL.to_owned(), all, sum));
        if let Some(asked) = &self.tenant {
            series.retain(|(tenant, ..)| tenant == asked);
        }
        let since = Timestamp::from_second(window.since).unwrap_or(self.now);
        let made = series.into_iter().map(|(tenant, last, series)| {
            let jobs = self.jobs.iter().filter(|job| {
                (tenant == ALL || job.tenant == tenant) && (kind.is_none() || Some(job.kind.as_str()) == kind)
            });
            let history = History::with_jobs(series, jobs.map(|job| job.run).collect())?;
            Ok(TenantForecast {
                since,
                wanted: last.wanted,
                held: last.held,
                kept: 0,
                forecast: forecast(&history, &self.ahead),
                kind: kind.map(str::to_owned),
                tenant,
            })
        });
        made.collect()
    }
}

fn unforecast(error: &SeriesError) -> ServiceError {
    let message = format!("{NO_FORECAST_YET} of what this manager has noted: {error}");
    ServiceError::new(ErrorCode::Unavailable, message).with_hint(
        "what is wanted is noted every five minutes: ask again in an hour, or forecast from a file",
    )
}
