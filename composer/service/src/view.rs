//! What the hardware showed, seen with what we know of it: what operations wrote down since, and whose each
//! binding is. Pure.

use crate::books::Pages;
use crate::identity;
use poolwright_executor::GpuRecord;
use poolwright_model::composable::{Composability, WhyNot, WhyNotKind};
use poolwright_model::control::ControlPoint;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Health};
use std::collections::BTreeMap;

/// What we know of the pool beside what it shows.
pub(crate) struct Known<'a> {
    pub pages: &'a Pages,
    /// Endpoints of which nothing may be had, and why.
    pub closed: &'a BTreeMap<ControlEndpointId, WhyNot>,
    pub looked_at: &'a LookedAt,
}

/// How far the store was when it was read who is bound where. What was written later was read from the hardware
/// later, too.
#[derive(Debug, Default)]
pub(crate) struct LookedAt(BTreeMap<ControlEndpointId, EndpointLookedAt>);

/// How far the store was when one endpoint was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointLookedAt {
    pub revision: u64,
    /// Units that the last look could not read.
    pub unread: BTreeMap<ControlPoint, u64>,
}

impl LookedAt {
    /// Takes in what one endpoint was read last, `None` where it is gone. Says whether that is otherwise than before.
    pub fn read(&mut self, endpoint: &ControlEndpointId, looked_at: Option<EndpointLookedAt>) -> bool {
        if self.0.get(endpoint) == looked_at.as_ref() {
            return false;
        }
        match looked_at {
            Some(looked_at) => self.0.insert(endpoint.clone(), looked_at),
            None => self.0.remove(endpoint),
        };
        true
    }

    fn unit(&self, at: &ControlPoint) -> Option<u64> {
        let endpoint = self.0.get(&at.endpoint)?;
        Some(endpoint.unread.get(at).copied().unwrap_or(endpoint.revision))
    }
}

impl Known<'_> {
    /// Where a GPU could be bound, and nothing may be changed.
    fn observed_at<'g>(&self, gpu: &'g Gpu) -> Option<&'g ControlEndpointId> {
        let mut endpoints = gpu.control.iter().map(|at| &at.endpoint);
        endpoints.find(|endpoint| self.pages.observed.contains(*endpoint))
    }

    /// Why nothing may be had where a GPU could be bound.
    fn closed_at(&self, gpu: &Gpu) -> Option<&WhyNot> {
        let mut endpoints = gpu.control.iter().map(|at| &at.endpoint);
        endpoints.find_map(|endpoint| self.closed.get(endpoint))
    }

    /// What was written down of a GPU after the look at whoever binds it.
    fn newer(&self, gpu: &Gpu) -> Option<&GpuRecord> {
        let record = self.pages.records.get(&gpu.id)?;
        let looked_at = gpu.control.iter().filter_map(|at| self.looked_at.unit(at));
        let looked_at = looked_at.min().unwrap_or(u64::MAX);
        (record.revision > looked_at).then_some(&record.value)
    }
}

