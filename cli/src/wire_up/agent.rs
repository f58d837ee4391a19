//! The way to agents on hosts.

use async_trait::async_trait;
use poolwright_agent::AgentHost;
use poolwright_driver::DriverError;
use poolwright_service::agent::{AgentSpec, ConnectedAgent, Renewal};
use std::sync::Arc;
use std::time::Duration;

/// Nothing is sent yet.
pub(super) fn connect(spec: &AgentSpec) -> Result<ConnectedAgent, DriverError> {
    let AgentSpec {
        endpoint,
        address,
        name,
        authority,
        identity,
    } = spec;
    let (certificate, key) = (&identity.certificate, &identity.key);
    let host = AgentHost::new(endpoint.clone(), address, name, authority, certificate, key)?;
    Ok(ConnectedAgent {
        renewal: Arc::new(Renewing(host.clone())),
        host_side: Arc::new(host),
    })
}

struct Renewing(AgentHost);

#[async_trait]
impl Renewal for Renewing {
    async fn request(&self, deadline: Duration) -> Result<String, DriverError> {
        self.0.renew(deadline).await
    }

    async fn give(&self, certificate: &str, deadline: Duration) -> Result<(), DriverError> {
        self.0.renewed(certificate, deadline).await
    }
}
