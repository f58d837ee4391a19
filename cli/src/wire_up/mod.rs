//! The only place that names concrete drivers, stores and servers: everything else speaks to traits, to the
//! facade, or to the manager's API.
//!
//! * [`connector`]: which driver speaks to an endpoint. [`redfish`]: drivers for Redfish services. [`rack`]: emulated racks and recorded machines.
//! * [`agent`]: agents on hosts.
//! * [`hooks`]: commands that schedules may have run.
//! * [`store`]: where a manager keeps everything. [`manager`]: its API.

mod agent;
mod connector;
mod hooks;
mod manager;
mod rack;
mod redfish;
mod store;

pub use connector::{AnyConnector, connect_all};
pub use hooks::read_hooks;
pub use manager::{
    ApiServing, EventOptions, Limits, ServedApi, SiteCertificate, listen, manager_address, serve_api,
    unreached,
};
pub use rack::{
    EndpointInfo, Rack, RackServing, ServedRack, endpoints_of, last_address, read_rack, serve_rack,
    serve_recording,
};
pub use redfish::{RedfishConnector, client_that_believes, record};
pub use store::{StoreArgs, backup, open_store, own_key, restore};
