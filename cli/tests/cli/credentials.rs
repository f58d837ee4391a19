//! Passwords of endpoints: kept sealed, and opened by whoever has the key.

use crate::support::{Manager, Rack, run};
use std::path::Path;

/// Files under a folder that hold these bytes.
fn holding(folder: &Path, wanted: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(holding(&path, wanted)),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                if bytes
                    .windows(wanted.len())
                    .any(|window| window == wanted.as_bytes())
                {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}

fn password(rack: &Rack) -> String {
    std::fs::read_to_string(rack.file("password"))
        .unwrap()
        .trim()
        .to_owned()
}

#[tokio::test]
async fn a_password_is_kept_sealed_and_its_file_is_needed_no_more() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let (data, log) = (path("data"), path("log"));
    let manager = Manager::start_logging(&data, &log).await;
    manager.adopt(&rack).await;
    let secret = password(&rack);
    assert_eq!(holding(&data, &secret), Vec::<String>::new());
    assert_eq!(
        holding(folder.path(), &secret),
        Vec::<String>::new(),
        "nor in its log"
    );
    let listed = manager.run("endpoint list -o json").await.expect(0, &[]);
    assert!(!listed.out.contains(&secret), "{listed:?}");
    for file in ["password", "ca.pem"] {
        std::fs::rename(rack.file(file), rack.file(&format!("{file}.away"))).unwrap();
    }
    assert_eq!(manager.server.terminate().await, 0);

    // It logs in by what is in its store.
    let manager = Manager::start(&data, &[]).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let copy = path("copy").to_str().unwrap().to_owned();
    run(&format!("backup --data-dir {} --out {copy}", data.display()))
        .await
        .expect(0, &["secret-key"]);
    assert_eq!(
        holding(folder.path(), &secret),
        Vec::<String>::new(),
        "nor in a copy"
    );
    assert_eq!(manager.server.terminate().await, 0);

    // Whoever has the copy alone has no password.
    let second = path("second");
    run(&format!("restore {copy} --data-dir {}", second.display()))
        .await
        .expect(0, &[]);
    std::fs::copy(
        data.join("initial-admin-password"),
        second.join("initial-admin-password"),
    )
    .unwrap();
    let manager = Manager::start(&second, &[]).await;
    let endpoints = manager.run("endpoint list -o json").await.json();
    let name = endpoints[0]["id"].as_str().unwrap().to_owned();
    manager.run(&format!("endpoint test {name}")).await.refused(
        5,
        &[
            "password of admin at https://",
            "can't be opened",
            "secret-key",
            "endpoint set",
        ],
    );
    let again = format!(
        "endpoint set {name} --endpoint-password-file {}",
        rack.file("password.away")
    );
    manager.run(&again).await.expect(0, &[&name]);
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);
    assert_eq!(holding(&second, &secret), Vec::<String>::new());
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
async fn another_password_is_kept_once_the_service_takes_it() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let files = rack.folder.path().to_str().unwrap();
    let manager = Manager::start(folder.path(), &["--endpoint-files", files]).await;
    manager.adopt(&rack).await;
    let endpoints = manager.run("endpoint list -o json").await.json();
    let name = endpoints[0]["id"].as_str().unwrap().to_owned();
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "not this one\n").unwrap();
    manager
        .run(&format!(
            "endpoint set {name} --endpoint-password-file {}",
            wrong.display()
        ))
        .await
        .refused(4, &["password"]);
    // What was right before is what is kept.
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);
    manager
        .run(&format!("endpoint set {name} --endpoint-username admin"))
        .await
        .refused(2, &["--endpoint-password-file"]);

    // Where the operator wants it so, it stays in a file.
    let file = rack.file("password");
    let set = format!("endpoint set {name} --endpoint-password-file {file} --by-reference -o json");
    let set = manager.run(&set).await.expect(0, &[]).json();
    assert_eq!(set["password_file"], file.as_str());
    assert_eq!(set["sealed"], serde_json::Value::Null);
    std::fs::rename(&file, format!("{file}.away")).unwrap();
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .refused(10, &[&file]);
    assert_eq!(manager.server.terminate().await, 0);
}

