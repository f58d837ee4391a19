//! Who works at which unit and host port just now. Never one lock for all.
//!
//! A claim says which operation a unit belongs to; these locks keep two requests of this process from
//! meeting at one place, such as two binds to one host port. They are taken in order, so nobody waits in
//! a circle, and waiting ends at a deadline with the name of who is there.

use poolwright_model::control::ControlPoint;
use poolwright_model::id::{OperationId, UnitId};
use poolwright_model::step::Target;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// A place at which one works at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Unit(UnitId),
    HostPort(ControlPoint),
}

#[derive(Default)]
struct Lock {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Who had it last: while it is taken, who has it.
    holder: Mutex<Option<OperationId>>,
}

/// All locks that somebody holds or waits for.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<Place, Weak<Lock>>>);

/// Somebody had a place for too long.
pub(crate) struct Busy {
    place: String,
    /// Who had it last.
    pub holder: Option<OperationId>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was busy for too long: ", self.place)?;
        match &self.holder {
            Some(holder) => write!(f, "operation {holder} works at it"),
            None => f.write_str("another operation works at it"),
        }
    }
}

/// The turn at a unit and a host port, until it is dropped.
pub(crate) struct Turn {
    _held: Vec<(OwnedMutexGuard<()>, Arc<Lock>)>,
}

impl Locks {
    /// Waits for the turn at the unit and the host port of a step. The error names who is there.
    pub async fn turn(&self, target: &Target, who: &OperationId, wait: Duration) -> Result<Turn, Busy> {
        let mut places = [
            Place::Unit(target.unit.clone()),
            Place::HostPort(target.port_at.clone()),
        ];
        places.sort();
        let deadline = tokio::time::Instant::now() + wait;
        let mut held = Vec::with_capacity(places.len());
        for place in places {
            let lock = self.lock(&place);
            let turn = Arc::clone(&lock.turn).lock_owned();
            match tokio::time::timeout_at(deadline, turn).await {
                Ok(guard) => {
                    *unpoisoned(&lock.holder) = Some(who.clone());
                    held.push((guard, lock));
                }
                Err(_) => {
                    let place = match &place {
                        Place::Unit(unit) => format!("unit {unit}"),
                        Place::HostPort(_) => format!("host port {}", target.host_port),
                    };
                    let holder = unpoisoned(&lock.holder).clone();
                    return Err(Busy { place, holder });
                }
            }
        }
        Ok(Turn { _held: held })
    }

    fn lock(&self, place: &Place) -> Arc<Lock> {
        let mut locks = unpoisoned(&self.0);
        if let Some(lock) = locks.get(place).and_then(Weak::upgrade) {
            return lock;
        }
        // As many places as are worked at, not as many as ever were.
        if locks.len() >= 256 {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(Lock::default());
        locks.insert(place.clone(), Arc::downgrade(&lock));
        lock
    }
}

fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
