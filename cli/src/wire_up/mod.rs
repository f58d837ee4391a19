//! The only place that names concrete drivers, stores and servers: everything else speaks to traits, to the
//! facade, or to the manager's API.
//!
//! * [`connector`]: which driver speaks to an endpoint. [`redfish`]: drivers for Redfish services. [`rack`]: emulated racks and recorded machines.
//! * [`endpoint_files`]: files that endpoints may name. [`key_files`]: checks of the manager's own secrets.
//! * [`agent`]: agents on hosts.
//! * [`hooks`]: commands that schedules may have run.
//! * [`store`]: where a manager keeps everything. [`manager`]: its API.

mod agent;
mod connector;
mod endpoint_files;
mod hooks;
mod key_files;
mod manager;
mod rack;
mod redfish;
mod store;

pub use connector::{AnyConnector, connect_all};
pub use endpoint_files::ManagerFiles;
pub use hooks::read_hooks;
pub use key_files::{check_secret_key, warn_of_exposed};
pub use manager::{
    ApiServing, EventOptions, Limits, ServedApi, SiteCertificate, listen, manager_address, serve_api,
    unreached,
};
pub use poolwright_store::{Copied, Damaged};
pub use rack::{
    EndpointInfo, Rack, RackServing, ServedRack, endpoints_of, files_of_rack, last_address, read_rack,
    serve_rack, serve_recording,
};
pub use redfish::{RedfishConnector, hides_machines, record};
pub use store::{SECRET_KEY, StoreArgs, backup, open_store, open_store_beside, own_key, restore};
