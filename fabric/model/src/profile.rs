//! Hardware profiles of GPU kinds, parsed once from `hw-profiles/gpus/*.toml`.
//!
//! A profile says what a kind of GPU is, so that inventory can name what it found and sizing knows what
//! fits on it. Every figure carries its source; a figure without one is absent, never guessed. The schema
//! is described in `hw-profiles/README.md`.

use crate::nearest::{did_you_mean, nearest};
use crate::topology::PciIds;
use crate::units::{Bytes, LinkWidth};
use raw::{Context, RawFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

mod raw;

/// The profiles that come with Poolwright: file name and text.
const BUILTIN: [(&str, &str); 4] = [
    (
        "gpus/nvidia-datacenter.toml",
        include_str!("../../../hw-profiles/gpus/nvidia-datacenter.toml"),
    ),
    (
        "gpus/nvidia-workstation.toml",
        include_str!("../../../hw-profiles/gpus/nvidia-workstation.toml"),
    ),
    (
        "gpus/amd.toml",
        include_str!("../../../hw-profiles/gpus/amd.toml"),
    ),
    (
        "gpus/intel.toml",
        include_str!("../../../hw-profiles/gpus/intel.toml"),
    ),
];

/// The least share of the nominal memory that a program can have, over the kinds whose figure is known
/// (T4: 14.56 of 16 GiB; a test holds it). Stands in where no figure is known.
const LEAST_USABLE_SHARE: f64 = 0.91;

/// How a GPU is mounted. What sits on a baseboard cannot be moved alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormFactor {
    /// A card in a slot.
    Pcie,
    /// A module on an NVIDIA HGX or DGX baseboard.
    Sxm,
    /// A module on an OCP accelerator baseboard.
    Oam,
    /// Soldered together with its CPU.
    Superchip,
    /// In a CPU socket.
    Socket,
}

impl FormFactor {
    /// Is it a card of its own, that a fabric can bind to any host?
    pub fn is_card(self) -> bool {
        self == FormFactor::Pcie
    }
}

/// The link between GPUs beside PCIe, such as NVLink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interconnect {
    pub name: String,
    /// Both directions together, GB/s, of one GPU.
    pub gb_s: Option<f64>,
}

/// A format of numbers that matrix units may multiply as it is. What they don't must be converted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    Fp16,
    Bf16,
    Fp8,
}

/// One kind of GPU. Absent figures are not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuKind {
    /// Short, unique, lower case: `h100-pcie-80gb`.
    pub name: String,
    pub vendor: String,
    pub architecture: String,
    /// What drivers and Redfish services print as its model; the first is its display name.
    pub models: Vec<String>,
    /// Vendor and device of its first function. Some kinds share an id.
    pub pci_ids: Vec<PciIds>,
    pub form_factor: FormFactor,
    /// The figure in its name, read as GiB.
    pub memory_nominal: Bytes,
    /// What the driver reports; ECC and firmware take their part first.
    pub memory_reported: Option<Bytes>,
    /// The total in the view of a program (`cudaMemGetInfo`, `hipMemGetInfo`), without the driver's reserve.
    #[serde(default)]
    pub memory_usable: Option<Bytes>,
    pub memory_type: String,
    /// GB/s.
    pub bandwidth_gb_s: Option<f64>,
    /// Dense 16-bit matrix speed; fp16 where the architecture has no bf16 (Volta, Turing).
    pub bf16_tflops: Option<f64>,
    /// Dense 8-bit floating point matrix speed.
    pub fp8_tflops: Option<f64>,
    /// What its matrix units multiply as it is; `None` where that is not known.
    #[serde(default)]
    pub computes: Option<Vec<NumberFormat>>,
    pub tdp_w: Option<f64>,
    /// Drawn with a driver loaded and nothing running.
    pub idle_w: Option<f64>,
    pub link: LinkWidth,
    pub interconnect: Option<Interconnect>,
    /// A list or street price; see its source.
    pub price_usd: Option<f64>,
    pub note: Option<String>,
    /// Where each figure comes from, by the key in the file; `default` for those not listed.
    pub sources: BTreeMap<String, String>,
}

impl GpuKind {
    /// The memory in management tools: the driver's figure, else that for programs.
    pub fn memory(&self) -> Bytes {
        self.memory_reported.unwrap_or_else(|| self.usable())
    }

    /// The memory for programs: their total, else the driver's figure, else a lower bound from the nominal figure
    /// ([`GpuKind::is_estimated`]).
    pub fn usable(&self) -> Bytes {
        let least = || Bytes::from_gib(self.memory_nominal.gib() * LEAST_USABLE_SHARE);
        self.memory_usable.or(self.memory_reported).unwrap_or_else(least)
    }

