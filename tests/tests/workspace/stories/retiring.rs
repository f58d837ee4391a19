//! Hosts that are taken out of service for good: nobody gives them anything any more, and nothing is pulled by it.

use crate::stories::kit::{FOREVER, ME, Pool, gpus};
use crate::stories::managers::{all_is_well, two};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_model::id::{GpuId, HostId};
use poolwright_service::host::{HostLife, HostTurn};
use poolwright_service::{Change, Composer, ErrorCode, How, ServiceError};
use std::collections::BTreeSet;
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";

async fn attach(composer: &Composer, gpu: &GpuId, host: &HostId) -> Result<Change, ServiceError> {
    let gpu = std::slice::from_ref(gpu);
    composer.attach(gpu, host, ME, &How::default()).await
}

impl Pool {
    async fn retire(&self, host: &HostId) -> Result<HostLife, ServiceError> {
        self.composer().retire_host(host, "its lease ends", ME).await
    }

    /// It is refused, with these words and what to do next.
    async fn is_not_retired(&self, host: &HostId, words: &str, next: &str) {
        let refused = self.retire(host).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
        assert!(refused.message.contains(words), "{words}: {refused}");
        assert!(
            refused.hint.as_ref().unwrap().contains(next),
            "{next}: {refused:?}"
        );
        assert_eq!(self.composer().retired().await.unwrap(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_is_not_retired_while_it_has_something_or_something_comes_to_it() {
    let pool = Pool::of("demo").await;
    let gpu = pool.gpu("box-1/gpu-1").await.id;
    let host = pool.host_id("host-1").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let attached = attach(pool.composer(), &gpu, &host).await.unwrap();
    let operation = attached.operation.as_ref().unwrap().id.to_string();
    pool.is_not_retired(&host, &operation, &format!("ops wait {operation}"))
        .await;
    pool.done(&attached).await;
    let detach = format!("poolwright detach {gpu}");
    pool.is_not_retired(&host, gpu.as_str(), &detach).await;
    let gpus = [gpu];
    let detached = pool.composer().detach(&gpus, ME, &How::default()).await.unwrap();
    pool.is_not_retired(&host, "is at work there", "ops wait").await;
    pool.done(&detached).await;

    // What somebody else has bound there is not ours to take away either.
    pool.bind_by_others("box-1/gpu-2", "host-1/port-1");
    pool.composer().discover(&()).await.unwrap();
    pool.is_not_retired(&host, "in no composition", "poolwright diff")
        .await;
    pool.unbind_by_others("box-1/gpu-2");
    pool.composer().discover(&()).await.unwrap();
    pool.retire(&host).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retired_host_is_given_nothing_until_it_is_back_in_service() {
    let mut pool = Pool::of("demo").await;
    let gpu = pool.gpu("box-1/gpu-1").await.id;
    let host = pool.host_id("host-1").await;
    pool.done(&attach(pool.composer(), &gpu, &host).await.unwrap())
        .await;
    let ids = [gpu.clone()];
    let detached = pool.composer().detach(&ids, ME, &How::default()).await.unwrap();
    let detached = pool.done(&detached).await;
    let life = pool.retire(&host).await.unwrap();
    assert!(life.retired.is_some() && life.agent.is_none(), "{life:?}");
    let [event] = &life.of.events[..] else {
        panic!("{life:?}")
    };
    assert_eq!(event.evidence.as_ref().unwrap().name, "host-1");
    assert_eq!(pool.retire(&host).await.unwrap(), life, "once more is the same");

    // By name, by an undo and by a plan; after a restart, too.
    for restarts in [false, true] {
        if restarts {
            pool.restart().await;
        }
        let refused = attach(pool.composer(), &gpu, &host).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("is retired since"), "{refused}");
        assert!(refused.hint.unwrap().contains("host reinstate"));
        let undo = pool
            .composer()
            .undo_operation(&detached.id, ME, &How::default())
            .await;
        assert_eq!(undo.unwrap_err().code, ErrorCode::Conflict);
    }
    let left = pool.host_id("host-2").await;
    for other in &pool.snapshot().await.topology.hosts {
        if ![&host, &left].contains(&&other.id) {
            pool.retire(&other.id).await.unwrap();
        }
    }
    let mut taken = 0;
    let refused = loop {
        match pool.compose(gpus(&format!("job-{taken}"), KIND, 1)).await {
            Ok(change) => drop(pool.done(&change).await),
            Err(refused) => break refused,
        }
        taken += 1;
    };
    assert_eq!(refused.code, ErrorCode::Unplaced, "{refused}");
    let hosts = async || {
        let compositions = pool.composer().compositions().await.unwrap();
        let hosts = compositions.iter().map(|c| c.host.clone());
        hosts.collect::<BTreeSet<HostId>>()
    };
    assert_eq!((hosts().await, taken > 0), (BTreeSet::from([left.clone()]), true));

    let back = pool.composer().reinstate_host(&host, ME).await.unwrap();
    assert_eq!(back.retired, None);
    let turns: Vec<&HostTurn> = back.of.events.iter().map(|event| &event.turn).collect();
    assert!(
        matches!(turns[..], [HostTurn::Retired { why }, HostTurn::Reinstated] if why == "its lease ends"),
        "{turns:?}"
    );
    let again = pool.composer().reinstate_host(&host, ME).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::Conflict);
    pool.composed(gpus("last", KIND, 1)).await;
    assert_eq!(hosts().await, BTreeSet::from([left, host]), "it has room");
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_replaced_is_retired_and_each_history_names_the_other() {
    let pool = Pool::of("demo").await;
    let [one, two] = [pool.host_id("host-1").await, pool.host_id("host-2").await];
    let three = pool.host_id("host-3").await;
    let composer = pool.composer();
    let replace = async |old: &HostId, new: &HostId| composer.replace_host(old, new, ME).await;
    let itself = replace(&one, &one).await.unwrap_err();
    assert_eq!(itself.code, ErrorCode::BadRequest);
    let unknown = replace(&one, &HostId::from_lossy("host-77")).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    let after = replace(&one, &two).await.unwrap();
    assert_eq!((after.of.replaces(), &after.retired), (Some(&one), &None));
    let before = composer.host_life(&one).await.unwrap();
    assert_eq!(before.of.replaced_by(), Some(&two));
    assert_eq!(before.retired.as_ref().unwrap().why, format!("replaced by {two}"));
    assert_eq!(replace(&one, &two).await.unwrap(), after, "once more is the same");
    for (old, new) in [(&one, &three), (&three, &two), (&two, &one)] {
        let refused = replace(old, new).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{old} {new}: {refused}");
    }
    assert_eq!(composer.retired().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_hosts_that_one_is_to_replace_at_once_only_the_first_is_retired() {
    let pool = Pool::of("demo").await;
    let [one, two] = [pool.host_id("host-1").await, pool.host_id("host-2").await];
    let three = pool.host_id("host-3").await;
    let composer = pool.composer();
    let (first, second) = tokio::join!(
        composer.replace_host(&one, &three, ME),
        composer.replace_host(&two, &three, ME)
    );
    assert_eq!(first.unwrap().of.replaces(), Some(&one));
    assert_eq!(second.unwrap_err().code, ErrorCode::Conflict);
    let retired = composer.retired().await.unwrap();
    assert_eq!(retired.iter().map(|one| &one.host).collect::<Vec<_>>(), [&one]);
}

/// Whoever is first wins, and nobody is given to a host that went.
#[tokio::test(start_paused = true)]
async fn of_two_managers_one_retires_a_host_and_the_other_gives_it_nothing_meanwhile() {
    let (mut pool, a, b) = two("demo").await;
    let snapshot = a.composer.snapshot().await.unwrap();
    let host = snapshot.topology.hosts[0].id.clone();
    let reachable = snapshot.topology.gpus.iter().map(|gpu| gpu.id.clone());
    let mut won = [0, 0];
    for gpu in reachable.take(4) {
        let (retired, attached) = tokio::join!(
            a.composer.retire_host(&host, "", ME),
            attach(&b.composer, &gpu, &host)
        );
        let ended = match &attached {
            Ok(change) => {
                let id = &change.operation.as_ref().unwrap().id;
                Some(b.composer.wait(id, FOREVER).await.unwrap())
            }
            Err(_) => None,
        };
        let holds = pool.truth().len();
        if retired.is_ok() {
            won[0] += 1;
            assert_eq!(holds, 0, "{ended:?}");
            let late = attach(&b.composer, &gpu, &host).await.unwrap_err();
            assert!(late.message.contains("is retired since"), "{late}");
            b.composer.reinstate_host(&host, ME).await.unwrap();
        } else if holds > 0 {
            won[1] += 1;
            let gpus = [gpu];
            let change = b.composer.detach(&gpus, ME, &How::default()).await.unwrap();
            let id = change.operation.unwrap().id;
            b.composer.wait(&id, FOREVER).await.unwrap();
        }
    }
    assert!(won[0] + won[1] > 0, "somebody wins");
    all_is_well(&mut pool, &[&a, &b]).await;
}
