//! Running the binary: to its end, or as a server that is stopped with its value. Every wait is bounded.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

pub const PATIENCE: Duration = Duration::from_secs(120);

/// Looks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, look).await;
    assert!(came.is_ok(), "never: {what}");
}

fn command<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolwright"));
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    for name in ["SERVER", "CA", "USERNAME", "PASSWORD_FILE"] {
        command.env_remove(format!("POOLWRIGHT_{name}"));
    }
    command
        .env_remove("RUST_LOG")
        .env_remove("COLUMNS")
        .env("NO_COLOR", "1");
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It ended with this code, and everything that it said has these words.
    #[track_caller]
    pub fn expect(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(
                self.out.contains(word) || self.err.contains(word),
                "no {word:?}: {self:?}"
            );
        }
        self
    }

    /// It was refused: with this code, nothing on stdout, these words on stderr, and what to do next.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        let ran = self.expect(code, words);
        assert_eq!(ran.out, "", "{ran:?}");
        assert!(
            ran.err.contains("hint: ") || ran.err.contains("try '--help'"),
            "no next step: {ran:?}"
        );
        assert!(!ran.err.contains("panicked"), "{ran:?}");
    }
}

/// Runs to the end.
pub async fn run(line: &str) -> Ran {
    run_with(line.split_whitespace()).await
}

pub async fn run_with<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Ran {
    finish(command(arguments)).await
}

/// The same, with these variables in its environment.
pub async fn run_in(line: &str, environment: &[(&str, &str)]) -> Ran {
    let mut command = command(line.split_whitespace());
    command.envs(environment.iter().copied());
    finish(command).await
}

async fn finish(mut command: Command) -> Ran {
    ran(command.output()).await
}

async fn ran(running: impl Future<Output = std::io::Result<Output>>) -> Ran {
    let output = tokio::time::timeout(PATIENCE, running)
        .await
        .expect("it ends in time")
        .unwrap();
    Ran {
        code: output.status.code().expect("it ends by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command, and sends it a signal such as `-INT` as soon as it has said `word` on stderr.
pub async fn run_until(line: &str, word: &str, how: &str) -> Ran {
    signalled(command(line.split_whitespace()), word, how).await
}

async fn signalled(mut command: Command, word: &str, how: &str) -> Ran {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().unwrap().to_string();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut err = String::new();
    let ended = async {
        let mut interrupted = false;
        while let Some(line) = lines.next_line().await.unwrap() {
            if !interrupted && line.contains(word) {
                interrupted = Command::new("kill")
                    .args([how, &pid])
                    .status()
                    .await
                    .unwrap()
                    .success();
            }
            err.push_str(&line);
            err.push('\n');
        }
        child.wait().await.unwrap()
    };
    let status = tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("it ends in time");
    Ran {
        code: status.code().expect("it ends by itself"),
        out: String::new(),
        err,
    }
}

/// A command that goes on by itself, to be sent signals.
pub struct Begun {
    pid: String,
    ended: JoinHandle<Ran>,
}

/// Begins a command.
pub fn begin(line: &str) -> Begun {
    let mut command = command(line.split_whitespace());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().unwrap().to_string();
    let ended = tokio::spawn(async move { ran(child.wait_with_output()).await });
    Begun { pid, ended }
}

impl Begun {
    /// Sends it a signal, such as `-INT`.
    pub fn signal(&self, how: &str) {
        let sent = std::process::Command::new("kill").args([how, &self.pid]).status();
        assert!(sent.unwrap().success(), "it has ended already");
    }

    /// Whether it heeds a signal by itself, and does not just end of it: `SigCgt` of proc(5).
    pub fn heeds(&self, number: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1
    }

    pub async fn ended(self) -> Ran {
        self.ended.await.unwrap()
    }
}

/// A server, running until it is dropped.
pub struct Server {
    child: Child,
    /// Where it is ready.
    pub url: String,
}

/// The address in the line that ends a start.
fn served_at(line: &str) -> Option<&str> {
    let prefixes = ["ready ", "not ready; serving "];
    prefixes.iter().find_map(|prefix| line.strip_prefix(prefix))
}

impl Server {
    /// Starts it, and doesn't wait until it is ready.
    pub fn begin<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut command = command(arguments);
        let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        Self {
            child: child.unwrap(),
            url: String::new(),
        }
    }

    async fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut child = command(arguments)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let ready = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(url) = served_at(&line) {
                    return url.to_owned();
                }
                said.push(line);
            }
            panic!("it ended before it was ready: {said:?}");
        };
        let url = tokio::time::timeout(PATIENCE, ready)
            .await
            .expect("it is ready in time");
        // Read on, so that it is never held up by a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, url }
    }

    /// With its messages in a file, and these variables in its environment.
    async fn start_logging<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
        log: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut child = command(arguments);
        child
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log).unwrap());
        let child = child.spawn().unwrap();
        let ready = async {
            loop {
                let said = std::fs::read_to_string(log).unwrap();
                let mut lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                if let Some(url) = lines.find_map(served_at) {
                    return url.trim().to_owned();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let url = tokio::time::timeout(PATIENCE, ready)
            .await
            .expect("it is ready in time");
        Self { child, url }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Ends it at once, as a power cut would.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it where it stands, or lets it go on: SIGSTOP and SIGCONT.
    pub async fn signal(&self, signal: &str) {
        let pid = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.await.unwrap().success());
    }

    /// Asks it to end, and returns its exit code.
    pub async fn terminate(mut self) -> i32 {
        let pid = self.child.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .await
                .unwrap()
                .success()
        );
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended
            .expect("it ends in time")
            .unwrap()
            .code()
            .expect("it ends by itself")
    }
}

