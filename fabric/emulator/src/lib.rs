//! Racks that behave like real ones: over HTTPS as Redfish, and in process with a manual clock; with faults.
//!
//! * [`rack`]: what a rack consists of, read from a short file. Does not change.
//! * [`state`]: the truth about it: what is bound to what. A pure value.
//! * [`serve_recording`]: a recorded tree of a real machine, by the same front, read-only.
//! * [`fault`]: what goes wrong, by script. [`clock`]: the time that it all lives by.
//! * [`Emulation`]: one rack with its truth, its faults and its time.
//! * [`in_process`]: that rack behind the driver's traits, with no wire.
//! * [`serve`]: that rack over HTTPS; what it shows is in `resources`, how it answers in `http`.
//!
//! The emulator and the driver are written apart, both from DMTF's schemas and the vendors' published calls,
//! so that they do not share one misreading.

mod access;
pub mod clock;
mod emulation;
mod events;
pub mod fault;
mod http;
mod in_process;
pub mod rack;
mod resources;
pub mod state;
mod subscriptions;

pub use emulation::Emulation;
pub use http::{
    EndpointInfo, EndpointsFile, Running, ServeError, ServeOptions, Served, serve, serve_emulation,
    serve_recording,
};
pub use in_process::{InProcess, in_process, serial_at};
pub use rack::{Rack, RackError};
