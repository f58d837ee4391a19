//! A manager's API, and the address that it is asked at.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_northbound::{Listener, ServeError};
use poolwright_redfish::client::{self, Endpoint, ErrorKind, NotSent, TlsFault};
use poolwright_service::Composer;
use std::net::SocketAddr;
use std::path::Path;
use url::Url;

/// How events are sent.
pub use poolwright_northbound::EventOptions;
/// What its clients may take.
pub use poolwright_northbound::Limits;
/// Where an API keeps its files, and for whom it is.
pub use poolwright_northbound::Options as ApiServing;
/// An API that is being served.
pub use poolwright_northbound::Running as ServedApi;
/// A certificate of the site's own authority.
pub use poolwright_northbound::SiteCertificate;

/// The manager's address: https, or plain http on this machine.
pub fn manager_address(text: &str) -> Result<Url, Failure> {
    let checked = Endpoint::new(text).and_then(|endpoint| endpoint.check().map(|()| endpoint.base().clone()));
    checked.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotSent(why) => why.to_string(),
            kind => kind.to_string(),
        };
        Failure::usage(format!("--server {text}: {why}"))
            .with_hint("write it as https://HOST or https://HOST:PORT; plain http is for this machine alone")
    })
}

/// Why a request did not reach the manager at `base`; `None` where it may have.
pub fn unreached(base: &str, error: &reqwest::Error) -> Option<Failure> {
    let error = client::unreached(base, error)?;
    // A manager that starts or stops hangs up: a retry may help.
    let code = match error.kind() {
        ErrorKind::Tls(fault) if !matches!(fault, TlsFault::HungUp(_)) => ExitCode::Authentication,
        _ => ExitCode::Unavailable,
    };
    let failed = |what: &str, why: &dyn std::fmt::Display, hint: &str| {
        Failure::new(code, format!("the manager at {base} {what}: {why}")).with_hint(hint)
    };
    Some(match error.kind() {
        ErrorKind::Tls(fault @ TlsFault::UnknownIssuer) => failed(
            "is not believed",
            fault,
            "give the authority of this very manager: --ca DATA_DIR/tls/ca.pem of poolwright serve, or POOLWRIGHT_CA",
        ),
        ErrorKind::Tls(fault @ TlsFault::WrongName { .. }) => failed(
            "is not believed",
            fault,
            "ask it by a name that its certificate is for (--server https://NAME:PORT, or POOLWRIGHT_SERVER), or start it with poolwright serve --name NAME",
        ),
        ErrorKind::Tls(fault @ (TlsFault::Expired | TlsFault::NotYetValid)) => failed(
            "is not believed",
            fault,
            "check the clocks of both machines; a manager renews the certificates of its own authority by itself: see \
             docs/CERTIFICATES.md",
        ),
        // One that stops just now does so.
        ErrorKind::Tls(fault @ TlsFault::HungUp(_)) => {
            failed("does not answer", fault, error.hint()).that_may_pass()
        }
        ErrorKind::Tls(fault) => failed("can't be spoken to in private", fault, error.hint()),
        ErrorKind::NotSent(NotSent::ConnectionRefused) => failed(
            "does not answer",
            &NotSent::ConnectionRefused,
            "check --server, and that the manager runs: poolwright serve --data-dir DIR",
        )
        .that_may_pass(),
        ErrorKind::NotSent(why) => failed("does not answer", why, error.hint()).that_may_pass(),
        kind => failed("does not answer", kind, error.hint()).that_may_pass(),
    })
}

/// Takes the address of the API. Nothing is changed where it can't be had.
pub fn listen(address: SocketAddr) -> Result<Listener, Failure> {
    Listener::bind(address).map_err(unserved)
}

/// Serves the API. The first start makes certificates and the administrator's password; with the key of a cluster its
/// managers have one authority.
pub async fn serve_api(
    composer: Composer,
    listener: Listener,
    serving: ApiServing,
) -> Result<ServedApi, Failure> {
    let own = serving.data_dir.join("tls");
    let served = poolwright_northbound::serve(composer, listener, serving).await;
    served.map_err(|error| match damaged_in(&own, &error) {
        Some(hint) => Failure::new(ExitCode::Generic, error.to_string()).with_hint(hint),
        None => unserved(error),
    })
}

/// The next step where a file of the manager's own directory of certificates is damaged.
fn damaged_in(own: &Path, error: &ServeError) -> Option<String> {
    let ServeError::Certificate { path, .. } = error else {
        return None;
    };
    path.starts_with(own).then(|| {
        format!(
            "put back a copy of {}, or remove this one file: the manager then serves its own certificate. Keep ca.pem \
             and ca-key.pem beside it, which clients and agents trust",
            path.display()
        )
    })
}

fn unserved(error: ServeError) -> Failure {
    let (code, hint) = match &error {
        ServeError::Listen { .. } => (
            ExitCode::Unavailable,
            "choose another address with --listen; port 0 takes a free one".to_owned(),
        ),
        ServeError::Tls(error) => (ExitCode::Generic, error.hint()),
        ServeError::Unreadable { path, .. } => (
            ExitCode::Generic,
            format!(
                "check that {} exists, its owner and its mode: the manager's account must read it",
                path.display()
            ),
        ),
        ServeError::Certificate { .. } => (
            ExitCode::Generic,
            "check --tls-cert, --tls-key and --client-ca".to_owned(),
        ),
        ServeError::Service(error) => return error.clone().into(),
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}
