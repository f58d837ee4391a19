//! Connections: as many as there may be, each with a manager at its other end, each ended when it is silent for too long.

use crate::folder::Folder;
use crate::tls::Texts;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// At a time; more wait until one ends.
const MOST: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the next request may take to come.
const SILENCE: Duration = Duration::from_secs(60);
/// How long requests under way may take when the agent stops.
const LAST: Duration = Duration::from_secs(5);
/// After the system had no room for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Headers of a request, and the bytes of its head.
const HEADERS: usize = 32;
const HEAD: usize = 16 << 10;

/// What is shown to whoever connects: what the files in the folder say at that moment.
pub(super) struct Shown {
    folder: Folder,
    texts: Texts,
    config: Arc<ServerConfig>,
}

impl Shown {
    pub fn new(folder: Folder, texts: Texts, config: Arc<ServerConfig>) -> Self {
        Self {
            folder,
            texts,
            config,
        }
    }

    /// Read anew, for it may have been renewed. What can't be used is told, and what was used before stays.
    fn now(&mut self) -> Arc<ServerConfig> {
        let read = Texts::read(&self.folder).and_then(|texts| {
            let changed = texts != self.texts;
            Ok(match changed {
                true => Some((texts.config()?, texts)),
                false => None,
            })
        });
        match read {
            Ok(Some((config, texts))) => {
                tracing::info!("another certificate is shown from now on");
                (self.config, self.texts) = (config, texts);
            }
            Ok(None) => {}
            Err(why) => tracing::warn!("the certificate of before is still shown: {why}"),
        }
        self.config.clone()
    }
}

/// Accepts until it is stopped.
pub(super) async fn accept(
    listener: TcpListener,
    mut shown: Shown,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MOST));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = asked(&mut stopped) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("no connection could be taken: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (config, router, stopped) = (shown.now(), router.clone(), stopped.clone());
        connections.spawn(async move {
            let _place = place;
            talk(stream, config, router, stopped).await;
        });
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST, ended).await.is_err() {
        tracing::warn!(
            "requests under way were left: they did not end within {} s",
            LAST.as_secs()
        );
    }
}

async fn talk(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let peer = stream.peer_addr();
    let handshake = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::warn!(?peer, "turned away: {error}"),
        Err(_) => return,
    };
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE)
        .max_headers(HEADERS)
        .max_buf_size(HEAD);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = asked(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(?peer, "a connection ended: {error}");
    }
}

/// Waits until somebody asks for the end.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    // An error: whoever could ask is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
