//! How a training run is laid out over GPUs: the value that the estimate takes and the fit search varies.
//!
//! Tensor, pipeline, context and data parallelism multiply to the number of GPUs. Expert parallelism spreads
//! the experts over GPUs that are there already, those of the data and context dimensions, and needs none of
//! its own.

use crate::error::SizingError;
use crate::job::within;
use crate::model::Model;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A layout; [`Parallel::SINGLE`] is one GPU. Every width is 1 where it is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// GPUs that share every matrix. \[t\]
    pub tensor: u64,
    /// Sequence parallelism: what tensor parallelism would hold on each of its GPUs (norms, residuals) is
    /// divided over them along the sequence.
    pub sequence: bool,
    /// Stages, each with its part of the layers. \[p\]
    pub pipeline: u64,
    /// Parts of the model that each stage holds, one after another around the stages. \[v\]
    pub interleave: u64,
    /// GPUs that share the tokens of a sequence. \[c\]
    pub context: u64,
    /// GPUs that share the experts of a layer.
    pub expert: u64,
    /// Replicas of the model, each with its own sequences; what ZeRO or FSDP shards over. \[N\]
    pub data: u64,
}

impl Default for Parallel {
    fn default() -> Self {
        Parallel::SINGLE
    }
}

impl Parallel {
    pub const SINGLE: Parallel = Parallel {
        tensor: 1,
        sequence: false,
        pipeline: 1,
        interleave: 1,
        context: 1,
        expert: 1,
        data: 1,
    };

    /// So many replicas, nothing else divided.
    pub const fn data(gpus: u64) -> Parallel {
        Parallel {
            data: gpus,
            ..Parallel::SINGLE
        }
    }

    pub fn gpus(&self) -> u64 {
        [self.tensor, self.pipeline, self.context, self.data]
            .into_iter()
            .fold(1, u64::saturating_mul)
    }

    /// GPUs that hold the same part of the model: the states are sharded over them.
    pub fn replicas(&self) -> u64 {
        self.data.saturating_mul(self.context)
    }

    /// Refuses a layout that the model's dimensions do not divide into.
    pub fn check(&self, model: &Model) -> Result<(), SizingError> {
        let experts = model.experts.map_or(1, |experts| experts.count);
        for (key, found, most) in [
            ("tensor", self.tensor, model.heads),
            ("pipeline", self.pipeline, model.layers),
            ("interleave", self.interleave, model.layers),
            ("context", self.context, 1 << 20),
            ("expert", self.expert, experts),
            ("data", self.data, 1 << 20),
        ] {
            within(key, found, 1, most)?;
        }
        within("gpus", self.gpus(), 1, 1 << 24)?;
        divides("tensor", self.tensor, "attention heads", model.heads)?;
        divides("tensor", self.tensor, "the width of the MLP", model.ffn)?;
        if let Some(experts) = model.experts {
            divides("tensor", self.tensor, "the width of an expert", experts.ffn)?;
        }
        if let Some(linear) = model.linear {
            let (what, number) = linear.divided();
            divides("tensor", self.tensor, what, number)?;
        }
        let (t, k) = (self.tensor, model.kv_heads);
        if model.latent.is_none() && !t.is_multiple_of(k) && !k.is_multiple_of(t) {
            let allowed = format!("a divisor or a multiple of {k} key/value heads");
            return Err(SizingError::bad("tensor", t, &allowed));
        }
        if self.sequence && self.tensor == 1 {
            return Err(SizingError::bad("sequence", true, "false where tensor is 1"));
        }
        divides("expert", self.expert, "experts", experts)?;
        divides("expert", self.expert, "data x context", self.replicas())?;
        if self.interleave > 1 {
            if self.pipeline == 1 {
                return Err(SizingError::bad(
                    "interleave",
                    self.interleave,
                    "1 where pipeline is 1",
                ));
            }
            let parts = self.pipeline.saturating_mul(self.interleave);
            within("pipeline x interleave", parts, 1, model.layers)?;
        }
        Ok(())
    }
}

/// `tensor 8 with sequence parallelism, pipeline 4, data 16`, and `1 GPU`.
impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (name, width) in [
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("interleave", self.interleave),
            ("context", self.context),
            ("expert", self.expert),
            ("data", self.data),
        ] {
            if width > 1 {
                let with = if name == "tensor" && self.sequence {
                    " with sequence parallelism"
                } else {
                    ""
                };
                parts.push(format!("{name} {width}{with}"));
            }
        }
        if parts.is_empty() {
            return f.write_str("1 GPU");
        }
        f.write_str(&parts.join(", "))
    }
}

fn divides(key: &str, found: u64, of: &str, whole: u64) -> Result<(), SizingError> {
    if whole.is_multiple_of(found) {
        return Ok(());
    }
    Err(SizingError::bad(
        key,
        found,
        &format!("a divisor of {of}, {whole}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    fn refused(model: &str, parallel: Parallel) -> String {
        let model = Catalogue::builtin().resolve(model).unwrap();
        parallel.check(&model).unwrap_err().to_string()
    }

    #[test]
    fn gpus_multiply_and_experts_need_none_of_their_own() {
        let parallel = Parallel {
            tensor: 8,
            sequence: true,
            pipeline: 4,
            interleave: 2,
            context: 2,
            expert: 4,
            data: 3,
        };
        assert_eq!(parallel.gpus(), 8 * 4 * 2 * 3);
        assert_eq!(
            parallel.to_string(),
            "tensor 8 with sequence parallelism, pipeline 4, interleave 2, context 2, expert 4, data 3"
        );
        assert_eq!(Parallel::SINGLE.to_string(), "1 GPU");
        assert_eq!(
            Parallel {
                data: u64::MAX,
                context: 3,
                ..Parallel::SINGLE
            }
            .gpus(),
            u64::MAX
        );
    }

    #[test]
    fn what_does_not_divide_is_refused_with_what_is_allowed() {
        let single = Parallel::SINGLE;
        let llama = "Llama-3.1-8B";
        assert_eq!(
            refused(llama, Parallel { tensor: 3, ..single }),
            "tensor is 3; allowed: a divisor of attention heads, 32"
        );
        assert_eq!(
            refused(llama, Parallel { tensor: 0, ..single }),
            "tensor is 0; allowed: 1 to 32"
        );
        assert_eq!(
            refused(
                llama,
                Parallel {
                    sequence: true,
                    ..single
                }
            ),
            "sequence is true; allowed: false where tensor is 1"
        );
        assert_eq!(
            refused(
                llama,
                Parallel {
                    pipeline: 64,
                    ..single
                }
            ),
            "pipeline is 64; allowed: 1 to 32"
        );
        assert_eq!(
            refused(
                llama,
                Parallel {
                    interleave: 2,
                    ..single
                }
            ),
            "interleave is 2; allowed: 1 where pipeline is 1"
        );
        assert_eq!(
            refused(
                llama,
                Parallel {
                    pipeline: 4,
                    interleave: 9,
                    ..single
                }
            ),
            "pipeline x interleave is 36; allowed: 1 to 32"
        );
        assert_eq!(
            refused(llama, Parallel { expert: 2, ..single }),
            "expert is 2; allowed: 1 to 1"
        );
        assert_eq!(
            refused(
                "Mixtral-8x7B",
                Parallel {
                    expert: 8,
                    data: 4,
                    ..single
                }
            ),
            "expert is 8; allowed: a divisor of data x context, 4"
        );
        assert_eq!(
            refused("Phi-4", Parallel { tensor: 4, ..single }),
            "tensor is 4; allowed: a divisor or a multiple of 10 key/value heads"
        );
    }
}
