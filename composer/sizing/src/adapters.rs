//! Low-rank and other adapters: what they are put on, and how many parameters are trained.

use crate::features::Gate;
use crate::job::{AdapterType, Targets};
use crate::linear::Linear;
use crate::model::{Experts, Latent, Model};

/// Low-rank or other adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    pub rank: u64,
    pub targets: Targets,
    pub dtype: AdapterType,
    /// Trained parameters; counted from rank and targets when absent.
    pub trainable: Option<u64>,
}

impl Adapters {
    /// The rank, or that which the stated parameters come to.
    pub(crate) fn rank_for(&self, model: &Model) -> f64 {
        let Some(stated) = self.trainable else {
            return self.rank as f64;
        };
        let one = Adapters {
            rank: 1,
            trainable: None,
            ..self.clone()
        };
        stated as f64 / one.count(model).max(1) as f64
    }

    pub fn count(&self, model: &Model) -> u64 {
        let (dense, experts) = self.counts(model);
        dense.saturating_add(experts)
    }

    /// Trained parameters outside the routed experts and on them: `rank` times input plus output width of every adapted
    /// linear layer. Each expert has adapters of its own; routers have none.
    pub fn counts(&self, model: &Model) -> (u64, u64) {
        if let Some(stated) = self.trainable {
            return (stated, 0);
        }
        let attention = match model.latent {
            Some(latent) => self.latent_attention(model, latent),
            None => self.attention(model),
        };
        let (plain, shared, routed) = match self.targets {
            Targets::Qv | Targets::Qkvo => (0, 0, 0),
            Targets::All | Targets::Mlp => mlps(model),
        };
        let with_experts = model.anatomy.with_experts;
        let linear = model.anatomy.with_state;
        let of_linear = model.linear.map_or(0, |l| self.linear_attention(model, l));
        let dense = model.anatomy.attending.saturating_mul(attention)
            + linear.saturating_mul(of_linear)
            + model.anatomy.plain.saturating_mul(plain)
            + with_experts.saturating_mul(shared);
        let experts = with_experts.saturating_mul(routed);
        (self.rank.saturating_mul(dense), self.rank.saturating_mul(experts))
    }

    /// Inputs and outputs of a layer's adapted attention matrices.
    fn attention(&self, model: &Model) -> u64 {
        let (h, q, kv) = (model.hidden, model.query(), model.key());
        // A gate comes out of the matrix that makes queries.
        let made = if model.features.gate == Gate::Element {
            2 * q
        } else {
            q
        };
        match self.targets {
            Targets::Mlp => 0,
            Targets::Qv => (h + made) + (h + kv),
            Targets::Qkvo | Targets::All => (h + made) + (h + q) + 2 * (h + kv),
        }
    }

    /// Linear attention has none of the matrices that `q`, `k`, `v` and `o` name; all of its own are meant by `all`.
    fn linear_attention(&self, model: &Model, linear: Linear) -> u64 {
        match self.targets {
            Targets::Qv | Targets::Qkvo | Targets::Mlp => 0,
            Targets::All => linear.widths(model.hidden),
        }
    }

    /// The same with latent attention: `q` are the matrices that make queries, `v` that which expands values.
    fn latent_attention(&self, model: &Model, latent: Latent) -> u64 {
        let (h, heads) = (model.hidden, model.heads);
        let query = heads * (latent.nope_dim + latent.rope_dim);
        let queries = match latent.q_lora_rank {
            0 => h + query,
            rank => (h + rank) + (rank + query),
        };
        let expanded = latent.kv_lora_rank + heads * (latent.nope_dim + latent.value_dim);
        match self.targets {
            Targets::Mlp => 0,
            Targets::Qv => queries + expanded,
            Targets::Qkvo | Targets::All => {
                let compressed = h + latent.kv_lora_rank + latent.rope_dim;
                queries + expanded + compressed + heads * latent.value_dim + h
            }
        }
    }
}

/// Inputs and outputs of the matrices of a plain MLP, of a layer's shared experts, and of all its routed ones.
fn mlps(model: &Model) -> (u64, u64, u64) {
    let matrices = model.features.mlp.matrices();
    let of = |width: u64| matrices * (model.hidden + width);
    let (shared, routed) = match model.experts {
        None => (0, 0),
        // Shared experts are one MLP, as wide as they are together.
        Some(Experts {
            count,
            shared_ffn,
            ffn,
            ..
        }) => (
            if shared_ffn > 0 { of(shared_ffn) } else { 0 },
            count.saturating_mul(of(ffn)),
        ),
    };
    (of(model.ffn), shared, routed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::job::{Method, Training};

    fn count(model: &str, rank: u64, targets: Targets) -> u64 {
        let model = Catalogue::builtin().resolve(model).unwrap();
        let usual = Training::new(Method::Lora).adapters;
        let adapters = Adapters {
            rank,
            targets,
            ..usual
        };
        adapters.count(&model)
    }

    #[test]
    fn adapters_are_counted() {
        assert_eq!(count("Llama-3.1-8B", 16, Targets::All), 41_943_040);
        assert_eq!(count("Llama-2-7B", 8, Targets::Qv), 4_194_304);
        // As peft's own comparison of methods prints it for Llama 3.2 3B.
        assert_eq!(count("Llama-3.2-3B", 10, Targets::Mlp), 9_461_760);
    }

    #[test]
    fn every_expert_has_its_own() {
        // 32 layers: attention as in Mistral 7B, and 8 experts of three matrices in place of one MLP.
        let attention = 2 * (4096 + 4096) + 2 * (4096 + 1024);
        let expected = 16 * 32 * (attention + 8 * 3 * (4096 + 14336));
        assert_eq!(count("Mixtral-8x7B", 16, Targets::All), expected);
        assert_eq!(count("Mixtral-8x7B", 16, Targets::Qkvo), 16 * 32 * attention);
    }

    #[test]
    fn latent_attention_has_five_matrices() {
        let attention =
            (7168 + 1536) + (1536 + 128 * 192) + (7168 + 512 + 64) + (512 + 128 * 256) + (128 * 128 + 7168);
        assert_eq!(count("DeepSeek-V3", 1, Targets::Qkvo), 61 * attention);
        let expert = 3 * (7168 + 2048);
        let expected = 61 * attention + 3 * 3 * (7168 + 18432) + 58 * 257 * expert;
        assert_eq!(count("DeepSeek-V3", 1, Targets::All), expected);
    }
}
