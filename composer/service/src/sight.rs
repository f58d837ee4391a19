//! What one endpoint showed: everything at its last walk, and since then who is bound where. Pure.
//!
//! A walk reads all there is and may take long; who is bound where is little, and is read far more often. Looks may
//! overtake each other: what counts for each unit is the look that began last, whichever it was.

use crate::owners::{Owner, Owners, is_stray, lay_over, units_of};
use crate::view::EndpointLookedAt;
use crate::walk::Walk;
use jiff::Timestamp;
use poolwright_collector::Look;
use poolwright_driver::Bindings;
use poolwright_model::control::ControlPoint;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// When a look began: after how many others, after which commit, and at what time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub nth: u64,
    pub revision: u64,
    pub at: Timestamp,
    pub instant: Instant,
}

/// How an endpoint answered the last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    Reachable,
    /// It answers, and shows far less than before.
    NotTrusted,
    Unreachable,
}

/// Units that a walk missed and that are asked for all the same, at most.
const MISSED: usize = 16;

/// What one endpoint showed.
pub(crate) struct Sight {
    /// The last walk that was answered; the last one that failed, where none ever was.
    walk: Look,
    walked: Began,
    owners: Owners,
    /// Units that earlier walks showed and the last one does not. Once one answers again, a walk tells what it is.
    missed: Vec<ControlPoint>,
    /// The last time that who is bound where was read, and how long that took.
    read: Option<(Began, Duration)>,
    /// Why nothing could be read at the last try.
    silence: Option<Vec<Fault>>,
    /// The last walk, where it is not believed, and why.
    doubted: Option<(Look, Fault)>,
    /// The last try, whatever came of it; 0: none since the manager started.
    tried: u64,
    /// What the last walk showed is what is kept over a restart.
    kept: bool,
}

impl Sight {
    pub fn new(walk: Look, began: Began) -> Self {
        let silence = (!walk.answered).then(|| walk.view.faults.clone());
        Self {
            walk,
            walked: began,
            owners: Owners::new(),
            missed: Vec::new(),
            read: None,
            silence,
            doubted: None,
            tried: began.nth,
            kept: false,
        }
    }

    /// As it was before the manager started. Everything that was written down is newer.
    pub fn recalled(walk: Walk) -> Self {
        let began = Began {
            nth: 0,
            revision: 0,
            at: walk.at,
            instant: Instant::now(),
        };
        Self {
            kept: true,
            ..Self::new(walk.into_look(), began)
        }
    }

    /// Whether nobody has looked since the manager started.
    pub fn is_recalled(&self) -> bool {
        self.tried == 0
    }

    /// What is to be kept over a restart, where that is otherwise than what is; with the number of the look.
    pub fn to_keep(&self) -> Option<(Walk, u64)> {
        self.is_to_keep().then(|| (Walk::of(&self.walk), self.walked.nth))
    }

    fn is_to_keep(&self) -> bool {
        !self.kept && self.has_answered() && self.doubted.is_none()
    }

    /// What that look showed is kept.
    pub fn kept(&mut self, nth: u64) {
        self.kept |= self.walked.nth == nth;
    }

    /// The first that is seen of an endpoint, which may not be believed.
    pub fn first(walk: Look, doubt: Option<Fault>, began: Began) -> Self {
        let doubted = doubt.map(|fault| (walk.clone(), fault));
        Self {
            doubted,
            ..Self::new(walk, began)
        }
    }

    /// Takes in a walk that is not believed: all stays as it was.
    pub fn doubt(&mut self, walk: Look, fault: Fault, began: Began) {
        if self.walked.nth > began.nth {
            return;
        }
        self.tried(began, None);
        if !self.has_answered() {
            (self.walk, self.walked) = (walk.clone(), began);
        }
        self.doubted = Some((walk, fault));
    }

    /// What was doubted is so.
    pub fn believe(&mut self) {
        if let Some((walk, _)) = self.doubted.take() {
            self.walk = walk;
            self.kept = false;
        }
    }

    /// What it showed last, where that is not believed, and why.
    pub fn doubted(&self) -> Option<&(Look, Fault)> {
        self.doubted.as_ref()
    }

