//! Logits: what the loss takes when the backward pass starts, and what is left of it until the end.

use super::part::{Part, words};
use super::rank::Rank;
use crate::constants::Constants;
use crate::estimate::grouped;
use crate::job::{Loss, Precision};

impl Rank<'_> {
    /// At the start of the backward pass; none where another stage has the head.
    pub fn logits(&self) -> Option<Part> {
        let figures = &Constants::builtin().training.logits;
        let full = figures.full_fp32.value + self.framework.logits_extra.value;
        let (mut b, by) = match self.job.loss {
            Loss::FullFp32 => (full, 1.0),
            // Those in the products' type are gone before the backward pass.
            Loss::FullFp32Freed => (full - self.element(), 1.0),
            Loss::VocabParallel => (figures.vocab_parallel.value, self.tensor()),
            Loss::Chunked => (figures.chunked.value, 1.0),
            Loss::Bf16 => (figures.bf16.value, 1.0),
        };
        if self.job.precision == Precision::Fp32 && self.job.loss != Loss::Chunked {
            b += figures.fp32_extra.value;
        }
        if self.model.features.caps && self.job.loss != Loss::Chunked {
            // Its logits pass a tanh, which keeps its output.
            b += self.element();
        }
        self.logits_of("logits", b, by)
    }

    /// The model's output lives as long as its loss.
    pub fn logits_kept(&self) -> Option<Part> {
        let (b, by) = match self.job.loss {
            Loss::Chunked | Loss::FullFp32Freed => return None,
            // fp32 where the framework returns them so.
            Loss::FullFp32 => (self.element().max(2.0 + self.framework.logits_extra.value), 1.0),
            Loss::VocabParallel => (self.element(), self.tensor()),
            Loss::Bf16 => (2.0, 1.0),
        };
        self.logits_of("logits kept", b, by)
    }

    fn logits_of(&self, name: &'static str, b: f64, by: f64) -> Option<Part> {
        if !self.stage.last {
            return None;
        }
        let tokens = self.tokens();
        let mut formula = words!(
            self,
            "{b} B x {} x {} tokens",
            grouped(self.model.vocab),
            grouped(tokens.round() as u64)
        );
        if by > 1.0 {
            formula += &words!(self, " / {by} GPUs");
        }
        Some(Part::new(
            name,
            b * self.model.vocab as f64 * tokens / by,
            formula,
        ))
    }
}
