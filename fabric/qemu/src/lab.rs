//! The lab's file: which guests there are with which ports, and what can be plugged into them.

use poolwright_driver::DriverError;
use poolwright_model::fault::FaultKind;
use poolwright_model::topology::PciIds;
use poolwright_model::units::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lab {
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    #[serde(default, rename = "gpu")]
    pub gpus: Vec<Gpu>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub id: String,
    /// As QEMU was given it (`-uuid`): the guest's SMBIOS has it.
    pub uuid: uuid::Uuid,
    /// A Unix socket of QEMU's that speaks QMP.
    pub qmp: PathBuf,
    #[serde(default, rename = "port")]
    pub ports: Vec<Port>,
}

/// A root port that something can be plugged into.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    /// As QEMU was given it (`id=`).
    pub id: String,
    /// What the guest's kernel calls its slot.
    #[serde(default)]
    pub slot: Option<String>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    /// What it is called at QEMU, too.
    pub id: String,
    #[serde(default)]
    pub model: Option<String>,
    /// Such as `80GiB`.
    #[serde(default)]
    pub memory: Option<String>,
    #[serde(default)]
    pub serial: Option<String>,
    #[serde(default)]
    pub uuid: Option<String>,
    /// Vendor and device: `10de:2330`.
    #[serde(default)]
    pub pci: Option<String>,
    /// What it is to QEMU: arguments of `device_add`.
    pub device: Map<String, Value>,
    /// A Unix socket that is opened anew each time it is plugged in, and handed to QEMU as the device's `fd`. Whoever
    /// listens there begins with each connection as after power on.
    #[serde(default)]
    pub socket: Option<PathBuf>,
}

impl Lab {
    /// Reads the file anew; what it names by relative paths lies beside it.
    pub fn read(file: &Path) -> Result<Self, DriverError> {
        let text = text_of(file).map_err(|why| wrong(file, &why))?;
        // The parser's own words would show a line of whatever file this is.
        let lab: Self = toml::from_str(&text).map_err(|error| wrong(file, &at_line(&text, &error)))?;
        lab.check().map_err(|why| wrong(file, &why))?;
        Ok(lab.beside(file.parent().unwrap_or(Path::new("/"))))
    }

    pub fn host(&self, id: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }

    pub fn gpu(&self, id: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == id)
    }

    /// A port by its address, `HOST/PORT`.
    pub fn port(&self, address: &str) -> Option<(&Host, &Port)> {
        let (host, port) = address.split_once('/')?;
        let host = self.host(host)?;
        Some((host, host.ports.iter().find(|known| known.id == port)?))
    }

    fn beside(mut self, folder: &Path) -> Self {
        for host in &mut self.hosts {
            host.qmp = folder.join(&host.qmp);
        }
        for socket in self.gpus.iter_mut().filter_map(|gpu| gpu.socket.as_mut()) {
            *socket = folder.join(&*socket);
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        all_differ("host", self.hosts.iter().map(|host| host.id.clone()))?;
        all_differ("gpu", self.gpus.iter().map(|gpu| gpu.id.clone()))?;
        all_differ(
            "uuid of a host",
            self.hosts.iter().map(|host| host.uuid.to_string()),
        )?;
        all_differ(
            "qmp socket",
            self.hosts.iter().map(|host| host.qmp.display().to_string()),
        )?;
        for host in &self.hosts {
            all_differ("port", host.ports.iter().map(|port| port.id.clone()))?;
            for id in host.ports.iter().map(|port| &port.id).chain([&host.id]) {
                is_an_id(id)?;
            }
        }
        self.gpus.iter().try_for_each(Gpu::check)
    }
}

impl Gpu {
    fn check(&self) -> Result<(), String> {
        is_an_id(&self.id)?;
        if !self.device.get("driver").is_some_and(Value::is_string) {
            return Err(format!(
                "gpu {}: its device has no driver, such as {{ driver = \"edu\" }}",
                self.id
            ));
        }
        let ours = ["id", "bus", "fd"];
        if let Some(name) = ours.into_iter().find(|name| self.device.contains_key(*name)) {
            return Err(format!("gpu {}: {name} is given by whoever plugs it in", self.id));
        }
        if self.pci.is_some() && self.pci_ids().is_none() {
            return Err(format!("gpu {}: pci is written like 10de:2330", self.id));
        }
        let memory = self.memory.as_deref().map(str::parse::<Bytes>).transpose();
        memory
            .map(|_| ())
            .map_err(|error| format!("gpu {}: {error}", self.id))
    }