/// Puts what we know of a GPU over what was seen of it. Whichever is newer is right about a binding; what only we can know
/// (dirty, indeterminate, quarantined) is added.
pub(crate) fn overlay(gpu: &mut Gpu, known: &Known<'_>) {
    let record = known.pages.records.get(&gpu.id).map(|record| &record.value);
    if let Some(learned) = record.and_then(|record| record.learned.as_ref()) {
        identity::name(gpu, learned);
    }
    let in_hand = known.pages.is_in_hand(&gpu.unit);
    let mut ours = known.pages.is_ours(&gpu.unit);
    if let Some(newer) = known.newer(gpu) {
        gpu.host.clone_from(&newer.host);
        gpu.host_port.clone_from(&newer.host_port);
        gpu.state = newer.state;
        // What an operation of ours wrote down is its doing.
        ours = true;
        if why_not(gpu) == Some(WhyNotKind::Disputed) {
            gpu.composability = Composability::YES;
        }
    }
    match (gpu.host_port.is_some(), record.map(|record| record.state)) {
        (_, Some(held @ (GpuState::Indeterminate | GpuState::Quarantined))) => gpu.state = held,
        (false, _) if why_not(gpu) == Some(WhyNotKind::HostGone) => gpu.state = GpuState::Foreign,
        (true, _) if !ours => {
            gpu.state = GpuState::Foreign;
            if gpu.composability.is_composable() {
                let host = gpu.host.as_ref().map_or("a host", |host| host.as_str());
                let detail = format!("bound to {host} by somebody else; it is left alone");
                gpu.composability = Composability::no(WhyNotKind::Foreign, detail);
            }
        }
        // The host's BMC may not show what the executor confirmed by other means.
        (true, Some(GpuState::Attached)) if gpu.state == GpuState::Bound => {
            gpu.state = GpuState::Attached;
        }
        // A host was given it since its last reset, whoever took it away again.
        (false, Some(_))
            if gpu.host.is_none()
                && !in_hand
                && gpu.state == GpuState::Free
                && record.is_some_and(|record| !record.clean) =>
        {
            gpu.state = GpuState::Dirty;
        }
        _ => {}
    }
    if !ours
        && gpu.composability.is_composable()
        && let Some(why) = known.closed_at(gpu)
    {
        gpu.composability = Composability(Some(why.clone()));
    }
    if !ours
        && gpu.composability.is_composable()
        && let Some(endpoint) = known.observed_at(gpu)
    {
        let detail =
            format!("{endpoint} is only observed until it is adopted (poolwright endpoint adopt {endpoint})");
        gpu.composability = Composability::no(WhyNotKind::ObserveOnly, detail);
    }
    if known.pages.suspects.contains_key(&gpu.id) && matches!(gpu.health, Health::Ok | Health::Unknown) {
        gpu.health = Health::Warning;
    }
    // Whoever has it: it serves nobody.
    let quarantine = known.pages.quarantined.get(&gpu.id);
    if let Some(quarantine) = quarantine {
        gpu.composability = Composability::no(WhyNotKind::Quarantined, quarantine.tell());
    } else if let Some(why) = record.and_then(GpuRecord::is_another) {
        gpu.composability = Composability::no(WhyNotKind::Conflict, why);
    }
}