/// A rack file: 8 GPUs and 2 hosts, slow enough that a manager can be caught at work.
pub fn slow_rack(bind: &str) -> String {
    format!(
        r#"
name = "slow"
style = "zones"

[latency]
bind = "{bind}"
unbind = "200ms"
enumeration = "500ms"
reset = "200ms"

[[box]]
gpus = [{{ kind = "h100-pcie-80gb", count = 8 }}]

[[host]]
count = 2
slots = 8
"#
    )
}

/// An emulated rack in a process of its own.
pub struct Rack {
    pub server: Server,
    pub folder: TempDir,
}

impl Rack {
    /// By name, or the text of a rack file.
    pub async fn start(rack: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rack.toml");
        let named = match rack.contains('\n') {
            true => {
                std::fs::write(&file, rack).unwrap();
                file.to_str().unwrap()
            }
            false => rack,
        };
        let dir = folder.path().to_str().unwrap();
        let server = Server::start([
            "emulate",
            "--rack",
            named,
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            dir,
        ])
        .await;
        Self { server, folder }
    }

    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Where each bound GPU is bound, as the rack itself keeps it.
    pub fn bindings(&self) -> Vec<(String, String)> {
        let Ok(text) = std::fs::read_to_string(self.file("state.json")) else {
            return Vec::new();
        };
        let state: Value = serde_json::from_str(&text).unwrap();
        serde_json::from_value(state["bindings"].clone()).unwrap()
    }

    /// No GPU is bound twice.
    #[track_caller]
    pub fn check_single_owners(&self) {
        let mut gpus: Vec<String> = self.bindings().into_iter().map(|(gpu, _)| gpu).collect();
        gpus.sort();
        let all = gpus.len();
        gpus.dedup();
        assert_eq!(gpus.len(), all, "a GPU is bound twice: {:?}", self.bindings());
    }
}

/// An address of this machine at which nobody listens, kept from everybody who lets the kernel choose one: for servers
/// that come back to the same address.
pub struct KeptAddress {
    pub address: String,
    _bound: TcpSocket,
}

impl KeptAddress {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Whoever names the address may still listen there: servers set this, too.
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: socket.local_addr().unwrap().to_string(),
            _bound: socket,
        }
    }
}

/// A file with a secret that managers of one store are given.
pub fn cluster_key(folder: &Path) -> String {
    let key = folder.join("cluster-key");
    std::fs::write(&key, "a secret that each of them is given").unwrap();
    key.to_str().unwrap().to_owned()
}

/// A manager in a process of its own.
pub struct Manager {
    pub server: Server,
    /// Of the account `admin`.
    password_file: PathBuf,
    /// Who is trusted.
    ca: PathBuf,
}

impl Manager {
    pub async fn start(data_dir: &Path, more: &[&str]) -> Self {
        Self::start_at(data_dir, "127.0.0.1:0", more).await
    }

    pub async fn start_at(data_dir: &Path, address: &str, more: &[&str]) -> Self {
        let dir = data_dir.to_str().unwrap();
        let arguments = ["serve", "--data-dir", dir, "--listen", address];
        let server = Server::start(arguments.into_iter().chain(more.iter().copied())).await;
        Self {
            server,
            password_file: data_dir.join("initial-admin-password"),
            ca: data_dir.join("tls/ca.pem"),
        }
    }

    /// One that shares its store, and so its accounts and its authority, with another.
    pub fn beside(mut self, other: &Self) -> Self {
        self.password_file.clone_from(&other.password_file);
        self.ca.clone_from(&other.ca);
        self
    }

