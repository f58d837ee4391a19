//! One run through all steps, and the way back from wherever it went wrong.
//!
//! A bind of unknown outcome may still come about: it is watched for as long as a fabric may lag behind. What
//! the fabric shows decides what is undone, and the GPU must be read back free at every end. Who interrupts it
//! ends the waiting, never a bind that was asked for: that is waited for, and undone.

use super::pair::Pair;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::stop::{Stop, interrupted};
use poolwright_driver::{
    Bound, Confirmation, DriverError, ErrorKind, Fabric, GpuIdentity, HostSide, HostTarget, ResetSeen,
    refuse_other_gpus,
};
use poolwright_executor::Options;
use poolwright_model::control::ControlPoint;
use poolwright_model::identity::compare;
use serde::Serialize;
use std::sync::Arc;
use tokio::time::Instant;

/// A step as it went.
#[derive(Debug, Serialize)]
pub(super) struct Timed {
    pub(super) step: &'static str,
    pub(super) well: bool,
    pub(super) ms: u64,
    pub(super) seen: String,
}

/// A place where the GPU may be bound, and who tells of it.
pub(super) struct End {
    pub(super) at: ControlPoint,
    pub(super) fabric: Arc<dyn Fabric>,
}

pub(super) struct Trial<'a> {
    pub(super) pair: &'a Pair,
    /// The end at which it is bound.
    pub(super) end: &'a End,
    /// All ends, that one among them.
    pub(super) ends: &'a [End],
    pub(super) host_side: Option<Arc<dyn HostSide>>,
    pub(super) options: &'a Options,
    pub(super) stop: &'a Stop,
    /// From the bind until everything was read back free.
    pub(super) may_hold: bool,
    pub(super) steps: Vec<Timed>,
    pub(super) progress: Progress,
}

