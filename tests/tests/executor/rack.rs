//! A fake rack behind the two traits: it binds what it is told to, remembers what it was asked, and fails
//! as scripted. It refuses what a fabric refuses, and writes down what no executor should ever ask.

mod host_side;
mod incidents;

use async_trait::async_trait;
use poolwright_driver::{
    Bound, ControlPoint, DriverError, ErrorKind, Fabric, GpuIdentity, Holder, HostSide, Late, Learned,
    Observation, Progress, ResetSeen, TaskSeen,
};
use poolwright_executor::Drivers;
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::step::Target;
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// A question or command to the rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    Bound,
    Bind,
    Unbind,
    Task,
    Reset,
    Preflight,
    Verify,
    Holders,
    Started,
    Drain,
    Undrain,
    Ready,
    Unready,
}

/// How a call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Refused; nothing changed.
    Refuse,
    /// No answer, and it was not done.
    LostBefore,
    /// No answer, and it was done.
    LostAfter,
    /// "Done", and it was not.
    Lie,
    /// Never answers, and it was not done.
    HangBefore,
    /// Never answers, and it was done.
    HangAfter,
    /// Taken on as a task that goes on beyond the deadline; see [`Rack::end_task`].
    Overdue,
    CannotTell,
    CredentialsRefused,
    /// The driver has a bug.
    Panic,
    /// It arrives twice; the answer is that to the second.
    Twice,
}

/// The next `times` calls of this kind, about this unit (or any), go wrong like this, after so many that go
/// well.
#[derive(Debug, Clone)]
struct Fault {
    call: Call,
    unit: Option<String>,
    how: How,
    after: u32,
    times: u32,
}

#[derive(Debug, Default)]
struct State {
    /// Unit to the ports that it is bound to.
    bound: BTreeMap<String, BTreeSet<String>>,
    drained: BTreeSet<String>,
    /// Units that a host has made ready.
    ready: BTreeSet<String>,
    /// How often the hosts have started again, and how often they do so yet right after a drain.
    starts: u32,
    starts_to_come: u32,
    /// What the hosts can't put back on a GPU as it was.
    left: BTreeMap<String, Vec<String>>,
    /// What they can't put back on any GPU once they have started again.
    left_once_started: Vec<String>,
    /// What they have said that they left of which GPU.
    left_of: BTreeMap<String, BTreeSet<String>>,
    /// What the host tells of a GPU that it sees.
    told: BTreeMap<String, Learned>,
    /// What the largest register wants of which room was asked for.
    largest_bars: Vec<Option<Bytes>>,
    /// The highest epoch under which a host was asked to let go.
    epoch: Option<u64>,
    holders: BTreeMap<String, Vec<Holder>>,
    /// Which GPU an address shows.
    shown: BTreeMap<String, GpuIdentity>,
    /// Where a unit was observed last.
    observed: BTreeMap<String, String>,
    /// Which it shows once it was asked more often than that.
    shows_after: BTreeMap<String, (Call, usize, String)>,
    /// The hosts end what uses a GPU before they let go of it.
    ends_work: bool,
    /// Units that a host was given since their last reset.
    dirty: BTreeSet<String>,
    /// GPUs that no host sees, though bound.
    unseen: BTreeSet<String>,
    faults: Vec<Fault>,
    hit: bool,
    asked: Vec<(Call, String)>,
    /// The binds and unbinds that changed something.
    moves: Vec<(Call, String)>,
    /// How far the tasks are that were overdue.
    tasks: BTreeMap<String, TaskSeen>,
    sins: Vec<String>,
    /// Units that others have bound.
    of_others: BTreeSet<String>,
    in_flight: usize,
    most_in_flight: usize,
}

/// Units and GPUs have the same names: unit `u1` has the one GPU `u1`.
pub struct Rack {
    fabric_at: ControlEndpointId,
    /// Where hosts are asked.
    hosts_at: ControlEndpointId,
    state: Mutex<State>,
    /// How long the fabric takes.
    latency: Duration,
    /// Nothing speaks for the hosts.
    pub hostless: bool,
    /// What speaks for the hosts makes GPUs ready, as agents do.
    makes_ready: bool,
    /// A call hangs from now on.
    pub hangs: Notify,
}

impl Rack {
    pub fn new() -> Self {
        Self {
            fabric_at: ControlEndpointId::new("box-1").unwrap(),
            hosts_at: ControlEndpointId::new("box-1").unwrap(),
            state: Mutex::default(),
            latency: Duration::from_millis(5),
            hostless: false,
            makes_ready: true,
            hangs: Notify::new(),
        }
    }

