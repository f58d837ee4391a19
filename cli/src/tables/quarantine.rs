//! GPUs that are suspect, and those that failed.

use crate::output::human::{counted, moment};
use crate::output::{Cell, Table, column};
use poolwright_service::quarantine::{BurnIn, History, Quarantine};
use poolwright_service::suspicion::Suspicion;
use std::fmt::Write as _;

pub fn quarantined(all: &[Quarantine]) -> Table {
    let mut table = Table::new([
        column("GPU"),
        column("CAUSE"),
        column("SINCE"),
        column("BY").if_room(),
        column("SERIAL").if_any().if_room(),
        column("HOST").if_any(),
        column("BURN-IN").if_any().named("burn_in"),
        column("SAYS").if_any(),
    ]);
    for one in all {
        table.row([
            Cell::text(&one.gpu),
            Cell::text(one.cause),
            Cell::at(one.since),
            Cell::text(&one.by),
            Cell::maybe(one.evidence.serial.as_ref()),
            Cell::maybe(one.evidence.host.as_ref()),
            Cell::maybe(one.burn_in.as_ref().map(burn_in)),
            Cell::maybe(Some(&one.evidence.says).filter(|says| !says.is_empty())),
        ]);
    }
    table
}

pub fn suspects(all: &[Suspicion]) -> Table {
    let mut table = Table::new([
        column("GPU"),
        column("ERRORS"),
        column("THRESHOLD"),
        column("HOST"),
        column("SINCE"),
    ]);
    for one in all {
        table.row([
            Cell::text(&one.gpu),
            Cell::text(one.errors),
            Cell::text(one.threshold),
            Cell::text(&one.host),
            Cell::at(one.since),
        ]);
    }
    table
}

fn burn_in(burn_in: &BurnIn) -> String {
    match &burn_in.ended {
        None => format!("runs since {}", burn_in.began),
        Some(end) => format!("did not pass: {end}"),
    }
}

/// The failures of a GPU.
pub fn strikes(history: &History) -> Table {
    let mut table = Table::new([
        column("AT"),
        column("CAUSE"),
        column("HOST").if_any(),
        column("CHASSIS").if_any().if_room(),
        column("SLOT").if_any(),
        column("SERIAL").if_any().if_room(),
        column("FIRMWARE").if_any().if_room(),
        column("SAYS").if_any(),
    ]);
    for strike in &history.of.strikes {
        let evidence = &strike.evidence;
        table.row([
            Cell::at(strike.at),
            Cell::text(strike.cause),
            Cell::maybe(evidence.host.as_ref()),
            Cell::maybe(evidence.chassis.as_ref()),
            Cell::maybe(evidence.slot.as_ref()),
            Cell::maybe(evidence.serial.as_ref()),
            Cell::maybe(evidence.firmware.as_ref()),
            Cell::maybe(Some(&evidence.says).filter(|says| !says.is_empty())),
        ]);
    }
    table
}

/// All that is known of a GPU, in lines and a table.
pub fn history(history: &History, width: Option<u16>) -> String {
    let of = &history.of;
    let mut text = match &history.quarantine {
        None => format!("GPU {} is in use or free\n", of.gpu),
        Some(quarantine) => format!("GPU {} is out of use: {}\n", of.gpu, quarantine.tell()),
    };
    for (word, other) in [("replaced by", &of.replaced_by), ("replaces", &of.replaces)] {
        if let Some(other) = other {
            let _ = writeln!(
                text,
                "{word} {} since {}, as {} says",
                other.gpu,
                moment(other.at),
                other.by
            );
        }
    }
    if let Some(light) = &history.light {
        let _ = writeln!(text, "{light}");
    }
    if let Some(passed) = of.passed.last() {
        let _ = writeln!(text, "burnt in last at {}", moment(*passed));
    }
    if of.strikes.is_empty() {
        text.push_str("it never failed\n");
    } else {
        let _ = writeln!(
            text,
            "it failed {}; in its slot, all GPUs together {}\n",
            counted(of.strikes.len(), "time"),
            history.strikes_of_slot
        );
        text.push_str(&strikes(history).render(width));
    }
    text
}
