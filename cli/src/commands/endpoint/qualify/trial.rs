//! One run through all steps, and the way back from wherever it went wrong.
//!
//! A bind of unknown outcome may still come about: it is watched for as long as a fabric may lag behind. What
//! the fabric shows decides what is undone, and the GPU must be read back free at every end. Who interrupts it
//! ends the waiting, never a bind that was asked for: that is waited for, and undone.

use super::pair::Pair;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::stop::{Stop, interrupted};
use poolwright_driver::{
    Bound, Confirmation, DriverError, ErrorKind, Fabric, HostSide, HostTarget, ResetSeen,
};
use poolwright_executor::Options;
use poolwright_model::control::ControlPoint;
use serde::Serialize;
use std::sync::Arc;
use tokio::time::Instant;

/// A step as it went.
#[derive(Debug, Serialize)]
pub(super) struct Timed {
    pub(super) step: &'static str,
    pub(super) well: bool,
    pub(super) ms: u64,
    pub(super) seen: String,
}

/// A place where the GPU may be bound, and who tells of it.
pub(super) struct End {
    pub(super) at: ControlPoint,
    pub(super) fabric: Arc<dyn Fabric>,
}

pub(super) struct Trial<'a> {
    pub(super) pair: &'a Pair,
    /// The end at which it is bound.
    pub(super) end: &'a End,
    /// All ends, that one among them.
    pub(super) ends: &'a [End],
    pub(super) host_side: Option<Arc<dyn HostSide>>,
    pub(super) options: &'a Options,
    pub(super) stop: &'a Stop,
    /// From the bind until everything was read back free.
    pub(super) may_hold: bool,
    pub(super) steps: Vec<Timed>,
    pub(super) progress: Progress,
}

