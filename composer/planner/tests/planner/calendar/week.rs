//! A rack on which a manager lives through a calendar: at each moment at which anything changes it plans, and does it.

use crate::support::Rack;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, HostId};
use poolwright_planner::calendar::{Holding, Outlook, Posed, Wish, pose};
use poolwright_planner::closure::closed_at;
use poolwright_planner::horizon::cps1::Instance;
use poolwright_planner::horizon::extended::{self, Extension};
use poolwright_planner::{Closure, Demand};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;

/// A Monday at noon.
pub const NOON: &str = "2026-03-02T12:00:00Z";

/// A number of minutes after noon.
pub fn at(minutes: i64) -> Timestamp {
    NOON.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

pub fn wish(id: &str, need: Need, minutes: std::ops::Range<i64>) -> Wish {
    Wish {
        demand: Demand {
            id: DemandId::new(id).unwrap(),
            tenant: "acme".parse().unwrap(),
            priority: 0,
            need,
            created: Timestamp::UNIX_EPOCH,
        },
        from: at(minutes.start),
        until: at(minutes.end),
        phase: false,
        stops_after: None,
    }
}

pub fn closure(host: &str, minutes: std::ops::Range<i64>) -> Closure {
    Closure {
        host: HostId::new(host).unwrap(),
        from: at(minutes.start),
        until: Some(at(minutes.end)),
        reason: "new fans".to_owned(),
    }
}

pub struct Week {
    /// As it is at noon.
    pub rack: Rack,
    pub wishes: Vec<Wish>,
    pub closures: Vec<Closure>,
    /// Minutes.
    pub length: i64,
    pub slot: i64,
}

impl Week {
    /// Slots of a quarter of an hour.
    pub fn of(rack: Rack, length: i64, wishes: Vec<Wish>) -> Self {
        Self {
            rack,
            wishes,
            closures: Vec::new(),
            length,
            slot: 15,
        }
    }

    fn wanted(&self, now: Timestamp) -> Vec<Demand> {
        let open = self
            .wishes
            .iter()
            .filter(|wish| (wish.from..wish.until).contains(&now));
        open.map(|wish| wish.demand.clone()).collect()
    }

    /// With the demands of noon attached.
    pub fn running(mut self) -> Self {
        self.rack.demands = self.wanted(at(0));
        self.rack.apply(1);
        self
    }

    /// What the manager holds as time goes on.
    fn live(&self) -> Vec<Holding> {
        let (mut rack, mut holdings) = (self.rack.clone(), Vec::new());
        let edges = self.wishes.iter().flat_map(|wish| [wish.from, wish.until]);
        let closed = self
            .closures
            .iter()
            .flat_map(|closure| [Some(closure.from), closure.until]);
        let within = |at: &Timestamp| (self::at(0)..self::at(self.length)).contains(at);
        let all = edges.chain(closed.flatten()).chain([at(0)]).filter(within);
        let moments: BTreeSet<Timestamp> = all.collect();
        let ends = moments.iter().skip(1).copied().chain([at(self.length)]);
        for (now, until) in moments.iter().copied().zip(ends) {
            rack.demands = self.wanted(now);
            rack.cordoned.closed = closed_at(&self.closures, now);
            rack.apply(3);
            holdings.extend(rack.held.iter().map(|held| Holding {
                host: held.host.clone(),
                demand: held.demand.clone(),
                gpus: held.gpus().cloned().collect(),
                from: now,
                until,
            }));
        }
        holdings
    }

    /// The calendar as a problem. Its file must read back as the same problem.
    pub fn posed(&self) -> Posed {
        let holdings = self.live();
        let outlook = Outlook {
            world: self.rack.world(),
            closures: &self.closures,
            wishes: &self.wishes,
            holdings: &holdings,
            from: at(0),
            until: at(self.length),
            slot: SignedDuration::from_mins(self.slot),
        };
        let posed = pose(&outlook).unwrap();
        let text = serde_json::to_string(&posed.file).unwrap();
        let instance: Instance = serde_json::from_str(&text).unwrap();
        let extension: Extension = serde_json::from_str(&text).unwrap();
        assert_eq!(extended::read(&instance, &extension).unwrap(), posed.problem);
        posed
    }
}
