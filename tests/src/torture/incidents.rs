//! Random incidents: requests and commits go wrong, others bind and unbind, GPUs are pulled, exchanged and
//! renumbered, bits of the store flip, hosts restart, clocks are set.

use super::gate::Trouble;
use super::world::World;
use fastrand::Rng;
use jiff::SignedDuration;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::rack::{GpuIx, HostIx, PortIx};
use poolwright_emulator::state::{HostPower, Job, State};
use poolwright_executor::{CompositionRecord, GpuRecord};
use poolwright_store::{Store, Stored, read_all};
use std::time::Duration;

/// The one job that a GPU has at a time.
const PID: u32 = 1;

/// Something is done to the rack that is nobody's fault: what is pulled by it is not the manager's doing.
fn behind_our_back<T>(world: &mut World, deed: impl FnOnce(&mut State, jiff::Timestamp) -> T) -> T {
    let (pulled, done) = world.emulation.with(|state, now| {
        let before = state.tally().pulled_in_use;
        let done = deed(state, now);
        (state.tally().pulled_in_use - before, done)
    });
    world.pulled_by_others += pulled;
    done
}

/// Some of the next requests go wrong.
pub fn fault(world: &mut World) {
    let fault = some_fault(&mut world.rng);
    put_in(world, fault);
}

/// Requests that go wrong in any way in which they can.
pub fn some_fault(rng: &mut Rng) -> Fault {
    let status = |code| FaultKind::Status {
        code,
        retry_after: None,
    };
    let does = match rng.u32(0..13) {
        0 => status(503),
        1 => status(500),
        2 => status(409),
        3 => FaultKind::TimeOutBefore,
        4 => FaultKind::TimeOutAfter,
        5 => FaultKind::NoEffect,
        6 => FaultKind::Garbage,
        7 => FaultKind::Slow {
            by: Duration::from_secs(rng.u64(1..90)),
        },
        8 => FaultKind::TaskNeverEnds,
        9 => FaultKind::TaskLies,
        10 => FaultKind::Unauthorized,
        // Beyond the deadline, and within what is waited for after it.
        11 => FaultKind::Late {
            by: Duration::from_secs(rng.u64(1..75)),
        },
        _ => FaultKind::Truncated,
    };
    let mut fault = Fault::new(does).after(rng.u32(0..4)).times(rng.u32(1..6));
    fault.method = match rng.u32(0..3) {
        0 => None,
        1 => Some("GET".to_owned()),
        _ => Some(["PATCH", "POST", "DELETE"][rng.usize(0..3)].to_owned()),
    };
    fault
}

/// A box's management service restarts, and says so for so many requests.
pub fn restart_of(of_box: &str, times: u32) -> Fault {
    let busy = FaultKind::Status {
        code: 503,
        retry_after: None,
    };
    Fault::new(busy).at(of_box.to_owned()).times(times)
}

/// A box's management service restarts, and says for a while that it does; some forget everything.
pub fn endpoint_restarts(world: &mut World) {
    let gpu = world.some_gpu();
    let rack = world.emulation.rack().clone();
    let Some(of_box) = rack.box_of(gpu) else { return };
    let times = world.rng.u32(5..40);
    put_in(world, restart_of(&rack[of_box].name, times));
    if world.rng.u32(0..4) == 0 {
        behind_our_back(world, |state, now| state.lose_bindings(of_box, now));
        for gpu in rack.gpus_of_box(of_box) {
            world.pulled.insert(gpu);
            world.foreign.remove(&gpu);
        }
        world
            .trace
            .add(&format_args!("{of_box:?} has forgotten all bindings"));
    }
}

fn put_in(world: &mut World, fault: Fault) {
    world.trace.add(&format_args!("{fault:?}"));
    world.faults += 1;
    if let Err(error) = world.emulation.add_fault(fault) {
        panic!("a fault that the rack does not know: {error}");
    }
}

/// The store's disk goes wrong for some calls.
pub fn disk(world: &mut World) {
    let times = world.rng.u32(1..8);
    let mut trouble = Trouble::default();
    match world.rng.u32(0..3) {
        0 => trouble.refused = times,
        1 => trouble.lost = times.min(2),
        _ => trouble.unreadable = times,
    }
    world.trace.add(&format_args!("{trouble:?}"));
    world.faults += 1;
    world.disk.set(trouble);
}

