//! The Redfish client and driver.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod client;
mod southbound;
