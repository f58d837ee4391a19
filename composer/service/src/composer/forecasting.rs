//! How many GPUs tenants will want: what they want is noted as time passes, and forecast from that.
//!
//! Wanted is what is held, and the fewest GPUs that would serve what is not served. One manager notes, the one that has
//! the calendar.

use super::Composer;
use super::kept::kept_of;
use crate::error::{ErrorCode, ServiceError};
use crate::wants::{Shape, Wants};
use jiff::Timestamp;
use poolwright_model::id::TenantId;
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
/// Of more tenants than these nothing is noted: who writes them down writes no longer soon.
const MOST_TENANTS: usize = 256;
/// What is attached by name is no tenant's.
const BY_NAME: &str = "(by name)";
/// All tenants together.
const ALL: &str = "(all)";

/// What a tenant wants, and is expected to want.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantForecast {
    pub tenant: String,
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

    /// Notes what each tenant wants and has.
    pub async fn note_wants(&self, now: Timestamp) -> Result<(), ServiceError> {
        let mut tenants = self.wants_now().await?;
        let mut shapes = self.shapes_now().await?;
        let known: Vec<Versioned<Wants>> = read_all(self.store.as_ref()).await?;
        for wants in &known {
            tenants.entry(wants.value.tenant.clone()).or_default();
        }
        let mut known: BTreeMap<String, Versioned<Wants>> = known
            .into_iter()
            .map(|wants| (wants.value.tenant.clone(), wants))
            .collect();
        let mut batch = Batch::new();
        let (mut changed, mut kept) = (false, known.len());
        for (tenant, is) in tenants {
            let before = known.remove(&tenant);
            let revision = before.as_ref().map(|before| before.revision);
            if revision.is_none() && kept >= MOST_TENANTS {
                continue;
            }
            let mut wants = before.map_or_else(|| Wants::of(&tenant), |before| before.value);
            let shape = shapes
                .remove(&tenant)
                .filter(|shape| wants.shape.as_ref() != Some(shape));
            let is_new = wants.note(now, is.wanted, is.held) || shape.is_some();
            wants.shape = shape.or(wants.shape);
            if is_new {
                batch.expect(Wants::KIND, &tenant, revision);
                batch.put(&wants)?;
                kept += usize::from(revision.is_none());
            } else if wants.is_over(now) {
                batch.delete(Wants::KIND, &tenant);
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
            .filter(|wants| wants.tenant != BY_NAME);
        Ok(known
            .map(|wants| (TenantId::from_lossy(&wants.tenant), wants.shape))
            .collect())
    }

    pub(super) async fn wants_now(&self) -> Result<BTreeMap<String, Now>, ServiceError> {
        let mut tenants: BTreeMap<String, Now> = BTreeMap::new();
        let mut holds = BTreeMap::new();
        for composition in self.held().await?.iter().filter(|c| c.kept.is_none()) {
            let tenant = composition
                .tenant
                .as_ref()
                .map_or(BY_NAME, |tenant| tenant.as_str());
            let gpus = composition.gpu_count();
            let now = tenants.entry(tenant.to_owned()).or_default();
            now.held += f64::from(gpus);
            now.wanted += f64::from(gpus);
            if let Some(demand) = &composition.demand {
                *holds.entry(demand.clone()).or_insert(0) += gpus;
            }
        }
        for demand in self.wanted_now().await? {
            let fewest = demand.need.alternatives.iter().map(|set| set.count).min();
            let held = holds.get(&demand.id).copied().unwrap_or(0);
            let now = tenants.entry(demand.tenant.to_string()).or_default();
            now.wanted += f64::from(fewest.unwrap_or(0).saturating_sub(held));
        }
        Ok(tenants)
    }

    /// What tenants are expected to want so many hours ahead, all of them first; `tenant`: only this one.
    pub async fn forecast(
        &self,
        tenant: Option<&str>,
        ahead: &BTreeSet<u32>,
    ) -> Result<Vec<TenantForecast>, ServiceError> {
        let known: Vec<Wants> = read_all::<Wants>(self.store.as_ref())
            .await?
            .into_iter()
            .map(|wants| wants.value)
            .collect();
        let now = self.clock.now();
        let (tenant, ahead) = (tenant.map(str::to_owned), ahead.clone());
        let made = tokio::task::spawn_blocking(move || forecasts(&known, now, tenant.as_deref(), &ahead));
        let made = made.await.map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("the forecast broke off: {error}"))
        })?;
        let mut made = made?;
        let held = self.held().await?;
        for one in &mut made {
            let tenant = (one.tenant != ALL).then(|| TenantId::from_lossy(&one.tenant));
            one.kept = kept_of(&held, tenant.as_ref());
        }
        Ok(made)
    }
}

fn forecasts(
    known: &[Wants],
    now: Timestamp,
    tenant: Option<&str>,
    ahead: &BTreeSet<u32>,
) -> Result<Vec<TenantForecast>, ServiceError> {
    let first = known
        .iter()
        .filter_map(|wants| Some(wants.noted.first()?.0))
        .min();
    let until = now.as_second();
    let window = Window {
        since: first.unwrap_or(until),
        until,
        step: HOUR_S,
    };
    let since = Timestamp::from_second(window.since).unwrap_or(now);
    let ahead: Vec<usize> = ahead.iter().map(|hours| *hours as usize).collect();
    let series = known.iter().map(|wants| {
        let last = wants.noted.last().map_or((0.0, 0.0), |last| (last.1, last.2));
        Ok((
            wants.tenant.clone(),
            last,
            Series::of_samples(&wants.samples(), window)?,
        ))
    });
    let mut series: Vec<(String, (f64, f64), Series)> = series
        .collect::<Result<_, SeriesError>>()
        .map_err(|error| unforecast(&error))?;
    let Some(sum) = Series::sum(series.iter().map(|(_, _, series)| series)) else {
        return Err(unforecast(&SeriesError::TooShort {
            known: 0,
            step: HOUR_S,
        }));
    };
    let last = series
        .iter()
        .fold((0.0, 0.0), |sum, (_, last, _)| (sum.0 + last.0, sum.1 + last.1));
    series.insert(0, (ALL.to_owned(), last, sum));
    if let Some(tenant) = tenant {
        series.retain(|(name, ..)| name == tenant);
        if series.is_empty() {
            return Err(ServiceError::not_found("tenant", tenant));
        }
    }
    let made = series
        .into_iter()
        .map(|(tenant, (wanted, held), series)| TenantForecast {
            tenant,
            since,
            wanted,
            held,
            kept: 0,
            forecast: forecast(&History::of(series), &ahead),
        });
    Ok(made.collect())
}

fn unforecast(error: &SeriesError) -> ServiceError {
    let message = format!("no forecast can be made yet of what this manager has noted: {error}");
    ServiceError::new(ErrorCode::Unavailable, message).with_hint(
        "what is wanted is noted every five minutes: ask again in an hour, or forecast from a file",
    )
}
