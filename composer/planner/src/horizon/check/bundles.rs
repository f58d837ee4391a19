//! Whether what belongs together is served together.

use super::{Broken, Judge, Key};
use std::collections::{BTreeSet, HashMap};

/// How a demand is called in words.
pub(super) fn name((id, phase, part): Key<'_>) -> String {
    let phase = phase.map_or(String::new(), |phase| format!(" phase {phase}"));
    let part = part.map_or(String::new(), |part| format!(" part {part}"));
    format!("{id}{phase}{part}")
}

impl Judge<'_> {
    /// No bundle runs with too few parts in some phase, and parts that must be apart are.
    pub(super) fn bundles(&self) -> Result<(), Broken> {
        let hosts = self.plan.demands.iter();
        let hosts: HashMap<Key<'_>, &str> = hosts
            .filter_map(|served| Some((served.key(), served.host.as_deref()?)))
            .collect();
        let host_of = |demand: usize| hosts.get(&self.problem.demands[demand].key()).copied();
        for bundle in &self.problem.bundles {
            let mut served = Vec::new();
            for phase in &bundle.phases {
                let at: Vec<&str> = phase.parts.clone().filter_map(host_of).collect();
                served.push(at.len());
                let mut different = BTreeSet::new();
                for host in at.into_iter().filter(|_| phase.apart) {
                    if !different.insert(host) {
                        let (demand, host) = (
                            self.problem.demands[phase.parts.start].id.clone(),
                            host.to_owned(),
                        );
                        return Err(Broken::Together { demand, host });
                    }
                }
            }
            let runs = served.iter().any(|parts| *parts > 0);
            for (place, (phase, got)) in bundle.phases.iter().zip(served).enumerate() {
                if runs && got < phase.least {
                    return Err(Broken::Incomplete {
                        demand: self.problem.demands[phase.parts.start].id.clone(),
                        phase: place + 1,
                        got,
                        least: phase.least,
                    });
                }
            }
        }
        Ok(())
    }
}