    /// Takes in another walk. Of an endpoint that is silent just now, all stays as it was. Says whether anything is
    /// otherwise than it was known to be, or is to be kept.
    pub fn walk(&mut self, walk: Look, began: Began) -> bool {
        let before = self.look();
        self.take_walk(walk, began);
        self.is_to_keep() || !shows_the_same(&before, &self.look())
    }

    fn take_walk(&mut self, walk: Look, began: Began) {
        let ever = self.has_answered();
        if !walk.answered {
            self.tried(began, Some(walk.view.faults.clone()));
            if !ever {
                (self.walk, self.walked) = (walk, began);
            }
            return;
        }
        if ever && self.walked.nth > began.nth {
            return;
        }
        self.tried(began, None);
        let (before, shown) = (self.units(), units_of(&walk.view.topology));
        self.missed = before.into_iter().filter(|unit| !shown.contains(unit)).collect();
        self.missed.truncate(MISSED);
        // A walk that shows no host there does not tell a GPU that is bound to nowhere from one that is free.
        let topology = &walk.view.topology;
        self.owners
            .retain(|_, owner| owner.read.nth > began.nth || is_stray(owner, topology));
        self.kept &= Walk::of(&walk).is_like(&Walk::of(&self.walk));
        (self.walk, self.walked) = (walk, began);
        self.doubted = None;
    }

    /// Takes in who is bound where. Says whether anything is otherwise than it was known to be, so that a walk would
    /// tell more.
    pub fn read(&mut self, units: &[ControlPoint], read: Bindings, began: Began, took: Duration) -> bool {
        let was_silent = self.silence.is_some() || self.is_recalled();
        self.tried(began, None);
        let mut news = was_silent && self.silence.is_none();
        let before = self.look();
        for (unit, bound) in units.iter().zip(read.units) {
            let Ok(bound) = bound else { continue };
            news |= bound.is_some() && self.missed.contains(unit);
            let known = self.owners.get(&unit.address);
            let last_read = known.map_or(self.walked.nth, |known| known.read.nth);
            if last_read > began.nth {
                continue;
            }
            let since = match known {
                Some(known) if known.bound == bound => known.since,
                _ => began.at,
            };
            let owner = Owner {
                bound,
                read: began,
                since,
            };
            self.owners.insert(unit.address.clone(), owner);
        }
        if self.read.is_none_or(|(last, _)| last.nth < began.nth) {
            self.read = Some((began, took));
        }
        news |= before.view.topology != self.look().view.topology;
        news
    }

    /// How many units that the last walk showed are not there, by what was read now; and how many it showed.
    pub fn gone(&self, units: &[ControlPoint], read: &Bindings) -> (usize, usize) {
        let shown = units_of(&self.walk.view.topology);
        let gone = units.iter().zip(&read.units);
        let gone =
            gone.filter(|(unit, bound)| matches!(bound, Ok(None)) && shown.binary_search(unit).is_ok());
        (gone.count(), shown.len())
    }

    /// Whether the last look told where a unit is.
    pub fn tells(&self, unit: &ControlPoint) -> bool {
        let last = self.read_last().unwrap_or(self.walked);
        let read = self
            .owners
            .get(&unit.address)
            .map_or(self.walked, |owner| owner.read);
        read.nth >= last.nth
    }

    fn tried(&mut self, began: Began, silence: Option<Vec<Fault>>) {
        if began.nth >= self.tried {
            (self.tried, self.silence) = (began.nth, silence);
        }
    }

    /// Whether it could ever be read.
    pub fn has_answered(&self) -> bool {
        self.walk.answered
    }

    /// Whether it could be read at the last try, and is believed.
    pub fn answers(&self) -> bool {
        self.silence.is_none() && self.doubted.is_none() && !self.is_recalled()
    }

    /// Before the first request after a start an endpoint counts as reachable.
    pub fn reachability(&self) -> Reachability {
        match (&self.silence, &self.doubted) {
            _ if self.is_recalled() => Reachability::Reachable,
            (Some(_), _) => Reachability::Unreachable,
            (None, Some(_)) => Reachability::NotTrusted,
            (None, None) => Reachability::Reachable,
        }
    }