    pub fn without_latency() -> Self {
        Self {
            latency: Duration::ZERO,
            ..Self::new()
        }
    }

    /// Hosts are asked through an endpoint of their own.
    pub fn with_hosts_at(endpoint: &str) -> Self {
        Self {
            hosts_at: endpoint.parse().unwrap(),
            ..Self::new()
        }
    }

    /// A BMC speaks for the hosts.
    pub fn without_agents() -> Self {
        Self {
            makes_ready: false,
            ..Self::new()
        }
    }

    pub fn without_host_side() -> Self {
        Self {
            hostless: true,
            ..Self::new()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Binds without being asked to, as somebody else would.
    pub fn rebind(&self, unit: &str, ports: &[&str]) {
        let ports: BTreeSet<_> = ports.iter().map(|p| (*p).to_owned()).collect();
        let mut state = self.state();
        state.drained.remove(unit);
        state.bound.insert(unit.to_owned(), ports);
    }

    /// Binds for good, as somebody else would.
    pub fn bind_by_others(&self, unit: &str, port: &str) {
        self.rebind(unit, &[port]);
        self.state().of_others.insert(unit.to_owned());
    }

    pub fn is_of_others(&self, unit: &str) -> bool {
        self.state().of_others.contains(unit)
    }

    pub fn ports_of(&self, unit: &str) -> Vec<String> {
        let state = self.state();
        state.bound.get(unit).into_iter().flatten().cloned().collect()
    }

    /// Everything that is bound, and to what.
    pub fn bindings(&self) -> BTreeMap<String, Vec<String>> {
        let state = self.state();
        let all = state.bound.iter().filter(|(_, ports)| !ports.is_empty());
        all.map(|(unit, ports)| (unit.clone(), ports.iter().cloned().collect()))
            .collect()
    }

    pub fn break_down(&self, call: Call, unit: Option<&str>, how: How, times: u32) {
        self.break_down_after(0, call, unit, how, times);
    }

    /// The first calls, so many, go well.
    pub fn break_down_after(&self, after: u32, call: Call, unit: Option<&str>, how: How, times: u32) {
        self.state().faults.push(Fault {
            call,
            unit: unit.map(str::to_owned),
            how,
            after,
            times,
        });
    }

    pub fn mend(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.hit = false;
    }

    pub fn hold(&self, gpu: &str, command: &str) {
        let holder = Holder {
            gpu: gpu.parse().unwrap(),
            pid: Some(4711),
            command: command.to_owned(),
        };
        self.state()
            .holders
            .entry(gpu.to_owned())
            .or_default()
            .push(holder);
    }

    /// The hosts have a hook that ends what uses a GPU, before they let go of it.
    pub fn end_work(&self) {
        self.state().ends_work = true;
    }

    pub fn hide(&self, gpu: &str) {
        self.state().unseen.insert(gpu.to_owned());
    }

    pub fn unhide_all(&self) {
        self.state().unseen.clear();
    }

    pub fn is_drained(&self, gpu: &str) -> bool {
        self.state().drained.contains(gpu)
    }

    pub fn is_ready(&self, gpu: &str) -> bool {
        self.state().ready.contains(gpu)
    }

    /// The hosts tell this of a GPU from now on.
    pub fn tell(&self, learned: Learned) {
        self.state().told.insert(learned.gpu.to_string(), learned);
    }

    /// The hosts can't put this back on a GPU as it was.
    pub fn leaves(&self, gpu: &str, what: &str) {
        let mut state = self.state();
        state
            .left
            .entry(gpu.to_owned())
            .or_default()
            .push(what.to_owned());
    }

    /// Once they have started again the hosts can't put this back on any GPU as it was.
    pub fn leaves_once_started(&self, what: &str) {
        self.state().left_once_started.push(what.to_owned());
    }

    /// What the hosts have said that they left of a GPU.
    pub fn left_of(&self, gpu: &str) -> BTreeSet<String> {
        self.state().left_of.get(gpu).cloned().unwrap_or_default()
    }

    /// What the largest register wants of which room was asked for, by each question.
    pub fn largest_bars(&self) -> Vec<Option<Bytes>> {
        self.state().largest_bars.clone()
    }

    /// The hosts start again, so many times, each time right after one has let go of a GPU and said what it left.
    pub fn start_again_after_drains(&self, times: u32) {
        self.state().starts_to_come = times;
    }

    /// The hosts start again.
    pub fn start_again(&self) {
        self.state().starts += 1;
    }

    /// The highest epoch under which a host was asked to let go of a GPU.
    pub fn epoch(&self) -> Option<u64> {
        self.state().epoch
    }

    pub fn is_dirty(&self, unit: &str) -> bool {
        self.state().dirty.contains(unit)
    }

    /// How often it was asked this of a unit.
    pub fn times_asked(&self, call: Call, unit: &str) -> usize {
        let state = self.state();
        state
            .asked
            .iter()
            .filter(|(c, u)| *c == call && u == unit)
            .count()
    }

    /// Everything that it was asked, in order.
    pub fn asked(&self) -> Vec<(Call, String)> {
        self.state().asked.clone()
    }

    /// The binds and unbinds that changed something.
    pub fn moves(&self) -> Vec<(Call, String)> {
        self.state().moves.clone()
    }

    /// Those after so many, in the order of the units: they are moved side by side.
    pub fn moves_since(&self, before: usize) -> Vec<(Call, String)> {
        let mut moves = self.moves().split_off(before);
        moves.sort_by(|a, b| a.1.cmp(&b.1));
        moves
    }

    /// A fault that was scripted came true.
    pub fn was_hit(&self) -> bool {
        self.state().hit
    }

    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    /// What no executor should ever ask for.
    pub fn sins(&self) -> Vec<String> {
        self.state().sins.clone()
    }

    /// Takes the next scripted fault of this call.
    fn fault(&self, call: Call, unit: &str) -> Option<How> {
        let mut state = self.state();
        state.asked.push((call, unit.to_owned()));
        let fault = state.faults.iter_mut().find(|fault| {
            fault.times > 0 && fault.call == call && fault.unit.as_deref().is_none_or(|of| of == unit)
        })?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        let how = fault.how;
        state.hit = true;
        Some(how)
    }

    /// Does what was asked, or fails as scripted.
    async fn perform<T>(
        &self,
        call: Call,
        unit: &str,
        lie: Option<T>,
        act: impl Fn(&mut State) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        {
            let mut state = self.state();
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
        }
        let _gone = Leaving(self);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        match self.fault(call, unit) {
            None => act(&mut self.state()),
            Some(How::Refuse) => Err(DriverError::no_effect(format!("{call:?} of {unit}: refused"))),
            Some(How::CannotTell) => Err(DriverError::cannot_tell(format!("{call:?}: not offered"))),
            Some(How::CredentialsRefused) => Err(DriverError::new(
                ErrorKind::CredentialsRefused,
                format!("{call:?} of {unit}: who are you?"),
            )),
            Some(How::Overdue) => {
                let running = TaskSeen::Running {
                    progress: "Running, 40 %".to_owned(),
                };
                self.state().tasks.insert(task_of(unit), running);
                let error = DriverError::unknown(format!("{call:?} of {unit}: not within 60 s"));
                Err(error.with_late(Late::Task(task_of(unit))))
            }
            Some(How::LostBefore) => Err(DriverError::unknown(format!("{call:?} of {unit}: no answer"))),
            Some(How::LostAfter) => {
                act(&mut self.state())?;
                Err(DriverError::unknown(format!("{call:?} of {unit}: no answer")))
            }
            Some(How::Lie) => match lie {
                Some(lie) => Ok(lie),
                None => act(&mut self.state()),
            },
            Some(How::HangBefore) => self.hang().await,
            Some(How::HangAfter) => {
                act(&mut self.state())?;
                self.hang().await
            }
            Some(How::Panic) => panic!("scripted: {call:?} of {unit}"),
            Some(How::Twice) => {
                let mut state = self.state();
                act(&mut state)?;
                // It is nobody's sin that the second one can't be done.
                let sins = state.sins.len();
                let answer = act(&mut state);
                state.sins.truncate(sins);
                answer
            }
        }
    }
}

impl Rack {
    async fn hang<T>(&self) -> T {
        self.hangs.notify_one();
        std::future::pending().await
    }
}

fn task_of(unit: &str) -> String {
    format!("/tasks/{unit}")
}

struct Leaving<'a>(&'a Rack);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

#[async_trait]
impl Fabric for Rack {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.fabric_at
    }

