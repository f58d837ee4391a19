//! What is free of one class, host by host, now or at a later moment; and where a job would sit in it.

use super::links::Links;
use super::pool::Pool;
use super::{ClassIndex, HostIndex};

/// Free GPUs of a class: how many each host could give or take, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub free: Vec<u32>,
    pub total: u32,
    pub class: ClassIndex,
    /// Where uplinks are limited.
    pub links: Option<Links>,
}

/// Which of several hosts is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preference {
    /// The host that has the least left afterwards.
    #[default]
    BestFit,
    /// A host that works already: one that is woken draws power for as long as the job runs, and an attach takes seconds.
    /// Of those one where nothing must be attached, then the one that has the least left.
    Working,
}

impl Room {
    /// Whether a job of that width has a place.
    pub fn fits(&self, pool: &Pool, gpus: u32) -> bool {
        if gpus > self.total {
            return false;
        }
        if gpus <= pool.widest(self.class) {
            return (0..self.free.len()).any(|host| self.gives(host) >= gpus);
        }
        self.wide(pool, gpus, |_, _| 0).is_some()
    }

    /// GPUs that a host could take, and get.
    fn gives(&self, host: HostIndex) -> u32 {
        let reach = self.links.as_ref().map(|links| links.reach(host, self.class));
        self.free[host].min(reach.unwrap_or(u32::MAX))
    }

    /// The hosts for a job, with how many GPUs each holds; on a fixed server that is whole, all of its GPUs.
    pub fn choose(
        &self,
        pool: &Pool,
        class: usize,
        gpus: u32,
        preference: Preference,
    ) -> Option<Vec<(HostIndex, u32)>> {
        if gpus > self.total {
            return None;
        }
        let attaches = |host: HostIndex, gpus: u32| match preference {
            Preference::Working => gpus.saturating_sub(pool.hosts()[host].idle[class]),
            Preference::BestFit => 0,
        };
        if gpus > pool.widest(self.class) {
            return self.wide(pool, gpus, attaches);
        }
        let fitting = self.free.iter().enumerate();
        let fitting = fitting.filter(|(host, free)| **free >= gpus && self.gives(*host) >= gpus);
        let (host, _) = fitting.min_by_key(|(host, free)| {
            let sleeps = preference == Preference::Working && pool.hosts()[*host].busy_gpus() == 0;
            (sleeps, attaches(*host, gpus) > 0, **free - gpus)
        })?;
        Some(vec![(host, gpus)])
    }

    /// Several hosts for a job that no host holds: the emptiest, so that they are few.
    fn wide(
        &self,
        pool: &Pool,
        gpus: u32,
        attaches: impl Fn(HostIndex, u32) -> u32,
    ) -> Option<Vec<(HostIndex, u32)>> {
        let most = pool.most_hosts(self.class, gpus) as usize;
        let whole = pool.is_fixed();
        let mut hosts: Vec<HostIndex> = (0..self.free.len())
            .filter(|host| match whole {
                true => self.free[*host] == pool.hosts()[*host].slots,
                false => self.free[*host] > 0,
            })
            .collect();
        hosts.sort_by_key(|host| {
            let free = self.free[*host];
            (std::cmp::Reverse(free), attaches(*host, free), *host)
        });
        let (mut place, mut missing) = (Vec::new(), gpus);
        let mut links = self.links.clone();
        for host in hosts {
            let reach = links.as_ref().map(|links| links.reach(host, self.class));
            let held = self.free[host].min(missing).min(reach.unwrap_or(u32::MAX));
            if held == 0 {
                continue;
            }
            if let Some(links) = &mut links {
                links.take(host, self.class, held);
            }
            place.push((host, if whole { self.free[host] } else { held }));
            missing -= held;
            if missing == 0 || place.len() == most {
                break;
            }
        }
        (missing == 0).then_some(place)
    }

    /// No more than what is spared: for a job that must not stand in another's way.
    pub fn at_most(&mut self, spare: &[u32], links: Option<&Links>, extra: Option<u32>) {
        for (free, spare) in self.free.iter_mut().zip(spare) {
            *free = (*free).min(*spare);
        }
        if let (Some(links), Some(spare)) = (&mut self.links, links) {
            links.at_most(spare);
        }
        if let Some(extra) = extra {
            self.total = self.total.min(extra);
        }
    }
}
