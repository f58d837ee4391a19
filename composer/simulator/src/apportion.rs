//! Whole servers shared out in proportion to what is wanted, with a least for each.

/// Shares out `all` so that each has its least, and the rest goes by weight, the largest remainders first. None where
/// the least shares alone are more than there is.
#[must_use]
pub fn apportion(all: u32, weights: &[f64], least: &[u32]) -> Option<Vec<u32>> {
    let mut shares = least.to_vec();
    if shares.iter().map(|share| u64::from(*share)).sum::<u64>() > u64::from(all) {
        return None;
    }
    // One at a time to whoever is furthest below its due: nobody's least is counted twice.
    let total: f64 = weights.iter().sum();
    let due: Vec<f64> = weights
        .iter()
        .map(|weight| f64::from(all) * weight / total.max(f64::MIN_POSITIVE))
        .collect();
    let left = all - shares.iter().sum::<u32>();
    for _ in 0..left {
        let behind = (0..shares.len()).max_by(|a, b| {
            let missing = |of: &usize| due[*of] - f64::from(shares[*of]);
            missing(a).total_cmp(&missing(b)).then(b.cmp(a))
        })?;
        shares[behind] += 1;
    }
    Some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_weights_and_keep_the_least() {
        assert_eq!(apportion(10, &[3.0, 1.0, 1.0], &[0, 0, 0]), Some(vec![6, 2, 2]));
        assert_eq!(apportion(10, &[9.0, 1.0], &[1, 4]), Some(vec![6, 4]));
        assert_eq!(apportion(3, &[1.0, 1.0], &[2, 2]), None);
        assert_eq!(apportion(3, &[1.0, 1.0], &[0, 0]), Some(vec![2, 1]));
    }
}
