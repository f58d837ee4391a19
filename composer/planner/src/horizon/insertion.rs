//! Where a demand is served best, given what is placed already.

use super::locality::{self, Left, Share};
use super::problem::{Choice, Cost, Demand, Problem};
use super::repair::Candidate;
use super::state::{Placement, Scratch, State};
use fastrand::Rng;

/// A place for a demand, and by how much the cost changes.
#[derive(Debug, Clone)]
pub(super) struct Insertion {
    pub cost: Cost,
    pub placement: Placement,
}

/// Of more groups, not all are priced at a host: those that are there or near, and the freest.
const GROUPS: usize = 4;
/// Where there are more hosts, only some are looked at.
pub(super) const HOSTS: usize = 24;
/// Where a kind has more groups, so many that have GPUs free are looked for; those near a host come to them.
const OFFERED: usize = 48;

/// What is free of the groups that a demand may have, by kind.
type Offers<'p> = Vec<Offer<'p>>;

/// What is free of the groups that meet a need.
struct Offer<'p> {
    choice: &'p Choice,
    groups: Vec<(usize, u16)>,
    /// Not all groups were looked at.
    some: bool,
}

/// Looks for places; keeps its scratch between calls.
#[derive(Default)]
pub(super) struct Inserter {
    /// How much a place may seem dearer than it is, by chance: else always the same are found.
    pub noise: Cost,
    /// GPUs that are kept idle elsewhere are left there, where a kind has others.
    pub gentle: bool,
    /// Only the cheapest kind is offered.
    pub cheapest_kind: bool,
    /// A group that is not taken at a host, for all demands of a round alike: what they share is given up together.
    pub shunned: Option<(usize, usize)>,
    scratch: Scratch,
    /// Hosts worth a look in any case.
    pub near: Vec<usize>,
    hosts: Vec<usize>,
}

impl Inserter {
    /// The cheapest place, and by how much the next best host is dearer. One host in `blink` is overlooked; 0: none.
    pub fn best(
        &mut self,
        state: &State<'_>,
        demand: usize,
        blink: usize,
        rng: &mut Rng,
    ) -> Option<(Insertion, Cost)> {
        let kinds = if self.cheapest_kind { 1 } else { usize::MAX };
        let offers = offers(state, demand, kinds, rng);
        if offers.is_empty() || state.problem.hosts.is_empty() {
            return None;
        }
        self.choose_hosts(state, demand, &offers, rng);
        let found = self.among(state, demand, &offers, blink, rng);
        if found.is_some() || self.hosts.len() == state.problem.hosts.len() {
            return found;
        }
        self.hosts = (0..state.problem.hosts.len()).collect();
        let wanted = &state.problem.demands[demand];
        let fits = |host: &usize| {
            state.problem.may_run(wanted, *host, &wanted.window)
                && state.is_apart(demand, *host)
                && state.free_room(*host, wanted.window.clone()) >= fewest(&offers)
        };
        let first = rng.usize(..self.hosts.len());
        self.hosts.rotate_left(first);
        self.hosts = self.hosts.iter().copied().filter(fits).take(HOSTS).collect();
        self.among(state, demand, &offers, 0, rng)
    }

    /// The cheapest place of all hosts.
    pub fn anywhere(&mut self, state: &State<'_>, demand: usize, rng: &mut Rng) -> Option<Insertion> {
        let offers = offers(state, demand, usize::MAX, rng);
        self.hosts = (0..state.problem.hosts.len()).collect();
        let found = self.among(state, demand, &offers, 0, rng)?;
        Some(found.0)
    }

    /// The cheapest GPUs for a demand at one host.
    pub fn at(&mut self, state: &State<'_>, demand: usize, host: usize, rng: &mut Rng) -> Option<Insertion> {
        let offers = offers(state, demand, usize::MAX, rng);
        self.at_host(state, demand, &offers, host, Cost::MAX, rng)
            .map(|(_, found)| found)
    }

