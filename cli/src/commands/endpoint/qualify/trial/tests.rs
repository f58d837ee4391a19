use super::*;
use async_trait::async_trait;
use poolwright_driver::{Observation, Progress as Told};
use poolwright_model::control::ControlStyle;
use poolwright_model::id::ControlEndpointId;
use serde_json::json;
use std::sync::Mutex;
use std::time::Duration;

const PORT: &str = "zone-1";
/// The steps of a trial that undoes a bind.
const UNDONE: [&str; 6] = [
    "read before",
    "bind",
    "watch for a late bind",
    "unbind",
    "read after",
    "reset",
];

/// A fabric with one GPU whose answers do not match its state.
struct Odd {
    id: ControlEndpointId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bound: Option<Bound>,
    /// The error of a bind, and the delay until its binding shows.
    bind: Option<DriverError>,
    shows_after: Option<Duration>,
    shows_at: Option<Instant>,
    /// Unbinds that succeed without an effect.
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

    async fn identify(&self, _: &ControlPoint, _: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        Ok(Vec::new())
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

/// The same, with stop requests of a user; after `at_once` the user no longer waits.
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
    assert_eq!(steps, UNDONE);
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
    assert_eq!(steps, UNDONE);
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
