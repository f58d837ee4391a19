//! Jobs that want the same GPUs: suitable GPUs are found once for all of them.

use super::pool::Pool;
use super::{ClassIndex, Job};
use crate::place::{self, Choice, Choices};
use crate::room::{Room, Taken};
use poolwright_model::units::Bytes;
use poolwright_sizing::need::GpuSet;

/// What a job asks for, as the key of its shape.
pub(super) type Asks = (ClassIndex, ClassIndex, u32);

pub(super) fn asks(job: &Job) -> Asks {
    (job.class, job.upto, job.gpus)
}

#[derive(Clone, Debug)]
pub(super) struct Shape {
    choices: Choices,
    /// The fewest GPUs that serve it.
    pub gpus: u32,
    /// Classes in which it may run.
    pub classes: std::ops::Range<ClassIndex>,
}

impl Shape {
    pub fn of(pool: &Pool, (class, upto, gpus): Asks) -> Self {
        let classes = class..upto.saturating_add(1).min(pool.classes().len()).max(class);
        let sets = classes.clone().map(|class| {
            let (count, group) = pool.whole(class, gpus);
            Choice {
                set: GpuSet {
                    kind: None,
                    count,
                    min_memory_per_gpu: Bytes::ZERO,
                    group,
                },
                kinds: vec![pool.shelves(class)],
            }
        });
        Self {
            choices: Choices {
                sets: sets.collect(),
                spannable: classes.clone().any(|class| gpus > pool.widest_host(class)),
            },
            gpus,
            classes,
        }
    }

    /// Takes GPUs and slots for one job; `None`, and nothing taken, if there is no room.
    pub fn take(&self, room: &mut Room) -> Option<Vec<Taken>> {
        if !self.may_fit(room) {
            return None;
        }
        let parts = place::serve_chosen(room, &self.choices)?;
        Some(parts.into_iter().flat_map(|part| part.taken).collect())
    }

    /// Whether there is room.
    pub fn fits(&self, room: &mut Room) -> bool {
        let taken = self.take(room);
        taken.inspect(|taken| room.put_back(taken)).is_some()
    }

    /// Whether there are GPUs and slots enough, wherever they are.
    fn may_fit(&self, room: &Room) -> bool {
        let enough = |choice: &Choice| {
            let shelves = choice.kinds.iter().flatten();
            let gpus = shelves
                .map(|shelf| room.gpus_left(*shelf))
                .fold(0, u32::saturating_add);
            let on_one = if self.choices.spannable {
                1
            } else {
                choice.set.count
            };
            gpus >= choice.set.count && (0..room.hosts()).any(|host| room.free(host) >= i64::from(on_one))
        };
        self.choices.sets.iter().any(enough)
    }
}