pub fn clear(world: &mut World) {
    world.emulation.clear_faults();
    world.disk.set(Trouble::default());
    world.trace.add(&"nothing goes wrong any more");
}

/// The machine's clock is set.
pub fn clock(world: &mut World) {
    let by = SignedDuration::from_secs(world.rng.i64(-7200..7200));
    world.clock.jump(by);
    world.trace.add(&format_args!("the clock jumps by {by}"));
}

/// Others bind a GPU that is free, unbind what they bound, or unbind what is ours.
pub async fn meddle(world: &mut World) {
    let gpu = world.some_gpu();
    if world.foreign.remove(&gpu).is_some() {
        behind_our_back(world, |state, now| state.unbind_by_others(gpu, now));
        world.tell(format!("others unbind {}, which is theirs", world.name(gpu)));
        return;
    }
    // While something of ours goes on, whose a binding is nobody could say.
    let open = world
        .store
        .open_operations()
        .await
        .is_ok_and(|open| !open.is_empty());
    let busy = world.emulation.with(|state, _| state.busy(gpu));
    if open || busy || !world.clients.is_empty() {
        return;
    }
    if world.emulation.with(|state, _| state.bound_to(gpu).is_some()) {
        behind_our_back(world, |state, now| state.unbind_by_others(gpu, now));
        world.pulled.insert(gpu);
        world.tell(format!("others unbind {}, which is not theirs", world.name(gpu)));
        return;
    }
    let port = PortIx(world.rng.usize(0..world.emulation.rack().ports.len()));
    let ours = is_recorded(world, gpu).await;
    if !ours && behind_our_back(world, |state, now| state.bind_by_others(gpu, port, now)).is_ok() {
        world.tell(format!("others bind {} to {port:?}", world.name(gpu)));
        world.foreign.insert(gpu, port);
        world.perhaps_adopted.remove(&gpu);
        world.meddled.insert(gpu);
    }
}

async fn is_recorded(world: &World, gpu: GpuIx) -> bool {
    let unit = world.units.get(&gpu);
    let Ok(records) = read_all::<CompositionRecord>(&*world.store).await else {
        return true;
    };
    let mut held = records.iter().flat_map(|record| &record.value.composition.held);
    held.any(|held| Some(&held.unit) == unit)
}

/// A box gives two of its GPUs each other's names.
pub fn renumber(world: &mut World) {
    let Some((one, other)) = two_of_a_box(world) else {
        return;
    };
    world.emulation.with(|state, _| state.renumber(one, other));
    world.tell(format!(
        "{} and {} have each other's addresses",
        world.name(one),
        world.name(other)
    ));
}

/// A GPU is put into the slot of a free one, and that one into its slot.
pub async fn exchange(world: &mut World) {
    let Some((bound, free)) = two_of_a_box(world) else {
        return;
    };
    let places = |state: &mut State, _| [bound, free].map(|gpu| (state.bound_to(gpu), state.busy(gpu)));
    let [(Some(port), false), (None, false)] = world.emulation.with(places) else {
        return;
    };
    // During an operation the owner of a binding is unknown.
    let open = world.store.open_operations().await;
    let is_quiet = open.is_ok_and(|open| open.is_empty()) && world.clients.is_empty();
    if !is_quiet
        || is_recorded(world, free).await
        || [bound, free].iter().any(|gpu| world.vanished.contains(gpu))
    {
        return;
    }
    behind_our_back(world, |state, now| state.exchange(bound, free, now));
    world.foreign.remove(&bound);
    world.perhaps_adopted.remove(&bound);
    world.perhaps_adopted.remove(&free);
    world.pulled.insert(bound);
    world.foreign.insert(free, port);
    world.meddled.insert(free);
    world.tell(format!(
        "{} is in the slot of {}, which is at {port:?}",
        world.name(free),
        world.name(bound)
    ));
}

fn two_of_a_box(world: &mut World) -> Option<(GpuIx, GpuIx)> {
    let one = world.some_gpu();
    let rack = world.emulation.rack().clone();
    let others: Vec<GpuIx> = rack
        .gpus_of_box(rack.box_of(one)?)
        .filter(|other| *other != one)
        .collect();
    let other = *others.get(world.rng.usize(0..others.len().max(1)))?;
    Some((one, other))
}

