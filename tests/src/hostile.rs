//! A server that answers as no machine should, for the tests of bad input.
//!
//! It writes raw HTTP on a socket, because a well-behaved HTTP library refuses to send most of this. Each
//! connection carries one request. What a client must do with each kind stands beside it in [`Kind`].

use std::{
    fmt, io,
    net::SocketAddr,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A web page with status 200 at every URI.
    Html,
    /// Good JSON that has nothing of Redfish.
    NotRedfish,
    /// Status 200, `application/json`, and a body that is not JSON.
    Garbage,
    /// Bytes that are not HTTP.
    NotHttp,
    /// A JSON string of 2 GiB with a true Content-Length.
    HugeBody,
    /// A JSON string without an end, in chunks.
    EndlessBody,
    /// Ends after half of the announced length.
    Truncated,
    /// Announces less than it sends.
    WrongLength,
    /// One byte a second.
    SlowDrip,
    /// Accepts, reads, never answers.
    Silent,
    /// Sends every request to another origin, which would answer.
    Redirect,
    /// Refuses every credential.
    Unauthorized,
    /// 503 with `Retry-After: 1`, always.
    Busy,
    /// Resources that link to each other in a ring, and a collection whose next page is itself.
    LinkLoop,
    /// Every resource links to two new ones, every page to a new page, without end.
    EndlessLinks,
    /// Objects nested 100,000 deep.
    DeepNesting,
    /// A collection of 200,000 members that do not exist.
    HugeCollection,
    /// Links that lead to another origin, which would answer.
    ForeignLinks,
}

impl Kind {
    /// Every kind with the name that scripts use.
    pub const ALL: [(&'static str, Self); 18] = [
        ("html", Self::Html),
        ("not-redfish", Self::NotRedfish),
        ("garbage", Self::Garbage),
        ("not-http", Self::NotHttp),
        ("huge-body", Self::HugeBody),
        ("endless-body", Self::EndlessBody),
        ("truncated", Self::Truncated),
        ("wrong-length", Self::WrongLength),
        ("slow-drip", Self::SlowDrip),
        ("silent", Self::Silent),
        ("redirect", Self::Redirect),
        ("unauthorized", Self::Unauthorized),
        ("busy", Self::Busy),
        ("link-loop", Self::LinkLoop),
        ("endless-links", Self::EndlessLinks),
        ("deep-nesting", Self::DeepNesting),
        ("huge-collection", Self::HugeCollection),
        ("foreign-links", Self::ForeignLinks),
    ];
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("no hostile server {name:?}; known: {}", names.join(", "))
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(_, kind)| kind == self)
            .map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

/// A running hostile server; stops when dropped.
pub struct HostileServer {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

/// What clients have sent so far.
#[derive(Debug, Default)]
struct Seen {
    requests: AtomicU64,
    credentials: AtomicU64,
    writes: AtomicU64,
    elsewhere: AtomicU64,
}

impl Seen {
    /// Counts a request by its head. A session that is opened or closed is no write: it changes no machine.
    fn count(&self, head: &str) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (method, path) = asked(head);
        let session = path.contains("/Sessions");
        if (method == "POST" && session) || head.to_ascii_lowercase().contains("\nauthorization:") {
            self.credentials.fetch_add(1, Ordering::Relaxed);
        }
        if !session && !matches!(method, "GET" | "HEAD") {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HostileServer {
    /// Serves `kind` on a loopback port that the system picks.
    pub async fn start(kind: Kind) -> io::Result<Self> {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), kind).await
    }

    /// Serves `kind` on `address`.
    pub async fn start_on(address: SocketAddr, kind: Kind) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let other = TcpListener::bind((address.ip(), 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let seen = Arc::new(Seen::default());
        let talk = Talk {
            kind,
            other: other.local_addr()?,
            seen: Arc::clone(&seen),
        };
        let task = tokio::spawn(async move {
            tokio::join!(accept(listener, talk.clone(), false), accept(other, talk, true));
        });
        Ok(Self { url, seen, task })
    }

    /// Requests read so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// Requests that carried a password or asked for a session: how often a client tried to log in.
    #[must_use]
    pub fn credentials(&self) -> u64 {
        self.seen.credentials.load(Ordering::Relaxed)
    }

    /// Requests that would have changed something.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.seen.writes.load(Ordering::Relaxed)
    }