impl Trial<'_> {
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let stop = self.stop;
        stop.or(self.expect("read before", &Bound::Free))
            .await?
            .map_err(|error| failed("read before", error))?;
        let (end, port_at) = (self.end, &self.pair.port_at);
        self.may_hold = true;
        let bind = end.fabric.bind(&end.at, port_at, self.options.act_deadline);
        let bind = self.timed("bind", bind, |()| "accepted".to_owned()).await;
        // Anything but a plain refusal may have bound it.
        let may_be_ours = match &bind {
            Ok(()) => true,
            Err(error) => error.kind == ErrorKind::OutcomeUnknown,
        };
        let went = match bind {
            Ok(()) => match stop.or(self.confirm()).await {
                Ok(confirmed) => confirmed,
                Err(interrupted) => {
                    self.watch_for_late_bind().await;
                    Err(Failure {
                        message: "interrupted after the bind; it was undone, and the GPU was read back free"
                            .to_owned(),
                        ..interrupted
                    })
                }
            },
            Err(error) => {
                if may_be_ours {
                    self.watch_for_late_bind().await;
                }
                Err(failed("bind", error))
            }
        };
        if may_be_ours {
            self.undo().await;
        }
        self.all_free().await?;
        self.may_hold = false;
        let reset = async {
            same_gpu(self.options, self.pair, end).await?;
            end.fabric.reset(&end.at, self.options.act_deadline).await
        };
        let reset = reset.await;
        let seen = |seen: &ResetSeen| match seen {
            ResetSeen::Done => "reset, and ready again".to_owned(),
            ResetSeen::CannotTell => "this machine can't tell whether it was reset".to_owned(),
        };
        let reset = self.timed("reset", std::future::ready(reset), seen).await;
        went.map_err(known_to_be_free)?;
        reset.map(drop).map_err(|error| failed("reset", error))
    }

    async fn watch_for_late_bind(&mut self) {
        let late = shown(self.options, self.pair, self.end, |found| *found != Bound::Free);
        self.timed("watch for a late bind", late, said).await.ok();
    }

    /// Nobody waits for the undo: where the GPU may be, for whoever must look now.
    pub(super) fn left_as_it_is(&self) -> Failure {
        if !self.may_hold {
            return interrupted();
        }
        let Pair { gpu, host, port, .. } = self.pair;
        let message = format!(
            "stopped at once, before everything was undone: {} may be bound to {} (port {}), as {} at {}",
            gpu.id, host.id, port.id, self.end.at.address, self.end.at.endpoint
        );
        Failure::new(ExitCode::Indeterminate, message).with_hint(self.what_now())
    }

    fn what_now(&self) -> String {
        format!(
            "unbind it with the tools of {}, then look with: poolwright discover; until it is free, let no \
             manager drive it, and give it to nobody",
            self.end.at.endpoint
        )
    }

    /// The fabric shows the binding, and so does the host.
    async fn confirm(&mut self) -> Result<(), Failure> {
        let here = Bound::To {
            port_address: self.pair.port_at.address.clone(),
        };
        self.expect("read back", &here)
            .await
            .map_err(|error| failed("read back", error))?;
        self.confirm_from_host()
            .await
            .map_err(|error| failed("seen by the host", error))
    }

    /// Unbinds it as long as the fabric shows it bound as we bound it. Each try is decided by a read-back.
    async fn undo(&mut self) {
        let (end, port_at) = (self.end, &self.pair.port_at);
        for _ in 0..self.options.undo_attempts {
            match shown(self.options, self.pair, end, |_| true).await {
                Ok(Bound::To { port_address }) if port_address == port_at.address => {}
                _ => return,
            }
            let unbind = end.fabric.unbind(&end.at, port_at, self.options.act_deadline);
            self.timed("unbind", unbind, |()| "accepted".to_owned())
                .await
                .ok();
            if self.expect("read after", &Bound::Free).await.is_ok() {
                return;
            }
        }
    }

    /// Every end is read back free; else what is held where.
    async fn all_free(&self) -> Result<(), Failure> {
        let mut held = Vec::new();
        for end in self.ends {
            let place = format!("{} at {}", end.at.address, end.at.endpoint);
            match shown(self.options, self.pair, end, |found| *found == Bound::Free).await {
                Ok(Bound::Free) => {}
                Ok(found) => held.push(format!("{place} is {}", said(&found))),
                Err(error) => held.push(format!("whether {place} is bound can't be read: {error}")),
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        let Pair { gpu, host, port, .. } = self.pair;
        let message = format!(
            "{} was not read back free after the trial on {} (port {}): {}",
            gpu.id,
            host.id,
            port.id,
            held.join("; ")
        );
        Err(Failure::new(ExitCode::Indeterminate, message).with_hint(self.what_now()))
    }

    /// Reads until the end at which it is bound shows what is expected.
    async fn expect(&mut self, step: &'static str, wanted: &Bound) -> Result<(), DriverError> {
        let (options, pair, end) = (self.options, self.pair, self.end);
        let read = async {
            let found = shown(options, pair, end, |found| found == wanted).await?;
            match found == *wanted {
                true => Ok(found),
                false => {
                    let message = format!("the fabric shows {}, expected {}", said(&found), said(wanted));
                    Err(DriverError::unknown(message))
                }
            }
        };
        self.timed(step, read, said).await.map(drop)
    }

    /// Waits until the host's BMC shows the GPU, where one was named that speaks for the host.
    async fn confirm_from_host(&mut self) -> Result<(), DriverError> {
        let Some(host_side) = self.host_side.clone() else {
            self.progress
                .note("no BMC was named for this host: the fabric's word must do");
            return Ok(());
        };
        let Pair { gpu, host, port, .. } = self.pair;
        let target = HostTarget {
            host: host.id.clone(),
            host_port: port.id.clone(),
            gpus: vec![gpu.id.clone()],
            known_as: gpu.uuid.iter().chain(&gpu.serial).cloned().collect(),
            slot: None,
            seen_at: Vec::new(),
            ids: None,
            largest_bar: None,
            epoch: None,
        };
        let options = self.options;
        let look = async {
            let began = Instant::now();
            loop {
                match host_side.verify(&target, options.host_deadline).await? {
                    Confirmation::Seen { evidence, .. } => return Ok(evidence),
                    Confirmation::CannotTell { reason } => return Ok(format!("it can't tell: {reason}")),
                    Confirmation::NotSeen { reason, .. } if began.elapsed() >= options.verify_deadline => {
                        let message = format!("the host does not see it: {reason}");
                        return Err(DriverError::no_effect(message));
                    }
                    Confirmation::NotSeen { .. } => tokio::time::sleep(options.verify_pause / 4).await,
                }
            }
        };
        self.timed("seen by the host", look, String::clone)
            .await
            .map(drop)
    }

    async fn timed<T>(
        &mut self,
        step: &'static str,
        doing: impl Future<Output = Result<T, DriverError>>,
        seen: impl FnOnce(&T) -> String,
    ) -> Result<T, DriverError> {
        self.progress.doing(step);
        let began = Instant::now();
        let done = doing.await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let shown = done.as_ref().map_or_else(ToString::to_string, seen);
        self.steps.push(Timed {
            step,
            well: done.is_ok(),
            ms,
            seen: shown,
        });
        done
    }
}

/// What an end shows of the GPU, read until it is as wished for, or for as long as a fabric may lag behind.
async fn shown(
    options: &Options,
    pair: &Pair,
    end: &End,
    wished: impl Fn(&Bound) -> bool,
) -> Result<Bound, DriverError> {
    let began = Instant::now();
    let found = loop {
        let found = end.fabric.bound(&end.at, options.read_deadline).await;
        if found.as_ref().is_ok_and(&wished) || began.elapsed() >= options.settle {
            break found;
        }
        tokio::time::sleep(options.first_pause / 5).await;
    };
    same_gpu(options, pair, end).await?;
    found
}

/// Refuses an address that shows another GPU.
async fn same_gpu(options: &Options, pair: &Pair, end: &End) -> Result<(), DriverError> {
    let meant = [GpuIdentity::of(&pair.gpu)];
    let compare = |found: &[GpuIdentity]| compare(&meant, found);
    let name = (&end.at, pair.gpu.id.as_str());
    refuse_other_gpus(&*end.fabric, name, compare, options.read_deadline).await
}

fn failed(step: &str, error: DriverError) -> Failure {
    let failure = Failure::from(error);
    Failure {
        message: format!("{step}: {}", failure.message),
        ..failure
    }
}

/// However unknown an outcome was: the GPU was read back free since.
fn known_to_be_free(failure: Failure) -> Failure {
    match failure.code {
        ExitCode::Indeterminate => Failure {
            code: ExitCode::Generic,
            message: format!("{}; the GPU was read back free", failure.message),
            hint: Some("this machine can't be relied upon; see the steps".to_owned()),
            ..failure
        },
        _ => failure,
    }
}

fn said(bound: &Bound) -> String {
    match bound {
        Bound::Free => "bound to nothing".to_owned(),
        Bound::To { port_address } => format!("bound to {port_address}"),
        Bound::Several { port_addresses } => format!("bound to several ports: {}", port_addresses.join(", ")),
    }
}

#[cfg(test)]
mod tests;
