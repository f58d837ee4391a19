//! Energy of GPUs over time, at a stated utilisation.
//!
//! A published figure, 3,740 kWh a year for an H100, is its limit of 700 W for 61 % of the hours. It is the same
//! product here, with what it leaves out beside it.

use serde::{Deserialize, Serialize};

const HOURS_A_YEAR: f64 = 8760.0;

/// The share of the hours in the published figure.
pub const PUBLISHED_UTILISATION: f64 = 0.61;

/// What a figure from a GPU's limit and a share of the hours does not have in it.
pub const LEFT_OUT: &str = "hosts, switches and cooling, and what GPUs draw while they idle; the limit stands for \
                            what is drawn under load, which is less in most jobs";

/// What GPUs take in a year.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Thermal design power of all of them.
    pub watts: f64,
    /// The share of the hours at that power.
    pub utilisation: f64,
    pub kwh_a_year: f64,
    /// In the other hours, where it is known what they draw then; not in `kwh_a_year`.
    pub idle_kwh_a_year: Option<f64>,
}

impl Energy {
    /// `gpus` of so many watts each. The utilisation is brought into 0 to 1.
    pub fn a_year(gpus: u32, tdp_w: f64, idle_w: Option<f64>, utilisation: f64) -> Energy {
        let utilisation = utilisation.clamp(0.0, 1.0);
        let kwh = |watts: f64, share: f64| watts * share * HOURS_A_YEAR / 1000.0;
        let watts = tdp_w * f64::from(gpus);
        Energy {
            watts,
            utilisation,
            kwh_a_year: kwh(watts, utilisation),
            idle_kwh_a_year: idle_w.map(|idle| kwh(idle * f64::from(gpus), 1.0 - utilisation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figure_comes_out() {
        let one = Energy::a_year(1, 700.0, Some(70.0), PUBLISHED_UTILISATION);
        assert_eq!(one.kwh_a_year.floor(), 3740.0);
        assert_eq!(one.idle_kwh_a_year.map(f64::round), Some(239.0));
        let eight = Energy::a_year(8, 700.0, None, 1.0);
        assert_eq!(
            (eight.watts, eight.kwh_a_year, eight.idle_kwh_a_year),
            (5600.0, 49_056.0, None)
        );
        assert_eq!(Energy::a_year(1, 700.0, None, -3.0).kwh_a_year, 0.0);
    }
}