    /// Everything that is known of it now.
    pub fn look(&self) -> Look {
        let mut look = self.walk.clone();
        let changed = lay_over(&mut look.view.topology, &self.owners);
        look.view.at = changed.map_or(look.view.at, |changed| changed.max(look.view.at));
        if self.is_recalled() {
            look.answered = false;
            look.view.faults = vec![self.not_looked_at()];
        } else if let Some(faults) = &self.silence {
            look.answered = false;
            look.view.faults.clone_from(faults);
        } else if let Some((_, fault)) = &self.doubted {
            look.answered = false;
            look.view.faults.insert(0, fault.clone());
        }
        look
    }

    fn not_looked_at(&self) -> Fault {
        let message = "not looked at since the manager started; it is shown as it was before";
        Fault::new(self.endpoint().as_str(), FaultKind::NotLookedAt, message)
    }

    /// The last walk alone.
    pub fn last_walk(&self) -> &Look {
        &self.walk
    }

    pub fn endpoint(&self) -> &ControlEndpointId {
        &self.walk.view.source
    }

    /// Whose it says that it is.
    pub fn mark(&self) -> Option<&str> {
        let doubted = self.doubted.as_ref().and_then(|(walk, _)| walk.mark.as_deref());
        doubted.or(self.walk.mark.as_deref())
    }

    /// The units to ask for: those that it binds, and those that it did until lately.
    pub fn units(&self) -> Vec<ControlPoint> {
        let mut units = units_of(&self.walk.view.topology);
        units.extend(self.missed.iter().cloned());
        units
    }

    /// When the look began that last told who is bound where; `None` where none did since the manager started.
    pub fn read_last(&self) -> Option<Began> {
        if !self.has_answered() {
            return None;
        }
        let read = self.read.map(|(began, _)| began);
        Some(match read {
            Some(read) if read.nth > self.walked.nth => read,
            _ if self.walked.nth == 0 => return None,
            _ => self.walked,
        })
    }

    /// How long it takes to read who is bound where, as it did last.
    pub fn reading_takes(&self) -> Duration {
        self.read.map_or(Duration::ZERO, |(_, took)| took)
    }

    /// Whether the last walk began after that commit.
    pub fn walked_after(&self, revision: u64) -> bool {
        self.walked.revision >= revision
    }

    /// How far the store was when the look began that last told who is bound where.
    pub fn revision(&self) -> u64 {
        self.read_last().unwrap_or(self.walked).revision
    }

    /// How far the store was when it was read.
    pub fn looked_at(&self) -> EndpointLookedAt {
        EndpointLookedAt {
            revision: self.revision(),
            unread: self.unread(),
        }
    }

    /// Units that this look could not read, with how far the store was when they were read.
    pub fn unread(&self) -> BTreeMap<ControlPoint, u64> {
        let last = self.read_last().unwrap_or(self.walked);
        let read = |unit: &ControlPoint| self.owners.get(&unit.address).map(|owner| owner.read);
        let units = self.units().into_iter();
        units
            .map(|unit| (read(&unit).unwrap_or(self.walked), unit))
            .filter(|(read, _)| read.nth < last.nth)
            .map(|(read, unit)| (unit, read.revision))
            .collect()
    }
}

