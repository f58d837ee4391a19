//! The committed OpenAPI document is that of the handlers.

use poolwright_tests::openapi::{PLACE, document};
use poolwright_tests::workspace::tree_to_judge;

#[test]
fn the_committed_openapi_document_is_what_the_handlers_tell() {
    let committed = std::fs::read_to_string(tree_to_judge().join(PLACE)).unwrap();
    let differs = committed
        .lines()
        .zip(document().lines())
        .find(|(one, other)| one != other)
        .map(|(one, _)| one.to_owned());
    assert!(
        committed == document(),
        "cargo run -p poolwright-tests --bin openapi writes {PLACE} again; the first line that differs: {differs:?}"
    );
}
