//! The owner's mark: `ServiceIdentification`, which the manager that provides the service takes (Manager v1.15 and
//! later) and the service root shows to everybody, without a login (ServiceRoot v1.14 and later).

use super::{Call, Failed, STALE_RETRIES, conflict};
use crate::southbound::links;
use crate::southbound::observe::SERVICE_ROOT;
use poolwright_driver::{DriverError, Late};
use poolwright_redfish_model as redfish;
use serde::Serialize;

const PROPERTY: &str = "ServiceIdentification";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Marked<'a> {
    service_identification: &'a str,
}

/// Writes the mark where `instead` stands, and sees that the root shows it.
pub(super) async fn set(
    call: &Call<'_>,
    mark: Option<&str>,
    instead: Option<&str>,
) -> Result<(), DriverError> {
    let path = manager(call).await?;
    for _ in 0..=STALE_RETRIES {
        let manager = call.read::<redfish::Manager>(&path).await?;
        let stands = manager.value.service_identification.as_deref();
        if stands.is_none() && manager.value.extra.raw(PROPERTY).is_none() {
            return Err(cannot(format!("{path} shows no {PROPERTY}")));
        }
        let stands = stands.filter(|mark| !mark.is_empty());
        if stands == mark {
            return Ok(());
        }
        if stands != instead {
            let stands = stands.unwrap_or("no mark");
            return Err(conflict(format!("{path} carries {stands} by now")));
        }
        let body = Marked {
            service_identification: mark.unwrap_or_default(),
        };
        match call.patch(&path, &body, manager.etag).await {
            Ok(_) => return confirm(call, mark).await,
            Err(Failed::Stale(error)) => tracing::debug!(%error, "changed in between; reading again"),
            Err(Failed::Ended(error)) => return Err(error),
        }
    }
    Err(conflict(format!(
        "{path} was changed by another client after each read"
    )))
}

/// The manager that says of itself that it provides the service; else the only one that there is.
async fn manager(call: &Call<'_>) -> Result<String, DriverError> {
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let links = root.links.as_deref();
    if let Some(own) = links.and_then(|links| links::to(links.manager_providing_service.as_ref())) {
        return Ok(own.to_owned());
    }
    let Some(all) = links::to(root.managers.as_ref()) else {
        return Err(cannot("it shows no manager".to_owned()));
    };
    let all = call.members::<redfish::Manager>(all).await?;
    match all.as_slice() {
        [only] => Ok(links::address(&only.path).to_owned()),
        _ => Err(cannot(
            "it doesn't say which of its managers provides the service".to_owned(),
        )),
    }
}

async fn confirm(call: &Call<'_>, mark: Option<&str>) -> Result<(), DriverError> {
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let shown = root
        .service_identification
        .as_deref()
        .filter(|mark| !mark.is_empty());
    if shown == mark {
        return Ok(());
    }
    let message = format!(
        "the service said that it was done, but its root shows {}",
        shown.unwrap_or("no mark")
    );
    Err(DriverError::unknown(message).with_late(Late::Never))
}

fn cannot(why: String) -> DriverError {
    DriverError::cannot_tell(format!("the service can carry no owner's mark: {why}"))
}
