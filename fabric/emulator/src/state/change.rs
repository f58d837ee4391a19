//! What is asked of a rack, and takes time: binds, unbinds, resets.
//!
//! [`State::begin`] refuses what can't be, holds the GPUs, and says when it will be done; [`State::settle`]
//! lets come true what is due; [`State::outcome`] tells what became of it.

use super::{Binding, State};
use crate::clock::later;
use crate::rack::{BoxIx, GpuIx, PortIx, Rack};
use jiff::Timestamp;
use std::time::Duration;

/// Ended changes that nobody asked after are forgotten beyond this number.
const KEPT: usize = 512;

/// Names a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(pub u64);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// GPUs come to a host port and leave it: all of them, or none.
    Move {
        port: PortIx,
        add: Vec<GpuIx>,
        remove: Vec<GpuIx>,
        system: SystemFate,
    },
    Reset {
        gpu: GpuIx,
    },
}

/// What becomes of the composed system around a port (style resource blocks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemFate {
    Keep,
    Compose,
    Decompose,
}

impl Change {
    pub fn bind(gpu: GpuIx, port: PortIx) -> Self {
        Self::Move {
            port,
            add: vec![gpu],
            remove: Vec::new(),
            system: SystemFate::Keep,
        }
    }

    pub fn unbind(gpu: GpuIx, port: PortIx) -> Self {
        Self::Move {
            port,
            add: Vec::new(),
            remove: vec![gpu],
            system: SystemFate::Keep,
        }
    }

    fn gpus(&self) -> impl Iterator<Item = GpuIx> {
        let (many, one): (&[&[GpuIx]], _) = match self {
            Self::Move { add, remove, .. } => (&[add, remove], None),
            Self::Reset { gpu } => (&[], Some(*gpu)),
        };
        many.concat().into_iter().chain(one)
    }

    fn takes(&self, rack: &Rack) -> Duration {
        match self {
            Self::Move { add, .. } if !add.is_empty() => rack.latency.bind,
            Self::Move { .. } => rack.latency.unbind,
            Self::Reset { .. } => rack.latency.reset,
        }
    }
}

/// How a change goes: as it should, or as a fault has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    Real,
    /// It ends well, and nothing is done.
    NoEffect,
    /// It never ends.
    Never,
    /// Nobody has begun with it for so long; then it is done, if it still can be.
    Late(Duration),
}

impl Course {
    /// Whether it has the GPUs to itself from when it was asked for. What says yes and does nothing does not hold
    /// them, nor what waits in a queue.
    fn holds(self) -> bool {
        matches!(self, Self::Real | Self::Never)
    }
}

/// Why something was refused. Names everything concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{gpu} is bound to {port} already")]
    AlreadyBound { gpu: String, port: String },
    #[error("{gpu} is not bound to {port}")]
    NotBound { gpu: String, port: String },
    #[error("{gpu} has another change going on")]
    Busy { gpu: String },
    #[error("{port} has {slots} slots, and no room for {wanted} more GPUs")]
    NoRoom { port: String, slots: u32, wanted: usize },
    #[error("{port} is not cabled to the box of {gpu}")]
    NoPath { gpu: String, port: String },
    #[error("{gpu} is gone")]
    Gone { gpu: String },
    #[error("{gpu} is bound to {port}; a GPU in use is not reset")]
    InUse { gpu: String, port: String },
    #[error("{port} is part of a composed system already")]
    AlreadyComposed { port: String },
    #[error("no system is composed around {port}")]
    NotComposed { port: String },
    #[error("no host sees {gpu}")]
    NotSeen { gpu: String },
    #[error("{gpu} is drained, and takes no new jobs")]
    Draining { gpu: String },
}

/// What a change shows as a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo {
    /// Whose task it is.
    pub of_box: BoxIx,
    pub method: String,
    pub target: String,
    /// What it makes, once it is done.
    pub creates: Option<String>,
}

/// A task, as it is told.
#[derive(Debug, Clone)]
pub struct TaskView<'a> {
    pub id: ChangeId,
    pub info: &'a TaskInfo,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// `None` while it runs.
    pub outcome: Option<&'a Result<(), Refusal>>,
}

#[derive(Debug)]
pub(super) struct Record {
    change: Change,
    course: Course,
    started: Timestamp,
    ended: Option<Timestamp>,
    outcome: Option<Result<(), Refusal>>,
    task: Option<TaskInfo>,
}

impl Record {
    pub(super) fn is_running(&self) -> bool {
        self.outcome.is_none()
    }

