//! Redfish resources as Rust types: generated from DMTF's CSDL, lenient when read, faithful when written back.
//!
//! One type serves client, emulator and service. Every property is an `Option`: reading a resource never fails
//! over one of them. What a struct cannot hold as typed (an unknown member, an explicit null, a value of another
//! type) lies in its `extra` as it was read, and is written back; see [`Extra`].
//!
//! - [`generated`]: the types, re-exported here: [`Fabric`], [`ComputerSystem`], …; `cargo run` in `codegen`
//!   writes them.
//! - [`odata`]: links ([`Ref`]) and type names ([`ODataType`]); [`action`]: where an action is invoked.
//! - [`resource`]: what all resources and all collections have in common.
//! - [`error`]: Redfish's error body. [`schema`]: the property tables; [`check`]: request bodies against them.
//!
//! How it works inside: the structs show their properties as `dyn` slots ([`object`]), so that reading and
//! writing exist once instead of once for each of several hundred types.

pub mod action;
pub mod check;
pub mod error;
pub mod extra;
mod format;
#[rustfmt::skip]
#[expect(non_camel_case_types, reason = "enumerations keep Redfish's spelling: documents and code read alike")]
pub mod generated;
pub mod object;
pub mod odata;
mod read;
pub mod resource;
pub mod schema;
mod value;
mod write;

pub use action::Action;
pub use error::ErrorBody;
pub use extra::Extra;
pub use generated::*;
pub use odata::{ODataType, Ref};
pub use resource::{Collection, Resource};
