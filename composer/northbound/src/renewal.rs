//! The certificates that the manager signs itself: made and renewed at each start, and renewed while it runs.

use crate::agents::AgentAuthority;
use crate::server::{Options, ServeError};
use crate::tls::{Authority, Certificates, TlsFiles};
use jiff::Timestamp;
use poolwright_service::{ClusterKey, Composer, ErrorCode, ServiceError};
use std::net::IpAddr;

/// The manager's own authority, and the certificates that it signs.
pub(crate) struct OwnCertificates {
    pub authority: AgentAuthority,
    certificates: Certificates,
    cluster_key: Option<ClusterKey>,
    composer: Composer,
}

impl OwnCertificates {
    pub async fn begin(composer: &Composer, options: &Options, address: IpAddr) -> Result<Self, ServeError> {
        let now = composer.clock().now();
        let key = &options.cluster_key;
        let authority = match key {
            Some(key) => {
                let make = || Ok::<_, ServeError>(Authority::own(&options.data_dir, now)?.to_pem());
                let text = composer.shared_secret(key, NAME, make).await?;
                renewed(composer, key, &text, now).await?
            }
            None => Authority::own(&options.data_dir, now)?,
        };
        let certificates = Certificates::of(&options.data_dir, address, &options.names, key.is_none());
        certificates.ensure(&authority, now)?;
        Ok(Self {
            authority: AgentAuthority::new(authority),
            certificates,
            cluster_key: key.clone(),
            composer: composer.clone(),
        })
    }

    pub fn files(&self) -> TlsFiles {
        self.certificates.files()
    }

    /// Renews certificates that are due.
    pub async fn renew(&self) -> Result<(), ServeError> {
        let now = self.composer.clock().now();
        let authority = self.authority.now();
        if !authority.is_due(now) && !self.certificates.is_due(now)? {
            return Ok(());
        }
        let authority = match &self.cluster_key {
            Some(key) => renewed(&self.composer, key, &authority.to_pem(), now).await?,
            None => authority.renewed(now)?,
        };
        self.certificates.ensure(&authority, now)?;
        self.authority.replace(authority);
        tracing::info!(ca = %self.files().ca.display(), "renewed the manager's own certificates");
        Ok(())
    }
}

/// Secret of the store: the authority that all its managers share.
const NAME: &str = "certificate authority";

/// The shared authority, renewed for all of them where it is due. `known` is its text in the store as read last.
async fn renewed(
    composer: &Composer,
    key: &ClusterKey,
    known: &str,
    now: Timestamp,
) -> Result<Authority, ServeError> {
    let read = |text: &str| {
        Authority::from_pem(text).ok_or_else(|| {
            let message = format!("the {NAME} in the store is damaged");
            ServiceError::new(ErrorCode::Internal, message).with_hint("restore a backup of the database")
        })
    };
    let authority = read(known)?;
    if !authority.is_due(now) {
        return Ok(authority);
    }
    let next = authority.renewed(now)?.to_pem();
    let stored = composer.replace_shared_secret(key, NAME, known, &next).await?;
    Ok(read(&stored)?)
}
