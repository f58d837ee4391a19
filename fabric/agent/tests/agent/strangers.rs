//! Who is not who they should be: nobody is served, nothing is believed, and the reason is told.

use super::certificates::{Authority, Pair};
use super::{LONG, SERIAL, manager, name_host, serving, target};
use crate::tree::{gpu_config, host};
use poolwright_driver::{DriverError, ErrorKind, HostSide};
use poolwright_model::fault::FaultKind;

/// What a manager is told that shows one certificate to an agent that shows another one.
async fn refused(authority: &Authority, manager_shows: &Pair, agent_shows: &Pair) -> DriverError {
    let (host, _) = host(&gpu_config());
    name_host(host.root.path());
    let (_place, folder) = authority.folder(agent_shows);
    let agent = serving(host.root.path(), &folder).await;
    let manager = manager(authority, manager_shows, agent.address);
    let looked = manager
        .verify(&target(Some("10"), &[SERIAL]), LONG)
        .await
        .unwrap_err();
    let drained = manager
        .drain(&target(Some("10"), &[SERIAL]), LONG)
        .await
        .unwrap_err();
    for error in [&looked, &drained] {
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
        assert_eq!(error.fault, FaultKind::Tls, "{error}");
        assert!(error.message.contains("agent-host-1 at 127.0.0.1"), "{error}");
    }
    looked
}

#[tokio::test]
async fn an_agent_serves_its_manager_alone() {
    let authority = Authority::new();
    let others = Authority::new();
    for stranger in [
        others.manager(),
        // Another host's agent has a certificate of the same authority.
        authority.agent(),
        authority.sign_until("manager.poolwright", 2020),
    ] {
        let error = refused(&authority, &stranger, &authority.agent()).await;
        assert!(
            error.message.contains("refuses this manager's certificate"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_manager_believes_the_agent_of_that_host_alone() {
    let authority = Authority::new();
    for (shows, words) in [
        (
            authority.sign_until(&poolwright_agent::wire::agent_name(super::UUID), 2020),
            "has expired",
        ),
        (
            authority.sign("agent-11111111-2222-3333-4444-555555555555"),
            "of another host",
        ),
        (Authority::new().agent(), "has not signed"),
    ] {
        let error = refused(&authority, &authority.manager(), &shows).await;
        assert!(error.message.contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let authority = Authority::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let manager = manager(&authority, &authority.manager(), free);
    let error = manager.drain(&target(None, &[SERIAL]), LONG).await.unwrap_err();
    assert_eq!(
        (error.kind, error.fault),
        (ErrorKind::NoEffect, FaultKind::Unreachable)
    );
    assert!(error.hint.unwrap().contains("poolwright-agent"));
}