    pub(super) fn never_ends(&self) -> bool {
        self.is_running() && self.course == Course::Never
    }

    pub(super) fn is_real_reset(&self) -> bool {
        matches!(self.change, Change::Reset { .. }) && self.course == Course::Real
    }
}

impl State {
    /// Starts a change, and says when it will be done. Nothing is held and nothing changes where it is
    /// refused. With `task` it stays to be told as a task until it is deleted.
    pub fn begin(
        &mut self,
        change: Change,
        course: Course,
        task: Option<TaskInfo>,
        now: Timestamp,
    ) -> Result<(ChangeId, Timestamp), Refusal> {
        self.settle(now);
        self.allowed(&change, None)?;
        self.next_change += 1;
        let id = ChangeId(self.next_change);
        if course.holds() {
            for gpu in change.gpus() {
                self.gpus[gpu.0].busy = Some(id);
            }
        }
        let due = match course {
            Course::Never => Timestamp::MAX,
            Course::Late(by) => later(now, by),
            _ => later(now, change.takes(&self.rack)),
        };
        let record = Record {
            change,
            course,
            started: now,
            ended: None,
            outcome: None,
            task,
        };
        self.changes.insert(id, record);
        self.queue.insert((due, id));
        self.settle(now);
        self.forget_old();
        Ok((id, due))
    }

    /// Lets come true what is due by `now`.
    pub fn settle(&mut self, now: Timestamp) {
        while let Some(&(due, id)) = self.queue.first() {
            if due > now {
                break;
            }
            self.queue.pop_first();
            self.finish(id, due);
        }
    }

    pub(super) fn finish(&mut self, id: ChangeId, at: Timestamp) {
        let Some(record) = self.changes.get(&id) else {
            return;
        };
        let (change, course) = (record.change.clone(), record.course);
        let outcome = match course {
            // The world may have changed since it began: a GPU may have vanished.
            Course::Real | Course::Late(_) => {
                self.allowed(&change, Some(id)).map(|()| self.apply(&change, at))
            }
            Course::NoEffect | Course::Never => Ok(()),
        };
        if matches!(outcome, Err(Refusal::InUse { .. })) {
            self.tally.resets_in_use += 1;
        }
        for gpu in change.gpus() {
            let busy = &mut self.gpus[gpu.0].busy;
            if *busy == Some(id) {
                *busy = None;
            }
        }
        if let Some(record) = self.changes.get_mut(&id) {
            record.outcome = Some(outcome);
            record.ended = Some(at);
        }
    }

    /// Whether a change can be done; `own` is its id if it is going on already.
    pub(super) fn allowed(&mut self, change: &Change, own: Option<ChangeId>) -> Result<(), Refusal> {
        for gpu in change.gpus() {
            let truth = &self.gpus[gpu.0];
            let name = || self.rack.gpu_name(gpu);
            if truth.gone {
                return Err(Refusal::Gone { gpu: name() });
            }
            if truth.busy.is_some() && truth.busy != own {
                return Err(Refusal::Busy { gpu: name() });
            }
        }
        match change {
            Change::Reset { gpu } => match self.bound_to(*gpu) {
                None => Ok(()),
                Some(port) => Err(Refusal::InUse {
                    gpu: self.rack.gpu_name(*gpu),
                    port: self.rack.port_name(port),
                }),
            },
            Change::Move {
                port,
                add,
                remove,
                system,
            } => self.may_move(*port, add, remove, *system, own),
        }
    }

    fn may_move(
        &mut self,
        port: PortIx,
        add: &[GpuIx],
        remove: &[GpuIx],
        system: SystemFate,
        own: Option<ChangeId>,
    ) -> Result<(), Refusal> {
        let port_name = self.rack.port_name(port);
        match (system, self.composed(port)) {
            (SystemFate::Compose, true) => return Err(Refusal::AlreadyComposed { port: port_name }),
            (SystemFate::Decompose, false) => return Err(Refusal::NotComposed { port: port_name }),
            _ => {}
        }
        for &gpu in remove {
            if self.bound_to(gpu) != Some(port) {
                return Err(Refusal::NotBound {
                    gpu: self.rack.gpu_name(gpu),
                    port: port_name,
                });
            }
        }
        for &gpu in add {
            if let Some(at) = self.bound_to(gpu) {
                self.tally.double_binds_refused += 1;
                return Err(Refusal::AlreadyBound {
                    gpu: self.rack.gpu_name(gpu),
                    port: self.rack.port_name(at),
                });
            }
            if self.rack.box_of(gpu) != Some(self.rack[port].gpu_box) {
                return Err(Refusal::NoPath {
                    gpu: self.rack.gpu_name(gpu),
                    port: port_name,
                });
            }
        }
        let slots = self.rack[port].slots;
        let held = self.at_port(port).count() + self.promised(port, own);
        if (held + add.len()).saturating_sub(remove.len()) > slots as usize {
            return Err(Refusal::NoRoom {
                port: port_name,
                slots,
                wanted: add.len(),
            });
        }
        Ok(())
    }

