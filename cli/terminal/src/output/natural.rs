//! The order in which people count: `Slot 2` before `Slot 10`.

use std::cmp::Ordering;

/// Compares texts piece by piece: runs of digits as numbers, the rest as it is.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut a_rest, mut b_rest) = (a, b);
    loop {
        let order = match (next(&mut a_rest), next(&mut b_rest)) {
            (Some(one), Some(other)) => match (one.parse::<u64>(), other.parse::<u64>()) {
                (Ok(one), Ok(other)) => one.cmp(&other),
                _ => one.cmp(other),
            },
            // `x1` and `x01` are not the same.
            (None, None) => return a.cmp(b),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The same where one may be missing; what is missing comes last.
pub fn compare_maybe(a: Option<&str>, b: Option<&str>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Takes a run of digits, or of anything else, off the front.
fn next<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let digits = rest.chars().next()?.is_ascii_digit();
    let end = rest
        .find(|c: char| c.is_ascii_digit() != digits)
        .unwrap_or(rest.len());
    let (piece, others) = rest.split_at(end);
    *rest = others;
    Some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = [
            "slot10",
            "Slot 2",
            "slot2",
            "slot",
            "box-2",
            "box-10",
            "slot02a",
            "x99999999999999999999999",
        ];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(
            names,
            [
                "Slot 2",
                "box-2",
                "box-10",
                "slot",
                "slot2",
                "slot02a",
                "slot10",
                "x99999999999999999999999"
            ]
        );
        assert_eq!(compare("x1", "x01"), Ordering::Greater);
        assert_eq!(compare_maybe(None, Some("a")), Ordering::Greater);
        assert_eq!(compare_maybe(None, None), Ordering::Equal);
    }
}
