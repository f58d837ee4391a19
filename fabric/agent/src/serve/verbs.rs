//! The verbs, each a function from a request to what is said.

use super::{Agent, renewal};
use crate::drain::Drain;
use crate::ready::{Profile, Ready};
use crate::sight::Sight;
use crate::wire::{AilingAsked, ConfirmationSaid, Done, ReadySaid, Request, RoomSaid};
use crate::{ailing, answers, measuring};
use poolwright_driver::DriverError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Whether a verb changes the host: no two of these go on at a time.
pub(super) fn changes(verb: &str) -> bool {
    matches!(verb, "ready" | "unready" | "drain" | "undrain")
}

/// Blocks for as long as the host takes. To be called with the turn, where the verb [changes] the host.
pub(super) fn answer(agent: &Agent, verb: &str, body: &[u8]) -> Result<Value, DriverError> {
    let request: Request = read(body)?;
    let target = &request.target;
    let nvml = || agent.nvml();
    let sight = || Sight::of(agent.root(), &nvml());
    let drain = Drain {
        root: agent.root(),
        folder: &agent.folder,
        nvml: &nvml,
    };
    let ready = Ready {
        root: agent.root(),
        folder: &agent.folder,
        nvml: &nvml,
    };
    match verb {
        "hello" => said(&Done {}),
        "inventory" => said(&crate::inventory(agent.root(), &agent.nvml())),
        "preflight" => said(&RoomSaid::from(answers::room(agent.root(), &sight(), target))),
        "verify" => {
            let profile = Profile::read(&agent.folder).map_err(DriverError::no_effect)?;
            let confirmed = answers::confirmed(&sight(), target, profile.least_link);
            said(&ConfirmationSaid::from(confirmed))
        }
        "ailing" => {
            let AilingAsked { expected } = read(body)?;
            said(&ailing::ailments(agent.root(), &sight(), &expected)?)
        }
        "telemetry" => said(&measuring::readings(agent.root(), &sight())),
        "holders" => said(&answers::held(agent.root(), &sight(), target)?),
        "renew" => said(&renewal::request(agent)?),
        "renewed" => said(&renewal::take(agent, body)?),
        "ready" => changed(agent, &request, || {
            let evidence = ready.make(target)?;
            Ok(ReadySaid { evidence })
        }),
        "unready" => changed(agent, &request, || ready.unmake(target).map(|()| Done {})),
        "drain" => changed(agent, &request, || drain.drain(target).map(|()| Done {})),
        "left" => said(&ready.left(target)?),
        "undrain" => changed(agent, &request, || drain.undrain(target).map(|()| Done {})),
        other => {
            let other: String = other.chars().take(40).collect();
            Err(
                DriverError::cannot_tell(format!("this agent has no verb {other:?}"))
                    .with_hint("update the older one of manager and agent"),
            )
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, DriverError> {
    serde_json::from_slice(body)
        .map_err(|error| DriverError::no_effect(format!("the request can't be read: {error}")))
}

/// No change is made under an epoch that is over.
fn changed<T: Serialize>(
    agent: &Agent,
    request: &Request,
    change: impl FnOnce() -> Result<T, DriverError>,
) -> Result<Value, DriverError> {
    agent.under(request)?;
    said(&change()?)
}

fn said(what: &impl Serialize) -> Result<Value, DriverError> {
    serde_json::to_value(what)
        .map_err(|error| DriverError::no_effect(format!("the answer can't be written: {error}")))
}
