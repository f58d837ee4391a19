//! The generated types, against DMTF's schemas and documents.

mod checks;
mod common;
mod interface;
mod leniency;
mod mutation;
mod published;
mod recorded;
