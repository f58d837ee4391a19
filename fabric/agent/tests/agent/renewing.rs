//! Another certificate, for a key that the agent makes.

use super::certificates::{Authority, UUID};
use super::{LONG, manager, name_host, serving, target};
use crate::tree::{gpu_config, host};
use poolwright_agent::folder::{self, Folder};
use poolwright_agent::wire;
use poolwright_driver::{ErrorKind, HostSide};
use rcgen::KeyPair;

/// What a manager would sign for the key that the agent made last.
fn signed(authority: &Authority, folder: &Folder) -> String {
    let next = KeyPair::from_pem(&folder.read(folder::NEXT_KEY).unwrap()).unwrap();
    authority.sign_for(&wire::agent_name(UUID), next).certificate
}

#[tokio::test]
async fn an_agent_shows_the_certificate_that_it_was_given_for_a_key_of_its_own() {
    let (host, _) = host(&gpu_config());
    name_host(host.root.path());
    let authority = Authority::new();
    let before = authority.agent();
    let (_place, folder) = authority.folder(&before);
    let agent = serving(host.root.path(), &folder).await;
    let manager = manager(&authority, &authority.manager(), agent.address);

    let unasked = manager.renewed(&before.certificate, LONG).await.unwrap_err();
    assert!(unasked.message.contains("none was asked for"), "{unasked}");
    let request = manager.renew(LONG).await.unwrap();
    assert!(
        request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"),
        "{request}"
    );
    // What does not fit the key replaces nothing.
    let other = authority.agent().certificate;
    assert_eq!(
        manager.renewed(&other, LONG).await.unwrap_err().kind,
        ErrorKind::NoEffect
    );
    assert_eq!(folder.read(folder::CERTIFICATE).unwrap(), before.certificate);
    let certificate = signed(&authority, &folder);
    manager.renewed(&certificate, LONG).await.unwrap();
    assert_eq!(folder.read(folder::CERTIFICATE).unwrap(), certificate);
    assert_ne!(folder.read(folder::KEY).unwrap(), before.key);
    assert_eq!(folder.read_if_any(folder::NEXT_KEY).unwrap(), None);

    agent.stop().await;
    let agent = serving(host.root.path(), &folder).await;
    let again = super::manager(&authority, &authority.manager(), agent.address);
    again.started(&target(None, &[]), LONG).await.unwrap();
    agent.stop().await;
}

/// The certificate lies there, and its key not yet in its place.
#[tokio::test]
async fn an_agent_serves_after_a_power_cut_in_the_middle_of_a_renewal() {
    let (host, _) = host(&gpu_config());
    name_host(host.root.path());
    let authority = Authority::new();
    let (_place, folder) = authority.folder(&authority.agent());
    let agent = serving(host.root.path(), &folder).await;
    let manager = manager(&authority, &authority.manager(), agent.address);
    manager.renew(LONG).await.unwrap();
    agent.stop().await;
    let certificate = signed(&authority, &folder);
    folder.write(folder::CERTIFICATE, &certificate).unwrap();
    let agent = serving(host.root.path(), &folder).await;
    let again = super::manager(&authority, &authority.manager(), agent.address);
    again.started(&target(None, &[]), LONG).await.unwrap();
    agent.stop().await;
}
