//! A run over time as people write it: a file of phases, and the windows and needs that sizing makes of it.

use crate::demand::profile_name;
use crate::error::{ErrorCode, ServiceError};
use crate::size::{self, JobSpec};
use poolwright_sizing::phases::{Phase, PhaseError, PhaseKind, Scheduled, Work, schedule_calibrated};
use poolwright_sizing::size_class::parse_size;
use poolwright_sizing::{Calibration, Limits, Model, Offer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A run and its phases, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// A model of the catalogue, a size such as `70B`, or for `poolwright size` a config.json.
    pub model: String,
    pub phase: Vec<PhaseSpec>,
}

/// A phase. Either its tokens or its hours are given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub kind: PhaseKind,
    /// Without one: that of its kind.
    #[serde(default)]
    pub name: Option<String>,
    /// Without a task: what is usual for the kind of phase.
    #[serde(default)]
    pub job: JobSpec,
    /// Any other setting of the task, such as `loss = "chunked"`.
    #[serde(default)]
    pub set: BTreeMap<String, Setting>,
    /// Trained, or of an evaluation generated: a number, or a text such as `20B`.
    #[serde(default)]
    pub tokens: Option<Tokens>,
    #[serde(default)]
    pub hours: Option<f64>,
    /// Just so many GPUs; without it the fewest that hold the phase.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// Only this kind of GPU: the name of a hardware profile, or a model text.
    #[serde(default)]
    pub gpu: Option<String>,
}

/// The value of a setting, as it is usually written: `"chunked"`, `3` or `true`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "what belongs there: text, a number, or true or false")]
pub enum Setting {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Flag(flag) => flag.fmt(f),
            Setting::Whole(number) => number.fmt(f),
            Setting::Number(number) => number.fmt(f),
            Setting::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "what belongs there: a number, or text such as 20B")]
pub enum Tokens {
    Number(f64),
    Text(String),
}

/// A number of tokens, which may end in M, B or T.
pub fn parse_tokens(text: &str) -> Result<f64, String> {
    let number = parse_size(text).map(|tokens| tokens as f64);
    let plain = || text.parse::<f64>().ok().filter(is_allowed);
    number
        .or_else(plain)
        .ok_or_else(|| no_tokens(&format!("{text:?}")))
}

fn is_allowed(tokens: &f64) -> bool {
    (1.0..1e18).contains(tokens)
}

fn no_tokens(what: &str) -> String {
    format!("{what} is no number of tokens; allowed: 1 to 10^18, such as 2000000, 20B or 15T")
}

impl Tokens {
    /// How many.
    pub fn number(&self) -> Result<f64, ServiceError> {
        let number = match self {
            Tokens::Number(number) if is_allowed(number) => Ok(*number),
            Tokens::Number(number) => Err(no_tokens(&number.to_string())),
            Tokens::Text(text) => parse_tokens(text),
        };
        number.map_err(|message| {
            ServiceError::bad_request(message).with_hint("write a number, or one such as 15T, 300B or 2M")
        })
    }
}

impl RunSpec {
    /// The windows of its phases on these GPUs.
    pub fn schedule(
        &self,
        offers: &[Offer],
        host_slots: Option<u32>,
    ) -> Result<Vec<Scheduled>, ServiceError> {
        let model = size::model(&self.model)?;
        self.schedule_of(&model, offers, host_slots, &Calibration::default())
    }

    /// The same for a model that is at hand, with constants as measured peaks corrected them.
    pub fn schedule_of(
        &self,
        model: &Model,
        offers: &[Offer],
        host_slots: Option<u32>,
        calibration: &Calibration,
    ) -> Result<Vec<Scheduled>, ServiceError> {
        if self.phase.is_empty() {
            return Err(
                ServiceError::bad_request("the run has no phase").with_hint("give at least one [[phase]]")
            );
        }
        let phases = self.phase.iter().map(PhaseSpec::phase);
        let phases = phases.collect::<Result<Vec<Phase>, ServiceError>>()?;
        let limits = Limits {
            host_slots,
            ..Limits::default()
        };
        schedule_calibrated(model, &phases, offers, limits, calibration).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: PhaseError) -> ServiceError {
        let PhaseError::Nowhere { phase, fit } = error else {
            return ServiceError::bad_request(error.to_string());
        };
        let nowhere = size::fits_nowhere(&fit);
        ServiceError {
            message: format!("phase {phase}: {}", nowhere.message),
            ..nowhere
        }
    }
}

