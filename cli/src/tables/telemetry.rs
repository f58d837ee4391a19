//! The telemetry of GPUs, always with its age.

use crate::output::human::duration;
use crate::output::{Cell, Table, column, in_csv};
use poolwright_driver::LinkSeen;
use poolwright_model::units::Bytes;
use poolwright_service::telemetry::Telemetry;
use std::time::Duration;

pub fn telemetry(all: &[Telemetry]) -> Table {
    let mut table = Table::new([
        column("GPU"),
        column("HOST"),
        column("MEASURED").named("age_s"),
        in_csv("at"),
        in_csv("stale"),
        column("BUSY").named("utilization_percent"),
        column("MEMORY USED").named("memory_used_bytes"),
        in_csv("memory_bytes"),
        column("POWER").named("power_mw"),
        in_csv("energy_mj"),
        column("TEMPERATURE").named("temperature_c").if_room(),
        column("LINK").if_room(),
        in_csv("correctable_errors"),
        column("ERRORS/H").named("correctable_errors_in_hour").if_any(),
    ]);
    for one in all {
        let unit = |value: Option<u32>, unit: &str| match value {
            Some(value) => Cell::both(format!("{value} {unit}"), value),
            None => Cell::nothing(),
        };
        table.row([
            Cell::text(&one.gpu),
            Cell::text(&one.host),
            Cell::both(age(one), one.age_s),
            Cell::at(one.at),
            Cell::yes(one.stale),
            unit(one.utilization_percent, "%"),
            Cell::bytes(one.memory_used_bytes.map(Bytes)),
            Cell::bytes(one.memory_bytes.map(Bytes)),
            match one.power_mw {
                Some(power) => Cell::both(format!("{:.0} W", f64::from(power) / 1000.0), power),
                None => Cell::nothing(),
            },
            Cell::maybe(one.energy_mj),
            unit(one.temperature_c, "°C"),
            Cell::maybe(one.link.map(link)),
            Cell::maybe(one.correctable_errors),
            Cell::maybe(one.correctable_errors_in_hour),
        ]);
    }
    table
}

/// `12 s ago`; stale telemetry is marked.
fn age(of: &Telemetry) -> String {
    let stale = if of.stale { ", stale" } else { "" };
    format!(
        "{} ago{stale}",
        duration(Duration::from_secs(of.age_s).as_secs_f64())
    )
}

/// As everywhere: `32x16`.
fn link(link: LinkSeen) -> String {
    format!("{}x{}", f64::from(link.mt_per_s) / 1000.0, link.width)
}