    /// The cheapest GPUs of each kind for a demand at one host, where serving it so costs less than leaving it.
    pub fn each_at(
        &mut self,
        state: &State<'_>,
        demand: usize,
        host: usize,
        rng: &mut Rng,
    ) -> Vec<Candidate> {
        let mut found = Vec::new();
        for offer in offers(state, demand, usize::MAX, rng) {
            let one = self.at_host(state, demand, &vec![offer], host, Cost::MAX, rng);
            let Some((_, Insertion { cost, placement })) = one.filter(|(_, one)| one.cost < 0) else {
                continue;
            };
            found.push(Candidate {
                demand,
                cost,
                placement,
            });
        }
        found
    }

    fn choose_hosts(&mut self, state: &State<'_>, demand: usize, offers: &Offers<'_>, rng: &mut Rng) {
        let all = state.problem.hosts.len();
        self.hosts.clear();
        if all <= HOSTS {
            self.hosts.extend(0..all);
            let first = rng.usize(..all);
            self.hosts.rotate_left(first);
            return;
        }
        if let Some(hosts) = &state.problem.demands[demand].hosts {
            let first = rng.usize(..hosts.len());
            let some = hosts.iter().cycle().skip(first).take(hosts.len().min(HOSTS));
            self.hosts.extend(some);
            return;
        }
        self.hosts.extend(&self.near);
        for _ in 0..HOSTS / 2 {
            let choice = &offers[rng.usize(..offers.len())].groups;
            let there = state.hosts_of(choice[rng.usize(..choice.len())].0);
            if !there.is_empty() {
                self.hosts.push(there[rng.usize(..there.len())]);
            }
        }
        self.hosts.extend((0..HOSTS / 3).map(|_| rng.usize(..all)));
        self.hosts.sort_unstable();
        self.hosts.dedup();
        let first = rng.usize(..self.hosts.len());
        self.hosts.rotate_left(first);
    }

    fn among(
        &mut self,
        state: &State<'_>,
        demand: usize,
        offers: &Offers<'_>,
        blink: usize,
        rng: &mut Rng,
    ) -> Option<(Insertion, Cost)> {
        let mut best: Option<Insertion> = None;
        let (mut least, mut second) = (Cost::MAX, Cost::MAX);
        for index in 0..self.hosts.len() {
            if blink > 0 && rng.usize(..blink) == 0 {
                continue;
            }
            let Some((seems, found)) = self.at_host(state, demand, offers, self.hosts[index], least, rng)
            else {
                continue;
            };
            if seems < least {
                (least, second) = (seems, least);
                best = Some(found);
            } else {
                second = second.min(seems);
            }
        }
        best.map(|best| (best, second.saturating_sub(least)))
    }

    /// The GPUs at a host that seem cheapest, and how they seem; looks at nothing that must seem dearer than `least`.
    fn at_host(
        &mut self,
        state: &State<'_>,
        demand: usize,
        offers: &Offers<'_>,
        host: usize,
        least: Cost,
        rng: &mut Rng,
    ) -> Option<(Cost, Insertion)> {
        let problem = state.problem;
        let wanted = &problem.demands[demand];
        if !problem.may_run(wanted, host, &wanted.window) || !state.is_apart(demand, host) {
            return None;
        }
        let room = state.free_room(host, wanted.window.clone());
        if room < fewest(offers) {
            return None;
        }
        let limited = problem.is_limited(wanted, host);
        let fixed = state.more_on(host, wanted.window.clone()) - wanted.unmet;
        let mut best: Option<(Cost, Insertion)> = None;
        for offer in offers {
            let Offer { choice, groups, .. } = offer;
            let gpus = choice.gpus;
            if room < gpus {
                continue;
            }
            // Attaching costs nothing at best, and what was idle may be put to work.
            let at_work =
                |(group, _): &(usize, u16)| problem.groups[*group].active - problem.groups[*group].idle;
            let a_slot = groups.iter().map(at_work).min().unwrap_or(0);
            let fixed = fixed + choice.penalty - state.fairer(wanted, gpus);
            let at_least = fixed + Cost::from(gpus) * wanted.window.len() as Cost * a_slot;
            if at_least >= best.as_ref().map_or(least, |(best, _)| least.min(*best)) {
                continue;
            }
            let spared: Vec<(usize, u16)>;
            let mut groups = groups;
            if let Some((_, shunned)) = self.shunned.filter(|(at, _)| *at == host) {
                spared = groups
                    .iter()
                    .copied()
                    .filter(|(group, _)| *group != shunned)
                    .collect();
                if spared.iter().map(|(_, free)| u32::from(*free)).sum::<u32>() < u32::from(gpus) {
                    continue;
                }
                groups = &spared;
            }
            let reached: Vec<(usize, u16)>;
            if limited {
                match locality::within_reach(state, (wanted, gpus), host, groups) {
                    Some(within) => reached = within,
                    None => continue,
                }
                groups = &reached;
            }
            let shared = match groups.as_slice() {
                [(group, _)] => {
                    let attached = state.more_attached(host, *group, gpus, &wanted.window, &mut self.scratch);
                    let work = Cost::from(gpus) * problem.work(wanted, host, *group);
                    Some((attached + work, vec![(*group, gpus)]))
                }
                several => {
                    let chosen = self.chosen(state, wanted, offer, several, host);
                    let left = if limited {
                        Left::at(state, wanted, host)
                    } else {
                        Left::ALL
                    };
                    let mut share =
                        |groups: &[(usize, u16)]| self.share_out(state, (wanted, gpus), groups, host, left);
                    match wanted.one_switch || problem.fabric.split > 0 {
                        true => locality::fewest(problem, (wanted, gpus), &chosen, share),
                        false => share(&chosen),
                    }
                }
            };
            let Some((cost, parts)) = shared else { continue };
            if !state.fits_held(host, &parts, &wanted.window) {
                continue;
            }
            let cost = fixed + cost;
            let seems = if self.noise > 0 {
                cost + rng.i64(..self.noise)
            } else {
                cost
            };
            if best.as_ref().is_none_or(|(least, _)| seems < *least) {
                best = Some((
                    seems,
                    Insertion {
                        cost,
                        placement: Placement { host, parts },
                    },
                ));
            }
        }
        best
    }

