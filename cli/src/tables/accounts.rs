//! Who may ask the manager.

use super::{column, yes_no};
use crate::output::{Cell, Table};
use poolwright_service::accounts::{AccountShown, Binding};

pub fn accounts(accounts: &[AccountShown]) -> Table {
    let mut table = Table::new([
        column("ACCOUNT").named("name"),
        column("ROLE"),
        column("ALSO").named("bindings"),
        column("ENABLED"),
        column("LOCKED"),
    ]);
    for account in accounts {
        let bindings: Vec<String> = account.bindings.iter().map(Binding::to_string).collect();
        table.row([
            Cell::text(&account.name),
            Cell::text(account.role),
            Cell::maybe((!bindings.is_empty()).then(|| bindings.join(", "))),
            Cell::text(yes_no(account.enabled)),
            Cell::text(yes_no(account.locked)),
        ]);
    }
    table
}
