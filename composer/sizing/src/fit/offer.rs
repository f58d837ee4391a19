//! Kinds of GPU that may be used, with what sizing must know of them.

use crate::overhead::{Card, Links};
use crate::roofline::Rates;
use poolwright_model::profile::{GpuKind, NumberFormat};
use poolwright_model::units::Bytes;

/// A kind of GPU that may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Name of its profile. None: GPUs without one, of which only the memory is known.
    pub kind: Option<String>,
    pub vendor: String,
    /// What joins GPUs of NVIDIA, where that is known.
    pub links: Option<Links>,
    /// The total in the view of a program.
    pub memory: Bytes,
    /// An estimate, without a published figure.
    pub estimated: bool,
    /// What it computes natively, where that is known.
    pub computes: Option<Vec<NumberFormat>>,
    /// How fast it computes and moves data, where that is known.
    pub rates: Option<Rates>,
    pub price_usd: Option<f64>,
    pub tdp_w: Option<f64>,
    /// How many there are; None: as many as wanted.
    pub available: Option<u32>,
    /// The most of them that one switch or NVLink island joins; None: not known, and as many as a host takes.
    pub island: Option<u32>,
}

impl Offer {
    pub fn of(kind: &GpuKind, available: Option<u32>) -> Self {
        Offer {
            kind: Some(kind.name.clone()),
            vendor: kind.vendor.clone(),
            links: Links::of(kind),
            memory: kind.usable(),
            estimated: kind.is_estimated(),
            computes: kind.computes.clone(),
            rates: Rates::of(kind),
            price_usd: kind.price_usd,
            tdp_w: kind.tdp_w,
            available,
            island: None,
        }
    }

    /// GPUs of which only the memory is known.
    pub fn of_memory(vendor: impl Into<String>, memory: Bytes, available: Option<u32>) -> Self {
        Offer {
            kind: None,
            vendor: vendor.into(),
            links: None,
            memory,
            estimated: false,
            computes: None,
            rates: None,
            price_usd: None,
            tdp_w: None,
            available,
            island: None,
        }
    }

    /// The same where one switch or NVLink island joins so many at most.
    pub fn joined(self, island: Option<u32>) -> Self {
        Offer { island, ..self }
    }

    /// What of it decides what is outside tensors.
    pub fn card(&self) -> Card {
        Card::new(&self.vendor, self.links).with_memory(self.kind.as_deref(), self.memory)
    }

    pub(super) fn name(&self) -> String {
        self.kind
            .clone()
            .unwrap_or_else(|| format!("GPU with {}", self.memory))
    }

    pub(super) fn computes(&self, format: NumberFormat) -> bool {
        self.computes
            .as_ref()
            .is_none_or(|formats| formats.contains(&format))
    }
}
