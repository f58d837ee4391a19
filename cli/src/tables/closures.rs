//! Hosts that are closed for a time.

use super::column;
use crate::output::{Cell, Table};
use poolwright_service::closure::HostClosure;

pub fn closures(closures: &[HostClosure]) -> Table {
    let mut table = Table::new([
        column("HOST"),
        column("FROM"),
        column("UNTIL"),
        column("REASON"),
        column("BY").if_room(),
    ]);
    for HostClosure { closure, by, .. } in closures {
        table.row([
            Cell::text(&closure.host),
            Cell::at(closure.from),
            Cell::at(closure.until),
            Cell::text(&closure.reason),
            Cell::text(by),
        ]);
    }
    table
}
