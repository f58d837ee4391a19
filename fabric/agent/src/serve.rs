//! An agent at work: it listens, and answers its manager.
//!
//! Invariants: nobody else is served; requests, answers, connections, looks under way and their time are bounded; the host
//! is changed by one request at a time, and what changes it is refused under a lower epoch than was seen, also after a
//! restart.

mod connections;
mod renewal;
mod verbs;

use crate::folder::{Folder, FolderError, Record};
use crate::host;
use crate::tls::Texts;
use crate::wire::{Answer, LARGEST_REQUEST, PATH, Refused, Request, VERSION};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_pcie::Nvml;
use serde_json::Value;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, Semaphore, watch};
use tokio::task::JoinHandle;

/// Looks at the host at a time; one that hangs in the kernel keeps its place.
const LOOKS: usize = 4;
/// How long a request may take to arrive, and to find a place.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a change may wait for those before it; and a verb may take before its caller is told that it goes on.
const LONGEST: Duration = Duration::from_secs(120);

/// Where everything lies.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that holds `sys` and `proc` of the host: `/`, but in tests.
    pub root: PathBuf,
    pub folder: Folder,
    /// The NVIDIA driver's library, where it is not this machine's own: a stand-in, in tests.
    pub driver: Option<PathBuf>,
}

/// Why an agent can't serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{folder}: {why}")]
    Certificate { folder: String, why: String },
    #[error("can't listen: {0}")]
    Listen(#[from] io::Error),
}

/// An agent that serves.
pub struct Running {
    /// Where it listens; the port that the system chose, if 0 was asked for.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Takes no more requests, lets those under way end, and ends.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::warn!("the agent did not end well: {error}");
        }
    }
}

/// What the verbs work with.
pub(crate) struct Agent {
    root: PathBuf,
    folder: Folder,
    driver: Option<PathBuf>,
    /// Held by whoever changes something. Waited for without a place among the looks: a slow change holds up no look.
    changes: Arc<tokio::sync::Mutex<()>>,
    looks: Arc<Semaphore>,
}

/// Serves until it is stopped, with the certificate in the folder, also after it was renewed.
pub async fn serve(listener: TcpListener, options: Options) -> Result<Running, ServeError> {
    let Options { root, folder, driver } = options;
    let unusable = |why| ServeError::Certificate {
        folder: folder.path().display().to_string(),
        why,
    };
    let texts = Texts::read(&folder).map_err(unusable)?;
    let config = texts.config().map_err(unusable)?;
    folder.record()?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let agent = Arc::new(Agent {
        root,
        folder: folder.clone(),
        driver,
        changes: Arc::default(),
        looks: Arc::new(Semaphore::new(LOOKS)),
    });
    let router = Router::new()
        .route(&format!("{PATH}{{verb}}"), post(answer))
        .with_state(agent);
    let (stop, stopped) = watch::channel(false);
    let shown = connections::Shown::new(folder, texts, config);
    let task = tokio::spawn(connections::accept(listener, shown, router, stopped));
    Ok(Running { address, stop, task })
}

async fn answer(State(agent): State<Arc<Agent>>, Segment(verb): Segment<String>, body: Body) -> Response {
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST_REQUEST)).await;
    let said = match read {
        Ok(Ok(body)) => agent.clone().carry_out(verb, body).await,
        Ok(Err(error)) => Err(DriverError::no_effect(format!(
            "the request can't be read, or is longer than {LARGEST_REQUEST} bytes: {error}"
        ))),
        Err(_) => Err(DriverError::no_effect(format!(
            "the request did not arrive within {} s",
            PATIENCE.as_secs()
        ))),
    };
    let (status, said, error) = match said {
        Ok(said) => (StatusCode::OK, Some(said), None),
        Err(error) => (status(error.kind), None, Some(Refused::from(error))),
    };
    let answer = Answer {
        version: VERSION.to_owned(),
        boot_id: host::identity(&agent.root).boot_id,
        epoch: agent.epoch(),
        said,
        error,
    };
    (status, Json(answer)).into_response()
}

fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NoEffect | ErrorKind::CredentialsRefused => StatusCode::BAD_REQUEST,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::CannotTell => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::OutcomeUnknown => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Agent {
    /// Runs a verb apart: whatever hangs in the kernel holds up no answer but its own.
    async fn carry_out(self: Arc<Self>, verb: String, body: Bytes) -> Result<Value, DriverError> {
        let turn = self.turn(&verb).await?;
        let place = tokio::time::timeout(PATIENCE, self.looks.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let message = format!("{LOOKS} requests before this one have not ended: nothing was done");
            return Err(DriverError::no_effect(message)
                .with_hint("see what hangs on the host: dmesg, ps -eo stat,cmd"));
        };
        let asked = verb.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _held = (turn, place);
            verbs::answer(&self, &verb, &body)
        });
        match tokio::time::timeout(LONGEST, work).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => Err(DriverError::unknown(format!("{asked} has failed: {error}"))),
            Err(_) => Err(DriverError::unknown(format!(
                "{asked} goes on after {} s: something hangs on this host",
                LONGEST.as_secs()
            ))),
        }
    }

    /// One change at a time; whoever only looks needs no turn.
    async fn turn(&self, verb: &str) -> Result<Option<OwnedMutexGuard<()>>, DriverError> {
        if !verbs::changes(verb) {
            return Ok(None);
        }
        let turn = tokio::time::timeout(LONGEST, self.changes.clone().lock_owned()).await;
        turn.map(Some).map_err(|_| {
            let message = format!(
                "what was to be changed on this host before has not ended within {} s: nothing was done",
                LONGEST.as_secs()
            );
            DriverError::no_effect(message)
                .with_hint("see what hangs on the host: dmesg, ps -eo stat,cmd; or its hooks: hooks.toml")
        })
    }

    fn root(&self) -> &Path {
        &self.root
    }

    /// The driver's library, of the machine that this runs on alone. Loaded for each look: it would keep the driver from
    /// being unloaded, and what it knew before a GPU came is stale.
    fn nvml(&self) -> Nvml {
        match &self.driver {
            Some(driver) => Nvml::load_from(driver),
            None if self.root == Path::new("/") => Nvml::load(),
            None => Nvml::not_asked(),
        }
    }

    fn epoch(&self) -> Option<u64> {
        self.folder.record().ok()?.epoch
    }

    /// Who asks with a lower epoch than was seen has been replaced. A higher one is kept before anything is done under it.
    /// Read anew each time: an agent that is enrolled again while it serves has seen none. To be called with the turn.
    fn under(&self, request: &Request) -> Result<(), DriverError> {
        let nothing_done =
            |error: FolderError| DriverError::no_effect(format!("nothing was done, for {error}"));
        let record = self.folder.record().map_err(nothing_done)?;
        if request.epoch < record.epoch {
            let number =
                |epoch: Option<u64>| epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
            let message = format!(
                "another manager is in charge of this host by now: epoch {} was seen, and this request has {}",
                number(record.epoch),
                number(request.epoch)
            );
            let hint = "change this host with that manager; if this one is to be in charge, enrol the agent again: it then forgets the number";
            return Err(DriverError::new(ErrorKind::Conflict, message).with_hint(hint));
        }
        if request.epoch > record.epoch {
            let higher = Record {
                epoch: request.epoch,
                ..record
            };
            self.folder.keep(&higher).map_err(nothing_done)?;
        }
        Ok(())
    }
}
