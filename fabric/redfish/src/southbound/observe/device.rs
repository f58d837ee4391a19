//! PCIe devices with their functions, and which of them are GPUs.

use super::walk::Walk;
use super::words;
use crate::southbound::{links, quirks};
use futures_util::future::join_all;
use poolwright_model::topology::{Health, PciFunction, PciIds};
use poolwright_model::units::LinkWidth;
use poolwright_redfish_model as redfish;

/// Vendors of GPUs, and the classes under which they show them: display controllers (`0300`, `0302`, `0380`)
/// and processing accelerators (`1200`). A display controller of anybody else is a BMC's screen.
/// Source: pci.ids (vendors, classes).
const GPU_CLASSES: [(&str, &[&str]); 4] = [
    ("10de", &["0300", "0302"]),
    ("1002", &["0300", "0302", "0380", "1200"]),
    ("8086", &["0380", "1200"]),
    ("1da3", &["1200"]),
];

/// A PCIe device with its functions.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceSeen {
    pub(crate) path: String,
    pub(crate) uuid: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) slot: Option<String>,
    pub(crate) link: LinkWidth,
    pub(crate) health: Health,
    pub(crate) firmware: Option<String>,
    /// Whether its locator is lit; `None` where it has none.
    pub(crate) lit: Option<bool>,
    pub(crate) enabled: bool,
    /// Switch ports that it says it is connected to.
    pub(crate) ports: Vec<String>,
    /// Chassis that it says it is in.
    pub(crate) chassis: Option<String>,
    pub(crate) functions: Vec<FunctionSeen>,
    /// All that it says of itself in words.
    words: String,
}

#[derive(Debug, Clone)]
pub(crate) struct FunctionSeen {
    pub(crate) path: String,
    pub(crate) function: PciFunction,
    /// The device that it belongs to, for those that were reached without it.
    pub(crate) device: Option<String>,
    /// It has ids that say nothing.
    blank_ids: bool,
    /// `DisplayController` or `ProcessingAccelerators`, by the service's own word.
    draws_or_computes: bool,
}

/// A device and all its functions. `None` where it can't be read, or where the place for it is empty.
pub(crate) async fn read(walk: &Walk<'_>, path: &str) -> Option<DeviceSeen> {
    let device: redfish::PCIeDevice = walk.read(path).await?;
    with_functions(walk, path, &device).await
}

/// All devices of a collection.
pub(crate) async fn read_all(walk: &Walk<'_>, collection: &str) -> Vec<DeviceSeen> {
    let devices = walk.members::<redfish::PCIeDevice>(collection).await.read;
    let devices = devices
        .iter()
        .map(|(path, device)| with_functions(walk, path, device));
    join_all(devices).await.into_iter().flatten().collect()
}

/// Functions that a processor links to itself.
pub(crate) async fn read_functions(walk: &Walk<'_>, paths: &[String]) -> Vec<FunctionSeen> {
    let functions = paths.iter().map(|path| async move {
        let function: redfish::PCIeFunction = walk.read(path).await?;
        Some((path.clone(), function))
    });
    let read = join_all(functions).await.into_iter().flatten();
    read.enumerate()
        .map(|(place, (path, function))| FunctionSeen::of(path, &function, place))
        .collect()
}

async fn with_functions(walk: &Walk<'_>, path: &str, device: &redfish::PCIeDevice) -> Option<DeviceSeen> {
    if words::is_absent(device.status.as_deref()) {
        return None;
    }
    let links = device.links.as_deref();
    let functions = match links::to(device.pcie_functions.as_ref()) {
        Some(collection) => {
            let members = walk.members::<redfish::PCIeFunction>(collection).await.read;
            let numbered = members.into_iter().enumerate();
            numbered
                .map(|(place, (path, function))| FunctionSeen::of(path, &function, place))
                .collect()
        }
        None => read_functions(walk, &links::all(links.and_then(|l| l.pcie_functions.as_ref()))).await,
    };
    Some(DeviceSeen::of(path, device, functions))
}

impl DeviceSeen {
    fn of(path: &str, device: &redfish::PCIeDevice, mut functions: Vec<FunctionSeen>) -> Self {
        functions.sort_by_key(|seen| seen.function.number);
        let links = device.links.as_deref();
        let slot = device.slot.as_deref().and_then(|slot| slot.location.as_deref());
        let texts = [&device.manufacturer, &device.model, &device.name, &device.id];
        let words: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
        Self {
            path: path.to_owned(),
            uuid: words::said(device.uuid.as_deref()),
            serial: words::said(device.serial_number.as_deref()),
            model: words::said(device.model.as_deref()),
            vendor: words::said(device.manufacturer.as_deref()),
            slot: slot.and_then(place),
            link: words::link_width(device.pcie_interface.as_deref()),
            health: words::health(device.status.as_deref()),
            firmware: words::said(device.firmware_version.as_deref()),
            lit: words::lit(device.location_indicator_active, &device.extra),
            enabled: words::is_enabled(device.status.as_deref()),
            ports: links::all(links.and_then(|l| l.connected_pcie_ports.as_ref())),
            chassis: links::all(links.and_then(|l| l.chassis.as_ref()))
                .into_iter()
                .next(),
            functions,
            words: words.join(" "),
        }
    }

    /// The ids of the first function that has some.
    pub(crate) fn pci_ids(&self) -> Option<PciIds> {
        self.functions.iter().find_map(|seen| seen.function.ids.clone())
    }