    /// Groups of one kind that are worth a look at a host, where there are many.
    fn chosen(
        &self,
        state: &State<'_>,
        wanted: &Demand,
        offer: &Offer<'_>,
        groups: &[(usize, u16)],
        host: usize,
    ) -> Vec<(usize, u16)> {
        let (problem, gpus): (&Problem, _) = (state.problem, offer.choice.gpus);
        let near = |(group, _): &&(usize, u16)| {
            problem.groups[*group].switch == problem.hosts[host].switch
                || state.rows(host).iter().any(|row| row.group == *group)
        };
        let mut chosen: Vec<(usize, u16)> = groups.to_vec();
        if groups.len() > GROUPS {
            chosen = match offer.some {
                true => self.near(state, wanted, offer, host),
                false => groups.iter().filter(near).copied().collect(),
            };
            // The freest stand first.
            let others = groups.iter().filter(|group| !near(group)).copied();
            let mut free: u32 = chosen.iter().map(|(_, free)| u32::from(*free)).sum();
            for (extra, other) in others.enumerate() {
                if extra >= 2 && free >= u32::from(gpus) {
                    break;
                }
                chosen.push(other);
                free += u32::from(other.1);
            }
        }
        if self.gentle {
            let spare = |(group, free): &(usize, u16)| {
                (*group, state.spare_gpus(*group, host, &wanted.window).min(*free))
            };
            let spared: Vec<(usize, u16)> =
                chosen.iter().map(spare).filter(|(_, spare)| *spare > 0).collect();
            if spared.iter().map(|(_, spare)| u32::from(*spare)).sum::<u32>() >= u32::from(gpus) {
                chosen = spared;
            }
        }
        chosen
    }

    /// What is free of an offer's groups that are at a host or behind its switch.
    fn near(&self, state: &State<'_>, wanted: &Demand, offer: &Offer<'_>, host: usize) -> Vec<(usize, u16)> {
        let mut near: Vec<usize> = state.rows(host).iter().map(|row| row.group).collect();
        near.extend(state.behind(state.problem.hosts[host].switch));
        near.sort_unstable();
        near.dedup();
        let shunned = |group: &usize| self.shunned == Some((host, *group));
        near.retain(|group| offer.choice.groups.binary_search(group).is_ok() && !shunned(group));
        let mut near = free(state, wanted, near.into_iter());
        near.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
        near
    }

