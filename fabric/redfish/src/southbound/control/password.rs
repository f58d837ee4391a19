//! Another password for our own account (ManagerAccount).

use super::{Call, Failed, STALE_RETRIES, conflict};
use crate::southbound::links;
use crate::southbound::observe::SERVICE_ROOT;
use poolwright_driver::DriverError;
use poolwright_redfish_model as redfish;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Changed<'a> {
    password: &'a str,
}

/// Where the account is.
pub(super) async fn account(call: &Call<'_>, username: &str) -> Result<String, DriverError> {
    let cannot = |why: String| DriverError::cannot_tell(format!("the password can't be changed: {why}"));
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let Some(service) = links::to(root.account_service.as_ref()) else {
        return Err(cannot("the service shows no AccountService".to_owned()));
    };
    let service = call.read::<redfish::AccountService>(service).await?.value;
    let Some(accounts) = links::to(service.accounts.as_ref()) else {
        return Err(cannot("its AccountService shows no accounts".to_owned()));
    };
    let accounts = call.members::<redfish::ManagerAccount>(accounts).await?;
    let own = accounts
        .into_iter()
        .find(|account| account.value.user_name.as_deref() == Some(username));
    own.map(|own| links::address(&own.path).to_owned())
        .ok_or_else(|| cannot(format!("none of its accounts is {username}")))
}

/// Sends it, once but for what is refused because something else of the account was changed meanwhile.
pub(super) async fn change(call: &Call<'_>, account: &str, new: &str) -> Result<(), DriverError> {
    for _ in 0..=STALE_RETRIES {
        let found = call.read::<redfish::ManagerAccount>(account).await?;
        match call.patch(account, &Changed { password: new }, found.etag).await {
            Ok(_) => return Ok(()),
            Err(Failed::Stale(error)) => {
                tracing::debug!(%account, status = ?error.status(), "it was changed in between")
            }
            Err(Failed::Ended(error)) => return Err(silent(error, new)),
        }
    }
    Err(conflict(format!(
        "{account} was changed by another client after each read"
    )))
}

/// A service that refuses a value may repeat it.
fn silent(error: DriverError, secret: &str) -> DriverError {
    DriverError {
        message: error.message.replace(secret, "…"),
        hint: error.hint.map(|hint| hint.replace(secret, "…")),
        ..error
    }
}