    /// Its memory is an estimate, without a published figure.
    pub fn is_estimated(&self) -> bool {
        self.memory_usable.or(self.memory_reported).is_none()
    }

    /// What people call it.
    pub fn display_name(&self) -> &str {
        self.models.first().unwrap_or(&self.name)
    }

    /// Where the figure of this key comes from.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources
            .get(key)
            .or_else(|| self.sources.get("default"))
            .map(String::as_str)
    }
}

/// A kind of GPU that no profile is called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no GPU kind {name:?}")]
pub struct UnknownKind {
    pub name: String,
    /// Kinds of a name like it, the nearest first.
    pub suggestions: Vec<String>,
}

impl UnknownKind {
    /// What to do next.
    pub fn hint(&self) -> String {
        const ALL: &str = "`poolwright size --list kinds` has all kinds";
        match did_you_mean(&self.suggestions) {
            Some(question) => format!("{question} {ALL}"),
            None => ALL.to_owned(),
        }
    }
}

/// Why a profile file was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, an unknown key, a missing key, a value of the wrong type: the message shows the line.
    #[error("{file}: {message}")]
    Toml { file: String, message: String },
    #[error("{file}: GPU {gpu}: {key} is {found}; allowed: {allowed}")]
    Value {
        file: String,
        gpu: String,
        key: String,
        found: String,
        allowed: String,
    },
}

/// All known kinds of GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    kinds: Vec<GpuKind>,
}

impl Profiles {
    /// The profiles that come with Poolwright, parsed at the first call.
    pub fn builtin() -> &'static Profiles {
        static PROFILES: LazyLock<Profiles> = LazyLock::new(|| {
            Profiles::parse(&BUILTIN)
                .unwrap_or_else(|error| panic!("the built-in hardware profiles are tested to parse: {error}"))
        });
        &PROFILES
    }

    /// Reads profile files: pairs of a name for messages and TOML text.
    pub fn parse(files: &[(&str, &str)]) -> Result<Profiles, ProfileError> {
        let mut profiles = Profiles::default();
        for (file, text) in files {
            let raw: RawFile = toml::from_str(text).map_err(|e| ProfileError::Toml {
                file: (*file).to_owned(),
                message: e.to_string().trim_end().to_owned(),
            })?;
            for gpu in raw.gpu {
                let kind = gpu.check(&Context {
                    file,
                    vendor: &raw.vendor,
                    sources: &raw.sources,
                    computes: &raw.computes,
                })?;
                if profiles.by_name(&kind.name).is_some() {
                    return Err(ProfileError::Value {
                        file: (*file).to_owned(),
                        gpu: kind.name.clone(),
                        key: "name".into(),
                        found: "used twice".into(),
                        allowed: "a name that no other profile has".into(),
                    });
                }
                profiles.kinds.push(kind);
            }
        }
        Ok(profiles)
    }

    pub fn all(&self) -> &[GpuKind] {
        &self.kinds
    }

    /// By profile name or any model text of it, ignoring case.
    pub fn by_name(&self, name: &str) -> Option<&GpuKind> {
        let same = |text: &str| normal_chars(text).eq(normal_chars(name));
        let by_model = || self.kinds.iter().find(|kind| kind.models.iter().any(|m| same(m)));
        self.kinds.iter().find(|kind| same(&kind.name)).or_else(by_model)
    }

    /// The same, for a name that somebody typed.
    pub fn named(&self, name: &str) -> Result<&GpuKind, UnknownKind> {
        self.by_name(name).ok_or_else(|| {
            let known = self.kinds.iter().map(|kind| kind.name.as_str());
            UnknownKind {
                name: name.to_owned(),
                suggestions: nearest(name, known).into_iter().map(str::to_owned).collect(),
            }
        })
    }

    /// Which kind is this? By PCI ids first; where none match or several share them, by the model text,
    /// then by memory (within a tenth). `None` unless exactly one kind is left.
    pub fn identify(
        &self,
        ids: Option<&PciIds>,
        model: Option<&str>,
        memory: Option<Bytes>,
    ) -> Option<&GpuKind> {
        let same_ids = |k: &GpuKind| {
            ids.is_some_and(|i| {
                k.pci_ids
                    .iter()
                    .any(|p| p.vendor == i.vendor && p.device == i.device)
            })
        };
        let mut left: Vec<&GpuKind> = self.kinds.iter().filter(|k| same_ids(k)).collect();
        if left.is_empty() {
            left = longest_text_match(&self.kinds.iter().collect::<Vec<_>>(), model?);
        } else if left.len() > 1
            && let Some(text) = model
        {
            let by_text = longest_text_match(&left, text);
            if !by_text.is_empty() {
                left = by_text;
            }
        }
        if left.len() > 1
            && let Some(memory) = memory
        {
            left.retain(|k| (k.memory().gib() - memory.gib()).abs() <= 0.1 * memory.gib());
        }
        match left[..] {
            [one] => Some(one),
            _ => None,
        }
    }
}

