//! The emulator over HTTPS, asked by plain requests: no Redfish client of ours takes part, so that a misreading
//! of the driver can't hide one of the emulator.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod access;
mod bind;
mod bodies;
mod faults;
mod headers;
mod keeping;
mod ready;
mod recording;
mod scale;
mod site;
