//! What clients asked and were answered, in the order in which that happened.

use crate::torture::gate::unpoisoned;
use poolwright_model::id::{DemandId, GpuId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Who has which GPU.
pub type Owners = BTreeMap<GpuId, DemandId>;

/// A request. Refusals that change nothing and prove nothing of one GPU are not written down: that a demand finds
/// no place is true of many GPUs together, and of those that operations have in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A demand was given these; `None` where its client never learned which, or whether.
    Grant {
        owner: DemandId,
        gpus: Option<BTreeSet<GpuId>>,
    },
    /// It gave these back; `None` as above.
    Release {
        owner: DemandId,
        gpus: Option<BTreeSet<GpuId>>,
    },
    /// Nobody knows it: it holds nothing.
    Gone {
        owner: DemandId,
    },
    Read(Owners),
}

/// One request of one client. Times are places in the order of all that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub client: usize,
    pub asked: u64,
    /// `None`: nobody knows what came of it, and it may still come true.
    pub answered: Option<u64>,
    pub act: Act,
}

impl Entry {
    pub fn is_grant(&self) -> bool {
        matches!(self.act, Act::Grant { gpus: Some(_), .. })
    }
}

#[derive(Default)]
pub struct History(Mutex<Written>);

#[derive(Default)]
struct Written {
    time: u64,
    entries: Vec<Entry>,
}

impl History {
    /// A client asks now.
    pub fn asks(&self) -> u64 {
        unpoisoned(&self.0).tick()
    }

    /// It is answered now what it asked then.
    pub fn hears(&self, client: usize, asked: u64, act: Act) {
        let mut written = unpoisoned(&self.0);
        let answered = Some(written.tick());
        written.entries.push(Entry {
            client,
            asked,
            answered,
            act,
        });
    }

    /// It will never know.
    pub fn gives_up(&self, client: usize, asked: u64, act: Act) {
        unpoisoned(&self.0).entries.push(Entry {
            client,
            asked,
            answered: None,
            act,
        });
    }

    pub fn answered(&self) -> usize {
        let written = unpoisoned(&self.0);
        let answered = written.entries.iter().filter(|entry| entry.answered.is_some());
        answered.count()
    }

    pub fn entries(&self) -> Vec<Entry> {
        unpoisoned(&self.0).entries.clone()
    }

    /// What was given last.
    pub fn last_grant(&self) -> Option<BTreeSet<GpuId>> {
        let written = unpoisoned(&self.0);
        written.entries.iter().rev().find_map(|entry| match &entry.act {
            Act::Grant { gpus, .. } => gpus.clone(),
            _ => None,
        })
    }
}

impl Written {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }
}
