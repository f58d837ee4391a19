//! What waits, what runs, and what starts now.

use super::lane::{Lane, Rank};
use super::order::{self, Order, Shares};
use super::pool::{Part, Pool};
use super::reserve::{Reservation, Running};
use super::room::{Preference, Room};
use super::{ClassIndex, HostIndex, Job, JobId, Millis, from_to};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// All that waits is ranked anew when the backlog is so many times what it was, or so many times less: a tenth changes
/// little, and ten thousand waiting jobs are not sorted at each moment.
const ANOTHER: f64 = 1.1;

/// What may start before a job whose turn it is and that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// Nothing.
    None,
    /// Whatever fits, though the job may wait for ever.
    Any,
    /// What is not expected to delay it: the job has a reservation.
    Reserve,
}

/// How a queue decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub order: Order,
    pub backfill: Backfill,
    pub preference: Preference,
    /// Hours by which a tenant's jobs are put back for each time that it holds an equal share over; 0: not at all.
    pub fair_share: f64,
    /// How long GPUs stay attached to a host that last gave some back; None: until they are wanted elsewhere.
    pub idle: Option<Millis>,
}

/// A job that starts now, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub job: Job,
    pub class: ClassIndex,
    pub parts: Vec<Part>,
}

/// Jobs alike: whose, the smallest class and the largest that they may run on, how wide.
type Alike = (usize, ClassIndex, ClassIndex, u32);

/// What waits and what runs on a pool.
#[derive(Clone, Debug)]
pub struct Queue {
    rules: Rules,
    pool: Pool,
    waiting: HashMap<JobId, Job>,
    lanes: BTreeMap<Alike, Lane>,
    running: BTreeMap<JobId, Running>,
    ends: BTreeSet<(Millis, JobId)>,
    shares: Shares,
    /// GPU-milliseconds that waiting jobs are expected to take.
    backlog: u128,
    /// The backlog, in hours of the whole pool, by which all that waits is ranked.
    ranked_by: f64,
    /// When idle GPUs leave, host by host; only the latest entry of a host counts.
    leaving: VecDeque<(Millis, HostIndex)>,
    leaves_at: Vec<Millis>,
}

/// One decision while it is made: what is free, and what is kept for whom.
struct Pass {
    delays: Vec<Millis>,
    rooms: Vec<Room>,
    /// Jobs that have the first turn among those of their class and can't start, with what is kept for them.
    kept: BTreeMap<ClassIndex, (JobId, Option<Reservation>)>,
    verdicts: BTreeMap<(ClassIndex, ClassIndex, u32), Vec<Verdict>>,
}

/// A class of GPUs on which jobs of a width may start, if they run no longer than `limit`.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    class: ClassIndex,
    limit: Millis,
}

/// A job that may start, where it stands, and on which class.
struct Found {
    turn: (Millis, JobId),
    rank: Rank,
    alike: Alike,
    class: ClassIndex,
}

impl Queue {
    #[must_use]
    pub fn new(pool: Pool, rules: Rules) -> Self {
        let leaves_at = vec![0; pool.hosts().len()];
        Self {
            rules,
            pool,
            waiting: HashMap::new(),
            lanes: BTreeMap::new(),
            running: BTreeMap::new(),
            ends: BTreeSet::new(),
            shares: Shares::default(),
            backlog: 0,
            ranked_by: 0.0,
            leaving: VecDeque::new(),
            leaves_at,
        }
    }

    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// For each class the width of the narrowest job that waits and may run on it.
    #[must_use]
    pub fn narrowest(&self) -> Vec<Option<u32>> {
        let mut narrowest = vec![None; self.pool.classes().len()];
        for (_, least, upto, gpus) in self.lanes.keys() {
            let classes = from_to(*least, *upto, narrowest.len());
            for narrowest in narrowest.get_mut(classes).unwrap_or_default() {
                *narrowest = Some(narrowest.map_or(*gpus, |least: u32| least.min(*gpus)));
            }
        }
        narrowest
    }

    /// A job waits from now on.
    pub fn submit(&mut self, job: Job) {
        self.backlog += service(&job);
        self.line_up(&job);
        self.shares.wants(job.tenant);
        self.waiting.insert(job.id, job);
    }

    /// Puts a job where it belongs among those that wait.
    fn line_up(&mut self, job: &Job) {
        let found = order::Found {
            backlog_hours: self.ranked_by,
            widest_host: self.pool.widest_host(),
        };
        let rank = (self.rules.order.rank(job, found), job.id);
        let lane = self.lanes.entry(alike(job)).or_default();
        lane.insert(rank, job.expected);
    }

