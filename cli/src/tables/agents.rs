//! Agents that speak for hosts.

use super::column;
use crate::output::{Cell, Table};
use poolwright_service::agent::Agent;

pub fn agents(agents: &[Agent]) -> Table {
    let mut table = Table::new([
        column("HOST"),
        column("ADDRESS"),
        column("STATE"),
        column("GOOD UNTIL").named("ends"),
        column("ENROLLED").if_room(),
        column("BY").if_room(),
        column("UUID").if_room(),
    ]);
    for agent in agents {
        let state = match agent.revoked {
            Some(at) => format!("revoked {at}"),
            None => "speaks".to_owned(),
        };
        table.row([
            Cell::text(&agent.host),
            Cell::text(&agent.address),
            Cell::text(state),
            Cell::text(agent.ends),
            Cell::text(agent.enrolled),
            Cell::text(&agent.by),
            Cell::text(&agent.uuid),
        ]);
    }
    table
}
