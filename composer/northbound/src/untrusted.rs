//! What reads bytes that anybody may send, each behind one function: for fuzzers, and for the test that runs the same.
//! Each tells whether it understood them; none may panic.

use crate::redfish::{body_of, manifest_of, query_of, segments_of};
use crate::unique;

/// A body: JSON in which no key stands twice.
pub fn body(bytes: &[u8]) -> bool {
    // What the check lets through the parser must take, and the other way round but for keys that stand twice.
    let (unique, parsed) = (unique::check(bytes).is_ok(), body_of(bytes));
    assert_eq!(unique, parsed, "the check and the parser differ");
    parsed
}

/// A manifest of systems.
pub fn manifest(bytes: &[u8]) -> bool {
    manifest_of(bytes)
}

/// What stands behind the `?`.
pub fn query(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(query_of)
}

/// The path of a request.
pub fn path(bytes: &[u8]) -> bool {
    let segments = std::str::from_utf8(bytes).ok().and_then(segments_of);
    let strange = |segment: &String| segment.contains('/') || segment == "..";
    segments.is_some_and(|segments| {
        assert!(
            !segments.iter().any(strange),
            "{segments:?} could be another path"
        );
        true
    })
}
