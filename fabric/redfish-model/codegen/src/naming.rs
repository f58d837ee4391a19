//! How Redfish's names become Rust's.
//!
//! A type keeps its name if that starts with its schema's, else the schema's name goes in front; types of the
//! shared `Resource` schema keep their names too, save three that other schemas use for things of their own.
//! The rule looks at one name alone, so adding a root never renames what is there.

/// Spellings that the case of letters alone would cut wrongly. Where two fit, the longer wins.
const ATOMS: &[&str] = &[
    "DLLP",
    "ETag",
    "GBps",
    "GHz",
    "GiB",
    "Gbps",
    "IPv4",
    "IPv6",
    "InfiniBand",
    "KiB",
    "MBps",
    "MHz",
    "Mbps",
    "MiB",
    "MilliAmps",
    "MilliWatts",
    "NVLink",
    "NVMe",
    "OAuth",
    "OAuth2",
    "OData",
    "PCIe",
    "PoE",
    "QoS",
    "RDMA",
    "RKey",
    "RX",
    "RoCE",
    "SecurID",
    "SoC",
    "TACACSplus",
    "TX",
    "TiB",
    "VLan",
    "dBm",
    "iSCSI",
    "kHz",
    "kVAh",
    "kVARh",
    "kWh",
    "vPPBs",
];

/// Words that Rust keeps for itself and that occur, or could occur, as property names.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "extern", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "try", "type",
    "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that the generated code needs for something else.
const RESERVED: &[&str] = &[
    "Action",
    "ActionSchema",
    "Box",
    "Collection",
    "ErrorBody",
    "Extra",
    "Kind",
    "Number",
    "ODataType",
    "Option",
    "Property",
    "Ref",
    "Resource",
    "String",
    "Type",
    "Vec",
];

/// The Rust name of type `name` of `schema`, both as in CSDL, without a version.
pub fn type_name(schema: &str, name: &str) -> String {
    let shared = schema == "Resource" && !matches!(name, "Links" | "IndicatorLED" | "RackUnits");
    let own = name.starts_with(schema) && !name[schema.len()..].starts_with(|c: char| c.is_ascii_lowercase());
    let mut rust = if shared || own {
        name.to_owned()
    } else {
        format!("{schema}{name}")
    };
    if RESERVED.contains(&rust.as_str()) {
        rust.push_str("Type");
    }
    rust
}

/// The Rust name of a property, parameter or action: `MaxSpeedMHz` becomes `max_speed_mhz`.
pub fn field_name(wire: &str) -> String {
    // `Members@odata.count` reads well enough without OData's name.
    let plain = wire
        .strip_prefix('@')
        .map_or_else(|| wire.replace("@odata.", "_"), str::to_owned);
    let mut name = words(&plain).join("_");
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    if KEYWORDS.contains(&name.as_str()) {
        name.insert_str(0, "r#");
    }
    name
}

/// The Rust name of an enumeration's member: Redfish's own spelling, so that documents and code read alike.
pub fn variant_name(wire: &str) -> String {
    let mut name: String = wire
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name == "Self" {
        name.insert(0, '_');
    }
    name
}

/// `PCIeDevice` as the name of a static: `PCIE_DEVICE`.
pub fn static_name(rust_type: &str) -> String {
    words(rust_type).join("_").to_ascii_uppercase()
}

/// `PCIeDevice` as the name of a module: `pcie_device`.
pub fn module_name(schema: &str) -> String {
    field_name(schema)
}

