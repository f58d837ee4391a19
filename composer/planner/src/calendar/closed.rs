//! Slots in which hosts are cordoned. In a problem nothing runs at a cordoned host, while a manager lets running
//! demands stay. While such a demand runs, its host is open to that demand only.

use super::pool::Pool;
use super::slots::Slots;
use super::wishes::{Asked, What};
use super::{Outlook, few};
use crate::horizon::extended::Window;
use std::collections::BTreeSet;

/// By host and slot.
pub(super) struct Closed(Vec<Vec<bool>>);

impl Closed {
    pub fn of(outlook: &Outlook<'_>, slots: &Slots, pool: &Pool, asked: &mut Asked) -> Self {
        let shut = |host: &super::pool::HostAt| vec![host.shut; slots.count()];
        let mut closed: Vec<Vec<bool>> = pool.hosts.iter().map(shut).collect();
        for closure in outlook.closures {
            if let Some(host) = pool.host(&closure.host) {
                closed[host][slots.window(closure.from, closure.until)].fill(true);
            }
        }
        let mut stay = vec![vec![false; slots.count()]; pool.hosts.len()];
        for one in &asked.all {
            let What::Runs(runs) = &one.what else { continue };
            for slot in one.window.clone() {
                stay[runs.host][slot] |= std::mem::take(&mut closed[runs.host][slot]);
            }
        }
        let mut nowhere = Vec::new();
        asked.all.retain_mut(|one| {
            if matches!(one.what, What::Runs(_)) {
                return true;
            }
            let open = |host: &usize| !stay[*host][one.window.clone()].contains(&true);
            let may = |host: &usize| one.hosts.as_ref().is_none_or(|hosts| hosts.contains(host));
            let hosts: BTreeSet<usize> = (0..pool.hosts.len()).filter(may).filter(open).collect();
            let any = !hosts.is_empty();
            if !any {
                nowhere.push(one.id.clone());
            }
            if one.hosts.is_some() || hosts.len() < pool.hosts.len() {
                one.hosts = Some(hosts);
            }
            any
        });
        if !nowhere.is_empty() {
            let message = "left out, as all hosts that it may run on are closed while others run on there";
            asked.not_said.push(format!("{message}: {}", few(&nowhere)));
        }
        Self(closed)
    }

    /// When a host is closed.
    pub fn windows(&self, host: usize) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        let closed = self.0[host].iter().zip(0_i64..).filter(|(closed, _)| **closed);
        for (_, slot) in closed {
            match windows.last_mut().filter(|last| last.end == slot) {
                Some(last) => last.end += 1,
                None => windows.push(Window {
                    start: slot,
                    end: slot + 1,
                }),
            }
        }
        windows
    }
}
