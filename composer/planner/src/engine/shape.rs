//! Jobs that want the same GPUs: suitable GPUs are found once for all of them.

use super::pool::Pool;
use super::{ClassIndex, Job};
use crate::place::{self, Choice, Choices};
use crate::room::{Room, Taken};
use poolwright_model::units::Bytes;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a job asks for, as the key of its shape.
pub(super) type Asks = (ClassIndex, ClassIndex, u32);

pub(super) fn asks(job: &Job) -> Asks {
    (job.class, job.upto, job.gpus)
}

#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Tried one after the other.
    choices: Vec<Choices>,
    /// The fewest GPUs that serve it.
    pub gpus: u32,
    /// The GPUs that suit it best.
    pub width: u32,
    /// Classes in which it may run.
    pub classes: Range<ClassIndex>,
    /// Of jobs of one group one at a time has a reservation: those whose smallest sufficient GPUs are the same.
    pub group: ClassIndex,
}

impl Shape {
    pub fn of(pool: &Pool, room: &Room, (class, upto, gpus): Asks) -> Self {
        if let Some(need) = pool.need(class) {
            return Self::of_need(room, need, class);
        }
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
        let choices = Choices {
            sets: sets.collect(),
            spannable: classes.clone().any(|class| gpus > pool.widest_host(class)),
        };
        Self {
            choices: vec![choices],
            gpus,
            width: gpus,
            group: classes.start,
            classes,
        }
    }

    fn of_need(room: &Room, need: &Need, class: ClassIndex) -> Self {
        let choices: Vec<Choices> = Choices::in_turn(room, need).collect();
        let first = choices.iter().flat_map(|choices| &choices.sets).next();
        let smallest = first.and_then(|choice| choice.kinds.first()?.first());
        Self {
            gpus: need.alternatives.iter().map(|set| set.count).min().unwrap_or(0),
            width: need.best().map_or(0, |set| set.count),
            classes: class..class + 1,
            group: smallest.map_or(ClassIndex::MAX, |shelf| room.kind_of(*shelf)),
            choices,
        }
    }

    /// Takes GPUs and slots for one job; `None`, and nothing taken, if there is no room.
    pub fn take(&self, room: &mut Room) -> Option<Vec<Taken>> {
        let mut choices = self.choices.iter();
        let parts = choices.find_map(|choices| {
            let fits = may_fit(choices, room);
            fits.then(|| place::serve_chosen(room, choices)).flatten()
        })?;
        Some(parts.into_iter().flat_map(|part| part.taken).collect())
    }

    /// Takes what there is of the GPUs that suit best.
    pub fn take_some(&self, room: &mut Room) -> Vec<Taken> {
        let first = self.choices.iter().flat_map(|choices| &choices.sets).next();
        let Some((set, shelves)) = first.and_then(|choice| Some((&choice.set, choice.kinds.first()?))) else {
            return Vec::new();
        };
        let (parts, _) = place::as_many_as_possible(room, shelves, set, BTreeSet::new());
        parts.into_iter().flat_map(|part| part.taken).collect()
    }

    /// Whether there is room.
    pub fn fits(&self, room: &mut Room) -> bool {
        let taken = self.take(room);
        taken.inspect(|taken| room.put_back(taken)).is_some()
    }
}

/// Whether there are GPUs and slots enough, wherever they are.
fn may_fit(choices: &Choices, room: &Room) -> bool {
    let enough = |choice: &Choice| {
        let shelves = choice.kinds.iter().flatten();
        let gpus = shelves
            .map(|shelf| room.gpus_left(*shelf))
            .fold(0, u32::saturating_add);
        let on_one = if choices.spannable { 1 } else { choice.set.count };
        gpus >= choice.set.count && (0..room.hosts()).any(|host| room.free(host) >= i64::from(on_one))
    };
    choices.sets.iter().any(enough)
}
