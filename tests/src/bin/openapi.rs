//! Writes the OpenAPI document of `/api/v1`, from the types of the handlers.

use poolwright_tests::openapi::{PLACE, document};
use poolwright_tests::workspace::tree_to_judge;
use std::{fs, io};

fn main() -> io::Result<()> {
    fs::write(tree_to_judge().join(PLACE), document())
}