    /// Requests that came to the other origin, to which the server redirects and links.
    #[must_use]
    pub fn elsewhere(&self) -> u64 {
        self.seen.elsewhere.load(Ordering::Relaxed)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a conversation needs to know.
#[derive(Clone)]
struct Talk {
    kind: Kind,
    /// The origin that redirects and foreign links lead to.
    other: SocketAddr,
    seen: Arc<Seen>,
}

async fn accept(listener: TcpListener, talk: Talk, elsewhere: bool) {
    // Connections live in the set, so that they end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let talk = talk.clone();
        // An error here is the client hanging up, which is what most kinds ask for.
        connections.spawn(async move {
            match elsewhere {
                true => talk.elsewhere(socket).await,
                false => talk.here(socket).await,
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Talk {
    async fn here(&self, mut socket: TcpStream) -> io::Result<()> {
        let head = read_head(&mut socket).await?;
        self.seen.count(&head);
        let (_, path) = asked(&head);
        respond(&mut socket, self.kind, path.trim_end_matches('/'), self.other).await?;
        hang_up(socket).await
    }

    /// The other origin answers like any machine.
    async fn elsewhere(&self, mut socket: TcpStream) -> io::Result<()> {
        read_head(&mut socket).await?;
        self.seen.elsewhere.fetch_add(1, Ordering::Relaxed);
        send_json(&mut socket, &service_root()).await?;
        hang_up(socket).await
    }
}

async fn hang_up(mut socket: TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    // Closing with unread bytes of a request would reset the connection and eat the answer.
    let mut nowhere = tokio::io::sink();
    let drain = tokio::io::copy(&mut socket, &mut nowhere);
    tokio::time::timeout(Duration::from_secs(5), drain)
        .await
        .map(|_| ())
        .or(Ok(()))
}

/// Method and path of a request.
fn asked(head: &str) -> (&str, &str) {
    let mut words = head.split_ascii_whitespace();
    (words.next().unwrap_or(""), words.next().unwrap_or("/"))
}

async fn read_head(socket: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = socket.read(&mut buffer).await?;
        if read == 0 || head.len() > 64 * 1024 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..read]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

const ROOT: &str = "/redfish/v1";

async fn respond(socket: &mut TcpStream, kind: Kind, path: &str, other: SocketAddr) -> io::Result<()> {
    match kind {
        Kind::Html => {
            let page = "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>";
            send(socket, "200 OK", "content-type: text/html", page).await
        }
        Kind::NotRedfish => send_json(socket, &json!({"hello": "world", "version": 3})).await,
        Kind::Garbage => {
            send(
                socket,
                "200 OK",
                JSON,
                "{\"@odata.id\": \"/redfish/v1\", \"Name\": ",
            )
            .await
        }
        Kind::NotHttp => {
            socket
                .write_all(b"\x16\x03\x01\x00\xff SSH-2.0-none\r\n\r\n")
                .await
        }
        Kind::HugeBody => {
            let head = format!(
                "HTTP/1.1 200 OK\r\n{JSON}\r\ncontent-length: {}\r\n\r\n\"",
                2_u64 << 30
            );
            socket.write_all(head.as_bytes()).await?;
            let block = vec![b'x'; 1 << 20];
            for _ in 0..2048 {
                socket.write_all(&block).await?;
            }
            Ok(())
        }
        Kind::EndlessBody => {
            let head = format!("HTTP/1.1 200 OK\r\n{JSON}\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\"\r\n");
            socket.write_all(head.as_bytes()).await?;
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            loop {
                socket.write_all(chunk.as_bytes()).await?;
            }
        }
        Kind::Truncated | Kind::WrongLength => {
            let body = service_root().to_string();
            let announced = if kind == Kind::Truncated {
                body.len() * 2
            } else {
                body.len() / 2
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{JSON}\r\ncontent-length: {announced}\r\n\r\n{body}");
            socket.write_all(answer.as_bytes()).await
        }
        Kind::SlowDrip => {
            let body = service_root().to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\n{JSON}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all(head.as_bytes()).await?;
            for byte in body.as_bytes() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                socket.write_all(&[*byte]).await?;
            }
            Ok(())
        }
        Kind::Silent => std::future::pending().await,
        Kind::Redirect => {
            send(
                socket,
                "301 Moved Permanently",
                &format!("location: http://{other}/redfish/v1"),
                "",
            )
            .await
        }
        Kind::Unauthorized if path == ROOT => send_json(socket, &service_root()).await,
        Kind::Unauthorized => {
            send(
                socket,
                "401 Unauthorized",
                "www-authenticate: Basic realm=\"Redfish\"",
                "",
            )
            .await
        }
        Kind::Busy => send(socket, "503 Service Unavailable", "retry-after: 1", "").await,
        Kind::DeepNesting => {
            let depth = 100_000;
            let body = format!("{}1{}", "{\"Oem\":".repeat(depth), "}".repeat(depth));
            send(socket, "200 OK", JSON, &body).await
        }
        Kind::LinkLoop | Kind::EndlessLinks | Kind::HugeCollection | Kind::ForeignLinks => {
            match linked_document(kind, path, other) {
                Some(document) => send_json(socket, &document).await,
                None => send(socket, "404 Not Found", JSON, "{}").await,
            }
        }
    }
}

/// The documents of the kinds whose single answers are good, and whose links are not.
fn linked_document(kind: Kind, path: &str, other: SocketAddr) -> Option<serde_json::Value> {
    if path == ROOT {
        return Some(service_root());
    }
    let collection = |members: Vec<String>, next: Option<String>| {
        let members: Vec<_> = members.into_iter().map(|uri| json!({"@odata.id": uri})).collect();
        let mut document = json!({
            "@odata.id": path,
            "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
            "Name": "Systems",
            "Members@odata.count": members.len(),
            "Members": members,
        });
        if let Some(next) = next {
            document["Members@odata.nextLink"] = json!(next);
        }
        Some(document)
    };
    let system = |links: &str| {
        Some(json!({
            "@odata.id": path,
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": "1", "Name": "System", "SystemType": "Physical",
            "Processors": {"@odata.id": links},
            "PCIeDevices": [{"@odata.id": format!("{links}/device")}],
        }))
    };
    let is_collection = ["/Systems", "/Chassis", "/Fabrics"]
        .iter()
        .any(|end| path.ends_with(end));
    match kind {
        Kind::LinkLoop if is_collection => {
            collection(vec![format!("{path}/1"), path.to_owned()], Some(path.to_owned()))
        }
        Kind::LinkLoop => system(ROOT),
        Kind::EndlessLinks if is_collection || path.contains("/page") || path.ends_with("/Processors") => {
            collection(
                vec![format!("{path}/1"), format!("{path}/2")],
                Some(format!("{path}/page")),
            )
        }
        Kind::EndlessLinks => system(&format!("{path}/Processors")),
        Kind::HugeCollection if is_collection => collection(
            (0..200_000).map(|number| format!("{path}/{number}")).collect(),
            None,
        ),
        Kind::ForeignLinks if is_collection => {
            let there = format!("//{other}/redfish/v1/Systems/1");
            collection(
                vec![format!("http:{there}"), there.clone()],
                Some(format!("http:{there}")),
            )
        }
        _ => None,
    }
}

fn service_root() -> serde_json::Value {
    json!({
        "@odata.id": ROOT,
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.15.0",
        "Systems": {"@odata.id": "/redfish/v1/Systems"},
        "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
        "Fabrics": {"@odata.id": "/redfish/v1/Fabrics"},
    })
}

const JSON: &str = "content-type: application/json";

async fn send_json(socket: &mut TcpStream, document: &serde_json::Value) -> io::Result<()> {
    send(socket, "200 OK", JSON, &document.to_string()).await
}

async fn send(socket: &mut TcpStream, status: &str, header: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    socket.write_all(answer.as_bytes()).await
}
