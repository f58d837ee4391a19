//! The form of a profile file, and the checks that turn an entry into a [`GpuKind`].

use super::{FormFactor, GpuKind, Interconnect, NumberFormat, ProfileError, normal};
use crate::topology::PciIds;
use crate::units::{Bytes, Lanes, LinkWidth, PcieGeneration};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    pub(super) vendor: String,
    pub(super) sources: BTreeMap<String, String>,
    /// By architecture.
    #[serde(default)]
    pub(super) computes: BTreeMap<String, Vec<NumberFormat>>,
    pub(super) gpu: Vec<RawGpu>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGpu {
    name: String,
    models: Vec<String>,
    architecture: String,
    form_factor: FormFactor,
    #[serde(default)]
    pci_ids: Vec<String>,
    memory_nominal_gib: f64,
    memory_reported_mib: Option<u64>,
    memory_usable_gib: Option<f64>,
    memory_type: String,
    bandwidth_gb_s: Option<f64>,
    bf16_tflops: Option<f64>,
    fp8_tflops: Option<f64>,
    tdp_w: Option<f64>,
    idle_w: Option<f64>,
    pcie_generation: Option<u8>,
    pcie_lanes: Option<u8>,
    interconnect: Option<String>,
    interconnect_gb_s: Option<f64>,
    price_usd: Option<f64>,
    note: Option<String>,
    source: BTreeMap<String, String>,
}

/// What an entry takes from the file around it.
pub(super) struct Context<'a> {
    pub(super) file: &'a str,
    pub(super) vendor: &'a str,
    pub(super) sources: &'a BTreeMap<String, String>,
    pub(super) computes: &'a BTreeMap<String, Vec<NumberFormat>>,
}

/// The keys whose figures need a source.
const FIGURES: [&str; 15] = [
    "pci_ids",
    "memory_nominal_gib",
    "memory_reported_mib",
    "memory_usable_gib",
    "memory_type",
    "bandwidth_gb_s",
    "bf16_tflops",
    "fp8_tflops",
    "tdp_w",
    "idle_w",
    "pcie_generation",
    "pcie_lanes",
    "interconnect",
    "interconnect_gb_s",
    "price_usd",
];

impl RawGpu {
    /// The profile, if every value is allowed.
    pub(super) fn check(self, context: &Context<'_>) -> Result<GpuKind, ProfileError> {
        let refuse = |key: &str, found: String, allowed: &str| ProfileError::Value {
            file: context.file.to_owned(),
            gpu: self.name.clone(),
            key: key.to_owned(),
            found,
            allowed: allowed.to_owned(),
        };
        if self.name.is_empty()
            || self
                .name
                .contains(|c: char| c.is_whitespace() || c.is_ascii_uppercase())
        {
            return Err(refuse(
                "name",
                format!("{:?}", self.name),
                "lower case without spaces",
            ));
        }
        if self.models.iter().all(|m| normal(m).is_empty()) {
            return Err(refuse(
                "models",
                format!("{:?}", self.models),
                "at least one model text",
            ));
        }
        for (key, value) in [
            ("memory_nominal_gib", Some(self.memory_nominal_gib)),
            ("memory_reported_mib", self.memory_reported_mib.map(|m| m as f64)),
            ("memory_usable_gib", self.memory_usable_gib),
            ("bandwidth_gb_s", self.bandwidth_gb_s),
            ("bf16_tflops", self.bf16_tflops),
            ("fp8_tflops", self.fp8_tflops),
            ("tdp_w", self.tdp_w),
            ("idle_w", self.idle_w),
            ("interconnect_gb_s", self.interconnect_gb_s),
            ("price_usd", self.price_usd),
        ] {
            if let Some(found) = value.filter(|v| !(v.is_finite() && *v > 0.0 && *v < 1e9)) {
                return Err(refuse(key, found.to_string(), "a number above 0"));
            }
        }
        let most = self
            .memory_reported_mib
            .map_or(self.memory_nominal_gib, |mib| mib as f64 / 1024.0);
        if let Some(found) = self.memory_usable_gib.filter(|usable| *usable > most) {
            let allowed = format!("at most {most:.2}, as the driver reports it or its name says");
            return Err(refuse("memory_usable_gib", found.to_string(), &allowed));
        }
        let generation = self
            .pcie_generation
            .map(|g| {
                PcieGeneration::from_number(g)
                    .ok_or_else(|| refuse("pcie_generation", g.to_string(), "1 to 6"))
            })
            .transpose()?;
        if let Some(lanes) = self.pcie_lanes.filter(|l| ![1, 2, 4, 8, 16].contains(l)) {
            return Err(refuse("pcie_lanes", lanes.to_string(), "1, 2, 4, 8 or 16"));
        }
        let pci_ids = self
            .pci_ids
            .iter()
            .map(|text| {
                parse_pci_id(text).ok_or_else(|| {
                    refuse(
                        "pci_ids",
                        format!("{text:?}"),
                        "vendor:device, four hexadecimal digits each",
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        let known = |key: &str| key == "default" || FIGURES.contains(&key);
        if let Some(key) = self.source.keys().find(|k| !known(k)) {
            return Err(refuse(
                "source",
                format!("{key:?}"),
                &format!("default, {}", FIGURES.join(", ")),
            ));
        }
        // "every figure has a source": one for the whole profile is the least.
        if !self.source.contains_key("default") {
            return Err(refuse(
                "source",
                "without a default".into(),
                "a default for the figures not listed",
            ));
        }
        // A source is the key of a text in the file's [sources], or a text of its own.
        let text = |value: &String| context.sources.get(value).unwrap_or(value).clone();
        let mut sources: BTreeMap<String, String> = self
            .source
            .iter()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect();
        let computes = context.computes.get(&self.architecture).cloned();
        match (&computes, context.sources.get("computes")) {
            (Some(_), None) => {
                let allowed = "a source of that name in [sources], for what is in [computes]";
                return Err(refuse("computes", "without a source".into(), allowed));
            }
            (Some(_), Some(source)) => drop(sources.insert("computes".into(), source.clone())),
            (None, _) => {}
        }
        Ok(GpuKind {
            vendor: context.vendor.to_owned(),
            architecture: self.architecture,
            models: self.models,
            pci_ids,
            form_factor: self.form_factor,
            memory_nominal: Bytes::from_gib(self.memory_nominal_gib),
            memory_reported: self.memory_reported_mib.map(Bytes::from_mib),
            memory_usable: self.memory_usable_gib.map(Bytes::from_gib),
            memory_type: self.memory_type,
            bandwidth_gb_s: self.bandwidth_gb_s,
            bf16_tflops: self.bf16_tflops,
            fp8_tflops: self.fp8_tflops,
            computes,
            tdp_w: self.tdp_w,
            idle_w: self.idle_w,
            link: LinkWidth {
                generation,
                lanes: self.pcie_lanes.map(Lanes),
            },
            interconnect: self.interconnect.map(|name| Interconnect {
                name,
                gb_s: self.interconnect_gb_s,
            }),
            price_usd: self.price_usd,
            note: self.note,
            sources,
            name: self.name,
        })
    }
}

pub(super) fn parse_pci_id(text: &str) -> Option<PciIds> {
    let (vendor, device) = text.split_once(':')?;
    let hex = |s: &str| {
        s.len() == 4
            && s.bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    (hex(vendor) && hex(device)).then(|| PciIds {
        vendor: vendor.to_owned(),
        device: device.to_owned(),
        subsystem_vendor: None,
        subsystem: None,
    })
}
