//! Endpoints that answer, fail and hang.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_collector::{CollectOptions, Look, assemble, collect};
use poolwright_driver::{
    Bound, ControlPoint, DriverError, Fabric, GpuIdentity, Observation, Progress, ResetSeen,
};
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Clone, Copy)]
enum Behaviour {
    Answers,
    Refuses,
    Hangs,
}

struct Scripted {
    id: ControlEndpointId,
    behaviour: Behaviour,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl Fabric for Scripted {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.id
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        progress.advanced(1, 0);
        match self.behaviour {
            Behaviour::Answers => Ok(Observation {
                label: DriverLabel::emulated(Some("box".into())),
                requests: 3,
                faults: vec![Fault::new(
                    self.id.as_str(),
                    FaultKind::DanglingLink,
                    "a link leads nowhere",
                )],
                ..Observation::default()
            }),
            Behaviour::Refuses => Err(DriverError::no_effect("the certificate is not trusted")
                .with_fault(FaultKind::Tls)
                .with_hint("give its CA with --ca")),
            Behaviour::Hangs => std::future::pending().await,
        }
    }
    async fn bind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        Err(DriverError::cannot_tell("only observes"))
    }
    async fn unbind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        Err(DriverError::cannot_tell("only observes"))
    }
    async fn bound(&self, _: &ControlPoint, _: Duration) -> Result<Bound, DriverError> {
        Err(DriverError::cannot_tell("only observes"))
    }
    async fn identify(&self, _: &ControlPoint, _: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        Err(DriverError::cannot_tell("only observes"))
    }
    async fn reset(&self, _: &ControlPoint, _: Duration) -> Result<ResetSeen, DriverError> {
        Err(DriverError::cannot_tell("only observes"))
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_or_hangs_is_a_fault_and_the_others_are_read() {
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let scripted = |name: &str, behaviour| {
        let id = ControlEndpointId::new(name).unwrap();
        Arc::new(Scripted {
            id,
            behaviour,
            now: now.clone(),
            most: most.clone(),
        }) as Arc<dyn Fabric>
    };
    let mut endpoints = vec![
        scripted("broken", Behaviour::Refuses),
        scripted("stuck", Behaviour::Hangs),
    ];
    endpoints.extend((0..20).map(|i| scripted(&format!("good-{i}"), Behaviour::Answers)));
    let options = CollectOptions {
        endpoints_at_once: 4,
        endpoint_deadline: Duration::from_secs(60),
    };

    let snapshot = collect(&endpoints, None, jiff::Timestamp::UNIX_EPOCH, options, &()).await;

    assert_eq!(snapshot.requests, 60);
    assert_eq!(snapshot.faults.len(), 22);
    let fault = |source: &str| {
        snapshot
            .faults
            .iter()
            .find(|fault| fault.source == source)
            .unwrap()
    };
    assert_eq!(fault("broken").kind, FaultKind::Tls);
    assert!(
        fault("broken").message.contains("--ca"),
        "the hint is kept: {}",
        fault("broken").message
    );
    assert_eq!(fault("stuck").kind, FaultKind::Timeout);
    assert!(fault("stuck").message.contains("60 s"));
    assert!(most.load(Ordering::SeqCst) <= 4, "no more than four at once");
}

/// What a service shows that has one host.
fn a_look(name: &str, service: &str, host: &str) -> Look {
    let topology = serde_json::json!({"gpus": [], "fabrics": [], "hosts": [{
        "id": host, "name": host, "uuid": null, "serial": host, "ports": [], "power_state": "on",
        "model": null, "bmc": null, "seen_by": [],
    }]});
    let observed = Observation {
        topology: serde_json::from_value(topology).unwrap(),
        label: DriverLabel {
            uuid: Some(service.to_owned()),
            ..DriverLabel::default()
        },
        ..Observation::default()
    };
    Look::answered(
        ControlEndpointId::new(name).unwrap(),
        observed,
        Timestamp::UNIX_EPOCH,
    )
}

#[test]
fn a_service_under_two_names_is_told_once() {
    let conflicts = |looks: Vec<Look>| {
        let faults = assemble(looks, None, Timestamp::UNIX_EPOCH).faults.into_iter();
        let conflicts = faults.filter(|fault| fault.message.contains("the same service"));
        conflicts
            .map(|fault| (fault.source, fault.message))
            .collect::<Vec<_>>()
    };
    let told = conflicts(vec![a_look("box", "ab-1", "h1"), a_look("bux", "AB-1", "h1")]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0 == "bux" && told[0].1.starts_with("box is"), "{told:?}");
    let others = [a_look("a", "ab-1", "h1"), a_look("b", "ab-2", "h1")];
    assert!(conflicts(others.to_vec()).is_empty());
    let one_uuid_for_all = [a_look("a", "ab-1", "h1"), a_look("b", "ab-1", "h2")];
    assert!(
        conflicts(one_uuid_for_all.to_vec()).is_empty(),
        "some makers give all their machines one UUID"
    );
}
