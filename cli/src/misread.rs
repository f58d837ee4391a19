//! Our own messages for option values that can't be parsed, in place of a library's.

use std::error::Error;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseIntError};

/// The text of an error of the command line; `None` if clap's own text is used.
pub fn told(error: &clap::Error, with_colours: bool) -> Option<String> {
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
