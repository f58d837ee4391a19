//! A database at the PostgreSQL server that `tests/run postgres` starts, and a cable to it that can be cut.

use std::process::Command;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A database of its own at the server.
pub struct Database {
    port: String,
    pub name: String,
}

impl Database {
    pub fn new(name: &str) -> Self {
        let port = std::env::var("POOLWRIGHT_TEST_POSTGRES_PORT");
        let database = Self {
            port: port.expect("it is set by tests/run postgres"),
            name: format!("cli_{name}_{}", std::process::id()),
        };
        database.sql("postgres", &format!("CREATE DATABASE {}", database.name));
        database
    }

    pub fn sql(&self, database: &str, text: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args([
            "--quiet",
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--username",
            "poolwright",
        ]);
        psql.args([
            "--host",
            "127.0.0.1",
            "--port",
            &self.port,
            database,
            "--command",
            text,
        ]);
        let ran = psql.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    pub fn url(&self, account: &str) -> String {
        format!("postgres://{account}@127.0.0.1:{}/{}", self.port, self.name)
    }
}

/// What becomes of what is sent through a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// Connections end, and new ones too.
    Cut,
    /// Nothing comes through, and nobody is told: as where the server is stopped where it stands.
    Silent,
}

/// Something between a manager and its database that can be cut.
pub struct Cable {
    /// For `--store`.
    pub url: String,
    state: Arc<watch::Sender<State>>,
}

impl Cable {
    pub async fn to(database: &Database) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (own, server) = (listener.local_addr().unwrap().port(), database.port.clone());
        let cable = Self {
            url: format!("postgres://poolwright@127.0.0.1:{own}/{}", database.name),
            state: Arc::new(watch::Sender::new(State::Whole)),
        };
        let state = Arc::clone(&cable.state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), state.subscribe()));
            }
        });
        cable
    }

    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    pub fn fall_silent(&self) {
        self.state.send_replace(State::Silent);
    }

    pub fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

async fn carry(mut client: TcpStream, server: String, mut state: watch::Receiver<State>) {
    if *state.borrow_and_update() == State::Whole {
        let mut server = TcpStream::connect(format!("127.0.0.1:{server}")).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = state.wait_for(|state| *state != State::Whole) => {}
        }
    }
    // What was on its way is lost; whoever is at the other end hears of it once the cable is no longer silent.
    let _ = state.wait_for(|state| *state != State::Silent).await;
}
