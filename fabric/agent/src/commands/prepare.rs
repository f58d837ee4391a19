//! `agent prepare`: what the host needs. It is printed, and never done.

use super::{Host, parse_ids};
use crate::{Largest, Preparation, Verdict};
use poolwright_model::units::Bytes;
use poolwright_pcie::Ids;
use poolwright_terminal::Outcome;
use poolwright_terminal::exit_code::ExitCode;
use poolwright_terminal::output::human::wrapped;
use poolwright_terminal::output::word;
use poolwright_terminal::output::{Cell, Output, Table, column};
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct PrepareArgs {
    /// What one of the 64-bit registers of the largest GPU wants of a slot's window; may be repeated
    #[arg(long = "bar", value_name = "BYTES", default_values = ["128GiB", "32MiB"])]
    bars: Vec<Bytes>,
    /// What its other registers want, together
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    mmio: Bytes,
    /// Its vendor and device, as lspci shows them: whether a module is installed that drives it
    #[arg(long, value_name = "VENDOR:DEVICE", value_parser = parse_ids)]
    ids: Option<Ids>,
    #[command(flatten)]
    host: Host,
}

const EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent prepare                              for GPUs of 80 GB
  sudo poolwright-agent prepare --bar 256GiB --ids 10de:2335

JSON: {slots, window_bytes, all_windows_bytes, kernel_line, advice: [{check, verdict, says, todo}]}, verdict good, bad, \
cannot-tell or not-applicable. Nothing is changed. Exit code 5 where something is lacking, 8 where something can't be told; root \
sees more.";

pub fn prepare(args: &PrepareArgs, output: Output) -> Outcome {
    let root = args.host.root()?;
    let host = crate::inventory(root, &args.host.nvml());
    let largest = Largest {
        bars: args.bars.clone(),
        mmio: args.mmio,
        ids: args.ids,
    };
    let preparation = crate::prepare(root, &host, &largest);
    let mut table = Table::new([column("CHECK"), column("VERDICT"), column("SAYS")]);
    for advice in &preparation.advice {
        table.row([
            Cell::text(advice.check.check),
            word(&advice.check.verdict),
            Cell::text(&advice.check.says),
        ]);
    }
    output.show_as(&preparation, &table, |width| as_text(&preparation, &table, width))?;
    Ok(match preparation.verdict() {
        Verdict::Good | Verdict::NotApplicable => ExitCode::Ok,
        Verdict::Bad => ExitCode::Conflict,
        Verdict::CannotTell => ExitCode::Partial,
    })
}

fn as_text(preparation: &Preparation, table: &Table, width: Option<u16>) -> String {
    let mut text = table.render(width);
    let todos = preparation.advice.iter().filter_map(|advice| {
        let todo = advice.todo.as_ref()?;
        Some((advice.check.check, todo))
    });
    for (check, todo) in todos {
        let _ = write!(text, "\n{}\n", wrapped(&format!("{check}: {todo}"), width));
    }
    text
}
