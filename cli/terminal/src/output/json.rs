//! JSON: indented for people, on one line for programs.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use serde::Serialize;

pub fn write(value: &impl Serialize, indented: bool) -> Result<String, Failure> {
    let text = if indented {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    text.map_err(|error| {
        Failure::new(
            ExitCode::Generic,
            format!("the result can't be written as JSON: {error}"),
        )
    })
}
