//! Expected starts of waiting jobs: the engine decides again at each later change, without new jobs.

use super::state::State;
use super::{Cut, Expected};
use crate::engine::{Event, JobId, Millis, replan};
use jiff::Timestamp;
use poolwright_model::id::DemandId;
use std::collections::BTreeMap;

/// Moments in one forecast: nothing is said of what begins after them.
const MOST_MOMENTS: usize = 1_000;

impl State<'_> {
    /// The expected start of each waiting job, after the current decision.
    pub(super) fn begins(&self) -> Expected {
        let mut plan = self.plan.clone();
        (plan.is_in_motion, plan.has_in_hand) = (false, false);
        let mut put_off = self.put_off.clone();
        let starts = plan.starts().iter().map(|start| (start.job.id, self.live.now));
        let mut begins: BTreeMap<JobId, Timestamp> = starts.collect();
        let (mut now, mut moments) = (self.now, 0);
        while !(plan.waiting.is_empty() && put_off.is_empty()) && moments < MOST_MOMENTS {
            let tries = put_off.keys().filter_map(|job| self.tried_at(*job));
            let Some(next) = plan.next_change(now).into_iter().chain(tries).min() else {
                break;
            };
            let due: Vec<JobId> = put_off
                .keys()
                .copied()
                .filter(|job| self.tried_at(*job) <= Some(next))
                .collect();
            let submitted = due
                .into_iter()
                .filter_map(|job| put_off.remove(&job))
                .map(Event::Submitted);
            let ended = plan
                .ended_by(next)
                .into_iter()
                .map(|job| Event::Ended { job, ran: 0 });
            let events: Vec<Event> = ended.chain(submitted).collect();
            plan = replan(next, &events, plan);
            begins.extend(
                plan.starts()
                    .iter()
                    .map(|start| (start.job.id, self.timestamp(next))),
            );
            (now, moments) = (next, moments + 1);
        }
        let cut = match moments < MOST_MOMENTS {
            true => self.live.ahead_until.map(Cut::Calendars),
            false => Some(Cut::Many),
        };
        self.told(&begins, cut)
    }

    fn tried_at(&self, job: JobId) -> Option<Millis> {
        let not_before = self.waiting.get(&job)?.not_before?;
        Some(self.at(not_before).max(self.now + 1))
    }

    fn told(&self, begins: &BTreeMap<JobId, Timestamp>, cut: Option<Cut>) -> Expected {
        let mut expected = Expected::default();
        for (id, waits) in &self.waiting {
            let demand: DemandId = waits.demand.id.clone();
            match (begins.get(id), cut) {
                (Some(at), _) => drop(expected.begins.insert(demand, *at)),
                (None, Some(cut)) => drop(expected.cut.insert(demand, cut)),
                (None, None) => drop(expected.never.insert(demand)),
            }
        }
        expected
    }
}
