//! `agent watch`: what the kernel tells of PCI functions, line by line.

use poolwright_pcie::{Heard, Uevent, Uevents};
use poolwright_terminal::output::{Format, Output, Table, say};
use poolwright_terminal::some_time;
use poolwright_terminal::{ExitCode, Failure, Outcome};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArgs {
    /// Ends after so long; without it, at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = some_time)]
    limit: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright-agent watch
  poolwright-agent watch --for 60s -o json

A line for each: add, remove, bind, unbind, change. JSON: {action, function} a line. That nothing is told proves nothing: a \
GPU may go without a word.";

/// From one look at the clock to the next.
const AT_MOST: Duration = Duration::from_secs(3600);

pub fn watch(args: &WatchArgs, output: Output) -> Outcome {
    let failed = |error: std::io::Error| {
        Failure::new(
            ExitCode::Unavailable,
            format!("the kernel can't be listened to: {error}"),
        )
        .with_hint("it is asked over a netlink socket, which a container may have been denied")
    };
    if !matches!(output.format, Format::Table | Format::Json) {
        return Err(Failure::usage(
            "what happens is told as it does, in lines of text or, with -o json, of JSON",
        ));
    }
    let uevents = Uevents::listen().map_err(failed)?;
    say("listening to the kernel");
    let until = args.limit.map(|limit| Instant::now() + limit);
    loop {
        let left = until.map_or(AT_MOST, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(ExitCode::Ok);
        }
        match uevents.next(left.min(AT_MOST)).map_err(failed)? {
            Heard::Told(told) => tell(&told, output)?,
            Heard::Lost => say("the kernel dropped some: look at everything anew"),
            Heard::Nothing => {}
        }
    }
}

fn tell(told: &Uevent, output: Output) -> Result<(), Failure> {
    let Uevent { action, function } = told;
    // No table: there is no telling how many lines it will have.
    let text = format!("{function} {}\n", action.word());
    output.show_line(told, &Table::new([""; 0]), text)
}
