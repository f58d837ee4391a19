//! The Redfish service and the JSON API over the facade: thin. A handler reads the request, asks the [`Composer`], and writes what it
//! says. HTTPS only, with a certificate of the manager's own authority or of the site's; every request but the probes
//! carries a name and a password, or the token of a session, or comes with a machine's certificate.
//!
//! [`audit`] writes the audit log. [`foreign`] refuses changes that pages of other sites request.
//!
//! Invariants: no handler decides anything about GPUs; a request is bounded in size and time ([`limits`]).

mod agents;
mod api;
mod audit;
mod auth;
mod certificate;
mod der;
mod foreign;
mod holder;
mod limits;
mod problem;
mod redfish;
mod renewal;
mod replacement;
mod request;
mod room;
mod server;
mod serving;
mod tls;
mod unique;
pub mod untrusted;
mod validity;

#[cfg(feature = "schema")]
pub use api::openapi_document;
pub use certificate::SiteCertificate;
pub use limits::Limits;
pub use server::{EventOptions, Listener, Options, Running, ServeError, serve};

use crate::redfish::events::hub::Hub;
use crate::redfish::events::push::Post;
use crate::serving::Serving;
use poolwright_service::Composer;
use poolwright_service::accounts::Accounts;
use poolwright_service::sessions::Sessions;
use std::sync::Arc;

/// What every handler is handed.
#[derive(Clone)]
pub(crate) struct Api {
    pub composer: Composer,
    pub accounts: Arc<Accounts>,
    pub sessions: Arc<Sessions>,
    pub hub: Arc<Hub>,
    pub post: Arc<Post>,
    pub serving: Arc<Serving>,
    pub limits: Limits,
    /// For what only asks.
    pub rooms: api::Rooms,
}
