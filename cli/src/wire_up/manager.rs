//! A manager's API, and the address that it is asked at.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::service_failure::refused;
use poolwright_northbound::{Listener, ServeError};
use poolwright_service::Composer;
use std::net::SocketAddr;
use std::path::Path;

pub use poolwright_terminal::manager::{manager_address, unreached};

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
        ServeError::Service(error) => return refused(error.clone()),
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}