/// Whether two looks at an endpoint differ in nothing but when they were taken, and what they took.
fn shows_the_same(before: &Look, after: &Look) -> bool {
    let shown = |look: &Look| (look.answered, look.label.clone(), look.mark.clone());
    let (before_view, after_view) = (&before.view, &after.view);
    shown(before) == shown(after)
        && before_view.topology == after_view.topology
        && before_view.faults == after_view.faults
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use poolwright_driver::{Bound, DriverError, Observation};
    use poolwright_model::control::ControlStyle;
    use poolwright_model::topology::Topology;
    use serde_json::json;

    pub(crate) fn began(nth: u64) -> Began {
        Began {
            nth,
            revision: 100 + nth,
            at: Timestamp::from_second(i64::try_from(nth).unwrap()).unwrap(),
            instant: Instant::now(),
        }
    }

    pub(crate) fn gpu_at(address: &str) -> ControlPoint {
        ControlPoint {
            endpoint: "box".parse().unwrap(),
            style: ControlStyle::Zones,
            address: address.to_owned(),
        }
    }

    /// A GPU at `/g`, and a host of two ports, `/p` and `/q`.
    pub(crate) fn topology(port: Option<&str>) -> Topology {
        let point = |at: &str| json!({"endpoint": "box", "style": "zones", "address": at});
        let host_port = |id: &str| {
            json!({"id": id, "fabric": "f", "switch": null, "slots": 4, "free_window_bytes": null, "free_buses": null,
                   "control": point(&format!("/{id}"))})
        };
        serde_json::from_value(json!({"gpus": [{
            "id": "g", "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null, "pci_ids": null,
            "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [], "unit": "g",
            "composable": true, "why_not": null, "host": port.map(|_| "h"), "host_port": port,
            "state": if port.is_some() { "bound" } else { "free" }, "health": "ok", "control": [point("/g")],
        }], "hosts": [{"id": "h", "name": "h", "power_state": "on", "ports": [host_port("p"), host_port("q")]}],
        "fabrics": []}))
        .unwrap()
    }

    fn walk(port: Option<&str>, nth: u64) -> (Look, Began) {
        let observed = Observation {
            topology: topology(port),
            ..Observation::default()
        };
        let began = began(nth);
        (Look::answered("box".parse().unwrap(), observed, began.at), began)
    }

    fn silence(nth: u64) -> (Look, Began) {
        let error = DriverError::no_effect("no answer");
        let began = began(nth);
        (Look::failed("box".parse().unwrap(), &error, began.at), began)
    }

    fn sight(port: Option<&str>, nth: u64) -> Sight {
        let (look, began) = walk(port, nth);
        Sight::new(look, began)
    }

    fn reads(sight: &mut Sight, bound: Result<Option<Bound>, DriverError>, nth: u64) -> bool {
        let read = Bindings {
            units: vec![bound],
            requests: 1,
        };
        sight.read(&[gpu_at("/g")], read, began(nth), Duration::ZERO)
    }

    fn port(sight: &Sight) -> Option<String> {
        let look = sight.look();
        look.view.topology.gpus[0]
            .host_port
            .as_ref()
            .map(ToString::to_string)
    }

    #[test]
    fn the_look_that_began_last_is_right_about_a_unit() {
        let mut sight = sight(Some("p"), 1);
        assert!(reads(&mut sight, Ok(Some(Bound::Free)), 2), "it is otherwise");
        assert_eq!((port(&sight), sight.revision()), (None, 102));
        assert_eq!(sight.look().view.at, began(2).at);
        assert!(!reads(&mut sight, Ok(Some(Bound::Free)), 5), "nothing new");
        assert_eq!(sight.look().view.at, began(2).at, "since then it is like this");

        let (look, began) = walk(Some("p"), 4);
        sight.walk(look, began);
        assert_eq!(port(&sight), None, "it was read after that walk began");
        let (look, began) = walk(Some("p"), 6);
        sight.walk(look, began);
        assert_eq!((port(&sight).as_deref(), sight.revision()), (Some("p"), 106));
        reads(&mut sight, Ok(Some(Bound::Free)), 5);
        assert_eq!(port(&sight).as_deref(), Some("p"), "and that before it began");
    }

    #[test]
    fn a_unit_that_can_not_be_read_is_as_it_was_and_as_old() {
        let mut sight = sight(Some("p"), 1);
        let garbled = DriverError::no_effect("garbled");
        assert!(!reads(&mut sight, Err(garbled), 2));
        assert_eq!((port(&sight).as_deref(), sight.revision()), (Some("p"), 102));
        assert_eq!(sight.unread(), BTreeMap::from([(gpu_at("/g"), 101)]));
        reads(&mut sight, Ok(None), 3);
        assert!(sight.unread().is_empty() && sight.look().view.topology.gpus.is_empty());
        assert_eq!(sight.units(), [gpu_at("/g")], "it is asked for all the same");
        let back = Bound::To {
            port_address: "/q".into(),
        };
        assert!(reads(&mut sight, Ok(Some(back)), 4));
        assert_eq!(port(&sight).as_deref(), Some("q"));
    }

    #[test]
    fn silence_keeps_what_was_seen_and_ends_with_an_answer() {
        let mut sight = sight(Some("p"), 1);
        let (look, began) = silence(2);
        sight.walk(look, began);
        assert!(!sight.answers() && sight.has_answered());
        let look = sight.look();
        assert!(!look.answered && look.view.faults.len() == 1);
        assert_eq!(
            (port(&sight).as_deref(), sight.read_last().unwrap().nth),
            (Some("p"), 1)
        );
        let (late, before) = silence(3);
        assert!(
            reads(&mut sight, Ok(Some(Bound::Free)), 4),
            "it is back: look at all of it"
        );
        sight.walk(late, before);
        assert!(sight.answers(), "what failed had begun before");

        let (look, began) = silence(1);
        let mut never = Sight::new(look, began);
        assert!(!never.has_answered() && never.read_last().is_none());
        let (look, began) = walk(None, 2);
        never.walk(look, began);
        assert!(never.answers() && never.has_answered());
    }

    #[test]
    fn an_endpoint_that_is_not_trusted_and_stops_answering_is_unreachable() {
        let mut sight = sight(Some("p"), 1);
        assert_eq!(sight.reachability(), Reachability::Reachable);
        let (look, began) = walk(None, 2);
        let fault = Fault::new("box", FaultKind::Missing, "too many are gone at once");
        sight.doubt(look, fault, began);
        assert_eq!(sight.reachability(), Reachability::NotTrusted);
        let (look, began) = silence(3);
        sight.walk(look, began);
        assert_eq!(sight.reachability(), Reachability::Unreachable);
    }

    #[test]
    fn a_walk_that_shows_the_same_is_no_news() {
        let mut sight = sight(Some("p"), 1);
        let (look, began) = walk(Some("p"), 2);
        assert!(sight.walk(look, began), "it is to be kept");
        sight.kept(2);
        let mut walks = |seen: (Look, Began)| {
            let (look, began) = seen;
            let nth = began.nth;
            let news = sight.walk(look, began);
            assert_eq!(
                sight.revision(),
                100 + nth.min(5),
                "when it was read is known all the same"
            );
            news
        };
        assert!(!walks(walk(Some("p"), 3)));
        assert!(walks(walk(None, 4)), "it is free");
        assert!(!walks(walk(None, 5)));
        assert!(walks(silence(6)));
        assert!(!walks(silence(7)), "it is silent still");
    }

    #[test]
    fn what_a_walk_misses_is_asked_for_until_it_answers() {
        let mut sight = sight(Some("p"), 1);
        let (mut without, began) = walk(None, 2);
        without.view.topology.gpus.clear();
        sight.walk(without, began);
        assert!(!reads(&mut sight, Ok(None), 3), "still gone");
        assert_eq!(sight.units(), [gpu_at("/g")]);
        assert!(
            reads(&mut sight, Ok(Some(Bound::Free)), 4),
            "a walk tells what it is"
        );
        let (look, began) = walk(None, 5);
        sight.walk(look, began);
        assert_eq!((sight.units().len(), sight.missed.len()), (1, 0));
    }

    #[test]
    fn a_walk_that_shows_no_host_does_not_set_free() {
        let mut sight = sight(None, 1);
        let nowhere = Bound::To {
            port_address: "/nowhere".into(),
        };
        reads(&mut sight, Ok(Some(nowhere)), 2);
        let (look, began) = walk(None, 3);
        sight.walk(look, began);
        assert!(!sight.look().view.topology.gpus[0].composability.is_composable());
        reads(&mut sight, Ok(Some(Bound::Free)), 4);
        assert!(sight.look().view.topology.gpus[0].composability.is_composable());
    }
}
