//! How much must be added to what was said so that it suffices: a quantile of how far it was off of late, in which the
//! latest counts most, and the error to come counts as one that may be larger than all.

/// Errors from oldest to newest; `half_life` of them later one counts half. None where there are none.
pub(super) fn upper(errors: &[f64], level: f64, half_life: f64) -> Option<f64> {
    let newest = errors.len().checked_sub(1)?;
    let mut weighed: Vec<(f64, f64)> = errors
        .iter()
        .enumerate()
        .map(|(place, error)| (*error, 0.5_f64.powf((newest - place) as f64 / half_life)))
        .collect();
    weighed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = 1.0 + weighed.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    for (error, weight) in &weighed {
        below += weight;
        if below >= level * total {
            return Some(*error);
        }
    }
    weighed.last().map(|(error, _)| *error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All errors count alike.
    const EVEN: f64 = f64::INFINITY;

    #[test]
    fn nine_of_ten_errors_are_covered_with_one_for_the_error_to_come() {
        let errors: Vec<f64> = (1..=99).map(f64::from).collect();
        assert_eq!(upper(&errors, 0.9, EVEN), Some(90.0));
        assert_eq!(
            upper(&[1.0, 3.0, 2.0], 0.9, EVEN),
            Some(3.0),
            "too few: the worst"
        );
        assert_eq!(upper(&[], 0.9, EVEN), None);
    }

    #[test]
    fn what_is_long_ago_counts_little() {
        let mut errors = vec![100.0; 500];
        errors.extend([1.0; 500]);
        assert_eq!(upper(&errors, 0.9, EVEN), Some(100.0));
        assert_eq!(upper(&errors, 0.9, 96.0), Some(1.0));
    }
}
