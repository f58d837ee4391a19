//! What is served by just now: read from files, and read again when a file is another one, or on SIGHUP; or replaced by an
//! administrator. Connections that there are stay as they are.
//!
//! Invariants: what can't be used is told, and what was used before stays; what replaces it is on the disk before it is
//! served.

use crate::certificate::{SiteCertificate, Sources, Texts};
use crate::renewal::OwnCertificates;
use crate::replacement;
use crate::server::ServeError;
use crate::tls;
use axum_server::tls_rustls::RustlsConfig;
use poolwright_service::Composer;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often it is looked whether a file is another one.
const EACH: Duration = Duration::from_secs(5);

/// What all connections from now on are taken by.
pub(crate) struct Serving {
    pub config: RustlsConfig,
    composer: Composer,
    /// Where a certificate is kept that replaces our own; `None` where the site has named its files.
    kept: Option<PathBuf>,
    own: OwnCertificates,
    now: Mutex<Now>,
}

struct Now {
    sources: Sources,
    texts: Texts,
}

/// Why a certificate is not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReplaced {
    #[error("the certificate is read from the file {}", .0.display())]
    OfSite(PathBuf),
    #[error("the certificate can't be served: {0}")]
    Unfit(String),
    #[error(transparent)]
    Failed(#[from] ServeError),
}

impl Serving {
    pub fn begin(
        sources: Sources,
        kept: Option<PathBuf>,
        own: OwnCertificates,
        composer: Composer,
    ) -> Result<Self, ServeError> {
        let texts = sources.texts()?;
        let config = RustlsConfig::from_config(sources.config(&texts)?);
        let serving = Self {
            config,
            composer,
            kept,
            own,
            now: Mutex::new(Now { sources, texts }),
        };
        serving.tell_end(&serving.now());
        Ok(serving)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_end(&self, now: &Now) {
        if let Some(end) = now.sources.end(&now.texts) {
            self.composer.serves_certificate_until(end);
        }
    }

    /// The certificate that clients are shown, and those between it and its authority.
    pub fn shown(&self) -> Vec<CertificateDer<'static>> {
        let now = self.now();
        now.sources.shown(&now.texts)
    }

    fn serve(&self, now: &mut Now, next: Now, config: Arc<ServerConfig>) {
        self.config.reload_from_config(config);
        self.tell_end(&next);
        *now = next;
        let file = now.sources.certificate.chain.display();
        tracing::warn!(%file, "another certificate is served from now on");
    }

    /// Serves by what the files say now, if they can be used.
    fn renew(&self) -> Result<(), ServeError> {
        let mut now = self.now();
        if let Some((config, texts)) = now.sources.renewed(&now.texts)? {
            let sources = now.sources.clone();
            self.serve(&mut now, Now { sources, texts }, config);
        }
        Ok(())
    }

    /// Keeps a certificate that was given, and serves by it. In its text is its key, or it is for the key of now.
    pub fn replace(&self, offered: &str) -> Result<(), NotReplaced> {
        let mut now = self.now();
        let Some(kept) = &self.kept else {
            return Err(NotReplaced::OfSite(now.sources.certificate.chain.clone()));
        };
        let time = self.composer.clock().now();
        let text = replacement::checked(offered, &now.texts.key, time).map_err(NotReplaced::Unfit)?;
        let sources = Sources {
            certificate: SiteCertificate {
                chain: kept.clone(),
                key: kept.clone(),
            },
            client_ca: now.sources.client_ca.clone(),
        };
        let texts = Texts {
            chain: text.clone().into_bytes(),
            key: text.clone().into_bytes(),
            client_ca: now.texts.client_ca.clone(),
        };
        let config = sources.config(&texts)?;
        tls::write(kept, &text, 0o600).map_err(ServeError::from)?;
        self.serve(&mut now, Now { sources, texts }, config);
        Ok(())
    }

    /// Serves by what the files say, for as long as somebody waits for it.
    pub fn watch(self: Arc<Self>) -> impl Future<Output = ()> {
        // SIGHUP would end the process until it is heard.
        let mut hangup = signal(SignalKind::hangup()).ok();
        async move {
            let mut told = None;
            loop {
                let asked = async {
                    match &mut hangup {
                        Some(hangup) => drop(hangup.recv().await),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = asked => told = None,
                    () = tokio::time::sleep(EACH) => {}
                }
                // While both files are replaced they do not fit for a moment; and once is enough.
                // A damaged own certificate must not keep a renewed one of the site from being served.
                let renewed = self.own.renew().await.and(self.renew());
                let trouble = renewed.err().map(|error| error.to_string());
                if let Some(text) = trouble.as_ref().filter(|text| told.as_ref() != Some(*text)) {
                    tracing::warn!("the certificate of before is still served: {text}");
                }
                told = trouble;
            }
        }
    }
}
