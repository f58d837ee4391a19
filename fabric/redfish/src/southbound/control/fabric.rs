//! The fabric that an endpoint belongs to, for services whose endpoints don't link what they are in.

use super::Call;
use crate::southbound::links;
use crate::southbound::observe::SERVICE_ROOT;
use poolwright_driver::DriverError;
use poolwright_redfish_model as redfish;

/// The fabric whose address the endpoint's begins with.
pub(super) async fn of(call: &Call<'_>, endpoint: &str) -> Result<redfish::Fabric, DriverError> {
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    if let Some(collection) = links::to(root.fabrics.as_ref())
        && let paths = call.paths(collection).await?
        && let Some(path) = paths
            .iter()
            .find(|path| links::is_below(endpoint, links::address(path)))
    {
        return Ok(call.read::<redfish::Fabric>(path).await?.value);
    }
    Err(
        DriverError::cannot_tell(format!("no fabric of this service has {endpoint}"))
            .with_hint("discover again: it may have been renamed"),
    )
}
