//! The cheapest set of intervals that covers every slot as often as asked: which kept GPUs to give up where more
//! are kept than there is room for.
//!
//! It is a flow along the slots. As many units as the deepest want walk from the first slot to the last; over a
//! slot that wants `n` of `deepest`, `deepest - n` may walk for nothing, the others take an interval. Walking back
//! is free, so intervals may overlap. The matrix of intervals is totally unimodular: the flow is the exact answer.

use super::problem::Cost;

/// An interval that may be taken `most` times, each time at a cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub from: usize,
    pub to: usize,
    pub most: u16,
    pub cost: Cost,
}

/// How often each interval is taken so that slot `i` is covered `wanted[i]` times, at the least cost. `None` where
/// all of them don't cover it.
pub(super) fn cover(wanted: &[u32], intervals: &[Interval]) -> Option<Vec<u16>> {
    let deepest = wanted.iter().copied().max().unwrap_or(0);
    let mut taken = vec![0; intervals.len()];
    if deepest == 0 {
        return Some(taken);
    }
    // How many slots before each want something: what covers none of them is of no use.
    let mut before = vec![0; wanted.len() + 1];
    for (slot, wanted) in wanted.iter().enumerate() {
        before[slot + 1] = before[slot] + usize::from(*wanted > 0);
    }
    let useful = |interval: &Interval| before[interval.from] < before[interval.to];
    let mut order: Vec<usize> = (0..intervals.len())
        .filter(|index| useful(&intervals[*index]))
        .collect();
    order.sort_by_key(|index| intervals[*index].from);
    // Nodes are slots at which something changes.
    let mut nodes: Vec<usize> = order
        .iter()
        .flat_map(|index| [intervals[*index].from, intervals[*index].to])
        .collect();
    nodes.extend([0, wanted.len()]);
    nodes.extend((1..wanted.len()).filter(|slot| wanted[*slot] != wanted[slot - 1]));
    nodes.sort_unstable();
    nodes.dedup();
    let mut node_of = vec![0; wanted.len() + 1];
    nodes
        .iter()
        .enumerate()
        .for_each(|(node, slot)| node_of[*slot] = node);

    let mut flow = Flow {
        arcs: Vec::with_capacity(order.len() + nodes.len()),
        nodes: nodes.len(),
    };
    let mut left = order.iter().copied().peekable();
    let mut arc_of = Vec::with_capacity(order.len());
    for (node, slot) in nodes[..nodes.len() - 1].iter().enumerate() {
        let free = deepest - wanted[*slot];
        flow.arcs.push(Arc {
            from: node,
            to: node + 1,
            ahead: free,
            back: u32::MAX,
            cost: 0,
        });
        while let Some(index) = left.next_if(|index| intervals[*index].from == *slot) {
            let interval = &intervals[index];
            arc_of.push((index, flow.arcs.len()));
            flow.arcs.push(Arc {
                from: node,
                to: node_of[interval.to],
                ahead: u32::from(interval.most),
                back: 0,
                cost: interval.cost,
            });
        }
    }
    let mut walking = 0;
    while walking < deepest {
        walking += flow.push(deepest - walking)?;
    }
    for (index, arc) in arc_of {
        taken[index] = u16::try_from(flow.arcs[arc].back).unwrap_or(u16::MAX);
    }
    Some(taken)
}

/// An arc from an earlier node to a later one: how much may still walk along it, and how much back.
struct Arc {
    from: usize,
    to: usize,
    ahead: u32,
    back: u32,
    cost: Cost,
}

/// Arcs stand in the order of the nodes that they come from.
struct Flow {
    arcs: Vec<Arc>,
    nodes: usize,
}

