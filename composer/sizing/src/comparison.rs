//! A rule's tables beside the same by our formulas: memory, number of GPUs and cost by model size and precision,
//! with the reasons where they differ.
//!
//! Units are the rule's own: decimal GB. Ours is the safe estimate of all GPUs of the set that ranks first on hosts
//! of 8, serving with usual settings; the models are the reference shapes of the sizes.

use crate::energy::Energy;
use crate::error::SizingError;
use crate::fit::{self, Candidate, Limits, Offer};
use crate::job::{Inference, Job, WeightFormat};
use crate::model::Model;
use crate::need::Task;
use crate::rule::{Rule, RuleCell, SIZES, WorkingRange};
use crate::size_class;
use poolwright_model::profile::GpuKind;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};

/// What a size and a precision take by our formulas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    pub memory_gb: f64,
    pub gpus: u32,
    pub cost_usd: Option<f64>,
    /// None where the power of the GPU is not known.
    pub energy: Option<Energy>,
}

/// A cell of the tables, by both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    pub rule: RuleCell,
    /// None where it fits on no set of the kind.
    pub ours: Option<Ours>,
    /// Why they differ, a line a reason.
    pub reasons: Vec<String>,
}

/// What a size takes in practice, as the rule's source has it, beside our tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Practice {
    pub billions: u32,
    pub published: Option<WorkingRange>,
    /// By task, at 16 bits where it is served; None where it fits on no set of the kind.
    pub ours: Vec<(Task, Option<Ours>)>,
}

/// The tables side by side, on one kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub rule: String,
    pub gpu: String,
    pub cells: Vec<Compared>,
    pub practice: Vec<Practice>,
    /// Of one GPU of the kind.
    pub energy: Option<Energy>,
}

/// On one kind of GPU, which draws its limit for that share of the hours.
pub fn compare(rule: &Rule, kind: &GpuKind, utilisation: f64) -> Result<Comparison, SizingError> {
    let on = On { kind, utilisation };
    let cells = rule.tables(kind).cells.into_iter().map(|cell| on.compared(cell));
    let practice = SIZES.iter().map(|billions| {
        let ours = Task::ALL.iter().filter(|task| **task != Task::Peft).map(|task| {
            let found = on.fit(&model(*billions)?, &Job::of(*task))?;
            Ok((*task, found.first().map(|set| on.ours(set))))
        });
        Ok(Practice {
            billions: *billions,
            published: rule.working_range(*billions).cloned(),
            ours: ours.collect::<Result<_, SizingError>>()?,
        })
    });
    Ok(Comparison {
        rule: rule.name.clone(),
        gpu: kind.name.clone(),
        cells: cells.collect::<Result<_, SizingError>>()?,
        practice: practice.collect::<Result<_, SizingError>>()?,
        energy: on.energy(1),
    })
}

fn model(billions: u32) -> Result<Model, SizingError> {
    size_class::shape(u64::from(billions) * 1_000_000_000)
        .map_err(|error| SizingError::bad("size", billions, &error.to_string()))
}

struct On<'a> {
    kind: &'a GpuKind,
    utilisation: f64,
}

impl On<'_> {
    fn compared(&self, rule: RuleCell) -> Result<Compared, SizingError> {
        let model = model(rule.billions)?;
        let job = Inference {
            weights: match rule.bits {
                32 => WeightFormat::Fp32,
                16 => WeightFormat::Bf16,
                8 => WeightFormat::Fp8,
                _ => WeightFormat::GptqInt4,
            },
            ..Inference::default()
        };
        let found = self.fit(&model, &Job::Inference(job))?;
        let mut reasons = match found.first() {
            Some(set) => self.reasons(&rule, set, &model),
            None => vec![format!("no set of {} holds it", self.kind.name)],
        };
        reasons.extend(why_not_fewer(&found, &model));
        Ok(Compared {
            ours: found.first().map(|set| self.ours(set)),
            rule,
            reasons,
        })
    }

    /// The sets on hosts of 8, in their ranking.
    fn fit(&self, model: &Model, job: &Job) -> Result<Vec<Candidate>, SizingError> {
        let limits = Limits {
            host_slots: Some(8),
            ..Limits::default()
        };
        let found = fit::fit(model, job, &[Offer::of(self.kind, None)], limits)?;
        Ok(found.candidates)
    }

    fn ours(&self, set: &Candidate) -> Ours {
        Ours {
            memory_gb: gb(set.estimate.safe, set.set.count),
            gpus: set.set.count,
            cost_usd: set.price_usd,
            energy: self.energy(set.set.count),
        }
    }

    fn energy(&self, gpus: u32) -> Option<Energy> {
        let tdp_w = self.kind.tdp_w?;
        Some(Energy::a_year(gpus, tdp_w, self.kind.idle_w, self.utilisation))
    }

    fn reasons(&self, rule: &RuleCell, set: &Candidate, model: &Model) -> Vec<String> {
        let count = set.set.count;
        let bare = model.params as f64 * f64::from(rule.bits) / 8.0 / 1e9;
        let mut reasons = Vec::new();
        let (weights, others): (Vec<_>, Vec<_>) =
            set.estimate.terms.iter().partition(|term| term.name == "weights");
        let weights: f64 = weights.iter().map(|term| gb(term.safe, count)).sum();
        if weights > 1.01 * bare {
            let embeddings = if rule.bits < 16 {
                "embeddings and head stay in 16 bits, scales come on top, and "
            } else {
                ""
            };
            reasons.push(format!(
                "weights {weights:.1} GB and not {bare:.1}: {embeddings}a margin for what engines load beside them"
            ));
        }
        let others = others
            .iter()
            .map(|term| format!("{} {:.1}", term.name, gb(term.safe, count)));
        reasons.push(format!(
            "in place of the rule's {:.1} GB on top: {} GB",
            rule.memory_gb - bare,
            others.collect::<Vec<_>>().join(", ")
        ));
        if count != rule.gpus {
            let mut why = format!(
                "each of {count} GPUs has {:.1} GB and not {:.0}, and holds context and activations of its own",
                gb(set.memory, 1),
                self.kind.memory_nominal.gib()
            );
            if count > 1 {
                why += &format!("; {} heads divide over groups of {}", model.heads, set.set.group);
            }
            reasons.push(why);
        }
        reasons
    }
}