/// One or two bits of a document flip on the disk, while nothing goes on. Until an operator repairs or discards the document,
/// no change may rest on it; the GPUs of a discarded composition are adopted then.
pub async fn flip(world: &mut World) {
    let open = world.store.open_operations().await;
    if open.is_ok_and(|open| !open.is_empty()) || !world.clients.is_empty() {
        return;
    }
    let kind = [CompositionRecord::KIND, GpuRecord::KIND][world.rng.usize(0..2)];
    let documents = world.store.list(kind).await.unwrap_or_default();
    if documents.is_empty() {
        return;
    }
    let document = &documents[world.rng.usize(0..documents.len())];
    if let Ok(record) = serde_json::from_str::<CompositionRecord>(document.json.get()) {
        let held = |gpu: &GpuIx| {
            record
                .composition
                .held
                .iter()
                .any(|held| world.units.get(gpu) == Some(&held.unit))
        };
        for gpu in world.pooled().into_iter().filter(held).collect::<Vec<_>>() {
            if let Some(port) = world.emulation.with(|state, _| state.bound_to(gpu)) {
                world.perhaps_adopted.insert(gpu, port);
            }
        }
        world.is_damaged = true;
    }
    // Neighbours: never the same one.
    let first = world.rng.usize(..usize::MAX);
    for bit in first..=first + world.rng.usize(0..2) {
        if let Err(error) = world.store.flip_bit(kind, &document.id, bit) {
            panic!("a bit that can't be flipped: {error}");
        }
        world.tell(format!("bit {bit} of {kind}/{} flips", document.id));
    }
    world.faults += 1;
}

/// A GPU is pulled, or put back.
pub fn vanish(world: &mut World) {
    let gpu = world.some_gpu();
    if world.vanished.remove(&gpu) {
        world.emulation.with(|state, _| state.reappear(gpu));
        world.tell(format!("{} is back", world.name(gpu)));
    } else {
        behind_our_back(world, |state, now| state.vanish(gpu, now));
        world.vanished.insert(gpu);
        world.pulled.insert(gpu);
        world.foreign.remove(&gpu);
        world.tell(format!("{} is gone", world.name(gpu)));
    }
}

/// Somebody repairs the rack: all GPUs that were pulled are put back (a composition can't be touched while one of
/// its GPUs is not seen), and managers that hang are restarted.
pub fn repair(world: &mut World) {
    for of_box in world.emulation.rack().clone().box_ixs() {
        world
            .emulation
            .with(|state, now| state.restart_manager(of_box, now));
    }
    for gpu in std::mem::take(&mut world.vanished) {
        world.emulation.with(|state, _| state.reappear(gpu));
    }
}

/// A host restarts, or is off for a while.
pub fn host(world: &mut World) {
    let host = HostIx(world.rng.usize(0..world.emulation.rack().hosts.len()));
    let off = world.emulation.with(|state, _| state.power(host)) == HostPower::Off;
    let stays_off = !off && world.rng.bool();
    world.emulation.with(|state, now| match (off, stays_off) {
        (true, _) => state.set_power(host, HostPower::On, now),
        (false, true) => state.set_power(host, HostPower::Off, now),
        (false, false) => state.restart(host, now),
    });
    world
        .trace
        .add(&format_args!("{host:?} restarts; off: {stays_off}"));
}

/// A job is started on a GPU, or ends.
pub fn work(world: &mut World) {
    let gpu = world.some_gpu();
    let ended = world.emulation.with(|state, _| state.end_job(gpu, PID));
    let job = Job {
        pid: PID,
        command: "train".to_owned(),
    };
    let started = !ended
        && world
            .emulation
            .with(|state, now| state.start_job(gpu, job, now))
            .is_ok();
    world.tell(format!(
        "{}: job ended {ended}, started {started}",
        world.name(gpu)
    ));
}

/// All hosts are on, and nobody works.
pub fn calm(world: &mut World) {
    clear(world);
    for gpu in world.pooled() {
        world.emulation.with(|state, _| state.end_job(gpu, PID));
    }
    for host in 0..world.emulation.rack().hosts.len() {
        let host = HostIx(host);
        world
            .emulation
            .with(|state, now| state.set_power(host, HostPower::On, now));
    }
}
