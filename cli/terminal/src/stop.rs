//! Being asked to stop: SIGINT and SIGTERM, heard by commands that leave nothing behind at a service. What they
//! began there they end or undo first; whoever can't wait for that asks a second time.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::say;
use std::future::pending;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The longest that a goodbye may take: what is under way comes to its end, and sessions are deleted.
pub const GOODBYE: Duration = Duration::from_secs(5);

/// Whether somebody asked to stop, and whether a second time. Cloning shares both.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: CancellationToken,
    at_once: CancellationToken,
}

impl Stop {
    /// Hears signals from now on, until the process ends.
    pub fn heard() -> Self {
        let stop = Self::default();
        let heard = stop.clone();
        tokio::spawn(async move {
            let (mut interrupt, mut terminate) =
                match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
                    (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
                    (Err(error), _) | (_, Err(error)) => {
                        tracing::warn!("signals can't be heard: {error}");
                        return;
                    }
                };
            for token in [&heard.asked, &heard.at_once] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if !heard.is_asked() {
                    say("stopping: what was begun is ended first; ask again to stop at once");
                }
                token.cancel();
            }
        });
        stop
    }

    /// The same without a signal: for tests.
    pub fn ask(&self) {
        self.asked.cancel();
    }

    pub fn is_asked(&self) -> bool {
        self.asked.is_cancelled()
    }

    /// Ends at the second time.
    pub async fn at_once(&self) {
        self.at_once.cancelled().await;
    }

    /// Ends a goodbye after the first time, or at the second.
    pub async fn out_of_patience(&self) {
        self.asked.cancelled().await;
        tokio::select! {
            () = tokio::time::sleep(GOODBYE) => {}
            () = self.at_once() => {}
        }
    }

    /// Does it, or leaves it where it is: for what only looks.
    pub async fn or<T>(&self, looking: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.asked.cancelled() => Err(interrupted()),
            looked = looking => Ok(looked),
        }
    }

    /// Does it, to its end if that comes soon: for what opens something that must be closed.
    pub async fn or_soon<T>(&self, beginning: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            begun = beginning => Ok(begun),
            () = self.out_of_patience() => Err(interrupted()),
        }
    }

    /// Ends what was opened at services, as long as a goodbye may take.
    pub async fn goodbye(&self, closing: impl Future) {
        tokio::select! {
            _ = closing => {}
            () = tokio::time::sleep(GOODBYE) => {
                tracing::warn!("not every session could be ended; the services will end them");
            }
            () = self.at_once() => {
                tracing::warn!("sessions are left open; the services will end them");
            }
        }
    }
}

pub fn interrupted() -> Failure {
    Failure::new(ExitCode::Interrupted, "interrupted")
        .with_hint("nothing was changed at any service; run it again")
}

/// Hears SIGTERM and SIGINT from this call on; the future ends at the first. To be called before an address is announced:
/// a supervisor that reads the address may stop the process at once.
pub fn stopped() -> impl Future<Output = ()> {
    let (terminate, interrupt) = (heard(SignalKind::terminate()), heard(SignalKind::interrupt()));
    async {
        tokio::select! {
            () = terminate => {}
            () = interrupt => {}
        }
    }
}

fn heard(kind: SignalKind) -> impl Future<Output = ()> {
    let signal = signal(kind);
    async {
        match signal {
            Ok(mut signal) => drop(signal.recv().await),
            Err(error) => {
                tracing::warn!("a signal can't be waited for: {error}");
                pending().await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn a_signal_that_comes_before_it_is_waited_for_is_heard() {
        let stopped = stopped();
        let this = std::process::id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &this])
                .status()
                .unwrap()
                .success()
        );
        stopped.await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_looks_is_left_and_what_opens_something_has_a_while() {
        let stop = Stop::default();
        assert_eq!(stop.or(async { 1 }).await, Ok(1));
        stop.ask();
        assert!(stop.or(async { 1 }).await.is_err());
        let soon = tokio::time::sleep(GOODBYE / 2);
        assert_eq!(stop.or_soon(soon).await, Ok(()));
        assert!(stop.or_soon(pending::<()>()).await.is_err());
    }
}
