//! The catalogue of faults is what the tests show.

use poolwright_tests::faults::{ROWS, complaints, page, shown};
use poolwright_tests::workspace::{committed_texts, tree_to_judge};
use std::fs;

#[test]
fn every_fault_of_the_catalogue_is_shown_by_a_test_or_says_what_it_waits_for() {
    let (shown, lost) = shown(&committed_texts(&tree_to_judge()).unwrap());
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(complaints(&ROWS, &shown), Vec::<String>::new());
    for (place, row) in ROWS.iter().enumerate() {
        assert_eq!(
            usize::from(row.number),
            place + 1,
            "numbers go up, and none is left out"
        );
        // What is done about an open one may not be decided yet.
        assert!(row.waits_for.is_some() || !row.behaviour.is_empty(), "{row:?}");
    }
}

#[test]
fn the_page_is_what_is_generated() {
    let root = tree_to_judge();
    let (shown, _) = shown(&committed_texts(&root).unwrap());
    let there = fs::read_to_string(root.join("docs/FAULTS.md")).unwrap_or_default();
    assert!(
        there == page(&ROWS, &shown),
        "docs/FAULTS.md is not what the tests say: cargo run -p poolwright-tests --bin faults"
    );
}