/// Cuts a name into lower-case words.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    // Whether the next letter starts a word whatever its case.
    let mut cut = true;
    let mut at = 0;
    while at < chars.len() {
        if let Some(atom) = atom_at(&chars, at) {
            words.push(atom.to_ascii_lowercase());
            at += atom.len();
            cut = true;
            continue;
        }
        let c = chars[at];
        at += 1;
        if !c.is_ascii_alphanumeric() {
            cut = true;
            continue;
        }
        if cut || starts_word(&chars, at - 1) {
            words.push(String::new());
        }
        cut = false;
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// Whether the letter at `at` starts a word by its case: after a small letter or digit, or as the last capital
/// of a row that a small letter follows (the D of `CXLDevice`), unless that is the s of a plural (`CoreIDs`).
fn starts_word(chars: &[char], at: usize) -> bool {
    let small = |i: usize| chars.get(i).is_some_and(char::is_ascii_lowercase);
    let plural = chars.get(at + 1) == Some(&'s') && !small(at + 2);
    chars[at].is_ascii_uppercase()
        && at > 0
        && (small(at - 1) || chars[at - 1].is_ascii_digit() || (small(at + 1) && !plural))
}

/// The longest atom that stands at `at` and ends where a word can end.
fn atom_at(chars: &[char], at: usize) -> Option<&'static str> {
    let fits = |atom: &&&str| {
        let end = at + atom.len();
        atom.chars().eq(chars[at..].iter().take(atom.len()).copied())
            // "SoC" in "SoCket" is no atom.
            && !chars.get(end).is_some_and(char::is_ascii_lowercase)
            // Nor is one that starts within a row of capitals ("TX" in "CTX").
            && !(atom.starts_with(|c: char| c.is_ascii_uppercase())
                && at > 0
                && chars[at - 1].is_ascii_uppercase())
    };
    ATOMS.iter().filter(fits).max_by_key(|atom| atom.len()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_well() {
        for (wire, rust) in [
            ("MaxSpeedMHz", "max_speed_mhz"),
            ("HighSpeedCoreIDs", "high_speed_core_ids"),
            ("PCIeDevice", "pcie_device"),
            ("PCIeDevices", "pcie_devices"),
            ("TotalCores", "total_cores"),
            ("MemorySizeMiB", "memory_size_mib"),
            ("TotalSystemMemoryGiB", "total_system_memory_gib"),
            ("UUID", "uuid"),
            ("Id", "id"),
            ("CXLLogicalDevices", "cxl_logical_devices"),
            ("CXL", "cxl"),
            ("NVMe", "nvme"),
            ("NVMeNamespaceProperties", "nvme_namespace_properties"),
            ("CurrentSpeedGbps", "current_speed_gbps"),
            ("MaxBandwidthGBps", "max_bandwidth_gbps"),
            ("ODataETag", "odata_etag"),
            ("@odata.id", "odata_id"),
            ("@odata.etag", "odata_etag"),
            ("Members@odata.nextLink", "members_next_link"),
            ("IPv4Addresses", "ipv4_addresses"),
            ("IPv6DefaultGateway", "ipv6_default_gateway"),
            ("MACAddress", "mac_address"),
            ("FPGA", "fpga"),
            ("TDPWatts", "tdp_watts"),
            ("EnergykWh", "energy_kwh"),
            ("SHA256Hash", "sha256_hash"),
            ("InfiniBand", "infiniband"),
            ("OperatingSpeedMHz", "operating_speed_mhz"),
            ("OperatingSpeedRangeMHz", "operating_speed_range_mhz"),
            ("L2CacheSize", "l2_cache_size"),
            ("Type", "r#type"),
            ("VLan", "vlan"),
            ("LinkNetworkTechnology", "link_network_technology"),
            ("InitiatorEndpoints", "initiator_endpoints"),
            ("AddResourceBlock", "add_resource_block"),
            ("AssociatedNodeGUIDs", "associated_node_guids"),
            ("InvalidCRCs", "invalid_crcs"),
            ("MaxVCsSupported", "max_vcs_supported"),
            ("NumberOfBoundvPPBs", "number_of_bound_vppbs"),
            ("RDMARxBytes", "rdma_rx_bytes"),
            ("RXFCSErrors", "rx_fcs_errors"),
            ("DLLPCRCErrorCount", "dllp_crc_error_count"),
            ("TACACSplusService", "tacacsplus_service"),
            ("ReactivekVARh", "reactive_kvarh"),
            ("RXOutputPowerMilliWatts", "rx_output_power_milliwatts"),
            ("PCIeVFs", "pcie_vfs"),
        ] {
            assert_eq!(field_name(wire), rust, "{wire}");
        }
    }

    #[test]
    fn types_keep_their_schema_in_sight() {
        for (schema, name, rust) in [
            ("Fabric", "Fabric", "Fabric"),
            ("Fabric", "Links", "FabricLinks"),
            ("Fabric", "FabricType", "FabricType"),
            ("PCIeDevice", "DeviceType", "PCIeDeviceDeviceType"),
            ("Resource", "Status", "Status"),
            ("Resource", "Links", "ResourceLinks"),
            ("Resource", "RackUnits", "ResourceRackUnits"),
            ("ComputerSystem", "Oem", "ComputerSystemOem"),
            ("Port", "Portable", "PortPortable"),
        ] {
            assert_eq!(type_name(schema, name), rust);
        }
    }

    #[test]
    fn variants_are_identifiers() {
        for (wire, rust) in [
            ("PCIe", "PCIe"),
            ("x86-64", "x86_64"),
            ("GT 5.0", "GT_5_0"),
            ("8Way", "_8Way"),
            ("Self", "_Self"),
        ] {
            assert_eq!(variant_name(wire), rust);
        }
    }

    #[test]
    fn statics_and_modules_follow_the_same_words() {
        assert_eq!(static_name("PCIeDeviceLinks"), "PCIE_DEVICE_LINKS");
        assert_eq!(module_name("ComputerSystem"), "computer_system");
    }
}