    /// Whether one of its functions is a GPU's: by class and vendor; where a function has no ids, by what the
    /// service calls its class and the device.
    pub(crate) fn is_gpu(&self) -> bool {
        self.functions
            .iter()
            .any(|seen| match (&seen.function.ids, &seen.function.class) {
                (Some(ids), Some(class)) => is_gpu_class(&ids.vendor, class),
                (Some(ids), None) => {
                    seen.draws_or_computes && GPU_CLASSES.iter().any(|(vendor, _)| *vendor == ids.vendor)
                }
                (None, _) => seen.draws_or_computes && calls_itself_gpu(&self.words),
            })
    }

    /// Notes what its functions leave out.
    pub(crate) fn note_quirks(&self, walk: &Walk<'_>) {
        if self.functions.iter().any(|seen| seen.function.class.is_none()) {
            walk.quirk(quirks::CLASS_CODE_MISSING);
        }
        if self.functions.iter().any(|seen| seen.blank_ids) {
            walk.quirk(quirks::PCI_IDS_BLANK);
        }
    }
}

impl FunctionSeen {
    fn of(path: String, function: &redfish::PCIeFunction, place: usize) -> Self {
        use redfish::PCIeFunctionDeviceClass as Class;
        let number = function.function_id.and_then(|id| u8::try_from(id).ok());
        let device = function
            .links
            .as_deref()
            .and_then(|links| links.pcie_device.as_ref());
        Self {
            function: PciFunction {
                number: number.or_else(|| u8::try_from(place).ok()).unwrap_or(u8::MAX),
                class: words::class_code(function.class_code.as_deref()),
                ids: words::pci_ids(function),
            },
            device: links::to(device).map(str::to_owned),
            blank_ids: function.vendor_id.is_some() && words::hex(function.vendor_id.as_deref(), 4).is_none(),
            draws_or_computes: matches!(
                function.device_class,
                Some(Class::DisplayController | Class::ProcessingAccelerators)
            ),
            path,
        }
    }
}

/// Whether a text names a GPU.
pub(crate) fn calls_itself_gpu(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut words = ["gpu", "nvidia", "instinct", "gaudi"].iter();
    words.any(|word| text.contains(word)) && !text.contains("bluefield")
}

fn is_gpu_class(vendor: &str, class: &str) -> bool {
    GPU_CLASSES
        .iter()
        .any(|(known, classes)| *known == vendor && classes.iter().any(|prefix| class.starts_with(prefix)))
}

/// What the label on the chassis says, after the part that bears the label where that is told.
pub(crate) fn place(location: &redfish::Location) -> Option<String> {
    let part = location.part_location.as_deref()?;
    let label = words::said(part.service_label.as_deref())
        .or_else(|| part.location_ordinal_value.map(|number| number.to_string()))?;
    Some(match words::said(location.part_location_context.as_deref()) {
        Some(context) => format!("{context}/{label}"),
        None => label,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(json: serde_json::Value) -> FunctionSeen {
        let function = serde_json::from_value(json).unwrap();
        FunctionSeen::of("/f".into(), &function, 0)
    }

    fn device(json: serde_json::Value, function_json: serde_json::Value) -> DeviceSeen {
        let device = serde_json::from_value(json).unwrap();
        DeviceSeen::of("/d", &device, vec![function(function_json)])
    }

    fn is_gpu(device_json: serde_json::Value, function_json: serde_json::Value) -> bool {
        device(device_json, function_json).is_gpu()
    }

    #[test]
    fn gpus_are_told_by_class_and_vendor() {
        use serde_json::json;
        for (vendor, class, expected) in [
            ("0x10DE", "0x030200", true),
            ("10de", "030000", true),
            ("0x1002", "0x120000", true),
            // A BMC's screen (ASPEED), an audio function, an integrated screen.
            ("0x1A03", "0x030000", false),
            ("0x10DE", "0x040300", false),
            ("0x8086", "0x030000", false),
        ] {
            let function = json!({"VendorId": vendor, "DeviceId": "0x2331", "ClassCode": class});
            assert_eq!(is_gpu(json!({}), function), expected, "{vendor} {class}");
        }
    }

    #[test]
    fn a_function_without_ids_is_believed_only_with_the_devices_word() {
        use serde_json::json;
        let blank = json!({"VendorId": "0x0000", "DeviceId": "0x0000", "DeviceClass": "DisplayController"});
        assert!(is_gpu(
            json!({"Name": "GPU3", "Model": "H100 80GB HBM3"}),
            blank.clone()
        ));
        assert!(!is_gpu(json!({"Name": "Onboard VGA"}), blank));
    }

    #[test]
    fn a_device_says_where_it_sits() {
        use serde_json::json;
        let seen = device(
            json!({"SerialNumber": "S1", "Slot": {"Location": {"PartLocation": {"ServiceLabel": "Slot 4"}}},
                   "PCIeInterface": {"PCIeType": "Gen5", "LanesInUse": 16}}),
            json!({"FunctionId": 0, "VendorId": "0x10de", "DeviceId": "0x2331"}),
        );
        assert_eq!(seen.slot.as_deref(), Some("Slot 4"));
        assert_eq!(seen.link.lanes.map(|lanes| lanes.0), Some(16));
        assert_eq!(seen.pci_ids().unwrap().device, "2331");
    }
}