    /// Ranks all that waits by the backlog of now, if it is another.
    fn rank_anew(&mut self) {
        let gpus: u32 = self.pool.classes().iter().map(|class| class.gpus).sum();
        let backlog = self.backlog as f64 / 3.6e6 / f64::from(gpus.max(1));
        let same = self.ranked_by / ANOTHER..=self.ranked_by * ANOTHER;
        if !self.rules.order.rests_on_backlog() || same.contains(&backlog) {
            return;
        }
        self.ranked_by = backlog;
        self.lanes.clear();
        let waiting: Vec<Job> = self.waiting.values().copied().collect();
        waiting.iter().for_each(|job| self.line_up(job));
    }

    /// What starts now; its GPUs are taken.
    pub fn decide(&mut self, now: Millis) -> Vec<Start> {
        let mut starts = Vec::new();
        if self.waiting.is_empty() {
            return starts;
        }
        self.put_off_overdue(now);
        self.rank_anew();
        let mut pass = Pass {
            delays: self.shares.delays(self.rules.fair_share),
            rooms: Vec::new(),
            kept: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        };
        loop {
            let classes = 0..self.pool.classes().len();
            pass.rooms = classes.map(|class| self.pool.room(class)).collect();
            pass.verdicts.clear();
            let Some(found) = self.next(now, &mut pass) else {
                break;
            };
            starts.extend(self.start(&found, now, &mut pass));
        }
        starts
    }

    /// The GPUs of a job are attached at that time: its end is expected from then.
    pub fn begins(&mut self, job: JobId, at: Millis) {
        if let Some(running) = self.running.get_mut(&job) {
            self.ends.remove(&(running.expected_end, job));
            running.began = at;
            running.expected_end = at.saturating_add(running.job.expected);
            self.ends.insert((running.expected_end, job));
        }
    }

    /// A job has ended: what it held stays attached, idle. What it was, if it ran.
    pub fn finish(&mut self, job: JobId, now: Millis) -> Option<Start> {
        let ended = self.running.remove(&job)?;
        self.ends.remove(&(ended.expected_end, job));
        self.pool.give_back(ended.class, &ended.parts);
        self.shares.gives_back(ended.job.tenant, ended.job.gpus);
        if let Some(stay) = self.rules.idle.filter(|_| !self.pool.is_fixed()) {
            for part in &ended.parts {
                self.leaves_at[part.host] = now + stay;
                self.leaving.push_back((now + stay, part.host));
            }
        }
        Some(Start {
            job: ended.job,
            class: ended.class,
            parts: ended.parts,
        })
    }

    /// When idle GPUs are next to leave a host.
    #[must_use]
    pub fn next_leave(&self) -> Option<Millis> {
        Some(self.leaving.front()?.0)
    }

    /// Detaches what has been idle for long enough, and says how many GPUs that were.
    pub fn leave(&mut self, now: Millis) -> u32 {
        let keep = vec![0; self.pool.classes().len()];
        let mut detached = 0;
        while let Some((at, host)) = self.leaving.front().copied().filter(|(at, _)| *at <= now) {
            self.leaving.pop_front();
            if self.leaves_at[host] == at {
                detached += self.pool.detach_idle(host, &keep);
            }
        }
        detached
    }