    async fn observe(&self, _progress: &dyn Progress) -> Result<Observation, DriverError> {
        Ok(Observation::default())
    }

    async fn bind(&self, unit: &ControlPoint, port: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        let (unit, port) = (unit.address.clone(), port.address.clone());
        self.perform(Call::Bind, &unit.clone(), Some(()), move |state| {
            let bound = state.bound.entry(unit.clone()).or_default();
            if !bound.is_empty() {
                state.sins.push(format!(
                    "{unit} was to be bound to {port}, while bound to {bound:?}"
                ));
                return Err(DriverError::new(
                    ErrorKind::Conflict,
                    format!("{unit} is bound already"),
                ));
            }
            bound.insert(port.clone());
            state.dirty.insert(unit.clone());
            state.moves.push((Call::Bind, unit.clone()));
            Ok(())
        })
        .await
    }

    async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        let (unit, port) = (unit.address.clone(), port.address.clone());
        self.perform(Call::Unbind, &unit.clone(), Some(()), move |state| {
            if state.holders.contains_key(&unit) {
                state.sins.push(format!("{unit} was pulled while in use"));
            }
            if state.starts > 0 && !state.drained.contains(&unit) {
                state
                    .sins
                    .push(format!("{unit} was pulled from a host that has it again"));
            }
            if !state.bound.entry(unit.clone()).or_default().remove(&port) {
                state
                    .sins
                    .push(format!("{unit} was to be unbound from {port}, where it was not"));
                return Err(DriverError::new(
                    ErrorKind::Conflict,
                    format!("{unit} is not bound to {port}"),
                ));
            }
            state.drained.remove(&unit);
            state.ready.remove(&unit);
            state.moves.push((Call::Unbind, unit.clone()));
            Ok(())
        })
        .await
    }

    async fn bound(&self, unit: &ControlPoint, _: Duration) -> Result<Bound, DriverError> {
        let unit = unit.address.clone();
        self.perform(Call::Bound, &unit.clone(), None, move |state| {
            let mut ports: Vec<_> = state
                .bound
                .entry(unit.clone())
                .or_default()
                .iter()
                .cloned()
                .collect();
            Ok(match ports.len() {
                0 => Bound::Free,
                1 => Bound::To {
                    port_address: ports.remove(0),
                },
                _ => Bound::Several {
                    port_addresses: ports,
                },
            })
        })
        .await
    }

    async fn identify(&self, unit: &ControlPoint, _: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        Ok(self.identities_at(&unit.address))
    }

    async fn task(&self, task: &str, _: Duration) -> Result<TaskSeen, DriverError> {
        self.perform(Call::Task, task, None, |state| {
            Ok(state.tasks.get(task).cloned().unwrap_or(TaskSeen::Gone))
        })
        .await
    }

    async fn reset(&self, unit: &ControlPoint, _: Duration) -> Result<ResetSeen, DriverError> {
        let unit = unit.address.clone();
        self.perform(
            Call::Reset,
            &unit.clone(),
            Some(ResetSeen::CannotTell),
            move |state| {
                if !state.bound.entry(unit.clone()).or_default().is_empty() {
                    state.sins.push(format!("{unit} was to be reset while bound"));
                    return Err(DriverError::no_effect(format!("{unit} is bound")));
                }
                state.dirty.remove(&unit);
                Ok(ResetSeen::Done)
            },
        )
        .await
    }
}

/// The rack is its own drivers.
pub struct Wiring(pub Arc<Rack>);

#[async_trait]
impl Drivers for Wiring {
    async fn fabric(&self, endpoint: &ControlEndpointId) -> Result<Option<Arc<dyn Fabric>>, DriverError> {
        Ok((*endpoint == self.0.fabric_at).then(|| Arc::clone(&self.0) as Arc<dyn Fabric>))
    }

    async fn host(&self, _host: &HostId) -> Result<Option<Arc<dyn HostSide>>, DriverError> {
        Ok((!self.0.hostless).then(|| Arc::clone(&self.0) as Arc<dyn HostSide>))
    }

    fn drains_at(&self, _host: &HostId) -> Option<ControlEndpointId> {
        (!self.0.hostless).then(|| self.0.hosts_at.clone())
    }

    fn observed_at(&self, target: &Target) -> Option<ControlPoint> {
        let address = self.0.state().observed.get(target.unit.as_str()).cloned()?;
        Some(ControlPoint {
            address,
            ..target.unit_at.clone()
        })
    }
}