    /// Shares a demand out over groups of one kind, GPU by GPU to where the next is cheapest: costs are convex in
    /// the number of GPUs of each group, so that is the best way to share. `None` where what is left at the host does not
    /// carry them.
    fn share_out(
        &mut self,
        state: &State<'_>,
        (wanted, gpus): (&Demand, u16),
        chosen: &[(usize, u16)],
        host: usize,
        mut carries: Left,
    ) -> Option<Share> {
        struct Taken {
            group: usize,
            free: u16,
            work: Cost,
            taken: u16,
            attached: Cost,
            with_next: Cost,
        }
        let problem: &Problem = state.problem;
        let mut more =
            |group, count| state.more_attached(host, group, count, &wanted.window, &mut self.scratch);
        let mut shares: Vec<Taken> = chosen
            .iter()
            .map(|(group, free)| Taken {
                group: *group,
                free: *free,
                work: problem.work(wanted, host, *group),
                taken: 0,
                attached: 0,
                with_next: more(*group, 1),
            })
            .collect();
        for left in (1..=gpus).rev() {
            let next = shares
                .iter_mut()
                .filter(|share| share.taken < share.free && carries.has(problem, host, share.group))
                .min_by_key(|share| share.work + share.with_next - share.attached);
            let next = next?;
            carries.take(problem, host, next.group);
            next.taken += 1;
            next.attached = next.with_next;
            if left > 1 && next.taken < next.free {
                next.with_next = more(next.group, next.taken + 1);
            }
        }
        let cost = shares
            .iter()
            .map(|share| Cost::from(share.taken) * share.work + share.attached)
            .sum();
        let parts = shares
            .iter()
            .filter(|share| share.taken > 0)
            .map(|share| (share.group, share.taken))
            .collect();
        Some((cost, parts))
    }
}

/// The fewest GPUs that any of these takes.
fn fewest(offers: &Offers<'_>) -> u16 {
    offers
        .iter()
        .map(|offer| offer.choice.gpus)
        .min()
        .unwrap_or(u16::MAX)
}

/// The kinds of which there are enough GPUs free over the window of a demand, the freest groups first. Looks at so many
/// kinds, from the cheapest on. None where the tenant's quota leaves none.
///
/// Where nothing limits which host gets which GPUs and a kind has very many groups, enough of them are an offer.
fn offers<'p>(state: &State<'p>, demand: usize, kinds: usize, rng: &mut Rng) -> Offers<'p> {
    let wanted = &state.problem.demands[demand];
    let mut offers = Vec::new();
    for choice in wanted.choices.iter().take(kinds) {
        if state.free_quota(wanted, &choice.groups) < u32::from(choice.gpus) {
            continue;
        }
        let all = choice.groups.len();
        let some = all > 2 * OFFERED && !wanted.one_switch && state.reaches_all();
        let mut groups = if some {
            let first = rng.usize(..all);
            let from_there = choice.groups[first..].iter().chain(&choice.groups[..first]);
            enough(state, wanted, choice.gpus, from_there.copied())
        } else {
            free(state, wanted, choice.groups.iter().copied())
        };
        if groups.iter().map(|(_, free)| u32::from(*free)).sum::<u32>() >= u32::from(choice.gpus) {
            groups.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
            offers.push(Offer { choice, groups, some });
        }
    }
    offers
}

/// What is free of groups over the window of a demand, where anything is.
fn free(state: &State<'_>, wanted: &Demand, groups: impl Iterator<Item = usize>) -> Vec<(usize, u16)> {
    let free = |group: usize| (group, state.free_gpus(group, wanted.window.clone()));
    groups.map(free).filter(|(_, free)| *free > 0).collect()
}

/// The first of those that have any free, and all that are needed for so many GPUs.
fn enough(
    state: &State<'_>,
    wanted: &Demand,
    gpus: u16,
    groups: impl Iterator<Item = usize>,
) -> Vec<(usize, u16)> {
    let (mut found, mut sum) = (Vec::with_capacity(OFFERED), 0);
    for group in groups {
        let free = state.free_gpus(group, wanted.window.clone());
        if free > 0 {
            found.push((group, free));
            sum += u32::from(free);
        }
        if found.len() >= OFFERED && sum >= u32::from(gpus) {
            break;
        }
    }
    found
}
