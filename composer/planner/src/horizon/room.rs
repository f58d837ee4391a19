//! What hosts have room for, seen in several ways: how many GPUs, and how many of those demands that fit on a host once,
//! twice or three times only. In each way a demand takes some weight and a host takes so much of it at most, whichever
//! demands come together; one that can do with several numbers of GPUs takes the weight of the fewest. Where a demand is too wide to share a host, weights say what adding up GPUs does not.

use super::problem::Problem;

/// So often and more the widest demands fit on a host, and counting GPUs says enough.
const OFTEN: u32 = 4;
/// Steps to find out what a host takes at most; more are not worth it.
const MOST_STEPS: usize = 4_000_000;

/// The ways to see room: what each demand and each host has in each of them.
pub(super) struct Room {
    /// By way, by demand.
    pub weights: Vec<Vec<u32>>,
    /// By way, by host.
    pub most: Vec<Vec<u32>>,
}

impl Room {
    pub fn of(problem: &Problem) -> Self {
        let mut sizes: Vec<u32> = problem
            .demands
            .iter()
            .flat_map(|demand| demand.needs.iter().map(|need| u32::from(need.gpus)))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut rooms: Vec<u32> = problem.hosts.iter().map(|host| u32::from(host.room)).collect();
        rooms.sort_unstable();
        rooms.dedup();
        let largest = rooms.last().copied().unwrap_or(0);
        let mut room = Self {
            weights: Vec::new(),
            most: Vec::new(),
        };
        for times in 1..=OFTEN {
            // More than a half, more than a third and two thirds, and so on; in the last way, GPUs themselves.
            let weight = |size: u32| match times {
                OFTEN => size,
                _ => size * (times + 1) / (largest + 1),
            };
            let counts = sizes.iter().any(|size| weight(*size) > 0);
            let steps: usize = rooms.iter().map(|room| *room as usize * sizes.len()).sum();
            if !counts || (steps > MOST_STEPS && times < OFTEN) {
                continue;
            }
            let takes: Vec<u32> = match steps > MOST_STEPS {
                true => rooms.clone(),
                false => rooms.iter().map(|room| at_most(*room, &sizes, weight)).collect(),
            };
            let of_host = |room: u16| {
                rooms
                    .binary_search(&u32::from(room))
                    .map_or(0, |place| takes[place])
            };
            room.weights.push(
                problem
                    .demands
                    .iter()
                    .map(|demand| weight(u32::from(demand.fewest())))
                    .collect(),
            );
            room.most
                .push(problem.hosts.iter().map(|host| of_host(host.room)).collect());
        }
        room
    }
}

/// The most weight of demands that fit in a room together.
fn at_most(room: u32, sizes: &[u32], weight: impl Fn(u32) -> u32) -> u32 {
    let mut most = vec![0; room as usize + 1];
    for filled in 1..most.len() {
        let with = |size: &u32| Some(most[filled.checked_sub(*size as usize)?] + weight(*size));
        most[filled] = sizes
            .iter()
            .filter_map(with)
            .max()
            .unwrap_or(0)
            .max(most[filled - 1]);
    }
    most[room as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_demands_that_are_wider_than_half_a_host_it_takes_one() {
        assert_eq!(at_most(12, &[1, 8], |size| size), 12);
        assert_eq!(at_most(12, &[8], |size| size), 8);
        assert_eq!(at_most(12, &[1, 8], |size| size * 2 / 13), 1);
        assert_eq!(at_most(16, &[7, 8], |size| size), 16);
        assert_eq!(at_most(16, &[7], |size| size), 14);
        assert_eq!(at_most(16, &[5, 6, 16], |size| size * 3 / 17), 2);
        assert_eq!(at_most(0, &[1], |size| size), 0);
    }
}