impl Trial<'_> {
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let stop = self.stop;
        stop.or(self.expect("read before", &Bound::Free))
            .await?
            .map_err(|error| failed("read before", error))?;
        let (end, port_at) = (self.end, &self.pair.port_at);
        self.may_hold = true;
        let bind = end.fabric.bind(&end.at, port_at, self.options.act_deadline);
        let bind = self.timed("bind", bind, |()| "accepted".to_owned()).await;
        // Anything but a plain refusal may have bound it.
        let may_be_ours = match &bind {
            Ok(()) => true,
            Err(error) => error.kind == ErrorKind::OutcomeUnknown,
        };
        let went = match bind {
            Ok(()) => match stop.or(self.confirm()).await {
                Ok(confirmed) => confirmed,
                Err(interrupted) => {
                    self.watch_for_late_bind().await;
                    Err(Failure {
                        message: "interrupted after the bind; it was undone, and the GPU was read back free"
                            .to_owned(),
                        ..interrupted
                    })
                }
            },
            Err(error) => {
                if may_be_ours {
                    self.watch_for_late_bind().await;
                }
                Err(failed("bind", error))
            }
        };
        if may_be_ours {
            self.undo().await;
        }
        self.all_free().await?;
        self.may_hold = false;
        let reset = end.fabric.reset(&end.at, self.options.act_deadline);
        let seen = |seen: &ResetSeen| match seen {
            ResetSeen::Done => "reset, and ready again".to_owned(),
            ResetSeen::CannotTell => "this machine can't tell whether it was reset".to_owned(),
        };
        let reset = self.timed("reset", reset, seen).await;
        went.map_err(known_to_be_free)?;
        reset.map(drop).map_err(|error| failed("reset", error))
    }

    async fn watch_for_late_bind(&mut self) {
        let late = shown(self.options, self.end, |found| *found != Bound::Free);
        self.timed("watch for a late bind", late, said).await.ok();
    }

    /// Nobody waits for the undo: where the GPU may be, for whoever must look now.
    pub(super) fn left_as_it_is(&self) -> Failure {
        if !self.may_hold {
            return interrupted();
        }
        let Pair { gpu, host, port, .. } = self.pair;
        let message = format!(
            "stopped at once, before everything was undone: {} may be bound to {} (port {}), as {} at {}",
            gpu.id, host.id, port.id, self.end.at.address, self.end.at.endpoint
        );
        Failure::new(ExitCode::Indeterminate, message).with_hint(self.what_now())
    }

    fn what_now(&self) -> String {
        format!(
            "unbind it with the tools of {}, then look with: poolwright discover; until it is free, let no \
             manager drive it, and give it to nobody",
            self.end.at.endpoint
        )
    }

    /// The fabric shows the binding, and so does the host.
    async fn confirm(&mut self) -> Result<(), Failure> {
        let here = Bound::To {
            port_address: self.pair.port_at.address.clone(),
        };
        self.expect("read back", &here)
            .await
            .map_err(|error| failed("read back", error))?;
        self.confirm_from_host()
            .await
            .map_err(|error| failed("seen by the host", error))
    }

    /// Unbinds it as long as the fabric shows it bound as we bound it. Each try is decided by a read-back.
    async fn undo(&mut self) {
        let (end, port_at) = (self.end, &self.pair.port_at);
        for _ in 0..self.options.undo_attempts {
            match shown(self.options, end, |_| true).await {
                Ok(Bound::To { port_address }) if port_address == port_at.address => {}
                _ => return,
            }
            let unbind = end.fabric.unbind(&end.at, port_at, self.options.act_deadline);
            self.timed("unbind", unbind, |()| "accepted".to_owned())
                .await
                .ok();
            if self.expect("read after", &Bound::Free).await.is_ok() {
                return;
            }
        }
    }

    /// Every end is read back free; else what is held where.
    async fn all_free(&self) -> Result<(), Failure> {
        let mut held = Vec::new();
        for end in self.ends {
            let place = format!("{} at {}", end.at.address, end.at.endpoint);
            match shown(self.options, end, |found| *found == Bound::Free).await {
                Ok(Bound::Free) => {}
                Ok(found) => held.push(format!("{place} is {}", said(&found))),
                Err(error) => held.push(format!("whether {place} is bound can't be read: {error}")),
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        let Pair { gpu, host, port, .. } = self.pair;
        let message = format!(
            "{} was not read back free after the trial on {} (port {}): {}",
            gpu.id,
            host.id,
            port.id,
            held.join("; ")
        );
        Err(Failure::new(ExitCode::Indeterminate, message).with_hint(self.what_now()))
    }

    /// Reads until the end at which it is bound shows what is expected.
    async fn expect(&mut self, step: &'static str, wanted: &Bound) -> Result<(), DriverError> {
        let (options, end) = (self.options, self.end);
        let read = async {
            let found = shown(options, end, |found| found == wanted).await?;
            match found == *wanted {
                true => Ok(found),
                false => {
                    let message = format!("the fabric shows {}, expected {}", said(&found), said(wanted));
                    Err(DriverError::unknown(message))
                }
            }
        };
        self.timed(step, read, said).await.map(drop)
    }

    /// Waits until the host's BMC shows the GPU, where one was named that speaks for the host.
    async fn confirm_from_host(&mut self) -> Result<(), DriverError> {
        let Some(host_side) = self.host_side.clone() else {
            self.progress
                .note("no BMC was named for this host: the fabric's word must do");
            return Ok(());
        };
        let Pair { gpu, host, port, .. } = self.pair;
        let target = HostTarget {
            host: host.id.clone(),
            host_port: port.id.clone(),
            gpus: vec![gpu.id.clone()],
            known_as: gpu.uuid.iter().chain(&gpu.serial).cloned().collect(),
            slot: None,
            seen_at: Vec::new(),
            ids: None,
            largest_bar: None,
            epoch: None,
        };
        let options = self.options;
        let look = async {
            let began = Instant::now();
            loop {
                match host_side.verify(&target, options.host_deadline).await? {
                    Confirmation::Seen { evidence, .. } => return Ok(evidence),
                    Confirmation::CannotTell { reason } => return Ok(format!("it can't tell: {reason}")),
                    Confirmation::NotSeen { reason, .. } if began.elapsed() >= options.verify_deadline => {
                        let message = format!("the host does not see it: {reason}");
                        return Err(DriverError::no_effect(message));
                    }
                    Confirmation::NotSeen { .. } => tokio::time::sleep(options.verify_pause / 4).await,
                }
            }
        };
        self.timed("seen by the host", look, String::clone)
            .await
            .map(drop)
    }

    async fn timed<T>(
        &mut self,
        step: &'static str,
        doing: impl Future<Output = Result<T, DriverError>>,
        seen: impl FnOnce(&T) -> String,
    ) -> Result<T, DriverError> {
        self.progress.doing(step);
        let began = Instant::now();
        let done = doing.await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let shown = done.as_ref().map_or_else(ToString::to_string, seen);
        self.steps.push(Timed {
            step,
            well: done.is_ok(),
            ms,
            seen: shown,
        });
        done
    }
}

/// What an end shows, read until it is as wished for, or for as long as a fabric may lag behind.
async fn shown(options: &Options, end: &End, wished: impl Fn(&Bound) -> bool) -> Result<Bound, DriverError> {
    let began = Instant::now();
    loop {
        let found = end.fabric.bound(&end.at, options.read_deadline).await;
        if found.as_ref().is_ok_and(&wished) || began.elapsed() >= options.settle {
            return found;
        }
        tokio::time::sleep(options.first_pause / 5).await;
    }
}

fn failed(step: &str, error: DriverError) -> Failure {
    let failure = Failure::from(error);
    Failure {
        message: format!("{step}: {}", failure.message),
        ..failure
    }
}

/// However unknown an outcome was: the GPU was read back free since.
fn known_to_be_free(failure: Failure) -> Failure {
    match failure.code {
        ExitCode::Indeterminate => Failure {
            code: ExitCode::Generic,
            message: format!("{}; the GPU was read back free", failure.message),
            hint: Some("this machine can't be relied upon; see the steps".to_owned()),
            ..failure
        },
        _ => failure,
    }
}

fn said(bound: &Bound) -> String {
    match bound {
        Bound::Free => "bound to nothing".to_owned(),
        Bound::To { port_address } => format!("bound to {port_address}"),
        Bound::Several { port_addresses } => format!("bound to several ports: {}", port_addresses.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use poolwright_driver::{Observation, Progress as Told};
    use poolwright_model::control::ControlStyle;
    use poolwright_model::id::ControlEndpointId;
    use serde_json::json;
    use std::sync::Mutex;
    use std::time::Duration;

    const PORT: &str = "zone-1";

    /// A fabric with one GPU that says one thing and does another.
    struct Odd {
        id: ControlEndpointId,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        bound: Option<Bound>,
        /// What a bind answers, and how long after it the binding shows.
        bind: Option<DriverError>,
        shows_after: Option<Duration>,
        shows_at: Option<Instant>,
        /// Unbinds that are answered with yes and not done.
        unbinds_ignored: u32,
        unbinds: u32,
        resets: u32,
        unreadable: bool,
    }

    #[async_trait]
    impl Fabric for Odd {
        fn endpoint(&self) -> &ControlEndpointId {
            &self.id
        }

        async fn observe(&self, _: &dyn Told) -> Result<Observation, DriverError> {
            Ok(Observation::default())
        }

        async fn bind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
            let mut state = self.state.lock().unwrap();
            state.shows_at = state.shows_after.map(|after| Instant::now() + after);
            state.bind.clone().map_or(Ok(()), Err)
        }

        async fn unbind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
            let mut state = self.state.lock().unwrap();
            state.unbinds += 1;
            if state.unbinds > state.unbinds_ignored {
                (state.bound, state.shows_at) = (None, None);
            }
            Ok(())
        }

        async fn bound(&self, _: &ControlPoint, _: Duration) -> Result<Bound, DriverError> {
            let state = self.state.lock().unwrap();
            if state.unreadable && state.shows_at.is_some() {
                return Err(DriverError::no_effect("no answer"));
            }
            let shows = state.shows_at.is_some_and(|at| Instant::now() >= at);
            let to = |port: &str| Bound::To {
                port_address: port.to_owned(),
            };
            Ok(state
                .bound
                .clone()
                .unwrap_or(if shows { to(PORT) } else { Bound::Free }))
        }

        async fn reset(&self, _: &ControlPoint, _: Duration) -> Result<ResetSeen, DriverError> {
            self.state.lock().unwrap().resets += 1;
            Ok(ResetSeen::Done)
        }
    }

    fn point(address: &str) -> ControlPoint {
        ControlPoint {
            endpoint: ControlEndpointId::from_lossy("box-1"),
            style: ControlStyle::Zones,
            address: address.to_owned(),
        }
    }

    fn pair() -> Pair {
        let gpu = json!({"id": "gpu-1", "vendor": null, "model": null, "memory_bytes": null, "uuid": null,
            "serial": "S1", "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [],
            "ports": [], "unit": "unit-1", "composable": true, "why_not": null, "host": null, "host_port": null,
            "state": "free", "health": "ok", "control": [point("gpu-1")]});
        let port = json!({"id": "host-1:box-1", "fabric": "box-1", "switch": null, "slots": 1,
            "free_window_bytes": null, "free_buses": null, "control": point(PORT)});
        let host = json!({"id": "host-1", "name": "host-1", "power_state": "on", "ports": [port]});
        Pair {
            gpu: serde_json::from_value(gpu).unwrap(),
            host: serde_json::from_value(host).unwrap(),
            port: serde_json::from_value(port).unwrap(),
            unit_at: point("gpu-1"),
            port_at: point(PORT),
        }
    }

    /// One trial on such a fabric: how it ended, its steps, and the fabric afterwards.
    async fn tried(state: State) -> (Result<(), Failure>, Vec<&'static str>, State) {
        tried_until(state, Stop::default(), std::future::pending()).await
    }

    /// The same, with somebody who asks to stop, and who waits no longer after `at_once`.
    async fn tried_until(
        state: State,
        stop: Stop,
        at_once: impl Future<Output = ()>,
    ) -> (Result<(), Failure>, Vec<&'static str>, State) {
        let odd = Arc::new(Odd {
            id: ControlEndpointId::from_lossy("box-1"),
            state: Mutex::new(state),
        });
        let (pair, options) = (pair(), Options::default());
        let ends = [End {
            at: point("gpu-1"),
            fabric: odd.clone(),
        }];
        let mut trial = Trial {
            pair: &pair,
            end: &ends[0],
            ends: &ends,
            host_side: None,
            options: &options,
            stop: &stop,
            may_hold: false,
            steps: Vec::new(),
            progress: Progress::spinner("testing"),
        };
        let went = tokio::select! {
            went = trial.run() => Some(went),
            () = at_once => None,
        };
        let went = went.unwrap_or_else(|| Err(trial.left_as_it_is()));
        let steps = trial.steps.iter().map(|step| step.step).collect();
        let state = std::mem::take(&mut *odd.state.lock().unwrap());
        (went, steps, state)
    }

    fn unknown() -> Option<DriverError> {
        Some(DriverError::unknown("no answer in time"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_bind_that_comes_about_late_is_found_and_taken_back() {
        // Later than any single look after it, and earlier than a fabric may lag behind.
        let shows_after = Some(Duration::from_secs(3));
        let (went, steps, after) = tried(State {
            bind: unknown(),
            shows_after,
            ..State::default()
        })
        .await;
        let failure = went.unwrap_err();
        assert_eq!(failure.code, ExitCode::Generic, "{failure}");
        assert!(failure.message.contains("read back free"), "{failure}");
        assert_eq!(
            steps,
            [
                "read before",
                "bind",
                "watch for a late bind",
                "unbind",
                "read after",
                "reset"
            ]
        );
        assert_eq!((after.unbinds, after.resets, after.bound), (1, 1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_interrupts_it_while_it_waits_for_the_binding_finds_it_undone() {
        let stop = Stop::default();
        let asked = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            asked.ask();
        });
        // The fabric said yes, and does not show it yet.
        let state = State {
            shows_after: Some(Duration::from_secs(3)),
            ..State::default()
        };
        let (went, steps, after) = tried_until(state, stop, std::future::pending()).await;
        let failure = went.unwrap_err();
        assert!(failure.message.contains("interrupted") && failure.message.contains("read back free"));
        assert_eq!(
            steps,
            [
                "read before",
                "bind",
                "watch for a late bind",
                "unbind",
                "read after",
                "reset"
            ]
        );
        assert_eq!((after.unbinds, after.shows_at), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_for_the_undo_is_told_what_may_be_held() {
        let state = || State {
            shows_after: Some(Duration::ZERO),
            unbinds_ignored: u32::MAX,
            ..State::default()
        };
        let soon = tokio::time::sleep(Duration::from_secs(2));
        let (went, _, after) = tried_until(state(), Stop::default(), soon).await;
        let failure = went.unwrap_err();
        assert_eq!(failure.code, ExitCode::Indeterminate);
        assert!(
            failure.message.contains("gpu-1 may be bound to host-1"),
            "{failure}"
        );
        assert!(after.shows_at.is_some());
        let (went, steps, _) = tried_until(state(), Stop::default(), std::future::ready(())).await;
        let failure = went.unwrap_err();
        assert!(
            steps.is_empty() || failure.code == ExitCode::Indeterminate,
            "{failure}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_bound_is_not_unbound() {
        let (went, _, after) = tried(State {
            bind: unknown(),
            ..State::default()
        })
        .await;
        assert_eq!(went.unwrap_err().code, ExitCode::Generic);
        assert_eq!((after.unbinds, after.resets), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unbind_that_does_nothing_is_asked_for_again_and_then_told() {
        let state = |unbinds_ignored| State {
            shows_after: Some(Duration::ZERO),
            unbinds_ignored,
            ..State::default()
        };
        let (went, _, after) = tried(state(2)).await;
        went.unwrap();
        assert_eq!((after.unbinds, after.resets), (3, 1));
        let (went, steps, after) = tried(state(u32::MAX)).await;
        let failure = went.unwrap_err();
        assert_eq!(failure.code, ExitCode::Indeterminate);
        for word in ["gpu-1 at box-1 is bound to zone-1", "host-1", "unbind it"] {
            assert!(failure.to_string().contains(word), "{failure}");
        }
        // A GPU that may be in use is not reset.
        assert!(!steps.contains(&"reset") && after.resets == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_back_is_told() {
        let state = State {
            bind: unknown(),
            shows_after: Some(Duration::ZERO),
            unreadable: true,
            ..State::default()
        };
        let (went, _, after) = tried(state).await;
        let failure = went.unwrap_err();
        assert_eq!(failure.code, ExitCode::Indeterminate);
        assert!(failure.message.contains("can't be read: no answer"), "{failure}");
        assert_eq!(after.unbinds, 0, "nothing is unbound on a guess");
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_else_holds_is_left_alone() {
        let elsewhere = Bound::To {
            port_address: "zone-9".to_owned(),
        };
        let (went, steps, after) = tried(State {
            bound: Some(elsewhere),
            ..State::default()
        })
        .await;
        assert_eq!((steps, after.unbinds), (vec!["read before"], 0));
        assert!(went.unwrap_err().message.contains("bound to zone-9"));
    }
}
