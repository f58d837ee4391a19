//! Arguments that can't be parsed: our own messages for values, in place of a library's.

use crate::exit_code::ExitCode;
use crate::is_coloured;
use crate::output::say;
use clap::error::{ContextKind, ErrorKind};
use std::error::Error;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseIntError};

/// Prints help, the version, or an argument error.
pub fn refuse(error: &clap::Error) -> ExitCode {
    match told(error, is_coloured()) {
        Some(text) => say(text.trim_end()),
        // A closed stream leaves no place to report a failure.
        None => drop(error.print()),
    }
    if error.kind() == ErrorKind::UnknownArgument {
        let typed = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let number = typed.and_then(|typed| typed.strip_prefix('-')?.chars().next());
        // A figure with a sign, such as a model of -5B or a limit of -1s, reads as an option.
        if number.is_some_and(|first| first.is_ascii_digit()) {
            say(
                "hint: sizes, counts and times have no sign: allowed are those without, such as 5B, 8 or 90s",
            );
        }
    }
    match error.use_stderr() {
        true => ExitCode::Usage,
        false => ExitCode::Ok,
    }
}

/// The text of an error of the command line; `None` if clap's own text is used.
fn told(error: &clap::Error, with_colours: bool) -> Option<String> {
    let source = error.source()?;
    let allowed = allowed(source)?;
    let text = error.render();
    let text = match with_colours {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    Some(text.replace(&source.to_string(), &format!("allowed: {allowed}")))
}

fn allowed(source: &(dyn Error + 'static)) -> Option<String> {
    if let Some(number) = source.downcast_ref::<ParseIntError>() {
        return Some(match number.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "a smaller whole number".to_owned(),
            _ => "a whole number, such as 8".to_owned(),
        });
    }
    if source.is::<AddrParseError>() {
        return Some("ADDRESS:PORT, such as 127.0.0.1:8443 or [::1]:8443".to_owned());
    }
    let moment = "a moment with date, time and zone, such as 2026-12-01T20:00:00Z";
    source.is::<jiff::Error>().then(|| moment.to_owned())
}
