//! Nemotron-H and 3: each layer is one thing, a state space, attention, an MLP of two matrices, or experts of two.

use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::fields::Fields;
use crate::hub_config::{ConfigError, layers, states};
use crate::model::Experts;

pub(super) fn read(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let fields = of.fields;
    let [with_state, full, plain, sparse] = self::layers(fields)?;
    of.model.layers = with_state + full + plain + sparse;
    of.heads()?;
    let (linear, params) = states::mamba2(of, ["mamba_num_heads", "mamba_head_dim", "ssm_state_size"])?;
    of.part("state space", params, with_state)?;
    of.model.anatomy.with_state = with_state;
    of.model.linear = (with_state > 0).then_some(linear);
    of.attention(full)?;
    of.part("norms", of.h(), of.model.layers)?;
    of.model.ffn = fields.size("intermediate_size", Some(21_504))?;
    of.plain(plain)?;
    if sparse == 0 {
        return Ok(());
    }
    let experts = Experts {
        count: fields.size("n_routed_experts", Some(8))?,
        per_token: fields.whole("num_experts_per_tok")?.unwrap_or(2),
        ffn: fields.size("moe_intermediate_size", Some(7688))?,
        shared_ffn: fields.size("moe_shared_expert_intermediate_size", Some(7688))?,
    };
    let mut each = of.model.expert_matrices(experts);
    // They may work at a width of their own, between two matrices.
    if fields.get("moe_latent_size").is_some() {
        let (h, narrow) = (of.h(), wide(fields.size("moe_latent_size", None)?));
        let biases = if of.model.features.mlp_biases {
            narrow + h
        } else {
            0
        };
        of.part("to the experts' width and back", 2 * h * narrow + biases, sparse)?;
        each = 2 * narrow * wide(experts.ffn);
    }
    of.mixture(experts, each, sparse)
}

/// State spaces, attention, MLPs and experts, by the list or by the pattern of letters.
pub(super) fn layers(fields: &Fields) -> Result<[u64; 4], ConfigError> {
    let kinds = [layers::STATE, layers::FULL, &["mlp"], &["moe"]];
    if let Some(found) = layers::listed(fields, layers::LISTS, &kinds)? {
        let numbers = layers::tally(&found, 4);
        return Ok([numbers[0], numbers[1], numbers[2], numbers[3]]);
    }
    let key = "hybrid_override_pattern";
    let pattern = fields.text(key).unwrap_or_default();
    let letters = ['M', '*', '-', 'E'];
    let numbers = letters.map(|letter| pattern.chars().filter(|found| *found == letter).count() as u64);
    let all: u64 = numbers.iter().sum();
    if all == 0 || all > 10_000 || all != pattern.chars().count() as u64 {
        return Err(fields.bad(key, "M, *, - and E, one for each layer; or layers_block_type"));
    }
    Ok(numbers)
}
