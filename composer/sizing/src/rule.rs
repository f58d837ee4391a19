//! Rules of thumb in the market, as named rules beside our estimates: `parameters x bits / 8 x factor`.
//!
//! Units are the rules' own: decimal GB, and a card counts with the figure in its name.

use crate::error::{builtin, data};
use poolwright_model::profile::GpuKind;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The model sizes of the tables, in billions of parameters.
pub const SIZES: [u32; 3] = [8, 70, 400];

pub const PRECISIONS: [(&str, u32); 4] = [("FP32", 32), ("FP16/BF16", 16), ("FP8/INT8", 8), ("INT4", 4)];

/// A published rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    pub factor: f64,
    pub source: String,
    /// What the same source gives as working ranges, which is not what its rule comes to.
    pub ranges: Vec<WorkingRange>,
}

/// Memory that models of a size take in practice, as published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkingRange {
    pub billions: u32,
    pub low_gb: f64,
    pub high_gb: f64,
}

impl Rule {
    /// The rules that come with Poolwright; the first is Liqid's.
    pub fn builtin() -> &'static [Rule] {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            rule: Vec<Rule>,
        }
        static ALL: LazyLock<Vec<Rule>> = LazyLock::new(|| builtin::<File>(data!("sizing/rules.toml")).rule);
        &ALL
    }

    pub fn named(name: &str) -> Option<&'static Rule> {
        Rule::builtin().iter().find(|r| r.name.eq_ignore_ascii_case(name))
    }

    /// Decimal gigabytes for so many parameters of so many bits.
    pub fn memory_gb(&self, params: f64, bits: u32) -> f64 {
        params * f64::from(bits) / 8.0 * self.factor / 1e9
    }

    pub fn working_range(&self, billions: u32) -> Option<&WorkingRange> {
        self.ranges.iter().find(|r| r.billions == billions)
    }

    /// Memory, number of GPUs and their cost by model size and precision, on one kind of GPU.
    pub fn tables(&self, kind: &GpuKind) -> RuleTables {
        let cells = SIZES.iter().flat_map(|size| {
            PRECISIONS.iter().map(|(precision, bits)| {
                let memory_gb = self.memory_gb(f64::from(*size) * 1e9, *bits);
                let gpus = (memory_gb / kind.memory_nominal.gib()).ceil().max(1.0);
                RuleCell {
                    billions: *size,
                    precision: (*precision).to_owned(),
                    bits: *bits,
                    memory_gb,
                    gpus: gpus as u32,
                    cost_usd: kind.price_usd.map(|price| price * gpus),
                }
            })
        });
        RuleTables {
            rule: self.name.clone(),
            gpu: kind.name.clone(),
            cells: cells.collect(),
        }
    }
}

/// The three tables in one: a cell for each size and precision, sizes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleTables {
    pub rule: String,
    pub gpu: String,
    pub cells: Vec<RuleCell>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleCell {
    pub billions: u32,
    pub precision: String,
    pub bits: u32,
    pub memory_gb: f64,
    pub gpus: u32,
    /// None where the price of the GPU is not known.
    pub cost_usd: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::profile::Profiles;

    #[test]
    fn liqids_rule_and_ranges() {
        let liqid = Rule::named("Liqid").unwrap();
        assert_eq!(liqid.memory_gb(8e9, 16), 20.0);
        let range = |b| liqid.working_range(b).map(|r| (r.low_gb, r.high_gb));
        assert_eq!(range(8), Some((40.0, 80.0)));
        assert_eq!(range(70), Some((350.0, 700.0)));
        assert_eq!(range(400), Some((2000.0, 4000.0)));
        assert_eq!(range(13), None);
        assert_eq!(Rule::named("modal").unwrap().memory_gb(10e9, 8), 12.0);
    }

    #[test]
    fn the_three_tables() {
        let h100 = Profiles::builtin().by_name("h100-sxm5-80gb").unwrap();
        let tables = Rule::builtin()[0].tables(h100);
        let column = |pick: fn(&RuleCell) -> f64| tables.cells.iter().map(pick).collect::<Vec<_>>();
        assert_eq!(
            column(|c| c.memory_gb),
            [
                40.0, 20.0, 10.0, 5.0, 350.0, 175.0, 87.5, 43.75, 2000.0, 1000.0, 500.0, 250.0
            ]
        );
        assert_eq!(
            column(|c| f64::from(c.gpus)),
            [1.0, 1.0, 1.0, 1.0, 5.0, 3.0, 2.0, 1.0, 25.0, 13.0, 7.0, 4.0]
        );
        assert_eq!(tables.cells[9].cost_usd, Some(13.0 * 30_000.0));
        assert_eq!(
            (tables.cells[9].billions, tables.cells[9].precision.as_str()),
            (400, "FP16/BF16")
        );
        let mut kinds = Profiles::builtin().all().iter();
        let unpriced = kinds.find(|kind| kind.price_usd.is_none()).unwrap();
        let cells = Rule::builtin()[0].tables(unpriced).cells;
        assert!(cells.iter().all(|cell| cell.cost_usd.is_none()));
    }
}
