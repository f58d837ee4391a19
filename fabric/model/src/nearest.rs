//! The names most like one that nobody knows: for `did you mean …?`.

/// More than this is a list to search, and no suggestion.
const MOST: usize = 3;

/// What is longer is no name: it may be as long as a request.
const LONGEST: usize = 200;

/// At most three of the known names that `wanted` may have been meant for, the nearest first. Upper and lower
/// case are one.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.len() > LONGEST {
        return Vec::new();
    }
    let wanted = wanted.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (unlikeness(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, _)| is_like(&wanted, *distance))
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// `did you mean A or B?`, where there is something to suggest.
pub fn did_you_mean(suggestions: &[impl AsRef<str>]) -> Option<String> {
    let names: Vec<&str> = suggestions.iter().map(AsRef::as_ref).collect();
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// Whether a name at this distance may have been meant.
pub fn is_like(wanted: &str, distance: usize) -> bool {
    distance <= wanted.chars().count() / 3 + 1
}

/// Edit distance; small where one name contains the other or is like the beginning of it.
pub fn unlikeness(a: &str, b: &str) -> usize {
    if a.len() < 3 {
        return edit_distance(a, b);
    }
    if b.contains(a) || a.contains(b) {
        return 1;
    }
    let beginning = b
        .get(..a.len())
        .map_or(usize::MAX, |start| 1 + edit_distance(a, start));
    edit_distance(a, b).min(beginning)
}

/// How many characters must be changed, added or dropped (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abc", "abc"), 0);
    }

    #[test]
    fn what_was_meant_is_found_and_nothing_else() {
        let kinds = ["l4-24gb", "h100-pcie-80gb", "h100-sxm5-80gb", "a100-pcie-80gb"];
        assert_eq!(nearest("h100", kinds)[..2], ["h100-pcie-80gb", "h100-sxm5-80gb"]);
        assert_eq!(nearest("H100-PCIE-80", kinds)[0], "h100-pcie-80gb");
        assert_eq!(nearest("l4-42gb", kinds), ["l4-24gb"]);
        assert!(nearest("voodoo2", kinds).is_empty());
        assert!(nearest("", kinds).is_empty());
        let long = format!("l4-24gb{}", "x".repeat(LONGEST));
        assert!(nearest(&long, kinds).is_empty(), "it would take long to compare");
        assert_eq!(nearest("größe", ["grösse", "x"]), ["grösse"]);
    }

    #[test]
    fn suggestions_read_as_a_question() {
        assert_eq!(did_you_mean(&[""; 0]), None);
        assert_eq!(did_you_mean(&["a"]).unwrap(), "did you mean a?");
        assert_eq!(did_you_mean(&["a", "b", "c"]).unwrap(), "did you mean a, b or c?");
    }
}