/// Fault 85: a client of the API has a file of the manager's machine sent to an address of its choice.
#[tokio::test]
async fn no_file_is_sent_anywhere_that_the_managers_configuration_does_not_allow() {
    let (rack, folder) = (Rack::start("small").await, tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    // The address to which the client would have the file sent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let taker = format!("http://{}", listener.local_addr().unwrap());
    let files = rack.folder.path().to_str().unwrap();
    let manager = Manager::start(&data, &["--endpoint-files", files]).await;
    manager.adopt(&rack).await;
    let endpoints = manager.run("endpoint list -o json").await.json();
    let name = endpoints[0]["id"].as_str().unwrap().to_owned();
    let [secret, ca_key] = ["secret-key", "tls/ca-key.pem"].map(|file| data.join(file).display().to_string());
    let outside = folder.path().join("elsewhere").display().to_string();
    std::fs::write(&outside, "not this one\n").unwrap();
    for file in [&secret, &outside, &format!("{files}/../no-such-file")] {
        let account = format!("--endpoint-username admin --endpoint-password-file {file} --by-reference");
        manager
            .run(&format!("endpoint add taker --url {taker} {account}"))
            .await
            .refused(2, &["does not read", "--endpoint-files"]);
        manager
            .run(&format!("endpoint set {name} {account}"))
            .await
            .refused(2, &["does not read", "--endpoint-files"]);
        manager
            .run(&format!("endpoint add lab --url qemu://{file}"))
            .await
            .refused(2, &["does not read", "--endpoint-files"]);
    }
    let authority =
        format!("endpoint add taker --url https://127.0.0.1:1 --endpoint-ca {ca_key} --by-reference");
    manager
        .run(&authority)
        .await
        .refused(2, &["does not read", "--endpoint-files"]);
    assert!(listener.accept().is_err(), "something was sent");
    // The refused changes left the stored password in place.
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);

    // One that was stored with a file is reached for as long as its directory is allowed.
    let file = rack.file("password");
    let set = format!("endpoint set {name} --endpoint-password-file {file} --by-reference");
    manager.run(&set).await.expect(0, &[]);
    assert_eq!(manager.server.terminate().await, 0);
    let manager = Manager::start(&data, &[]).await;
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .refused(5, &[&name, &file, "--endpoint-files"]);
    let keep = format!("endpoint set {name} --endpoint-password-file {file}");
    manager.run(&keep).await.expect(0, &[]);
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);
    assert_eq!(manager.server.terminate().await, 0);
}

/// The manager draws it, the service takes it, and nobody is shown it.
#[tokio::test]
async fn a_password_is_rotated_and_no_one_is_shown_it() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let manager = Manager::start_logging(&data, &log).await;
    manager.adopt(&rack).await;
    let endpoints = manager.run("endpoint list -o json").await.json();
    let name = endpoints[0]["id"].as_str().unwrap().to_owned();
    let rotate = format!("endpoint rotate-password {name}");
    for _ in 0..2 {
        manager.run(&rotate).await.expect(0, &[&name, "admin"]);
    }
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);
    manager
        .run("endpoint rotate-password nobody")
        .await
        .refused(3, &["nobody"]);
    assert_eq!(manager.server.terminate().await, 0);

    // The one that all of the rack had is good here no more.
    let manager = Manager::start(&data, &[]).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let old = format!(
        "endpoint set {name} --endpoint-password-file {}",
        rack.file("password")
    );
    manager.run(&old).await.refused(4, &["password"]);
    manager
        .run(&format!("endpoint test {name}"))
        .await
        .expect(0, &[&name]);
    assert_eq!(manager.server.terminate().await, 0);
}
