//! Another GPU in the place of one that failed: on the same host and of the same kind, so that the rest stays where it is.

use crate::composition::{Composition, Held};
use crate::decide::{Draft, Wish};
use crate::demand::Demand;
use crate::room::Taken;
use crate::suits;

/// What becomes of one composition.
struct Exchange<'a> {
    of: &'a Composition,
    failed: Composition,
    taken: Vec<Taken>,
}

impl<'a> Draft<'a, '_> {
    /// Exchanges all that a demand holds and that failed, or nothing: where there is no other GPU for it, it may still be
    /// served elsewhere.
    pub(crate) fn exchange_failed(&mut self, wish: &Wish<'a>, demand: &Demand) -> bool {
        let mut exchanges = Vec::new();
        for composition in &wish.has {
            let failed = suits::failed(self.survey, composition);
            if failed.is_empty() {
                continue;
            }
            let failed = composition.with(failed);
            self.let_go(&[&failed]);
            let taken = self.more(composition, failed.gpu_count());
            let found = taken.is_some();
            exchanges.push(Exchange {
                of: composition,
                failed,
                taken: taken.unwrap_or_default(),
            });
            if !found {
                break;
            }
        }
        let serves = !exchanges.is_empty() && self.would_serve(wish, demand, &exchanges);
        if serves {
            self.carry_out(wish, demand, exchanges);
        } else {
            self.take_back(exchanges);
        }
        serves
    }

    fn would_serve(&mut self, wish: &Wish<'a>, demand: &Demand, exchanges: &[Exchange<'a>]) -> bool {
        let after = wish.has.iter().map(|composition| {
            let exchange = exchanges.iter().find(|exchange| exchange.of.id == composition.id);
            let Some(exchange) = exchange else {
                return (*composition).clone();
            };
            let stays = composition.held.iter();
            let stays = stays.filter(|held| !exchange.failed.held.contains(held)).cloned();
            composition.with(stays.chain(self.held(&exchange.taken)).collect())
        });
        let after: Vec<Composition> = after.collect();
        for (composition, before) in after.iter().zip(&wish.has) {
            let comes = composition.held.iter().filter(|held| !before.held.contains(held));
            self.unname(comes);
        }
        suits::serves(self.survey, &demand.need, &after.iter().collect::<Vec<_>>())
    }

    fn carry_out(&mut self, wish: &Wish<'a>, demand: &Demand, exchanges: Vec<Exchange<'a>>) {
        self.keep(&wish.has);
        for Exchange { of, failed, taken } in exchanges {
            let comes: Vec<Held> = self.held(&taken);
            let mut comes = of.with(comes);
            comes.label.clone_from(&demand.need.label);
            self.ends(&[&failed]);
            self.ledger.takes(&comes);
            self.changes.composes.push(comes);
        }
    }

    /// The last first: what was let go of is held again once nothing of it is taken.
    fn take_back(&mut self, exchanges: Vec<Exchange<'a>>) {
        for Exchange { failed, taken, .. } in exchanges.into_iter().rev() {
            self.capacity.put_back(&taken);
            self.hold_again(&[&failed]);
        }
    }
}