/// Where fewer GPUs hold it than those of the set that ranks first.
fn why_not_fewer(ranked: &[Candidate], model: &Model) -> Option<String> {
    let (first, others) = ranked.split_first()?;
    let fewest = others.iter().min_by_key(|other| other.set.count)?;
    if fewest.set.count >= first.set.count {
        return None;
    }
    let speeds = match (&first.speed, &fewest.speed) {
        (Some(first), Some(fewest)) => format!(
            ": {:.0} tokens/s per GPU and not {:.0}",
            fewest.tokens_per_s_per_gpu, first.tokens_per_s_per_gpu
        ),
        _ => String::new(),
    };
    let count = fewest.set.count;
    let undivided = if model.heads.is_multiple_of(u64::from(count)) {
        String::new()
    } else {
        format!("{} heads do not divide over {count}, and ", model.heads)
    };
    Some(format!(
        "{count} GPUs hold it too, as {}, which ranks after {} of {} GPUs: {undivided}every token passes stages one \
         after another{speeds}",
        fewest.division, first.division, first.set.count
    ))
}

fn gb(bytes: Bytes, gpus: u32) -> f64 {
    bytes.0 as f64 * f64::from(gpus) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::profile::Profiles;

    #[test]
    fn the_tables_stand_side_by_side_with_reasons() {
        let h100 = Profiles::builtin().by_name("h100-sxm5-80gb").unwrap();
        let compared = compare(&Rule::builtin()[0], h100, 0.61).unwrap();
        assert_eq!(compared.cells.len(), 12);
        assert_eq!(compared.energy.unwrap().kwh_a_year.floor(), 3740.0);
        for cell in &compared.cells {
            let ours = cell.ours.as_ref().unwrap();
            // What the reasons name adds up to our figure.
            assert!(ours.memory_gb > f64::from(cell.rule.billions) * f64::from(cell.rule.bits) / 8.0);
            assert!(!cell.reasons.is_empty());
            let counts_differ = ours.gpus != cell.rule.gpus;
            let explained = cell.reasons.iter().any(|reason| reason.contains("GPUs has"));
            assert_eq!(counts_differ, explained, "{cell:?}");
            assert_eq!(ours.cost_usd, Some(30_000.0 * f64::from(ours.gpus)));
            assert!((ours.energy.unwrap().kwh_a_year / f64::from(ours.gpus) - 3740.52).abs() < 0.01);
        }
        let at = |billions, bits| {
            let mut cells = compared.cells.iter();
            cells
                .find(|c| (c.rule.billions, c.rule.bits) == (billions, bits))
                .unwrap()
        };
        let int4 = at(70, 4).reasons.join("; ");
        assert!(int4.contains("embeddings and head stay in 16 bits"), "{int4}");
        // The published ranges lie between serving and training.
        let eight = &compared.practice[0];
        let of = |task| {
            let (_, ours) = eight.ours.iter().find(|(t, _)| *t == task).unwrap();
            ours.as_ref().unwrap().memory_gb
        };
        let range = eight.published.as_ref().unwrap();
        assert!(of(Task::Infer) < range.low_gb && of(Task::Full) > range.high_gb);
    }

    #[test]
    fn more_gpus_than_hold_it_have_their_reason() {
        let h100 = Profiles::builtin().by_name("h100-sxm5-80gb").unwrap();
        let compared = compare(&Rule::builtin()[0], h100, 0.61).unwrap();
        let reasons = |billions, bits| {
            let mut cells = compared.cells.iter();
            let cell = cells.find(|c| (c.rule.billions, c.rule.bits) == (billions, bits));
            cell.unwrap().reasons.join("; ")
        };
        let why = reasons(70, 16);
        assert!(
            why.contains("3 GPUs hold it too, as pipeline 3, which ranks after tensor 4 of 4 GPUs"),
            "{why}"
        );
        assert!(why.contains("tokens/s per GPU and not"), "{why}");
        assert!(!reasons(8, 16).contains("hold it too"));
    }

    #[test]
    fn what_fits_on_no_set_is_said() {
        // Less memory than an engine takes beside weights.
        let small = GpuKind {
            name: "small".into(),
            memory_nominal: Bytes::from_gib(4.0),
            memory_reported: None,
            memory_usable: None,
            ..Profiles::builtin().by_name("t4-16gb").unwrap().clone()
        };
        let compared = compare(&Rule::builtin()[0], &small, 0.61).unwrap();
        for cell in &compared.cells {
            assert_eq!(cell.ours, None, "{cell:?}");
            assert_eq!(cell.reasons, ["no set of small holds it"]);
        }
        for size in &compared.practice {
            let (task, ours) = &size.ours[0];
            assert_eq!((*task, ours), (Task::Infer, &None));
        }
    }
}
