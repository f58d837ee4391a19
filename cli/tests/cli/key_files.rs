//! Messages of a start about key files that are lost, changed, damaged, or open to every account.

use crate::support::{Manager, Rack, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Starts and stops a manager; returns its log.
async fn logged(data: &Path, log: &Path) -> String {
    let manager = Manager::start_logging(data, log).await;
    assert_eq!(manager.server.terminate().await, 0);
    std::fs::read_to_string(log).unwrap()
}

/// Fault 87: a key file is lost, replaced, or readable by every account.
#[tokio::test]
async fn a_start_names_key_files_that_are_lost_changed_or_exposed_with_the_next_step() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let manager = Manager::start(&data, &[]).await;
    manager.adopt(&rack).await;
    assert_eq!(manager.server.terminate().await, 0);
    let told = logged(&data, &log).await;
    for word in ["secret key", "stored secrets", "chmod", "last commit"] {
        assert!(!told.contains(word), "all is well: {told}");
    }

    let (key, copy) = (data.join("secret-key"), folder.path().join("kept"));
    std::fs::copy(&key, &copy).unwrap();
    std::fs::remove_file(&key).unwrap();
    let told = logged(&data, &log).await;
    for word in [
        "secret key was missing",
        "put back the copy",
        "endpoint set",
        "password of admin at",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let told = logged(&data, &log).await;
    assert!(told.contains("sealed with another key"), "{told}");
    std::fs::copy(&copy, &key).unwrap();
    let told = logged(&data, &log).await;
    assert!(!told.contains("another key"), "{told}");

    for name in ["secret-key", "tls/ca-key.pem"] {
        std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let told = logged(&data, &log).await;
    assert_eq!(told.matches("chmod 600").count(), 2, "{told}");
    assert!(
        told.contains("secret-key") && told.contains("ca-key.pem"),
        "{told}"
    );

    std::fs::remove_file(data.join("last-commit")).unwrap();
    let told = logged(&data, &log).await;
    assert!(
        told.contains("note of the last commit is missing") && told.contains("poolwright diff"),
        "{told}"
    );
}

/// Fault 87: no hint removes the directory with the authority.
#[tokio::test]
async fn a_start_that_can_not_use_a_certificate_names_its_file_and_keeps_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let manager = Manager::start(&data, &[]).await;
    assert_eq!(manager.server.terminate().await, 0);
    let start = format!("serve --data-dir {} --listen 127.0.0.1:0", data.display());
    let tls = data.join("tls");
    let ca = std::fs::read(tls.join("ca.pem")).unwrap();
    let (server, away) = (tls.join("server.pem"), tls.join("away"));

    std::fs::rename(&server, &away).unwrap();
    // Stands for a file that the manager's account can't read: tests may run as root.
    std::fs::create_dir(&server).unwrap();
    let ran = run(&start)
        .await
        .expect(1, &["server.pem can't be read", "owner and mode"]);
    assert!(!ran.err.contains("remove"), "{ran:?}");
    std::fs::remove_dir(&server).unwrap();
    std::fs::write(&server, "nothing").unwrap();
    run(&start)
        .await
        .refused(1, &["server.pem is damaged", "this one file", "ca-key.pem"]);
    std::fs::rename(&away, &server).unwrap();

    let replaced = tls.join("replaced.pem");
    std::fs::write(&replaced, "nothing").unwrap();
    run(&start)
        .await
        .refused(1, &["replaced.pem", "this one file", "ca-key.pem"]);
    std::fs::remove_file(&replaced).unwrap();

    let key = tls.join("ca-key.pem");
    std::fs::rename(&key, &away).unwrap();
    run(&start)
        .await
        .refused(1, &["ca-key.pem is missing", "put back a copy"]);
    std::fs::rename(&away, &key).unwrap();
    assert_eq!(std::fs::read(tls.join("ca.pem")).unwrap(), ca);
    let manager = Manager::start(&data, &[]).await;
    assert_eq!(manager.server.terminate().await, 0);
}
