//! What services tell of what happens at them, to whoever listens. Whoever reads too slowly misses the oldest.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::broadcast::{self, error::RecvError};

/// So many events wait for a listener at most, of all services together.
const WAITING: usize = 1024;

/// The events of all services of a rack.
#[derive(Debug)]
pub(crate) struct Events {
    told: broadcast::Sender<String>,
    lost: AtomicBool,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            told: broadcast::Sender::new(WAITING),
            lost: AtomicBool::new(false),
        }
    }
}

impl Events {
    /// Something is otherwise at this service.
    pub fn tell(&self, endpoint: String) {
        if !self.lost.load(Ordering::SeqCst) {
            // Nobody need listen.
            let _ = self.told.send(endpoint);
        }
    }

    pub fn lose(&self, lose: bool) {
        self.lost.store(lose, Ordering::SeqCst);
    }

    pub fn listen(&self, endpoint: &str) -> Told {
        Told {
            told: self.told.subscribe(),
            endpoint: endpoint.to_owned(),
        }
    }
}

/// What one service tells.
pub(crate) struct Told {
    told: broadcast::Receiver<String>,
    endpoint: String,
}

impl Told {
    /// Waits for the next event; `None` once there is no rack any more.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            match self.told.recv().await {
                Ok(endpoint) if endpoint == self.endpoint => return Some(()),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
