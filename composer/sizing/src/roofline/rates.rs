//! What a GPU computes and moves in a second, and the links of a set.

use super::Shares;
use poolwright_model::profile::{GpuKind, NumberFormat};

/// Nominal rates of a kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub architecture: String,
    /// Dense matrix products in 16 bits, TFLOP/s.
    pub bf16_tflops: f64,
    /// The same in 8-bit floating point, where it computes that natively.
    pub fp8_tflops: Option<f64>,
    /// Of its memory, GB/s.
    pub memory_gb_s: f64,
    /// Of the link that joins the GPUs of a baseboard, GB/s in one direction. None for cards: a bridge joins
    /// pairs and may not be there, so PCIe is counted on.
    pub island_gb_s: Option<f64>,
    /// GB/s in one direction.
    pub pcie_gb_s: Option<f64>,
}

impl Rates {
    /// None unless compute and memory are known.
    pub fn of(kind: &GpuKind) -> Option<Rates> {
        let native_fp8 = kind
            .computes
            .as_ref()
            .is_none_or(|formats| formats.contains(&NumberFormat::Fp8));
        // The profile counts both directions together.
        let joined = kind.interconnect.as_ref().and_then(|link| link.gb_s);
        Some(Rates {
            architecture: kind.architecture.clone(),
            bf16_tflops: kind.bf16_tflops?,
            fp8_tflops: kind.fp8_tflops.filter(|_| native_fp8),
            memory_gb_s: kind.bandwidth_gb_s?,
            island_gb_s: joined
                .filter(|_| !kind.form_factor.is_card())
                .map(|both| both / 2.0),
            pcie_gb_s: kind.link.bytes_per_s().map(|bytes| bytes as f64 / 1e9),
        })
    }

    /// Operations a second that matrix products reach in 16 bits.
    pub(super) fn compute_16_bit(&self) -> f64 {
        self.bf16_tflops * 1e12 * Shares::builtin().compute(&self.architecture)
    }

    /// The same in 8-bit floating point; in 16 bits where that is not native.
    pub(super) fn compute_8_bit(&self) -> f64 {
        let tflops = self.fp8_tflops.unwrap_or(self.bf16_tflops);
        tflops * 1e12 * Shares::builtin().compute(&self.architecture)
    }

    /// Bytes a second that kernels reach.
    pub(super) fn memory(&self) -> f64 {
        self.memory_gb_s * 1e9 * Shares::builtin().memory.value
    }

    /// Bytes a second to the host's memory.
    pub(super) fn host(&self) -> f64 {
        let shares = Shares::builtin();
        self.pcie_gb_s.unwrap_or(shares.network_gb_s.value) * 1e9 * shares.link.value
    }

    /// The links of a set on hosts that take so many GPUs.
    pub(crate) fn links(&self, host_gpus: u32) -> Links {
        let shares = Shares::builtin();
        let reached = |gb_s: f64| gb_s * 1e9 * shares.link.value;
        let network = reached(shares.network_gb_s.value);
        let inside = self.island_gb_s.or(self.pcie_gb_s);
        Links {
            host_gpus: f64::from(host_gpus.max(1)),
            inside: inside.map_or(network, reached),
            between: network,
            latency: shares.latency_s.value,
        }
    }
}

/// What the links of a set reach, in bytes a second and direction of one GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    host_gpus: f64,
    inside: f64,
    between: f64,
    latency: f64,
}

impl Links {
    /// `gpus`, side by side, send so many bytes each, in so many collectives.
    pub(super) fn time(&self, gpus: f64, bytes: f64, collectives: f64) -> f64 {
        if gpus <= 1.0 {
            return 0.0;
        }
        let rate = if gpus <= self.host_gpus {
            self.inside
        } else {
            self.inside.min(self.between)
        };
        bytes / rate + collectives * self.latency
    }

    /// All-reduces of so many bytes each; an all-gather with a reduce-scatter is the same.
    pub(super) fn all_reduce(&self, gpus: f64, bytes: f64, times: f64) -> f64 {
        self.time(gpus, times * 2.0 * (gpus - 1.0) / gpus * bytes, times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::profile::Profiles;

    #[test]
    fn cards_count_on_pcie_and_baseboards_on_their_link() {
        let rates = |name: &str| Rates::of(Profiles::builtin().by_name(name).unwrap());
        let sxm = rates("h100-sxm5-80gb").unwrap();
        assert_eq!((sxm.island_gb_s, sxm.bf16_tflops), (Some(450.0), 989.0));
        let card = rates("h100-pcie-80gb").unwrap();
        assert_eq!(card.island_gb_s, None);
        assert!(card.pcie_gb_s.is_some_and(|gb_s| (60.0..65.0).contains(&gb_s)));
        assert_eq!(rates("a100-pcie-80gb").unwrap().fp8_tflops, None);
        // Its speed is not in the profile: nothing is guessed.
        assert_eq!(rates("mi308x-192gb"), None);
    }

    #[test]
    fn between_hosts_it_is_slower_and_alone_it_is_nothing() {
        let sxm = Rates::of(Profiles::builtin().by_name("h100-sxm5-80gb").unwrap()).unwrap();
        let links = sxm.links(8);
        assert_eq!(links.all_reduce(1.0, 1e9, 1.0), 0.0);
        let (inside, between) = (links.all_reduce(8.0, 1e9, 1.0), links.all_reduce(16.0, 1e9, 1.0));
        assert!(between > 5.0 * inside, "{inside} {between}");
    }
}
