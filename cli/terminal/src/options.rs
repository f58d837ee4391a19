//! Options that every command accepts, and times as options write them.

use crate::output::Format;
use clap::ArgAction;
use std::time::Duration;

/// Options that every command accepts.
#[derive(Debug, clap::Args)]
pub struct EveryCommand {
    /// How results are written: table if left out; json for a plan over time (`plan --instance`, `--ahead`) that does not go to a
    /// terminal
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        help_heading = "Every command"
    )]
    pub output: Option<Format>,
    /// Say more on stderr; twice for still more (RUST_LOG goes before it)
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Every command")]
    pub verbose: u8,
}

/// Reads `90s`, `10m`, `1h 30m`, `2d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed =
        poolwright_model::units::parse_duration(text).and_then(|signed| Duration::try_from(signed).ok());
    parsed.ok_or_else(|| format!("{text:?} is not a time: write 90s, 1h 30m or 2d"))
}

/// The same, above zero.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is no time at all: write 90s, 1h 30m or 2d")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "soon", "-5s", "10"] {
            assert!(duration(wrong).unwrap_err().contains("90s"), "{wrong}");
        }
    }
}
