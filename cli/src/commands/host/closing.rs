//! `host close` and `host open`: a host is given nothing for a while, and what it has stays.

use crate::api_client::{Api, ManagerArgs};
use crate::failure::Failure;
use crate::names;
use crate::output::{Output, say};
use crate::tables;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, Zoned};
use poolwright_model::id::HostId;
use poolwright_service::Composition;
use poolwright_service::closure::{Close, HostClosure};
use serde_json::json;

pub(super) const CLOSE: &str = "\
Examples:
  poolwright host close host-3 --reason \"it beeps\"
  poolwright host close host-3 --from 2026-12-24T22:00+01:00 --until 2026-12-25T02:00+01:00 --reason \"new fans\"
  poolwright host close host-3 --until '2026-12-25T02:00[Europe/Berlin]' --reason \"new fans\"

Nothing is moved by this: what the host has stays, and nothing new comes to it, whoever asks. It opens by itself at the end; \
without one, poolwright host open does it. What would be there when it closes is given GPUs elsewhere, where there are as many.
JSON: {host, from, until, reason, by, since}.";

pub(super) const OPEN: &str = "\
Example:
  poolwright host open host-3

It also takes back that a host will be closed.";

#[derive(Debug, clap::Args)]
pub(super) struct CloseArgs {
    host: HostId,
    /// From when, with its zone; at once, if it is left out
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
    /// Until when; until it is opened, if it is left out
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Why; whoever wonders is told
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// A moment with its zone, by offset or by name.
fn moment(text: &str) -> Result<Timestamp, String> {
    let zoned = || text.parse::<Zoned>().map(|zoned| after_gap(text, &zoned));
    text.parse().or_else(|_| zoned()).map_err(|error| {
        format!(
            "{text:?} is no moment ({error}): write 2026-12-24T22:00Z, 2026-12-24T22:00+01:00 or \
             2026-12-24T22:00[Europe/Berlin]"
        )
    })
}

/// A skipped local time counts at the first moment after the gap, as in schedules; jiff moves it by the gap's length.
fn after_gap(text: &str, zoned: &Zoned) -> Timestamp {
    let is_skipped = text
        .parse::<DateTime>()
        .is_ok_and(|written| written != zoned.datetime());
    let at = zoned.timestamp();
    let since = at.saturating_add(SignedDuration::from_secs(1)).unwrap_or(at);
    let gap = zoned.time_zone().preceding(since).next().filter(|_| is_skipped);
    gap.map_or(at, |transition| transition.timestamp())
}

pub(super) async fn close(args: &CloseArgs, output: Output) -> Result<(), Failure> {
    let api = Api::new(&args.manager)?;
    let close = Close {
        from: args.from,
        until: args.until,
        reason: args.reason.clone(),
    };
    let host = args.host.as_str();
    let closed: HostClosure = match api.post(&["hosts", host, "close"], &close).await {
        Ok(closed) => closed,
        Err(failure) => return Err(names::suggest(&api, failure, &[("hosts", host)]).await),
    };
    show(&closed, output)?;
    let compositions: Vec<Composition> = api.get(&["compositions"]).await?;
    let here = compositions.iter().filter(|c| c.host == args.host);
    let here: Vec<&str> = here.map(|c| c.id.as_str()).collect();
    if !here.is_empty() {
        say(&format!("what it has stays: {}", here.join(", ")));
    }
    Ok(())
}

pub(super) async fn open(host: &HostId, manager: &ManagerArgs, output: Output) -> Result<(), Failure> {
    let opened: HostClosure = Api::new(manager)?
        .post(&["hosts", host.as_str(), "open"], &json!({}))
        .await?;
    // The cordon is over: its record is for programs only.
    let was = tables::closures(std::slice::from_ref(&opened));
    output.show_as(&opened, &was, |_| format!("host {host} is open"))
}

fn show(closure: &HostClosure, output: Output) -> Result<(), Failure> {
    output.show(closure, &tables::closures(std::slice::from_ref(closure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daylight_saving_is_as_in_schedules() {
        for (text, at) in [
            ("2026-03-29T02:00[Europe/Berlin]", "2026-03-29T01:00:00Z"),
            ("2026-03-29T02:30[Europe/Berlin]", "2026-03-29T01:00:00Z"),
            ("2026-03-29T03:30[Europe/Berlin]", "2026-03-29T01:30:00Z"),
            ("2026-10-25T02:30[Europe/Berlin]", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30+01:00[Europe/Berlin]", "2026-10-25T01:30:00Z"),
            ("2026-10-04T02:15[Australia/Lord_Howe]", "2026-10-03T15:30:00Z"),
        ] {
            assert_eq!(moment(text).unwrap().to_string(), at, "{text}");
        }
    }

    #[test]
    fn a_moment_has_a_zone() {
        for text in [
            "2026-12-24T21:00Z",
            "2026-12-24T22:00+01:00",
            "2026-12-24T22:00[Europe/Berlin]",
        ] {
            assert_eq!(
                moment(text).unwrap().to_string(),
                "2026-12-24T21:00:00Z",
                "{text}"
            );
        }
        for text in ["", "soon", "2026-12-24T22:00", "2026-12-24T22:00[Atlantis]"] {
            assert!(moment(text).unwrap_err().contains("write 2026"), "{text}");
        }
    }
}
