//! Connections to the database: where, as whom, and how it is trusted.

use crate::OpenError;
use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connections at the same time: one writes, the others read.
const CONNECTIONS: usize = 8;
const CONNECT: Duration = Duration::from_secs(5);
/// A peer that answers nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// What the server ends by itself, so that no lock outlives a manager that was cut off. One that hangs in the middle of a
/// commit holds up those of all others, their leases and their clients: not for longer than 5 s.
const LIMITS: &str = "-c statement_timeout=20s -c lock_timeout=15s \
     -c idle_in_transaction_session_timeout=5s -c tcp_user_timeout=10s -c synchronous_commit=on";

/// Where the database is.
#[derive(Clone, Default)]
pub struct PostgresOptions {
    /// `postgres://USER@HOST:PORT/DATABASE`, or PostgreSQL's `key=value` form. Without a password.
    pub url: String,
    pub password: Option<String>,
    /// The certificate authority of the server, PEM. Needed unless the server is on this machine.
    pub ca: Option<PathBuf>,
}

/// The way to the database; its name is for messages.
pub(super) struct Connections {
    pool: Pool,
    pub name: String,
}

impl Connections {
    pub fn new(options: PostgresOptions) -> Result<Self, OpenError> {
        let mut config: Config = options
            .url
            .parse()
            .map_err(|e: tokio_postgres::Error| wrong("the address of the database", told(&e)))?;
        let name = name(&config);
        if config.get_password().is_some() {
            let reason =
                "the address holds a password, and addresses end up in logs: put it into a file of its own";
            return Err(wrong(&name, reason));
        }
        if let Some(password) = &options.password {
            config.password(password);
        }
        config
            .application_name("poolwright")
            .connect_timeout(CONNECT)
            .keepalives_idle(SILENCE)
            .tcp_user_timeout(SILENCE)
            .options(LIMITS);
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = match &options.ca {
            Some(ca) => {
                config.ssl_mode(SslMode::Require);
                Manager::from_config(config, MakeRustlsConnect::new(trust(ca)?), recycling)
            }
            None if is_here(&config) => Manager::from_config(config, NoTls, recycling),
            None => {
                let reason = "it is on another machine, and no certificate authority is given to know it by";
                return Err(wrong(&name, reason));
            }
        };
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .create_timeout(Some(CONNECT))
            .wait_timeout(Some(SILENCE))
            .recycle_timeout(Some(CONNECT))
            .build();
        let pool = pool.map_err(|e| wrong(&name, e))?;
        Ok(Self { pool, name })
    }

    /// A connection; given back when it is dropped.
    pub async fn get(&self) -> Result<Client, PoolError> {
        self.pool.get().await
    }
}

fn trust(ca: &Path) -> Result<rustls::ClientConfig, OpenError> {
    let mut roots = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|e| unreadable(ca, &e))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|e| unreadable(ca, &e))?;
        roots.add(certificate).map_err(|e| unreadable(ca, &e))?;
    }
    if roots.is_empty() {
        return Err(wrong(&ca.display().to_string(), "it holds no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong("TLS", e))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Whether nobody is between us and the database.
fn is_here(config: &Config) -> bool {
    let here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    };
    let addresses = config.get_hostaddrs().iter();
    config.get_hosts().iter().all(here) && addresses.into_iter().all(std::net::IpAddr::is_loopback)
}

/// The database for people: host and database, never a secret.
fn name(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<_> = hosts.collect();
    let database = config.get_dbname().or_else(|| config.get_user());
    format!("PostgreSQL {}/{}", hosts.join(","), database.unwrap_or_default())
}

/// An error with what is behind it: on its own one of the database only says "db error".
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        told = format!("{told}: {cause}");
        next = cause.source();
    }
    told
}

/// Why there is no connection: nobody there, not with this account, or no such database.
pub(super) fn no_connection(place: &str, error: &PoolError) -> OpenError {
    let (place, reason) = (place.to_owned(), told(error));
    let code = match error {
        PoolError::Backend(error) => error.code().map(|state| state.code().to_owned()),
        _ => None,
    };
    match code.as_deref().map(|code| (code, code.get(..2))) {
        Some(("3D000", _)) => OpenError::Missing { place, reason },
        Some((_, Some("28"))) => OpenError::Denied { place, reason },
        Some((_, Some("08" | "53" | "57"))) => OpenError::Unreachable { place, reason },
        Some(_) => OpenError::Io { place, reason },
        // The server asked for a password, and there is none to send.
        None if reason.ends_with("password missing") => OpenError::Denied { place, reason },
        None => OpenError::Unreachable { place, reason },
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> OpenError {
    wrong(&path.display().to_string(), error)
}

/// What was given to reach the database can't be right.
fn wrong(place: &str, reason: impl std::fmt::Display) -> OpenError {
    OpenError::Options {
        place: place.to_owned(),
        reason: reason.to_string(),
    }
}

pub(super) fn unusable(place: &str, reason: impl std::fmt::Display) -> OpenError {
    OpenError::Io {
        place: place.to_owned(),
        reason: reason.to_string(),
    }
}