    /// GPUs on their way to a port by other changes than `own`.
    fn promised(&self, port: PortIx, own: Option<ChangeId>) -> usize {
        let running = self
            .queue
            .iter()
            .filter_map(|(_, id)| self.changes.get(id).map(|record| (id, record)));
        running
            .filter(|(id, record)| Some(**id) != own && record.course.holds())
            .map(|(_, record)| match &record.change {
                Change::Move { port: to, add, .. } if *to == port => add.len(),
                _ => 0,
            })
            .sum()
    }

    fn apply(&mut self, change: &Change, at: Timestamp) {
        self.revision += 1;
        match change {
            Change::Reset { gpu } => {
                let truth = &mut self.gpus[gpu.0];
                truth.dirty = false;
                truth.resets += 1;
                self.tally.resets += 1;
            }
            Change::Move {
                port,
                add,
                remove,
                system,
            } => {
                for &gpu in remove {
                    self.let_go(gpu);
                }
                for &gpu in add {
                    self.take(gpu, *port, at);
                }
                match system {
                    SystemFate::Keep => {}
                    SystemFate::Compose => self.ports[port.0].composed = true,
                    SystemFate::Decompose => self.ports[port.0].composed = false,
                }
            }
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Binds. The one place where a binding comes into being; it was allowed before.
    pub(super) fn take(&mut self, gpu: GpuIx, port: PortIx, at: Timestamp) {
        let taken: Vec<u32> = self
            .at_port(port)
            .filter_map(|held| self.binding(held).map(|binding| binding.slot))
            .collect();
        let Some(slot) = (1..=self.rack[port].slots).find(|slot| !taken.contains(slot)) else {
            return;
        };
        let binding = Binding {
            port,
            slot,
            visible_at: later(at, self.rack.latency.enumeration),
        };
        let truth = &mut self.gpus[gpu.0];
        if truth.bound.is_some() {
            return;
        }
        self.tally.bound_dirty += u64::from(truth.dirty);
        self.tally.binds += 1;
        truth.dirty = true;
        truth.bound = Some(binding);
        self.touch(gpu, Some(port));
    }

    /// Unbinds.
    pub(super) fn let_go(&mut self, gpu: GpuIx) {
        let truth = &mut self.gpus[gpu.0];
        if let Some(binding) = truth.bound.take() {
            self.tally.unbinds += 1;
            self.tally.pulled_in_use += u64::from(!truth.jobs.is_empty());
            truth.jobs.clear();
            truth.draining = false;
            self.touch(gpu, Some(binding.port));
        }
    }

    /// What became of a change; `None` while it goes on, and after it was forgotten.
    pub fn outcome(&self, id: ChangeId) -> Option<&Result<(), Refusal>> {
        self.changes.get(&id)?.outcome.as_ref()
    }

    /// The tasks of a box, oldest first.
    pub fn tasks(&self, of_box: BoxIx) -> impl Iterator<Item = TaskView<'_>> {
        self.changes.keys().filter_map(move |id| self.task(of_box, *id))
    }

    pub fn task(&self, of_box: BoxIx, id: ChangeId) -> Option<TaskView<'_>> {
        let record = self.changes.get(&id)?;
        let info = record.task.as_ref().filter(|info| info.of_box == of_box)?;
        let Record {
            started,
            ended,
            outcome,
            ..
        } = record;
        Some(TaskView {
            id,
            info,
            started: *started,
            ended: *ended,
            outcome: outcome.as_ref(),
        })
    }

    /// Forgets an ended task. False for one that goes on, or is not there.
    pub fn delete_task(&mut self, of_box: BoxIx, id: ChangeId) -> bool {
        let ended = self.task(of_box, id).is_some_and(|task| task.outcome.is_some());
        ended && self.changes.remove(&id).is_some()
    }

    fn forget_old(&mut self) {
        if self.changes.len() > KEPT {
            let oldest = self
                .changes
                .iter()
                .find(|(_, record)| !record.is_running())
                .map(|(id, _)| *id);
            oldest.map(|id| self.changes.remove(&id));
        }
    }
}
