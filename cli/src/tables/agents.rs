//! Agents that speak for hosts, and the tokens by which more may come.

use super::column;
use crate::output::{Cell, Table};
use poolwright_service::agent::{Agent, OpenToken};

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
            Cell::at(agent.ends),
            Cell::at(agent.enrolled),
            Cell::text(&agent.by),
            Cell::text(&agent.uuid),
        ]);
    }
    table
}

pub fn open_tokens(open: &[OpenToken]) -> Table {
    let mut table = Table::new([
        column("TOKEN").named("id"),
        column("GOOD UNTIL").named("ends"),
        column("LEFT").named("uses_left"),
        column("FOR").named("uuids").goes(3),
        column("BY").goes(2),
        column("MADE").if_room(),
    ]);
    for token in open {
        table.row([
            Cell::text(&token.id),
            Cell::at(token.ends),
            Cell::text(token.uses_left),
            Cell::text(for_whom(token)),
            Cell::text(&token.by),
            Cell::at(token.made),
        ]);
    }
    table
}

/// The first host that may still come with it, and how many more.
fn for_whom(token: &OpenToken) -> String {
    let mut left = token.uuids.difference(&token.used);
    match (left.next(), left.count()) {
        (None, _) => "any host without an agent".to_owned(),
        (Some(one), 0) => one.clone(),
        (Some(one), more) => format!("{one} and {more} more"),
    }
}
