//! An agent and its manager, over the wire; and those that pretend to be one of them.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod asked;
mod binary;
mod certificates;
mod coming;
mod draining;
mod exchanged;
mod holding;
mod inventory;
mod kernel;
mod liar;
mod lies;
mod measuring;
mod preparing;
mod readying;
mod renewing;
mod strangers;
#[path = "../../../pcie/tests/pcie/tree/mod.rs"]
mod tree;

use certificates::{Authority, Pair, UUID};
use poolwright_agent::folder::Folder;
use poolwright_agent::serve::{Options, Running, serve};
use poolwright_agent::{AgentHost, wire};
use poolwright_driver::HostTarget;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, HostPortId};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const BOOT: &str = "5d7c2a3e-6f1b-4a57-9d0e-3b1f7f2f9c11";
/// Of the GPU in the tree.
pub const SERIAL: &str = "48-25-2d-00-0a-3b-11-c7";
/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(30);

/// Who the host is, where nobody uses anything.
pub fn name_host(root: &Path) {
    let random = root.join("proc/sys/kernel/random");
    fs::create_dir_all(&random).unwrap();
    fs::write(random.join("boot_id"), format!("{BOOT}\n")).unwrap();
}

pub async fn serving(root: &Path, folder: &Folder) -> Running {
    serving_with(root, folder, None).await
}

/// The same, with the library of the NVIDIA driver.
pub async fn serving_with(root: &Path, folder: &Folder, driver: Option<PathBuf>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options {
        root: root.to_owned(),
        folder: folder.clone(),
        driver,
    };
    serve(listener, options).await.unwrap()
}

/// A manager with a certificate, at an address.
pub fn manager(authority: &Authority, shows: &Pair, address: SocketAddr) -> AgentHost {
    AgentHost::new(
        ControlEndpointId::from_lossy("agent-host-1"),
        &address.to_string(),
        &wire::agent_name(UUID),
        &authority.pem,
        &shows.certificate,
        &shows.key,
    )
    .unwrap()
}

pub fn target(slot: Option<&str>, known_as: &[&str]) -> HostTarget {
    HostTarget {
        host: HostId::from_lossy("host-1"),
        host_port: HostPortId::from_lossy("host-1/p0"),
        gpus: vec![GpuId::from_lossy("gpu-1")],
        known_as: known_as.iter().map(|name| (*name).to_owned()).collect(),
        slot: slot.map(str::to_owned),
        seen_at: Vec::new(),
        ids: None,
        largest_bar: None,
        epoch: None,
    }
}
