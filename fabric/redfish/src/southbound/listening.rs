//! Listening to what a service tells by itself: server-sent events, where it has them; else it is subscribed at, where
//! there is an address for that. A stream ends with its connection, and leaves nothing behind at the service. A
//! subscription stays: it is deleted at the end, and what a manager that was killed has left is deleted before the next.
//! Those of others are not touched.

use super::errors::driver_error;
use super::links;
use super::observe::SERVICE_ROOT;
use crate::client::{Client, Error, Member, WriteOptions};
use poolwright_driver::{DriverError, Listened, PushTo};
use poolwright_redfish_model as redfish;
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// After so long with nothing, not even a sign of life, the stream is opened anew: who listens to a connection that is
/// dead hears nothing either.
const SILENCE: Duration = Duration::from_secs(600);

/// How often it is read whether the subscription is there still: a service that restarts may forget it.
const LOOK: Duration = Duration::from_secs(300);
/// A subscription is deleted within so long when the manager ends, or left for the next.
const END: Duration = Duration::from_secs(2);

/// Where our subscription at the service is, while there is one.
#[derive(Debug, Default)]
pub(super) struct Subscribed(Mutex<Option<String>>);

impl Subscribed {
    fn set(&self, subscription: Option<String>) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut kept, subscription)
    }

    pub(super) async fn end(&self, client: &Client) {
        let Some(subscription) = self.set(None) else {
            return;
        };
        if let Err(error) = client
            .delete(&subscription, WriteOptions::default().deadline(END))
            .await
        {
            tracing::debug!(subscription, %error, "our subscription is left; the next one removes it");
        }
    }
}

pub(super) async fn listen(
    client: &Client,
    subscribed: &Subscribed,
    push_to: Option<&PushTo>,
    hint: &(dyn Fn() + Send + Sync),
) -> Result<Listened, DriverError> {
    let heard = listen_as_offered(client, subscribed, push_to, hint).await;
    heard.map_err(|error| driver_error(&error))
}

async fn listen_as_offered(
    client: &Client,
    subscribed: &Subscribed,
    push_to: Option<&PushTo>,
    hint: &(dyn Fn() + Send + Sync),
) -> Result<Listened, Error> {
    let Some(service) = service_of(client).await? else {
        return Ok(Listened::NotOffered);
    };
    let stream = service.server_sent_event_uri.filter(|stream| !stream.is_empty());
    if let Some(stream) = stream {
        client.stream(&stream, SILENCE, hint).await?;
        return Ok(Listened::Ended);
    }
    let (Some(all), Some(push_to)) = (links::to(service.subscriptions.as_ref()), push_to) else {
        return Ok(Listened::NotOffered);
    };
    remove_left_over(client, all, push_to).await?;
    let Some(ours) = subscribe(client, all, push_to).await? else {
        return Ok(Listened::NotOffered);
    };
    subscribed.set(Some(ours.clone()));
    hint();
    while is_there(client, &ours).await? {
        tokio::time::sleep(LOOK).await;
    }
    subscribed.set(None);
    Ok(Listened::Ended)
}

/// Its event service, where it has one that is in use.
async fn service_of(client: &Client) -> Result<Option<redfish::EventService>, Error> {
    let root = client.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let Some(service) = links::to(root.event_service.as_ref()) else {
        return Ok(None);
    };
    let service = client.read::<redfish::EventService>(service).await?.value;
    Ok((service.service_enabled != Some(false)).then_some(service))
}

/// Deletes what is subscribed for an address of ours: a manager was killed before it could.
async fn remove_left_over(client: &Client, all: &str, push_to: &PushTo) -> Result<(), Error> {
    let found = client.read_leaves::<redfish::EventDestination>(all).await?;
    for Member { path, outcome } in found.members {
        // What can't be read is nobody's that we know.
        let Ok(subscription) = outcome else { continue };
        let destination = subscription.value.destination.unwrap_or_default();
        if !destination.starts_with(&push_to.ours) {
            continue;
        }
        match client.delete(&path, WriteOptions::default()).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Where the subscription is; `None` from a service that does not tell.
async fn subscribe(client: &Client, all: &str, push_to: &PushTo) -> Result<Option<String>, Error> {
    let body = json!({
        "Destination": push_to.address,
        "Protocol": "Redfish",
        "Context": "Poolwright",
    });
    let made = client.post(all, &body, WriteOptions::default()).await?;
    Ok(made.location.map(|location| links::address(&location).to_owned()))
}

/// Whether the service pushes to it still. One that it gave up is deleted: the next one is new.
async fn is_there(client: &Client, ours: &str) -> Result<bool, Error> {
    let found = match client.read::<redfish::EventDestination>(ours).await {
        Ok(found) => found.value,
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error),
    };
    let state = found.status.and_then(|status| status.state);
    let works = matches!(state, None | Some(redfish::State::Enabled));
    if !works {
        client.delete(ours, WriteOptions::default()).await?;
    }
    Ok(works)
}