fn why_not(gpu: &Gpu) -> Option<WhyNotKind> {
    gpu.composability.0.as_ref().map(|why| why.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use poolwright_executor::{Claim, CompositionRecord};
    use poolwright_model::id::GpuId;
    use poolwright_store::{Stored, Write};
    use serde_json::{json, value::to_raw_value};

    const LOOKED_AT: u64 = 10;

    /// What is known of a pool of one GPU.
    #[derive(Default)]
    struct Pool {
        pages: Pages,
        looked_at: LookedAt,
    }

    impl Pool {
        fn with(mut self, written: &impl Stored, revision: u64) -> Self {
            self.pages.commit(&[write(written)], revision);
            self
        }

        fn overlaid(&self, mut gpu: Gpu) -> Gpu {
            let known = Known {
                pages: &self.pages,
                closed: &BTreeMap::new(),
                looked_at: &self.looked_at,
            };
            overlay(&mut gpu, &known);
            gpu
        }

        fn one_gpu(&self, host_port: Option<&str>) -> (GpuState, Option<WhyNotKind>) {
            let gpu = self.overlaid(a_look(host_port));
            (gpu.state, why_not(&gpu))
        }
    }

    fn write<T: Stored>(value: &T) -> Write {
        Write {
            kind: T::KIND.to_owned(),
            id: value.id().to_owned(),
            json: Some(to_raw_value(value).unwrap()),
        }
    }

    fn a_look(host_port: Option<&str>) -> Gpu {
        let bound = host_port.map(|_| "host-1");
        let json = json!({
            "id": "g", "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null, "pci_ids": null,
            "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [], "unit": "g",
            "composable": true, "why_not": null, "host": bound, "host_port": host_port,
            "state": if bound.is_some() { "bound" } else { "free" }, "health": "ok",
            "control": [{"endpoint": "box", "style": "zones", "address": "/g"}],
        });
        serde_json::from_value(json).unwrap()
    }

    fn composition() -> CompositionRecord {
        let point = |at: &str| json!({"endpoint": "box", "style": "zones", "address": at});
        let json = json!({
            "id": "c", "demand": null, "tenant": null, "host": "host-1", "part": 1, "parts": 1, "label": "",
            "held": [{"unit": "g", "gpus": ["g"], "host_port": "p", "unit_at": point("/g"), "port_at": point("/p"),
                      "known_as": []}],
            "evidence": {}, "operation": "op", "since": Timestamp::UNIX_EPOCH,
        });
        serde_json::from_value(json).unwrap()
    }

    fn claim() -> Claim {
        let json = json!({"unit": "g", "operation": "op", "kind": "attach", "by": "me",
                          "since": Timestamp::UNIX_EPOCH, "host_port": "p"});
        serde_json::from_value(json).unwrap()
    }

    fn recorded(state: GpuState, host_port: Option<&str>, revision: u64) -> Pool {
        let record = GpuRecord {
            gpu: GpuId::new("g").unwrap(),
            unit: "g".parse().unwrap(),
            state,
            was_attached: false,
            clean: state == GpuState::Free,
            host: host_port.map(|_| "host-1".parse().unwrap()),
            host_port: host_port.map(|port| port.parse().unwrap()),
            composition: None,
            tenant: None,
            operation: None,
            since: Timestamp::UNIX_EPOCH,
            learned: None,
            learned_before: None,
            left: Vec::new(),
        };
        let mut looked_at = LookedAt::default();
        let revision_then = EndpointLookedAt {
            revision: LOOKED_AT,
            ..EndpointLookedAt::default()
        };
        assert!(looked_at.read(&"box".parse().unwrap(), Some(revision_then)));
        let pages = Pages::default();
        Pool { pages, looked_at }.with(&record, revision)
    }

    #[test]
    fn a_binding_that_is_not_ours_is_foreign() {
        assert_eq!(
            Pool::default().one_gpu(Some("p")),
            (GpuState::Foreign, Some(WhyNotKind::Foreign))
        );
        for pool in [
            Pool::default().with(&composition(), 1),
            Pool::default().with(&claim(), 1),
        ] {
            assert_eq!(pool.one_gpu(Some("p")), (GpuState::Bound, None));
        }
    }

    #[test]
    fn nothing_is_to_be_had_where_we_only_look() {
        let mut pool = Pool::default();
        pool.pages.observed.insert("box".parse().unwrap());
        let observe_only = Some(WhyNotKind::ObserveOnly);
        assert_eq!(pool.one_gpu(None), (GpuState::Free, observe_only));
        let foreign = (GpuState::Foreign, Some(WhyNotKind::Foreign));
        assert_eq!(pool.one_gpu(Some("p")), foreign);
    }

    #[test]
    fn what_was_written_down_since_settles_where_it_is() {
        let seen = |revision| {
            let mut gpu = a_look(None);
            gpu.composability =
                Composability::no(WhyNotKind::Disputed, "bound to nobody, but seen on host-1");
            let record = recorded(GpuState::Attached, Some("p"), revision);
            record.with(&composition(), revision).overlaid(gpu)
        };
        assert_eq!(why_not(&seen(LOOKED_AT + 1)), None);
        assert_eq!(why_not(&seen(LOOKED_AT)), Some(WhyNotKind::Disputed));
    }

    #[test]
    fn what_only_we_can_know_is_added() {
        let before = |state| recorded(state, None, LOOKED_AT).one_gpu(None).0;
        assert_eq!(before(GpuState::Dirty), GpuState::Dirty);
        assert_eq!(before(GpuState::Free), GpuState::Free);
        assert_eq!(before(GpuState::Quarantined), GpuState::Quarantined);
        assert_eq!(
            before(GpuState::Attached),
            GpuState::Dirty,
            "somebody else took it from its host, and nobody reset it"
        );
    }

    #[test]
    fn whichever_is_newer_is_right_about_a_binding() {
        let later = LOOKED_AT + 1;
        assert_eq!(
            recorded(GpuState::Free, None, later).one_gpu(Some("p")),
            (GpuState::Free, None),
            "released and reset since it was seen bound: not foreign"
        );
        let bound = recorded(GpuState::Attached, Some("p"), later).with(&composition(), later);
        let gpu = bound.overlaid(a_look(None));
        assert_eq!(gpu.state, GpuState::Attached);
        assert_eq!(gpu.host_port.as_ref().unwrap().as_str(), "p");
        let mut earlier = recorded(GpuState::Free, None, LOOKED_AT);
        assert_eq!(earlier.one_gpu(Some("p")).0, GpuState::Foreign);
        let unread = a_look(None).control[0].clone();
        let but_for_one = EndpointLookedAt {
            revision: LOOKED_AT,
            unread: BTreeMap::from([(unread, LOOKED_AT - 1)]),
        };
        assert!(earlier.looked_at.read(&"box".parse().unwrap(), Some(but_for_one)));
        assert_eq!(
            earlier.one_gpu(Some("p")).0,
            GpuState::Free,
            "the last look could not read this one"
        );
    }
}
