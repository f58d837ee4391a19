//! A host of files with one GPU and a stand-in for its driver's library, which keeps what the GPU is set to in files.

#[path = "../../pcie/tests/pcie/tree/mod.rs"]
pub(crate) mod tree;

#[path = "../tests/agent/kernel.rs"]
pub(crate) mod kernel;

use crate::drain::Drain;
use crate::folder::Folder;
use crate::ready::Ready;
use crate::wire::Target;
use poolwright_driver::DriverError;
use poolwright_model::id::GpuId;
use poolwright_pcie::Nvml;
use std::fs;
use std::path::PathBuf;
use tree::{GPU, Host, gpu_config, host, library};

/// The GPU, as a manager asks for it.
pub(crate) fn it() -> Target {
    Target {
        gpus: vec![GpuId::from_lossy("gpu-1")],
        slot: Some("10".to_owned()),
        ..Target::default()
    }
}

/// See the module.
pub(crate) struct Bench {
    pub host: Host,
    /// The stand-in for the driver's library.
    pub driver: PathBuf,
    pub folder: Folder,
}

impl Bench {
    pub fn new() -> Self {
        let (host, _) = host(&gpu_config());
        let folder = Folder::at(host.root.path().join("agent"));
        folder.make().unwrap();
        Self {
            driver: library(&host),
            folder,
            host,
        }
    }

    pub fn make(&self) -> Result<String, DriverError> {
        self.ready(&|| self.nvml()).make(&it())
    }

    pub fn unmake(&self) -> Result<(), DriverError> {
        self.ready(&|| self.nvml()).unmake(&it())
    }

    pub fn drain(&self) {
        self.draining(&|| self.nvml()).drain(&it()).unwrap();
    }

    /// It is in use.
    pub fn refuse_to_drain(&self) {
        let refused = self.draining(&|| self.nvml()).drain(&it()).unwrap_err();
        assert!(refused.message.contains("in use"), "{refused}");
    }

    pub fn undrain(&self) {
        self.draining(&|| self.nvml()).undrain(&it()).unwrap();
    }

    pub fn left(&self) -> Vec<String> {
        self.ready(&|| self.nvml()).left(&it()).unwrap()
    }

    pub fn put_back(&self) {
        self.ready(&|| self.nvml()).put_back(&it()).unwrap();
    }

    fn nvml(&self) -> Nvml {
        Nvml::load_from(&self.driver)
    }

    fn ready<'a>(&'a self, nvml: &'a dyn Fn() -> Nvml) -> Ready<'a> {
        Ready {
            root: self.host.root.path(),
            folder: &self.folder,
            nvml,
        }
    }

    fn draining<'a>(&'a self, nvml: &'a dyn Fn() -> Nvml) -> Drain<'a> {
        Drain {
            root: self.host.root.path(),
            folder: &self.folder,
            nvml,
        }
    }

    pub fn profile(&self, text: &str) {
        self.folder.write("profile.toml", text).unwrap();
    }

    /// What sysfs has of the GPU.
    pub fn device(&self) -> PathBuf {
        self.host.root.path().join("sys/bus/pci/devices").join(GPU)
    }

    /// Where the stand-in keeps a value.
    pub fn at(&self, name: &str) -> PathBuf {
        self.host.root.path().join(format!("tmp/nvml_{name}_{GPU}"))
    }

    pub fn is(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.at(name)).ok()?.trim().to_owned())
    }

    /// The same of several; empty where it has none.
    pub fn are<const N: usize>(&self, names: [&str; N]) -> [String; N] {
        names.map(|name| self.is(name).unwrap_or_default())
    }

    pub fn put(&self, name: &str, value: &str) {
        fs::create_dir_all(self.host.root.path().join("tmp")).unwrap();
        fs::write(self.at(name), value).unwrap();
    }
}