    /// The certificate authority that its clients believe.
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// The password of the account `admin`.
    pub fn password(&self) -> String {
        std::fs::read_to_string(&self.password_file)
            .unwrap()
            .trim()
            .to_owned()
    }

    /// With its messages in a file.
    pub async fn start_logging(data_dir: &Path, log: &Path) -> Self {
        Self::start_logging_with(data_dir, log, &[]).await
    }

    /// The same, with these variables in its environment.
    pub async fn start_logging_with(data_dir: &Path, log: &Path, environment: &[(&str, &str)]) -> Self {
        let dir = data_dir.to_str().unwrap();
        let arguments = ["serve", "--data-dir", dir, "--listen", "127.0.0.1:0"];
        Self {
            server: Server::start_logging(arguments, log, environment).await,
            password_file: data_dir.join("initial-admin-password"),
            ca: data_dir.join("tls/ca.pem"),
        }
    }

    /// Puts it in charge of a rack.
    pub async fn adopt(&self, rack: &Rack) {
        let endpoints = rack.file("endpoints.json");
        let add = format!("endpoint add --adopt --from {endpoints}");
        self.run(&add).await.expect(0, &[]);
    }

    /// Runs a command against it.
    pub async fn run(&self, line: &str) -> Ran {
        self.run_with(line.split_whitespace()).await
    }

    /// Runs a command with an output width of `columns`.
    pub async fn run_in_columns(&self, columns: u16, line: &str) -> Ran {
        let mut command = self.command(line.split_whitespace());
        command.env("COLUMNS", columns.to_string());
        finish(command).await
    }

    /// Runs a command as another account, whose password is in a file.
    pub async fn run_as(&self, account: &str, password_file: &Path, line: &str) -> Ran {
        let mut command = self.command(line.split_whitespace());
        command.env("POOLWRIGHT_USERNAME", account);
        command.env("POOLWRIGHT_PASSWORD_FILE", password_file);
        finish(command).await
    }

    /// Begins a command against it, which goes on whatever becomes of the manager.
    pub fn begin(&self, line: &str) -> JoinHandle<Ran> {
        tokio::spawn(finish(self.command(line.split_whitespace())))
    }

    /// Runs a command against it, and interrupts it as soon as it has said `word` on stderr.
    pub async fn interrupt(&self, line: &str, word: &str) -> Ran {
        signalled(self.command(line.split_whitespace()), word, "-INT").await
    }

    pub async fn run_with<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        finish(self.command(arguments)).await
    }

    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = command(arguments);
        command.env("POOLWRIGHT_SERVER", &self.server.url);
        command.env("POOLWRIGHT_CA", &self.ca);
        command.env("POOLWRIGHT_PASSWORD_FILE", &self.password_file);
        command
    }

    /// Asks the probe until it says that the manager is ready, or that it is not, with these words.
    pub async fn until_probe(&self, ready: bool, words: &[&str]) {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(&self.ca).unwrap()).unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .timeout(PATIENCE / 4);
        let client = client.build().unwrap();
        let url = format!("{}/readyz", self.server.url);
        let mut last = String::from("no answer");
        let ask = async {
            loop {
                last = match client.get(&url).send().await {
                    Err(error) => format!("{error:?}"),
                    Ok(answer) => {
                        let status = answer.status().as_u16();
                        let text = answer.text().await.unwrap();
                        let wanted = if ready { 200 } else { 503 };
                        if status == wanted && words.iter().all(|word| text.contains(word)) {
                            return;
                        }
                        format!("{status} {text}")
                    }
                };
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, ask).await;
        assert!(
            told.is_ok(),
            "the probe never said {ready} with {words:?}; last: {last}"
        );
    }

    /// Repeats a command until its JSON is as wanted.
    pub async fn until(&self, line: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_within(PATIENCE, line, wanted).await
    }

    /// The same, for what may take longer than anything else.
    pub async fn until_within(&self, limit: Duration, line: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let ask = async {
            loop {
                last = self.run(line).await.expect(0, &[]).json();
                if wanted(&last) {
                    return;
                }
            }
        };
        let asked = tokio::time::timeout(limit, ask).await;
        assert!(
            asked.is_ok(),
            "{line} was not as wanted within {limit:?}, but {last}"
        );
        last
    }
}

/// A recorded tree, served.
pub async fn replay(tree: &str) -> Rack {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let server = Server::start([
        "emulate",
        "--tree",
        tree,
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        dir,
    ])
    .await;
    Rack { server, folder }
}
