//! Who a host is, and since when it runs.

use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No file that is read here says more.
const LONGEST: u64 = 4096;

/// A host as its kernel names it. `None`: it can't be read, as `product_uuid` by nobody but root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    pub hostname: Option<String>,
    /// Another one after each start of the kernel.
    pub boot_id: Option<String>,
    /// The UUID of its SMBIOS: the one that its BMC tells, too.
    pub smbios_uuid: Option<String>,
    pub kernel: Option<String>,
    /// What the kernel was started with.
    pub kernel_line: Option<String>,
    /// Version of the module `nvidia`, where it is loaded. It refuses to load where there is no GPU.
    pub nvidia_driver: Option<String>,
}

/// Reads who the host under a root is.
pub fn identity(root: &Path) -> Identity {
    let read = |path: &str| line(&root.join(path));
    Identity {
        hostname: read("proc/sys/kernel/hostname"),
        boot_id: read("proc/sys/kernel/random/boot_id"),
        smbios_uuid: read("sys/class/dmi/id/product_uuid").map(|uuid| uuid.to_lowercase()),
        kernel: read("proc/sys/kernel/osrelease"),
        kernel_line: read("proc/cmdline"),
        nvidia_driver: read("sys/module/nvidia/version"),
    }
}

fn line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(LONGEST)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_string();
    (!text.is_empty()).then_some(text)
}
