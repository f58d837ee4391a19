//! Listening to what a service tells by itself: server-sent events, where it has them. Such a stream is the whole
//! subscription: it ends with the connection, and leaves nothing behind at the service.

use super::errors::driver_error;
use super::links;
use super::observe::SERVICE_ROOT;
use crate::client::{Client, Error};
use poolwright_driver::{DriverError, Listened};
use poolwright_redfish_model as redfish;
use std::time::Duration;

/// After so long with nothing, not even a sign of life, the stream is opened anew: who listens to a connection that is
/// dead hears nothing either.
const SILENCE: Duration = Duration::from_secs(600);

pub(super) async fn listen(
    client: &Client,
    hint: &(dyn Fn() + Send + Sync),
) -> Result<Listened, DriverError> {
    let found = stream_of(client).await.map_err(|error| driver_error(&error))?;
    let Some(stream) = found else {
        return Ok(Listened::NotOffered);
    };
    let heard = client.stream(&stream, SILENCE, hint).await;
    heard.map_err(|error| driver_error(&error))?;
    Ok(Listened::Ended)
}

/// Where the service streams what happens; `None` where it does not.
async fn stream_of(client: &Client) -> Result<Option<String>, Error> {
    let root = client.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let Some(service) = links::to(root.event_service.as_ref()) else {
        return Ok(None);
    };
    let service = client.read::<redfish::EventService>(service).await?.value;
    let stream = service.server_sent_event_uri.filter(|stream| !stream.is_empty());
    Ok(stream.filter(|_| service.service_enabled != Some(false)))
}