impl Flow {
    /// Sends as much as goes along one cheapest way from the first node to the last; says how much.
    fn push(&mut self, most: u32) -> Option<u32> {
        let came = self.cheapest_way()?;
        let (mut way, mut node) = (Vec::new(), self.nodes - 1);
        while node != 0 {
            way.push(came[node]);
            let (arc, ahead) = came[node];
            node = if ahead {
                self.arcs[arc].from
            } else {
                self.arcs[arc].to
            };
        }
        let room = |(arc, ahead): &(usize, bool)| {
            if *ahead {
                self.arcs[*arc].ahead
            } else {
                self.arcs[*arc].back
            }
        };
        let pushed = way.iter().map(room).min()?.min(most);
        for (arc, ahead) in way {
            let arc = &mut self.arcs[arc];
            let (along, against) = if ahead {
                (&mut arc.ahead, &mut arc.back)
            } else {
                (&mut arc.back, &mut arc.ahead)
            };
            // A way that is free for all stays so.
            if *along != u32::MAX {
                *along -= pushed;
            }
            *against = against.saturating_add(pushed);
        }
        Some(pushed)
    }

    /// By which arc, and whether ahead, each node is reached at the least cost (Bellman and Ford). Sweeps go ahead
    /// and back in turns, so that two or three of them are enough as a rule.
    fn cheapest_way(&self) -> Option<Vec<(usize, bool)>> {
        let mut costs = vec![Cost::MAX; self.nodes];
        let mut came = vec![(usize::MAX, true); self.nodes];
        costs[0] = 0;
        // Without negative cycles it ends after as many sweeps as there are nodes.
        for _ in 0..self.nodes {
            let mut changed = false;
            for (index, arc) in self.arcs.iter().enumerate() {
                if arc.ahead > 0 && costs[arc.from] < Cost::MAX && costs[arc.from] + arc.cost < costs[arc.to]
                {
                    costs[arc.to] = costs[arc.from] + arc.cost;
                    came[arc.to] = (index, true);
                    changed = true;
                }
            }
            for (index, arc) in self.arcs.iter().enumerate().rev() {
                if arc.back > 0 && costs[arc.to] < Cost::MAX && costs[arc.to] - arc.cost < costs[arc.from] {
                    costs[arc.from] = costs[arc.to] - arc.cost;
                    came[arc.from] = (index, false);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        (costs[self.nodes - 1] < Cost::MAX).then_some(came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sets of single intervals, tried one by one.
    fn tried(wanted: &[u32], intervals: &[Interval]) -> Option<Cost> {
        let sets = 0_u32..1 << intervals.len();
        let in_set = |set: u32| {
            intervals
                .iter()
                .enumerate()
                .filter(move |(index, _)| set >> index & 1 == 1)
        };
        sets.filter(|set| {
            let covered = |slot: usize| {
                in_set(*set)
                    .filter(|(_, i)| (i.from..i.to).contains(&slot))
                    .count() as u32
            };
            wanted
                .iter()
                .enumerate()
                .all(|(slot, wanted)| covered(slot) >= *wanted)
        })
        .map(|set| in_set(set).map(|(_, interval)| interval.cost).sum())
        .min()
    }

    #[test]
    fn what_is_taken_is_the_cheapest_of_all_sets() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut possible = 0;
        for _ in 0..300 {
            let slots = rng.usize(1..10);
            let intervals: Vec<Interval> = (0..rng.usize(0..9))
                .map(|_| {
                    let from = rng.usize(0..slots);
                    Interval {
                        from,
                        to: rng.usize(from + 1..=slots),
                        most: 1,
                        cost: rng.i64(0..50),
                    }
                })
                .collect();
            let wanted: Vec<u32> = (0..slots).map(|_| rng.u32(0..3)).collect();
            let found = cover(&wanted, &intervals).map(|taken| {
                taken
                    .iter()
                    .zip(&intervals)
                    .map(|(taken, interval)| Cost::from(*taken) * interval.cost)
                    .sum::<Cost>()
            });
            assert_eq!(found, tried(&wanted, &intervals), "{wanted:?} {intervals:?}");
            possible += u32::from(found.is_some());
        }
        assert!(possible > 50, "{possible}");
    }
}