    /// Jobs that run longer than expected: as long again, for want of better.
    fn put_off_overdue(&mut self, now: Millis) {
        while let Some((end, job)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, job));
            if let Some(running) = self.running.get_mut(&job) {
                running.expected_end = now + (now - running.began).max(60_000);
                self.ends.insert((running.expected_end, job));
            }
        }
    }

    /// The next job that may start.
    fn next(&self, now: Millis, pass: &mut Pass) -> Option<Found> {
        let fits = |(_, least, upto, gpus): &Alike| {
            from_to(*least, *upto, pass.rooms.len()).any(|class| pass.rooms[class].fits(&self.pool, *gpus))
        };
        if !self.lanes.keys().any(fits) {
            return None;
        }
        loop {
            let mut best: Option<Found> = None;
            let mut heads: BTreeMap<ClassIndex, Found> = BTreeMap::new();
            for (alike, lane) in &self.lanes {
                if let Some(found) = self.candidate(*alike, lane, now, pass)
                    && best.as_ref().is_none_or(|best| found.turn < best.turn)
                {
                    best = Some(found);
                }
                // Who has the first turn may have to be kept a place for.
                let group = self.group(alike.1);
                if !pass.kept.contains_key(&group)
                    && let Some(rank) = lane.first()
                {
                    let head = pass.found(*alike, rank, alike.1);
                    if heads.get(&group).is_none_or(|other| head.turn < other.turn) {
                        heads.insert(group, head);
                    }
                }
            }
            let (group, head) = match (self.rules.backfill, heads.pop_first()) {
                (Backfill::Any, _) | (_, None) => return best,
                (_, Some(head)) => head,
            };
            let starts = best.as_ref().is_some_and(|best| best.turn <= head.turn);
            match (starts, self.rules.backfill) {
                (true, _) => return best,
                (false, Backfill::None) => return None,
                (false, _) => {
                    let job = self.waiting[&head.rank.1];
                    let running = self.ends.iter().filter_map(|(_, job)| self.running.get(job));
                    let reservation = Reservation::of(&self.pool, &job, running, now);
                    pass.kept.insert(group, (job.id, reservation));
                    pass.verdicts.clear();
                }
            }
        }
    }

    /// Jobs of which one at a time has a reservation: those that need a class; in a strict order, all of them.
    fn group(&self, class: ClassIndex) -> ClassIndex {
        match self.rules.backfill {
            Backfill::Reserve => class,
            Backfill::None | Backfill::Any => 0,
        }
    }

    /// The first job of a lane that may start.
    fn candidate(&self, alike: Alike, lane: &Lane, now: Millis, pass: &mut Pass) -> Option<Found> {
        let (_, least, upto, gpus) = alike;
        let key = (least, upto, gpus);
        if !pass.verdicts.contains_key(&key) {
            let classes = from_to(least, upto, pass.rooms.len());
            let verdicts = self.judge(classes, gpus, now, pass);
            pass.verdicts.insert(key, verdicts);
        }
        let verdicts = &pass.verdicts[&key];
        verdicts.iter().find_map(|verdict| {
            let rank = match verdict.limit {
                Millis::MAX => lane.first(),
                limit => lane.first_within(limit),
            }?;
            Some(pass.found(alike, rank, verdict.class))
        })
    }

    /// On which classes jobs of a width may start now, the smallest first.
    fn judge(&self, classes: Range<ClassIndex>, gpus: u32, now: Millis, pass: &Pass) -> Vec<Verdict> {
        let classes = classes.filter(|class| pass.rooms[*class].fits(&self.pool, gpus));
        classes
            .map(|class| {
                let kept = pass.room_beside(&self.pool, class);
                let limit = match kept.fits(&self.pool, gpus) {
                    true => Millis::MAX,
                    false => pass.soonest().saturating_sub(now),
                };
                Verdict { class, limit }
            })
            .collect()
    }

    fn start(&mut self, found: &Found, now: Millis, pass: &mut Pass) -> Option<Start> {
        let job = self.waiting.remove(&found.rank.1)?;
        self.backlog -= service(&job);
        let lane = self.lanes.get_mut(&found.alike)?;
        lane.remove(found.rank);
        if lane.is_empty() {
            self.lanes.remove(&found.alike);
        }
        let beside = pass.room_beside(&self.pool, found.class);
        let choose = |room: &Room| room.choose(&self.pool, found.class, job.gpus, self.rules.preference);
        let best = choose(&beside);
        let carried = best.clone().filter(|place| self.pool.carries(found.class, place));
        let place = carried.or_else(|| choose(&pass.rooms[found.class])).or(best)?;
        let parts = self.pool.take(found.class, &place);
        let expected_end = now.saturating_add(job.expected);
        for (_, reservation) in pass.kept.values_mut() {
            if let Some(reservation) = reservation
                && expected_end > reservation.at
            {
                reservation.charge(&self.pool, found.class, &parts);
            }
        }
        self.shares.takes(job.tenant, job.gpus);
        self.ends.insert((expected_end, job.id));
        let running = Running {
            job,
            class: found.class,
            parts: parts.clone(),
            began: now,
            expected_end,
        };
        self.running.insert(job.id, running);
        Some(Start {
            job,
            class: found.class,
            parts,
        })
    }
}

impl Pass {
    fn found(&self, alike: Alike, rank: Rank, class: ClassIndex) -> Found {
        let delay = self.delays.get(alike.0).copied().unwrap_or(0);
        Found {
            turn: (rank.0.saturating_add(delay), rank.1),
            rank,
            alike,
            class,
        }
    }

    /// What is free of a class and not kept for anybody.
    fn room_beside(&self, pool: &Pool, class: ClassIndex) -> Room {
        let mut room = self.rooms[class].clone();
        for (_, reservation) in self.kept.values() {
            if let Some(reservation) = reservation {
                reservation.restrict(pool, class, &mut room);
            }
        }
        room
    }

    /// The first moment for which anything is kept.
    fn soonest(&self) -> Millis {
        let moments = self.kept.values().filter_map(|(_, kept)| Some(kept.as_ref()?.at));
        moments.min().unwrap_or(Millis::MAX - 1)
    }
}

fn alike(job: &Job) -> Alike {
    (job.tenant, job.class, job.upto, job.gpus)
}

/// GPU-milliseconds that a job is expected to take.
fn service(job: &Job) -> u128 {
    u128::from(job.expected) * u128::from(job.gpus)
}
