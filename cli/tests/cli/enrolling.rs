//! Agents of hosts: enrolled by a token, asked by the manager, renewed, revoked; with a real agent on a made-up host.

use crate::support::{KeptAddress, Manager, PATIENCE, Ran, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

/// A host with a kernel and no GPU, and an agent that is not enrolled yet.
struct Host {
    place: TempDir,
    address: KeptAddress,
    name: String,
    uuid: String,
}

impl Host {
    /// The first that the manager knows.
    async fn of(manager: &Manager) -> Self {
        let hosts = manager.run("get hosts -o json").await.expect(0, &[]).json();
        let place = TempDir::new().unwrap();
        let root = place.path().join("root");
        for folder in [
            "sys/bus/pci/devices",
            "sys/bus/pci/slots",
            "proc/sys/kernel/random",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let boot = "8f7f6a1e-0c7e-4c5e-9d5e-0a2b3c4d5e6f\n";
        fs::write(root.join("proc/sys/kernel/random/boot_id"), boot).unwrap();
        let text = |name: &str| hosts[0][name].as_str().unwrap().to_owned();
        Self {
            address: KeptAddress::new(),
            name: text("id"),
            uuid: text("uuid"),
            place,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    async fn token(&self, manager: &Manager, more: &str) -> PathBuf {
        let made = manager
            .run(&format!("host token {more}"))
            .await
            .expect(0, &["shown this once"]);
        let file = self.file("token");
        fs::write(&file, made.out).unwrap();
        file
    }

    /// `agent enrol`, as it is run on the host.
    async fn enrol(&self, manager: &Manager, token: &Path) -> Ran {
        let line = format!(
            "agent enrol --manager {} --ca {} --token-file {} --address {} --dir {} --uuid {}",
            manager.server.url,
            manager.ca().display(),
            token.display(),
            self.address.address,
            self.file("agent").display(),
            self.uuid.to_uppercase(),
        );
        run(&line).await
    }

    fn serve(&self) -> Agent {
        let (dir, root) = (self.file("agent"), self.file("root"));
        let log = fs::File::create(self.file("log")).unwrap();
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_poolwright"))
            .args(["agent", "serve", "--listen", &self.address.address, "--dir"])
            .arg(dir)
            .arg("--root")
            .arg(root)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        Agent(child.unwrap())
    }
}

/// An agent in a process of its own.
struct Agent(std::process::Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agents(listed: &Value) -> Vec<(String, bool)> {
    let listed = listed.as_array().unwrap().iter();
    let one = |agent: &Value| {
        (
            agent["host"].as_str().unwrap().to_owned(),
            agent["revoked"].is_null(),
        )
    };
    listed.map(one).collect()
}

#[tokio::test]
async fn an_agent_speaks_for_its_host_from_its_enrolment_to_its_revocation() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let start = async || Manager::start(dir, &["--rack", "zones"]).await;
    let manager = start().await;
    let host = Host::of(&manager).await;
    let token = host.token(&manager, "").await;

    fs::write(host.file("wrong"), "0".repeat(96)).unwrap();
    host.enrol(&manager, &host.file("wrong"))
        .await
        .refused(4, &["no such token"]);
    let enrolled = host
        .enrol(&manager, &token)
        .await
        .expect(0, &[&host.name, &host.uuid]);
    assert!(!enrolled.out.contains("PRIVATE"), "{enrolled:?}");
    for secret in ["agent.key", "agent.pem", "ca.pem", "agent.json"] {
        let mode = fs::metadata(host.file("agent").join(secret))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    host.enrol(&manager, &token).await.refused(4, &["already"]);
    is_withdrawn(&manager, &host).await;
    let listed = manager.run("host agents -o json").await.expect(0, &[]).json();
    assert_eq!(agents(&listed), [(host.name.clone(), true)]);

    // The agent is asked, and nobody else where it does not answer.
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    let free: Vec<&Value> = gpus
        .as_array()
        .unwrap()
        .iter()
        .filter(|gpu| gpu["composable"] == true)
        .collect();
    let attach = |nth: usize| {
        let gpu = free[nth]["id"].as_str().unwrap();
        format!("attach {gpu} --host {}", host.name)
    };
    let silent = manager.run(&attach(0)).await;
    assert_ne!(silent.code, 0, "{silent:?}");
    assert!(silent.err.contains("can't be reached"), "{silent:?}");
    let agent = host.serve();
    let renew = format!("host renew-agent {} -o json", host.name);
    let renewed = until_done(&manager, &renew).await;
    assert!(renewed["renewed"].is_string(), "{renewed}");
    assert_ne!(renewed["key"], listed[0]["key"], "it has another key");
    is_asked(&manager, &attach(1)).await;

    // After a restart of the manager it is asked, too.
    assert_eq!(manager.server.terminate().await, 0);
    let manager = start().await;
    is_asked(&manager, &attach(2)).await;

    // After a reimage only a token for this very host replaces it.
    let any = host.token(&manager, "").await;
    host.enrol(&manager, &any)
        .await
        .refused(4, &["only a token that names the host"]);
    let named = host
        .token(&manager, &format!("--uuid {} --for 5m", host.uuid))
        .await;
    host.enrol(&manager, &named).await.expect(0, &[]);
    until_done(&manager, &renew).await;

    manager
        .run(&format!("host revoke-agent {} --yes", host.name))
        .await
        .expect(0, &["revoked"]);
    manager.run(&renew).await.refused(5, &["was revoked"]);
    let attached = format!("{} -o json", attach(3));
    let attached = manager.run(&attached).await.expect(0, &[]).json();
    let id = attached["operation"]["id"].as_str().unwrap();
    manager
        .run(&format!("ops show {id} -o json"))
        .await
        .expect(0, &["bmc ", "completed"]);
    drop(agent);
    let audit = manager.run("audit --after 0 -o json").await.expect(0, &[]).out;
    for word in [
        "/api/v1/agents",
        "token_of",
        "/api/v1/agent-tokens",
        "renew",
        "revoke",
    ] {
        assert!(audit.contains(word), "{word}: {audit}");
    }
    assert_eq!(manager.server.terminate().await, 0);
}

/// A token that was made by mistake is listed without what opens it, and enrols nobody once it is withdrawn.
async fn is_withdrawn(manager: &Manager, host: &Host) {
    let file = host.token(manager, &format!("--uuid {}", host.uuid)).await;
    let text = fs::read_to_string(&file).unwrap();
    let (name, secret) = text.trim().split_at(32);
    let open = manager.run("host tokens").await.expect(0, &[name, &host.uuid]);
    assert!(!open.out.contains(secret), "{open:?}");
    // Also by the whole of it, which goes no further than here.
    manager
        .run(&format!("host withdraw-token {}", text.trim()))
        .await
        .expect(0, &[name, "forgotten"]);
    host.enrol(manager, &file).await.refused(4, &["no such token"]);
    manager
        .run(&format!("host withdraw-token {name}"))
        .await
        .refused(3, &["no open token", "host tokens"]);
    let audit = manager.run("audit --after 0 -o json").await.expect(0, &[]).out;
    assert!(audit.contains(&format!("/api/v1/agent-tokens/{name}")), "{audit}");
    assert!(!audit.contains(secret), "{audit}");
}

/// The agent's host shows no GPU, so an attach waits, and says so until it is cancelled.
async fn is_asked(manager: &Manager, attach: &str) {
    let begun = manager
        .run(&format!("{attach} --no-wait -o json"))
        .await
        .expect(0, &[])
        .json();
    let id = begun["operation"]["id"].as_str().unwrap().to_owned();
    let show = format!("ops show {id} -o json");
    manager
        .until(&show, |shown| {
            shown.to_string().contains("no GPU of this host is")
        })
        .await;
    let cancel = format!("ops cancel {id} --reason enough --yes");
    manager.run(&cancel).await.expect(0, &[]);
    manager.until(&show, |shown| !shown["ended"].is_null()).await;
}

/// An agent takes a moment to start.
async fn until_done(manager: &Manager, line: &str) -> Value {
    let done = async {
        loop {
            let ran = manager.run(line).await;
            if ran.code == 0 {
                return ran.json();
            }
            assert!(ran.err.contains("can't be reached"), "{ran:?}");
        }
    };
    tokio::time::timeout(PATIENCE, done)
        .await
        .unwrap_or_else(|_| panic!("{line} was never done"))
}
