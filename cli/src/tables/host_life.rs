//! Hosts over their life.

use crate::output::human::moment;
use crate::output::{Cell, Table, column};
use poolwright_service::host::{HostEvent, HostLife, HostTurn, Retirement};
use std::fmt::Write as _;

pub fn retired_hosts(all: &[Retirement]) -> Table {
    let mut table = Table::new([
        column("HOST"),
        column("SINCE"),
        column("BY"),
        column("WHY").if_any(),
    ]);
    for one in all {
        table.row([
            Cell::text(&one.host),
            Cell::at(one.since),
            Cell::text(&one.by),
            Cell::maybe(Some(&one.why).filter(|why| !why.is_empty())),
        ]);
    }
    table
}

/// What happened to a host.
pub fn host_events(life: &HostLife) -> Table {
    let mut table = Table::new([
        column("AT"),
        column("WHAT"),
        column("BY"),
        column("NAME").if_any(),
        column("SERIAL").if_any().if_room(),
        column("BMC").if_any().if_room(),
    ]);
    for event in &life.of.events {
        let seen = event.evidence.as_ref();
        table.row([
            Cell::at(event.at),
            Cell::text(told(event)),
            Cell::text(&event.by),
            Cell::maybe(seen.map(|seen| &seen.name)),
            Cell::maybe(seen.and_then(|seen| seen.serial.as_ref())),
            Cell::maybe(seen.and_then(|seen| seen.bmc.as_ref())),
        ]);
    }
    table
}

fn told(event: &HostEvent) -> String {
    match &event.turn {
        HostTurn::Retired { why } if why.is_empty() => "retired".to_owned(),
        HostTurn::Retired { why } => format!("retired: {why}"),
        HostTurn::Reinstated => "back in service".to_owned(),
        HostTurn::ReplacedBy { host } => format!("replaced by {host}"),
        HostTurn::Replaces { host } => format!("replaces {host}"),
        HostTurn::Leaves { to } => format!("leaves for {to}"),
        HostTurn::Moved { to, from, now } => format!("moved to {to}: from {from} to {now}"),
        HostTurn::Stays => "stays where it is".to_owned(),
    }
}

/// All that is known of a host, in lines and a table.
pub fn host_history(life: &HostLife, width: Option<u16>) -> String {
    let mut text = match &life.retired {
        None => format!("host {} is in service\n", life.of.host),
        Some(retired) => format!(
            "host {} is retired since {}, by {}\n",
            life.of.host,
            moment(retired.since),
            retired.by
        ),
    };
    if let Some(relocation) = &life.relocation {
        let _ = writeln!(text, "{relocation}");
    }
    let _ = match &life.agent {
        None => writeln!(text, "no agent was ever enrolled for it"),
        Some(agent) => match agent.revoked {
            None => writeln!(
                text,
                "its agent speaks for it since {}, at {}",
                moment(agent.enrolled),
                agent.address
            ),
            Some(at) => writeln!(text, "its agent was revoked at {}", moment(at)),
        },
    };
    if life.of.events.is_empty() {
        text.push_str("nothing is written down of it\n");
    } else {
        text.push('\n');
        text.push_str(&host_events(life).render(width));
    }
    text
}
