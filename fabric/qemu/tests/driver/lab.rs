//! Two guests with a port or two, three devices, and the driver.

use crate::guest::Guest;
use poolwright_driver::{Bound, ControlPoint, DriverError, Fabric, Observation};
use poolwright_model::control::ControlStyle;
use poolwright_qemu::QemuDriver;
use std::time::Duration;
use tempfile::TempDir;

pub const DEADLINE: Duration = Duration::from_secs(60);
/// For what is known never to come.
pub const SHORT: Duration = Duration::from_millis(900);

const FILE: &str = r#"
[[host]]
id = "left"
uuid = "11111111-2222-3333-4444-555555555555"
qmp = "left.qmp"
port = [{ id = "wide", slot = "1" }, { id = "small", slot = "2" }]

[[host]]
id = "right"
uuid = "66666666-7777-8888-9999-aaaaaaaaaaaa"
qmp = "right.qmp"
port = [{ id = "wide", slot = "1" }]

[[gpu]]
id = "gpu-a"
model = "NVIDIA H100 80GB HBM3"
memory = "80GiB"
serial = "1650000000001"
pci = "10de:2330"
device = { driver = "edu" }

[[gpu]]
id = "gpu-b"
memory = "80GiB"
serial = "1650000000002"
device = { driver = "edu", dma_mask = 255 }

[[gpu]]
id = "gpu-c"
memory = "80GiB"
serial = "1650000000003"
device = { driver = "x-pci-proxy-dev" }
socket = "gpu-c.sock"
"#;

pub struct Lab {
    pub folder: TempDir,
    pub left: Guest,
    pub right: Guest,
    pub driver: QemuDriver,
}

impl Lab {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        std::fs::write(&file, FILE).unwrap();
        let guest = |name: &str, uuid, ports: &[&str]| {
            Guest::start(&folder.path().join(format!("{name}.qmp")), uuid, ports)
        };
        let left = guest("left", "11111111-2222-3333-4444-555555555555", &["wide", "small"]);
        let right = guest("right", "66666666-7777-8888-9999-aaaaaaaaaaaa", &["wide"]);
        let driver = QemuDriver::open("lab".parse().unwrap(), &file).unwrap();
        Self {
            folder,
            left,
            right,
            driver,
        }
    }

    pub fn at(address: &str) -> ControlPoint {
        ControlPoint {
            endpoint: "lab".parse().unwrap(),
            style: ControlStyle::Connections,
            address: address.to_owned(),
        }
    }

    pub async fn bind(&self, gpu: &str, port: &str) -> Result<(), DriverError> {
        let (gpu, port) = (Self::at(gpu), Self::at(port));
        self.driver.bind(&gpu, &port, DEADLINE).await
    }

    pub async fn unbind(&self, gpu: &str, port: &str, deadline: Duration) -> Result<(), DriverError> {
        let (gpu, port) = (Self::at(gpu), Self::at(port));
        self.driver.unbind(&gpu, &port, deadline).await
    }

    pub async fn bound(&self, gpu: &str) -> Result<Bound, DriverError> {
        self.driver.bound(&Self::at(gpu), DEADLINE).await
    }

    pub async fn observe(&self) -> Observation {
        self.driver.observe(&()).await.unwrap()
    }
}

pub fn to(port: &str) -> Bound {
    Bound::To {
        port_address: port.to_owned(),
    }
}