    pub fn memory_bytes(&self) -> Option<Bytes> {
        self.memory.as_deref()?.parse().ok()
    }

    /// Vendor and device, four hexadecimal digits each.
    pub fn pci_ids(&self) -> Option<PciIds> {
        let four = |text: &str| text.len() == 4 && text.chars().all(|c| c.is_ascii_hexdigit());
        let (vendor, device) = self.pci.as_deref()?.split_once(':')?;
        (four(vendor) && four(device)).then(|| PciIds {
            vendor: vendor.to_ascii_lowercase(),
            device: device.to_ascii_lowercase(),
            subsystem_vendor: None,
            subsystem: None,
        })
    }
}

/// What QEMU takes for an id.
fn is_an_id(id: &str) -> Result<(), String> {
    let well = id.starts_with(|c: char| c.is_ascii_alphabetic())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        && id.len() <= 60;
    match well {
        true => Ok(()),
        false => Err(format!(
            "{id:?} is no id for QEMU: a letter, then letters, digits, - . or _, at most 60"
        )),
    }
}

fn all_differ(what: &str, names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            return Err(format!("{what} {name} is there twice"));
        }
    }
    Ok(())
}

fn text_of(file: &Path) -> Result<String, String> {
    let about = fs::metadata(file).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > LARGEST {
        return Err(format!("it is no file of at most {LARGEST} bytes"));
    }
    fs::read_to_string(file).map_err(|error| error.to_string())
}

fn at_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    }
}

fn wrong(file: &Path, why: &str) -> DriverError {
    DriverError::no_effect(format!("lab file {}: {why}", file.display()))
        .with_hint("docs/LAB.md has a lab file that works")
        .with_fault(FaultKind::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[host]]
id = "left"
uuid = "11111111-2222-3333-4444-555555555555"
qmp = "left.qmp"
port = [{ id = "wide", slot = "1" }]

[[gpu]]
id = "gpu-a"
memory = "80GiB"
pci = "10DE:2330"
device = { driver = "x-pci-proxy-dev" }
socket = "gpu-a.sock"
"#;

    fn read(text: &str) -> Result<Lab, DriverError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        fs::write(&file, text).unwrap();
        Lab::read(&file)
    }

    #[test]
    fn what_a_lab_has_lies_beside_its_file() {
        let lab = read(GOOD).unwrap();
        let (host, port) = lab.port("left/wide").unwrap();
        assert!(host.qmp.is_absolute() && host.qmp.ends_with("left.qmp"));
        assert_eq!(port.slot.as_deref(), Some("1"));
        let gpu = lab.gpu("gpu-a").unwrap();
        assert!(gpu.socket.as_ref().unwrap().is_absolute());
        assert_eq!(gpu.memory_bytes().unwrap().gib(), 80.0);
        assert_eq!(lab.port("left/narrow"), None);
        assert_eq!(lab.port("wide"), None);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_and_nothing_that_it_holds() {
        let cases = [
            ("root:$6$secret:19000:0", "line 1"),
            ("[[host]]\nid = 7\n", "line 2"),
            (&GOOD.replace("wide", "a b"), "\"a b\" is no id for QEMU"),
            (
                &GOOD.replace("x-pci-proxy-dev\"", "edu\", bus = \"pcie.0\""),
                "bus is given by",
            ),
            (&GOOD.replace("driver =", "drives ="), "its device has no driver"),
            (&GOOD.replace("10DE:2330", "H100"), "10de:2330"),
            (&GOOD.replace("80GiB", "much"), "80GiB"),
            (
                &GOOD.replace("id = \"wide\", slot = \"1\" }", "id = \"w\" }, { id = \"w\" }"),
                "port w is there twice",
            ),
        ];
        for (text, told) in cases {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(told), "{told}: {error}");
            assert!(!error.message.contains("secret"), "{error}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn no_file_and_no_plain_file_are_told() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none.toml")] {
            let error = Lab::read(&path).unwrap_err();
            assert!(error.message.contains(&path.display().to_string()), "{error}");
        }
    }
}
