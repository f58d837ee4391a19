//! Writes `docs/FAULTS.md`, from the tests that say which fault they show.

use poolwright_tests::faults::{ROWS, complaints, page, shown};
use poolwright_tests::workspace::{committed_texts, tree_to_judge};
use std::{fs, io};

fn main() -> io::Result<()> {
    let root = tree_to_judge();
    let (shown, lost) = shown(&committed_texts(&root)?);
    let complaints: Vec<_> = lost.into_iter().chain(complaints(&ROWS, &shown)).collect();
    if !complaints.is_empty() {
        return Err(io::Error::other(complaints.join("\n")));
    }
    fs::write(root.join("docs/FAULTS.md"), page(&ROWS, &shown))
}
