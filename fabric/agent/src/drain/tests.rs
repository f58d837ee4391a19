//! What a GPU was set to while its host had it, with a stand-in for its driver's library and a kernel of files.

#[path = "../../tests/agent/kernel.rs"]
mod kernel;
#[path = "../../../pcie/tests/tree/mod.rs"]
mod tree;

use super::Drain;
use crate::folder::Folder;
use crate::wire::Target;
use kernel::{Kernel, Mood};
use poolwright_model::id::GpuId;
use poolwright_pcie::Nvml;
use std::fs;
use std::path::PathBuf;
use tree::{GPU, Host, gpu_config, host, library};

fn it() -> Target {
    Target {
        gpus: vec![GpuId::from_lossy("gpu-1")],
        slot: Some("10".to_owned()),
        ..Target::default()
    }
}

struct Bench {
    host: Host,
    /// The stand-in for the driver's library.
    driver: PathBuf,
    folder: Folder,
}

impl Bench {
    fn new() -> Self {
        let (host, _) = host(&gpu_config());
        let folder = Folder::at(host.root.path().join("agent"));
        folder.make().unwrap();
        fs::create_dir_all(host.root.path().join("tmp")).unwrap();
        Self {
            driver: library(&host),
            folder,
            host,
        }
    }

    fn drain(&self) {
        self.at_the_host(&|| Nvml::load_from(&self.driver))
            .drain(&it())
            .unwrap()
    }

    fn undrain(&self) {
        self.at_the_host(&|| Nvml::load_from(&self.driver))
            .undrain(&it())
            .unwrap();
    }

    fn at_the_host<'a>(&'a self, nvml: &'a dyn Fn() -> Nvml) -> Drain<'a> {
        Drain {
            root: self.host.root.path(),
            folder: &self.folder,
            nvml,
        }
    }

    /// Where the stand-in keeps a value.
    fn at(&self, name: &str) -> PathBuf {
        self.host.root.path().join(format!("tmp/nvml_{name}_{GPU}"))
    }

    fn is(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap().trim().to_owned()
    }

    fn put(&self, name: &str, value: &str) {
        fs::write(self.at(name), value).unwrap();
    }

    /// As a GPU does whose power goes.
    fn forget(&self) {
        for name in ["compute", "power", "persistence"] {
            let _ = fs::remove_file(self.at(name));
        }
    }
}

#[test]
fn a_gpu_that_comes_back_is_set_to_what_it_was() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    for (name, value) in [("compute", "3"), ("power", "300000"), ("persistence", "1")] {
        bench.put(name, value);
    }
    bench.drain();
    assert!(!kernel.is_there());
    bench.forget();
    bench.undrain();
    assert!(kernel.is_bound());
    let is = ["compute", "power", "persistence"].map(|name| bench.is(name));
    assert_eq!(is, ["3", "300000", "1"]);
}

#[test]
fn also_after_a_start_of_the_host_in_between() {
    let bench = Bench::new();
    let random = bench.host.root.path().join("proc/sys/kernel/random");
    fs::create_dir_all(&random).unwrap();
    let starts = |id: char| {
        let id = format!("{id}1111111-2222-4333-8444-555555555555\n");
        fs::write(random.join("boot_id"), id).unwrap();
    };
    starts('a');
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("power", "300000");
    bench.drain();
    bench.forget();
    starts('b');
    kernel.start_again();
    bench.undrain();
    assert_eq!(bench.is("power"), "300000");
}
