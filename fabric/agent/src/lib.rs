//! The host's side: what an agent on a host sees, and how a manager asks it.
//!
//! * [`inventory`]: who this host is, its PCIe, and the driver of its GPUs. A host without a GPU is healthy.
//! * [`preflight`]: whether a GPU could come to a port. [`verify`]: whether one that came can be used. Both are lists of
//!   [`Check`]s, and what can't be told is never taken for good.
//! * [`holders`]: who uses a function.
//! * [`prepare`]: what a host needs before any of that goes well, computed and only told.
//! * [`serve`](serve::serve) answers a manager over mutual TLS, in the words of [`wire`]; [`AgentHost`] is the manager's side
//!   of that.
//! * [`commands`] are those of `poolwright-agent`, and of `poolwright agent`.
//! * `ready` makes GPUs that came fit for work, and undoes that; `drain` takes a GPU from its driver and the kernel, and undoes that; both for a manager alone.
//!
//! Invariants: looking changes nothing, needs no right beyond reading, and says where more rights would show more.

mod ailing;
mod answers;
#[cfg(test)]
mod bench;
mod check;
mod client;
pub mod command;
pub mod commands;
mod drain;
pub mod folder;
mod holders;
mod hooks;
mod host;
mod inventory;
mod kept;
mod measuring;
mod module;
mod nodes;
mod preflight;
mod prepare;
mod ready;
pub mod serve;
mod settings;
mod sight;
mod signing;
mod tls;
mod verify;
pub mod wire;

pub use check::{Check, Verdict, verdict};
pub use client::AgentHost;
pub use holders::{Holder, Holders, How, Unreadable, holders};
pub use host::{Identity, identity};
pub use inventory::{Gpu, Inventory, inventory};
pub use preflight::{Coming, preflight};
pub use prepare::{Advice, Largest, Preparation, prepare};
pub use signing::key_and_request;
pub use verify::{Expected, verify};
