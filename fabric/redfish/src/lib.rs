//! Redfish over HTTPS: the client and the southbound driver.

pub mod client;
pub mod southbound;
