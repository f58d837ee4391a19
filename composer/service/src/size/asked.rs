//! A job to be sized as programs ask for it. What it takes is bounded: so many GPUs, kinds and characters, and no more.

use super::{JobSpec, Site, SizeAnswer, as_stored, every_kind, model_or_config, note, pool_offers, set_all};
use crate::demand::profile_name;
use crate::error::ServiceError;
use crate::phases::{Setting, Tokens};
use poolwright_model::units::Bytes;
use poolwright_sizing::fit::{Widths, fit_calibrated};
use poolwright_sizing::{Limits, Offer};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// GPUs of one set, of one host, and of each width of a layout.
const MOST_GPUS: u64 = 1024;
/// Of a name; what is longer names nothing.
const LONGEST_NAME: usize = 200;
/// Names of kinds.
const MOST_KINDS: usize = 256;

/// A model, what is done with it, and on which GPUs; everything left out takes sizing's usual setting.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SizeRequest {
    /// A model of the catalogue, or a size such as `70B`; with `config`, what to call it.
    pub model: String,
    /// What is in the model's config.json, as model hubs have it.
    #[serde(default)]
    pub config: Option<Value>,
    #[serde(default)]
    pub job: JobSpec,
    /// Any other setting of the task, by its name.
    #[serde(default)]
    pub set: BTreeMap<String, Setting>,
    /// Only these kinds of GPU; none named: all that are known.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Only what is in the manager's pool: its kinds, their numbers, and the slots of its largest host.
    #[serde(default)]
    pub pool: bool,
    /// GPUs that one host takes; with `pool`, in place of what its hosts take.
    #[serde(default)]
    pub host_slots: Option<u32>,
    /// Just so many GPUs, and not the fewest that do.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// What a host has of memory for what its GPUs offload, in bytes; for training.
    #[serde(default)]
    pub host_memory: Option<Bytes>,
    /// Divided in just this way; what is left open is searched.
    #[serde(default)]
    pub widths: Widths,
    /// How long so many tokens take is told, too.
    #[serde(default)]
    pub tokens: Option<Tokens>,
}

impl SizeRequest {
    /// Its answer; `site` is the manager's pool, which is looked at where that is asked for.
    ///
    /// # Errors
    ///
    /// What it asks for is not known, or can't be. That nothing holds the model is an answer.
    pub fn answer(&self, site: &Site<'_>) -> Result<SizeAnswer, ServiceError> {
        let limits = self.limits(site)?;
        let offers = self.offers(site)?;
        refuse_long("model", &self.model)?;
        let whose = format!("model {}", self.model);
        let model = model_or_config(&whose, &self.model, self.config.as_ref())?;
        let mut job = self.job.job()?;
        set_all(&mut job, &self.set)?;
        let tokens = self.tokens.as_ref().map(Tokens::number).transpose()?;
        let stored = as_stored(&mut job, &model, |name| self.job.asks_for(&self.set, name))?;
        let fit = fit_calibrated(&model, &job, &offers, limits, site.calibration);
        let mut fit = fit.map_err(|error| {
            ServiceError::bad_request(error.to_string())
                .with_hint("give what is allowed, or leave it out to have it searched")
        })?;
        note(&mut fit, stored);
        Ok(SizeAnswer::of(&model, &fit, tokens))
    }

    fn limits(&self, site: &Site<'_>) -> Result<Limits, ServiceError> {
        let widths = self.widths;
        let numbers = [
            ("host_slots", self.host_slots.map(u64::from)),
            ("gpus", self.gpus.map(u64::from)),
            ("widths.tensor", widths.tensor),
            ("widths.pipeline", widths.pipeline),
            ("widths.interleave", widths.interleave),
            ("widths.context", widths.context),
            ("widths.expert", widths.expert),
        ];
        for (name, number) in numbers {
            if let Some(number) = number.filter(|number| !(1..=MOST_GPUS).contains(number)) {
                let message = format!("{name} is {number}; allowed: 1 to {MOST_GPUS}");
                let next = "say a number within these bounds, or leave it out";
                return Err(ServiceError::bad_request(message).with_hint(next));
            }
        }
        let of_pool = site.host_slots.filter(|_| self.pool);
        Ok(Limits {
            host_slots: self.host_slots.or(of_pool),
            host_memory: self.host_memory,
            gpus: self.gpus,
            widths,
            ..Limits::default()
        })
    }

    /// What it may be put on: each kind once.
    fn offers(&self, site: &Site<'_>) -> Result<Vec<Offer>, ServiceError> {
        if self.kinds.len() > MOST_KINDS {
            let message = format!("kinds names {}; at most {MOST_KINDS} are taken", self.kinds.len());
            let next = "name each kind once, or none for all that are known";
            return Err(ServiceError::bad_request(message).with_hint(next));
        }
        let mut wanted = BTreeSet::new();
        for name in &self.kinds {
            refuse_long("kinds", name)?;
            wanted.insert(profile_name(name)?);
        }
        let mut offers = match self.pool {
            true => pool_offers(site.pool),
            false => every_kind(),
        };
        offers.retain(|offer| {
            let named = offer.kind.as_ref().is_some_and(|kind| wanted.contains(kind));
            wanted.is_empty() || named
        });
        Ok(offers)
    }
}

/// What is longer than any name would take long to find the like of.
fn refuse_long(field: &str, name: &str) -> Result<(), ServiceError> {
    match name.chars().count() > LONGEST_NAME {
        true => Err(ServiceError::bad_request(format!(
            "{field} has a name of {} characters; at most {LONGEST_NAME} are taken",
            name.chars().count()
        ))
        .with_hint("give a shorter name")),
        false => Ok(()),
    }
}
