//! What a client may take, tried over TLS at a manager whose limits are small: each of these tests waits for the manager
//! to end something, and fails where it does not.

use crate::support;
use poolwright_northbound::{Limits, Options, Running};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

/// What is to be cut off at once.
const SOON: Duration = Duration::from_millis(300);
/// Whoever waits for longer than this waits for ever.
const NEVER: Duration = Duration::from_secs(60);

/// Limits that a slow machine does not reach.
fn patient() -> Limits {
    Limits {
        handshake: NEVER,
        head: NEVER,
        ..Limits::default()
    }
}

/// A manager, asked by clients that speak no HTTP but what a test has them say.
struct Served {
    runtime: Runtime,
    running: Running,
    login: String,
    _dir: tempfile::TempDir,
}

impl Served {
    fn with(limits: Limits) -> Self {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let options = Options {
            limits,
            ..Options::of(dir.path().to_owned())
        };
        let running = runtime.block_on(support::manager_as(options)).unwrap();
        let login = format!("authorization: {}\r\n", basic(&support::password(dir.path())));
        Self {
            runtime,
            running,
            login,
            _dir: dir,
        }
    }

    fn connect(&self) -> std::io::Result<Client> {
        self.connect_from("127.0.0.1")
    }

    /// From another address of this machine.
    fn connect_from(&self, address: &str) -> std::io::Result<Client> {
        self.connect_saying(address, "")
    }

    /// As much of this as TLS holds back until then goes out with the end of the handshake: however slow the machine is,
    /// the manager never waits for that.
    fn connect_saying(&self, address: &str, said: &str) -> std::io::Result<Client> {
        let mut roots = RootCertStore::empty();
        let authority = std::fs::read(&self.running.ca).unwrap();
        roots
            .add(CertificateDer::from_pem_slice(&authority).unwrap())
            .unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let held_back = tls.writer().write(said.as_bytes())?;
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0))?;
        let connecting = async { socket.connect(self.running.address).await?.into_std() };
        let socket = self.runtime.block_on(connecting)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(NEVER))?;
        let mut stream = StreamOwned::new(tls, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        let mut client = Client(stream);
        client.say(&said[held_back..]);
        Ok(client)
    }

    /// All that is answered to this, until the manager ends the connection.
    fn answer(&self, said: &str) -> String {
        self.connect_saying("127.0.0.1", said).unwrap().rest()
    }

    fn stop(self) {
        self.runtime.block_on(self.running.stop());
    }
}

fn basic(password: &str) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("admin:{password}"));
    format!("Basic {encoded}")
}

struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    fn say(&mut self, text: &str) {
        // It may have been closed before all of it was said.
        drop(self.0.write_all(text.as_bytes()).and_then(|()| self.0.flush()));
    }

    /// Whether another byte could be sent; what has come is not read.
    fn drips(&mut self) -> bool {
        self.0.write_all(b"x").and_then(|()| self.0.flush()).is_ok()
    }

    /// What comes until the connection ends.
    fn rest(&mut self) -> String {
        let (mut told, mut part) = (Vec::new(), [0; 4096]);
        loop {
            match self.0.read(&mut part) {
                Ok(0) => break,
                Ok(read) => told.extend(&part[..read]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
                    panic!(
                        "the connection stays open; so far: {}",
                        String::from_utf8_lossy(&told)
                    )
                }
                Err(_) => break,
            }
        }
        String::from_utf8(told).unwrap()
    }

    /// What comes until the first empty line.
    fn head(&mut self) -> String {
        let (mut told, mut byte) = (Vec::new(), [0]);
        while !told.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            told.push(byte[0]);
        }
        String::from_utf8(told).unwrap()
    }
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[test]
fn a_head_that_does_not_come_in_time_ends_the_connection() {
    let served = Served::with(Limits {
        head: SOON,
        ..patient()
    });
    for begun in ["", "GET /livez HTT", "GET /livez HTTP/1.1\r\nhost: a\r\nx-slow: "] {
        assert_eq!(served.answer(begun), "", "{begun:?}");
    }
    // Nor is the next request of the same connection waited for.
    let used = served.answer("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(status(&used), "200", "{used}");
    served.stop();
}

#[test]
fn a_head_has_so_many_headers_and_bytes_and_no_more() {
    let served = Served::with(patient());
    let with = |count: usize, length: usize| {
        let value = "v".repeat(length);
        let headers: String = (0..count).map(|n| format!("x-{n}: {value}\r\n")).collect();
        let head = "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
        served.answer(&format!("{head}{headers}\r\n"))
    };
    assert_eq!(status(&with(90, 16)), "200");
    assert_eq!(status(&with(8, 4 << 10)), "200");
    assert_eq!(status(&with(101, 16)), "431");
    assert_eq!(status(&with(20, 4 << 10)), "431");
    served.stop();
}

#[test]
fn a_body_that_does_not_come_in_time_is_not_waited_for() {
    let served = Served::with(Limits {
        body: SOON,
        ..patient()
    });
    let slow = |path: &str, framing: &str, login: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{login}");
        let answer = served.answer(&format!("{head}content-type: application/json\r\n{framing}"));
        status(&answer).to_owned()
    };
    let sessions = "/redfish/v1/SessionService/Sessions";
    let (whole, chunked) = (
        "content-length: 10\r\n\r\n{",
        "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    );
    // Read before anybody knows who asks; and then: it is broken off.
    assert_eq!(slow(sessions, whole, ""), "400");
    assert_eq!(slow(sessions, chunked, ""), "400");
    assert_eq!(slow("/redfish/v1/Systems", chunked, &served.login), "400");
    assert_eq!(slow("/api/v1/demands", chunked, &served.login), "400");
    // Of whom nobody knows no body is waited for.
    assert_eq!(slow("/api/v1/demands", chunked, ""), "401");
    served.stop();
}

#[test]
fn a_body_that_follows_its_head_keeps_the_connection_also_where_no_method_takes_one() {
    let served = Served::with(patient());
    let login = &served.login;
    for method in ["GET", "OPTIONS", "DELETE"] {
        let mut client = served.connect().unwrap();
        client.say(&format!(
            "{method} /api/v1/schedules HTTP/1.1\r\nhost: a\r\n{login}content-length: 2\r\n\r\n"
        ));
        client.0.sock.set_read_timeout(Some(SOON)).unwrap();
        let early = client.0.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(
            early,
            Err(std::io::ErrorKind::WouldBlock),
            "{method}: answered before its body"
        );
        client.0.sock.set_read_timeout(Some(NEVER)).unwrap();
        let next = format!("GET /api/v1/schedules HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{login}\r\n");
        client.say(&format!("{{}}{next}"));
        let told = client.rest();
        assert_eq!(told.matches("HTTP/1.1 ").count(), 2, "{method}: {told}");
    }
    served.stop();
}

#[test]
fn before_it_is_known_who_asks_a_body_has_four_kibibytes() {
    let served = Served::with(patient());
    let log_in = |length: usize, chunked: bool| {
        let text = format!(r#"{{"UserName": "admin", "Password": "{}"}}"#, "x".repeat(length));
        let (framing, body) = match chunked {
            true => (
                "transfer-encoding: chunked".to_owned(),
                format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()),
            ),
            false => (format!("content-length: {}", text.len()), text),
        };
        let head = "POST /redfish/v1/SessionService/Sessions HTTP/1.1\r\nhost: a\r\nconnection: close";
        let answer = served.answer(&format!(
            "{head}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n{body}"
        ));
        status(&answer).to_owned()
    };
    for chunked in [false, true] {
        assert_eq!(log_in(4_000, chunked), "401", "it is read, and no password");
        assert_eq!(log_in(4_096, chunked), "413");
    }
    served.stop();
}

/// Read access is enough to send a large query, so the service reads only as many at a time as there is room for.
#[test]
fn a_question_that_there_is_no_room_for_is_not_read_and_another_sort_is() {
    let served = Served::with(Limits {
        room: SOON,
        ..patient()
    });
    let head = |path: &str, framing: &str| {
        let login = &served.login;
        format!(
            "POST /api/v1/{path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{login}{framing}\r\n\r\n"
        )
    };
    let large = head("simulations", "content-length: 8388608");
    let mut two = [served.connect().unwrap(), served.connect().unwrap()];
    two.iter_mut().for_each(|client| client.say(&large));
    // Of this one it is not known how long it is.
    let asked = || {
        let short = head("simulations", "connection: close\r\ntransfer-encoding: chunked");
        let answer = served.answer(&format!("{short}2\r\n{{}}\r\n0\r\n\r\n"));
        status(&answer).to_owned()
    };
    let until = Instant::now() + NEVER;
    while asked() != "503" {
        assert!(Instant::now() < until, "there is always room");
    }
    let size = head("size", "connection: close\r\ncontent-length: 2");
    assert_eq!(
        status(&served.answer(&format!("{size}{{}}"))),
        "400",
        "it lacks a model"
    );
    drop(two);
    while asked() != "400" {
        assert!(Instant::now() < until, "there is never room again");
    }
    served.stop();
}

const ALIVE: &str = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

fn lives(client: &mut Client) -> bool {
    client.say(ALIVE);
    client.head().starts_with("HTTP/1.1 200")
}

/// Fault 30: who holds all connections that one address may have.
#[test]
fn who_holds_all_connections_that_one_may_keeps_nobody_else_out() {
    let served = Served::with(Limits {
        connections_of_one: 3,
        ..patient()
    });
    let mut held: Vec<Client> = (0..3).map(|_| served.connect().unwrap()).collect();
    for _ in 0..3 {
        assert!(served.connect().is_err(), "a fourth has no place");
        assert!(served.connect_from("127.0.0.2").as_mut().is_ok_and(lives));
    }
    assert!(held.iter_mut().all(lives), "and those that there are go on");
    served.stop();
}

/// Fault 30: bytes come all the time, and the head never; who drips is cut off, and keeps nobody else waiting.
#[test]
fn who_drips_a_head_is_cut_off_and_others_are_served() {
    let served = Served::with(Limits {
        head: Duration::from_secs(3),
        ..patient()
    });
    let mut dripping: Vec<Client> = (0..20).map(|_| served.connect().unwrap()).collect();
    for client in &mut dripping {
        client.say("GET /livez HTTP/1.1\r\nhost: a\r\nx-slow: ");
    }
    let until = Instant::now() + NEVER;
    while !dripping.is_empty() {
        assert!(Instant::now() < until, "{} drip for ever", dripping.len());
        let mut other = served.connect_saying("127.0.0.2", ALIVE).unwrap();
        assert!(other.head().starts_with("HTTP/1.1 200"));
        dripping.retain_mut(Client::drips);
    }
    served.stop();
}

#[test]
fn one_connection_more_than_there_may_be_is_closed_until_another_ends() {
    let served = Served::with(Limits {
        connections: 2,
        ..patient()
    });
    let mut two = [served.connect().unwrap(), served.connect().unwrap()];
    assert!(two.iter_mut().all(lives));
    assert!(served.connect().is_err(), "a third has no place");
    let [first, second] = two;
    drop(first);
    let mut third = (0..600).find_map(|_| {
        let pause = async { tokio::time::sleep(Duration::from_millis(100)).await };
        served.runtime.block_on(pause);
        served.connect().ok()
    });
    assert!(third.as_mut().is_some_and(lives));
    drop(second);
    served.stop();
}

#[test]
fn a_connection_on_which_nothing_comes_or_goes_ends() {
    let served = Served::with(Limits {
        idle: SOON,
        ..patient()
    });
    // A stream says something only now and then: less often than this manager waits.
    let stream = format!(
        "GET /redfish/v1/EventService/SSE HTTP/1.1\r\nhost: a\r\n{}\r\n",
        served.login
    );
    let told = served.answer(&stream);
    // A slow machine may not even begin to answer in that time.
    assert!(told.is_empty() || status(&told) == "200", "{told}");
    served.stop();
}