impl PhaseSpec {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.kind.name())
    }

    fn phase(&self) -> Result<Phase, ServiceError> {
        let here = |error: ServiceError| ServiceError {
            message: format!("phase {}: {}", self.name(), error.message),
            ..error
        };
        let job = JobSpec {
            task: Some(self.job.task.unwrap_or(self.kind.usual_task())),
            ..self.job.clone()
        };
        let mut job = job.job().map_err(here)?;
        size::set_all(&mut job, &self.set).map_err(here)?;
        Ok(Phase {
            name: self.name().to_owned(),
            kind: self.kind,
            job,
            work: self.work().map_err(here)?,
            gpus: self.gpus,
            gpu_kind: self.gpu.as_deref().map(profile_name).transpose().map_err(here)?,
        })
    }

    fn work(&self) -> Result<Work, ServiceError> {
        match (&self.tokens, self.hours) {
            (Some(tokens), None) => Ok(Work::Tokens(tokens.number()?)),
            (None, Some(hours)) => Ok(Work::Seconds(hours * 3600.0)),
            (Some(_), Some(_)) | (None, None) => Err(ServiceError::new(
                ErrorCode::BadRequest,
                "either tokens or hours say how long it lasts; give one of them",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::{Value, json};

    fn run(run: Value) -> Result<Vec<Scheduled>, ServiceError> {
        let run: RunSpec = serde_json::from_value(run).unwrap();
        run.schedule(&size::every_kind(), Some(8))
    }

    #[test]
    fn phases_become_windows() {
        let warm_up = json!({
            "kind": "warm-up", "job": {"context": 2048, "micro_batch": 2}, "tokens": "2B", "gpus": 8,
            "gpu": "h100-sxm5-80gb",
        });
        let judging = json!({"kind": "evaluation", "name": "judging", "hours": 1.5});
        let windows = run(json!({"model": "Llama-3.1-8B", "phase": [warm_up, judging]})).unwrap();
        assert_eq!(windows[0].window.phase, "warm-up");
        let need = &windows[0].window.need;
        assert_eq!(need.alternatives[0].count, 8);
        assert!(need.label.contains("2 x 2048 tokens"), "{}", need.label);
        assert_eq!(windows[1].window.end_s - windows[1].window.start_s, 5400);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_phase() {
        let refused = |mut phase: Value, word: &str| {
            phase["kind"] = json!("main");
            let message = run(json!({"model": "8B", "phase": [phase]})).unwrap_err().message;
            assert!(
                message.starts_with("phase main: ") && message.contains(word),
                "{message}"
            );
        };
        refused(json!({}), "tokens or hours");
        refused(json!({"tokens": 5, "hours": 1}), "tokens or hours");
        refused(json!({"tokens": "many"}), "20B or 15T");
        refused(json!({"tokens": -3}), "allowed: 1 to 10^18");
        refused(json!({"hours": 1e30}), "hours is 1e30; allowed: a second");
        refused(json!({"hours": -1}), "hours is -1; allowed: a second");
        for gpus in [0, 100_000] {
            let says = format!("gpus is {gpus}; allowed: 1 to 1024");
            refused(json!({"hours": 1, "gpus": gpus}), &says);
        }
        refused(
            json!({"hours": 1, "set": {"micro_batch": -3}}),
            "micro_batch is \"-3\"",
        );
        refused(json!({"hours": 1, "gpu": "voodoo2"}), "voodoo2");
        refused(json!({"hours": 1, "job": {"concurrency": 3}}), "concurrency");
        refused(json!({"hours": 1, "gpus": 1, "gpu": "l4-24gb"}), "8B full");
        refused(json!({"hours": 1, "set": {"loss": "lost"}}), "chunked");
        // A sequence this long needs its loss in chunks, which is a setting as any other.
        let long = |set: Value| {
            let phase = json!({
                "kind": "long-context", "hours": 1, "gpus": 32, "gpu": "h100-sxm5-80gb", "job": {"context": 32768}, "set": set,
            });
            run(json!({"model": "Llama-3.1-8B", "phase": [phase]}))
        };
        let counts = |found: Vec<Scheduled>| found[0].window.need.alternatives[0].count;
        assert_eq!(long(json!({"loss": "chunked"})).map(counts), Ok(32));
        // Numbers are written as numbers.
        assert_eq!(
            long(json!({"loss": "chunked", "micro_batch": 1})).map(counts),
            Ok(32)
        );
        assert!(run(json!({"model": "8B", "phase": []})).is_err());
        for unknown in [json!({"kind": "lunch"}), json!({"kind": "main", "speed": 1})] {
            let run = json!({"model": "8B", "phase": [unknown]});
            assert!(serde_json::from_value::<RunSpec>(run).is_err());
        }
        assert_eq!((parse_tokens("15T"), parse_tokens("2e6")), (Ok(15e12), Ok(2e6)));
        assert!(parse_tokens("0").is_err() && parse_tokens("1e30").is_err());
    }
}
