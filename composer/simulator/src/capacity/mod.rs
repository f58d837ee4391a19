//! What more GPUs, hosts, slots or links would bring: recorded jobs replayed on the pool as it is, and as it would be.
//!
//! Every [`Choice`] is replayed with the same jobs at the same moments and the same seeds; *buy nothing* is the first.
//! Any GPU is taken to reach any host, as far as uplinks between switches carry it where they are limited.

mod choice;
mod report;

pub use choice::{Addition, Choice, ChoiceError};
pub use report::report;

use crate::metrics::Metrics;
use crate::policies::{Ground, Policy};
use crate::replay::{Replayed, replay_on};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::site::Site;
use crate::trace::Trace;
use crate::workload::Workload;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub trace: &'a Trace,
    /// Watts and seconds, and the seeds to go through.
    pub scenario: &'a Scenario,
    pub site: &'a Site,
    pub policy: Policy,
    pub runtimes: Runtimes,
    /// Who waits for longer than these seconds counts as turned away.
    pub patience_s: f64,
    pub prices: &'a Prices,
}

/// US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prices {
    pub host: Option<f64>,
    pub slot: Option<f64>,
    pub link: Option<f64>,
    /// Of an uplink, for each GPU that it carries.
    pub uplink: Option<f64>,
    pub kwh: Option<f64>,
    /// By kind, in place of that of its hardware profile.
    pub kinds: BTreeMap<String, f64>,
}

/// What a choice comes to: means over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub option: Choice,
    pub gpus: u32,
    pub hosts: u32,
    pub slots: u32,
    /// None where something has no price.
    pub cost_usd: Option<f64>,
    pub without_price: Vec<String>,
    /// None without a price of a kWh.
    pub energy_usd: Option<f64>,
    /// Jobs that waited for longer than the patience.
    pub waited_too_long: f64,
    /// Those, and jobs that the pool could never hold.
    pub turned_away: f64,
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(
        "policy {0} works with static servers: capacity is asked of a pool; take fifo, sjf, pool-easy, has or poolwright"
    )]
    Static(&'static str),
    #[error("the scenario promises windows, which capacity does not compare: leave out [[window]]")]
    Windows,
}

impl Question<'_> {
    /// Judges choices, *buy nothing* before them all; without any, the usual ones. `progress` hears of each.
    ///
    /// # Errors
    ///
    /// Which of them can't be made, and why.
    pub fn answer(
        &self,
        choices: &[Choice],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Judged>, CapacityError> {
        if self.policy.ground != Ground::Pool {
            return Err(CapacityError::Static(self.policy.name));
        }
        if !self.scenario.windows.is_empty() {
            return Err(CapacityError::Windows);
        }
        let mut all = vec![Choice::default()];
        match choices.is_empty() {
            true => all.extend(choice::usual(self.site, &self.asked_in_vain())),
            false => all.extend(choices.iter().filter(|choice| !choice.0.is_empty()).cloned()),
        }
        // What is wrong with one is told before any is replayed.
        let sites = all.iter().map(|choice| choice.applied(self.site));
        let sites = sites.collect::<Result<Vec<Site>, _>>()?;
        let judged = all.into_iter().zip(sites).map(|(choice, site)| {
            progress(&choice.to_string());
            self.judge(choice, &site)
        });
        Ok(judged.collect())
    }

    fn judge(&self, choice: Choice, site: &Site) -> Judged {
        let runs = self.scenario.replay.seeds.iter().map(|seed| {
            let workload = Workload::on(site, self.trace, self.scenario, *seed);
            let Ok(run) = replay_on(
                &self.policy,
                vec![site.pool()],
                self.scenario,
                &workload,
                self.runtimes,
                &mut || Ok::<_, Infallible>(0),
            );
            run
        });
        let runs: Vec<Replayed> = runs.collect();
        let metrics = Metrics::mean(&runs.iter().map(Metrics::of).collect::<Vec<_>>());
        let late: usize = runs.iter().map(|run| self.late(run)).sum();
        let waited_too_long = late as f64 / runs.len().max(1) as f64;
        let (cost_usd, without_price) = choice.cost(self.site, site, self.prices);
        Judged {
            option: choice,
            gpus: site.gpus(),
            hosts: site.host_count(),
            slots: site.slots(),
            cost_usd,
            without_price,
            energy_usd: self.prices.kwh.map(|price| price * metrics.energy_kwh),
            waited_too_long,
            turned_away: waited_too_long + metrics.refused as f64,
            metrics,
        }
    }

    fn late(&self, run: &Replayed) -> usize {
        let patience_ms = (self.patience_s * 1000.0) as u64;
        let late = |record: &&crate::replay::Record| record.began - record.submitted > patience_ms;
        run.records.iter().filter(late).count()
    }

    /// Kinds that jobs ask for and that the pool has none of, with the widest such job.
    fn asked_in_vain(&self) -> Vec<(String, u32)> {
        let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
        for job in &self.trace.jobs {
            if let Some(kind) = job.gpu_type.as_deref()
                && !self.site.kinds.iter().any(|known| known.is_meant_by(kind))
            {
                let widest = asked.entry(kind).or_default();
                *widest = job.gpus.max(*widest);
            }
        }
        asked
            .into_iter()
            .map(|(kind, gpus)| (kind.to_owned(), gpus))
            .collect()
    }
}
