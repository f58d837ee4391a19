//! The connections: one pool for all endpoints that are believed by the same rule.
//!
//! HTTP/2 where the service offers it by ALPN, else HTTP/1.1. HTTP/2 costs less per request (23 against 28 µs of CPU
//! at 32 requests at once, measured against nginx), and one connection an endpoint instead of one a request under
//! way: at about 90 kB of memory a TLS connection, that decides whether a thousand endpoints fit.

use std::time::Duration;

use http::header::{ACCEPT, HeaderMap, HeaderValue, USER_AGENT};

use super::error::{Error, Result};
use super::lookup::Lookup;
use super::tls::{TlsFault, client_config};
use super::{Endpoint, Tls};

/// How long an unused connection is kept. Short, because a service that closes first makes the next write's outcome
/// unknown; long enough for the pauses of a walk.
const IDLE: Duration = Duration::from_secs(30);

/// A pool of connections. Cloning shares it; giving one to many [`Client`](super::Client)s is cheaper than one each.
#[derive(Debug, Clone)]
pub struct Transport {
    http: reqwest::Client,
    /// `None`: made without any CA, good for plain http only.
    tls: Option<Tls>,
}

impl Transport {
    /// For every endpoint that is believed by this rule, https or plain http.
    pub fn new(tls: &Tls, connect: Duration) -> Result<Self> {
        let builder = match tls {
            Tls::SystemRoots => {
                if rustls::crypto::CryptoProvider::get_default().is_none() {
                    // Lost races are fine: somebody else has installed a provider then.
                    let _ = rustls::crypto::ring::default_provider().install_default();
                }
                reqwest::Client::builder()
            }
            other => {
                let config = client_config(other).map_err(|fault| Error::harmless("TLS settings", fault))?;
                reqwest::Client::builder().tls_backend_preconfigured(config)
            }
        };
        Ok(Self {
            http: build(builder, connect)?,
            tls: Some(tls.clone()),
        })
    }

    /// For this endpoint: where it speaks plain http, the machine needs no CA certificates.
    pub fn for_endpoint(endpoint: &Endpoint) -> Result<Self> {
        if !endpoint.is_plain_http() {
            return Self::new(&endpoint.tls, endpoint.limits.connect);
        }
        let config =
            client_config(&Tls::SystemRoots).map_err(|fault| Error::harmless("TLS settings", fault))?;
        let builder = reqwest::Client::builder().tls_backend_preconfigured(config);
        Ok(Self {
            http: build(builder, endpoint.limits.connect)?,
            tls: None,
        })
    }

    pub(crate) fn fits(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_plain_http() || self.tls.as_ref() == Some(&endpoint.tls)
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }
}

fn build(builder: reqwest::ClientBuilder, connect: Duration) -> Result<reqwest::Client> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert("odata-version", HeaderValue::from_static("4.0"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("poolwright/", env!("CARGO_PKG_VERSION"))),
    );
    builder
        .default_headers(headers)
        .dns_resolver(Lookup)
        .connect_timeout(connect)
        .pool_idle_timeout(IDLE)
        // A redirect is an error of its own; see `exchange`.
        .redirect(reqwest::redirect::Policy::none())
        // What may be sent twice is decided in `retry`, nowhere else.
        .retry(reqwest::retry::never())
        .referer(false)
        // Management networks are reached directly, and a proxy from the environment must not see the credentials.
        .no_proxy()
        // Never ask for compression, whatever features the rest of the build turns on. `body` unpacks answers that are
        // compressed unasked, within its caps.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .build()
        .map_err(|e| {
            Error::harmless(
                "TLS settings",
                TlsFault::NoSystemRoots(super::classify::innermost(&e)),
            )
        })
}
