//! Joining what several endpoints say of one field: the first that says anything is believed, and a
//! contradiction is not hidden.

/// Takes the other's value where there is none yet.
pub(crate) fn fill<T: Clone>(mine: &mut Option<T>, other: &Option<T>) {
    if mine.is_none() {
        mine.clone_from(other);
    }
}

/// Takes the other's list where there is none yet.
pub(crate) fn fill_list<T: Clone>(mine: &mut Vec<T>, other: &[T]) {
    if mine.is_empty() {
        mine.extend_from_slice(other);
    }
}

/// `wanted`, or `wanted-2`, `wanted-3`… where that is taken.
pub(crate) fn not_taken(wanted: String, taken: impl Fn(&str) -> bool) -> String {
    if !taken(&wanted) {
        return wanted;
    }
    (2u32..)
        .map(|n| format!("{wanted}-{n}"))
        .find(|name| !taken(name))
        .unwrap_or(wanted)
}
