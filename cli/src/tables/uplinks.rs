//! Uplinks of switches.

use crate::output::{Cell, Table, column};
use poolwright_service::uplink::UplinkStatus;

pub fn uplinks(uplinks: &[UplinkStatus]) -> Table {
    let mut table = Table::new([
        column("SWITCH").named("id"),
        column("AT MOST").named("most"),
        column("ACROSS").named("carried"),
        column("GPUS"),
        column("HOST PORTS").named("ports"),
        column("SAID BY").named("by").if_room(),
    ]);
    for status in uplinks {
        table.row([
            Cell::text(&status.id),
            Cell::maybe(status.most),
            Cell::text(status.carried),
            Cell::text(status.gpus),
            Cell::text(status.ports),
            Cell::maybe(status.by.as_ref()),
        ]);
    }
    table
}