/// Letters and digits only, lower case: `NVIDIA A100-SXM4-80GB` and `nvidia a100 sxm4 80gb` are one.
fn normal(text: &str) -> String {
    normal_chars(text).collect()
}

fn normal_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
}

/// Lower-case words; letters and digits stay together.
fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// The kinds one of whose texts stands in `text` as whole words; of those, the ones with the longest
/// text, so that an `H200 NVL` is not taken for an `H200`, nor an `L40S` for an `L40`.
fn longest_text_match<'a>(kinds: &[&'a GpuKind], text: &str) -> Vec<&'a GpuKind> {
    let text = words(text);
    let length = |kind: &GpuKind| {
        kind.models
            .iter()
            .map(|m| words(m))
            .filter(|m| text.windows(m.len()).any(|w| w == m))
            .map(|m| m.concat().len())
            .max()
            .unwrap_or(0)
    };
    let best = kinds.iter().map(|k| length(k)).max().unwrap_or(0);
    kinds
        .iter()
        .filter(|k| best > 0 && length(k) == best)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::raw::parse_pci_id;
    use super::*;

    fn ids(text: &str) -> PciIds {
        parse_pci_id(text).unwrap()
    }

    #[test]
    fn builtin_profiles_parse_and_name_their_sources() {
        let all = Profiles::builtin().all();
        assert!(all.len() >= 45, "{}", all.len());
        for kind in all {
            assert!(kind.source("memory_nominal_gib").is_some(), "{}", kind.name);
            for key in kind.sources.values() {
                assert!(
                    key.len() > 8,
                    "{}: {key:?} is the name of a source that the file lacks",
                    kind.name
                );
            }
        }
        let h100 = Profiles::builtin().by_name("H100-SXM5-80GB").unwrap();
        assert_eq!(h100.memory(), Bytes::from_mib(81_559));
        assert_eq!(h100.tdp_w, Some(700.0));
        assert!(h100.source("memory_reported_mib").unwrap().contains("nvidia-smi"));
    }

    #[test]
    fn the_lower_bound_holds_for_every_known_figure() {
        let mut estimated = Vec::new();
        for kind in Profiles::builtin().all() {
            let least = kind.memory_nominal.gib() * LEAST_USABLE_SHARE;
            assert!(kind.usable().gib() >= least - 1e-6, "{}", kind.name);
            assert!(kind.usable() <= kind.memory(), "{}", kind.name);
            assert!(kind.memory() <= kind.memory_nominal, "{}", kind.name);
            estimated.extend(kind.is_estimated().then_some(kind.name.as_str()));
        }
        let of = |name| Profiles::builtin().by_name(name).unwrap();
        assert_eq!(of("rtx-4090-24gb").usable(), Bytes::from_gib(23.52));
        assert_eq!(
            (of("l40-48gb").memory_reported, of("l40-48gb").memory()),
            (None, Bytes::from_gib(44.4))
        );
        assert!(estimated.len() <= 9, "{estimated:?}");
    }

    /// Fault 104: as recorded from services.
    #[test]
    fn a_gpu_is_recognised_by_ids_then_text_then_memory() {
        let profiles = Profiles::builtin();
        let name = |i: Option<&str>, model: Option<&str>, memory: Option<f64>| {
            let i = i.map(ids);
            profiles
                .identify(i.as_ref(), model, memory.map(Bytes::from_gib))
                .map(|k| k.name.as_str())
        };
        assert_eq!(name(Some("10de:2330"), None, None), Some("h100-sxm5-80gb"));
        // What recorded BMCs print, one of them with ids of zero.
        assert_eq!(name(None, Some("H100 80GB HBM3"), None), Some("h100-sxm5-80gb"));
        assert_eq!(
            name(Some("0000:0000"), Some("H100 80GB HBM3"), None),
            Some("h100-sxm5-80gb")
        );
        assert_eq!(name(None, Some("GB200 NVL"), None), Some("gb200-186gb"));
        assert_eq!(name(None, Some("NVIDIA H200 NVL"), None), Some("h200-nvl-141gb"));
        assert_eq!(name(None, Some("NVIDIA L40S"), None), Some("l40s-48gb"));
        assert_eq!(name(None, Some("Tesla T4"), None), Some("t4-16gb"));
        for (id, model, kind) in [
            ("10de:31c2", "NVIDIA GB300", "gb300-288gb"),
            ("10de:2324", "NVIDIA H800", "h800-sxm5-80gb"),
            ("10de:2e12", "NVIDIA GB10", "gb10-128gb"),
            ("10de:2204", "NVIDIA GeForce RTX 3090", "rtx-3090-24gb"),
            ("10de:2231", "NVIDIA RTX A5000", "rtx-a5000-24gb"),
        ] {
            assert_eq!(name(Some(id), None, None), Some(kind));
            assert_eq!(name(None, Some(model), None), Some(kind));
        }
        // Two kinds share this id: the text decides, and nothing is guessed without it.
        assert_eq!(name(Some("10de:25b6"), Some("NVIDIA A2"), None), Some("a2-16gb"));
        assert_eq!(name(Some("10de:25b6"), None, Some(15.5)), None);
        assert_eq!(name(None, Some("Contoso Workstation VID2000"), None), None);
        assert_eq!(name(Some("10de:ffff"), None, Some(80.0)), None);
        assert_eq!(name(None, None, Some(80.0)), None);
    }

    const GOOD: &str = r#"
        vendor = "V"
        [sources]
        sheet = "the sheet"
        [[gpu]]
        name = "x-1gb"
        models = ["X"]
        architecture = "A"
        form_factor = "pcie"
        memory_nominal_gib = 1
        memory_type = "HBM"
        [gpu.source]
        default = "sheet"
    "#;

    #[test]
    fn errors_name_file_key_found_and_allowed() {
        let parse = |text: &str| Profiles::parse(&[("x.toml", text)]);
        assert_eq!(parse(GOOD).unwrap().all()[0].source("tdp_w"), Some("the sheet"));
        for (from, to, expected) in [
            (
                "form_factor = \"pcie\"",
                "form_factor = \"brick\"",
                vec!["form_factor", "brick", "pcie"],
            ),
            (
                "name = \"x-1gb\"",
                "name = \"x-1gb\"\nwatts = 3",
                vec!["watts", "tdp_w"],
            ),
            (
                "memory_nominal_gib = 1",
                "memory_nominal_gib = -1",
                vec!["memory_nominal_gib", "-1", "above 0"],
            ),
            ("memory_nominal_gib = 1", "", vec!["memory_nominal_gib"]),
            ("models = [\"X\"]", "models = []", vec!["models", "at least one"]),
            ("models", "pcie_lanes = 7\nmodels", vec!["pcie_lanes", "7", "16"]),
            (
                "models",
                "pci_ids = [\"10DE:1\"]\nmodels",
                vec!["pci_ids", "10DE:1", "hexadecimal"],
            ),
            (
                "default = \"sheet\"",
                "tdp_w = \"sheet\"",
                vec!["source", "default"],
            ),
            (
                "default",
                "weight = \"x\"\ndefault",
                vec!["source", "weight", "tdp_w"],
            ),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with("x.toml: "), "{error}");
            for part in expected {
                assert!(error.contains(part), "{part} in: {error}");
            }
        }
        let twice = Profiles::parse(&[("x.toml", GOOD), ("y.toml", GOOD)])
            .unwrap_err()
            .to_string();
        assert!(
            twice.starts_with("y.toml: ") && twice.contains("twice"),
            "{twice}"
        );
    }

    #[test]
    fn what_each_kind_computes_is_known_and_has_a_source() {
        for kind in Profiles::builtin().all() {
            let computes = kind.computes.as_ref().unwrap_or_else(|| panic!("{}", kind.name));
            assert!(computes.contains(&NumberFormat::Fp16), "{}", kind.name);
            assert!(kind.sources.contains_key("computes"), "{}", kind.name);
            // A speed in a format is a speed of computing in it.
            assert!(
                kind.fp8_tflops.is_none() || computes.contains(&NumberFormat::Fp8),
                "{}",
                kind.name
            );
        }
        let v100 = Profiles::builtin().by_name("v100-pcie-32gb").unwrap();
        assert_eq!(v100.computes.as_deref(), Some(&[NumberFormat::Fp16][..]));
        let unsourced = r#"
            vendor = "Contoso"
            sources = {}
            computes = { New = ["fp16"] }
            [[gpu]]
            name = "new-1gb"
            models = ["New"]
            architecture = "New"
            form_factor = "pcie"
            memory_nominal_gib = 1
            memory_type = "HBM"
            source = { default = "x" }
        "#;
        let error = Profiles::parse(&[("new.toml", unsourced)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("computes"), "{error}");
    }
}
