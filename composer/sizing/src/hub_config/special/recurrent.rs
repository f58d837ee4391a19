//! xLSTM: a matrix for each head, with gates of input, forgetting and output.

use crate::hub_config::ConfigError;
use crate::hub_config::decoder::{Reader, wide};
use crate::linear::{Linear, Mixer};

pub(super) fn xlstm(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number, hidden) = (of.fields, of.model.layers, of.model.hidden);
    let heads = fields.size("num_heads", Some(8))?;
    let key = (fields.factor("qk_dim_factor", 0.5)? * hidden as f64) as u64;
    let value = (fields.factor("v_dim_factor", 1.0)? * hidden as f64) as u64;
    if heads > 10_000 || key < heads || value < heads || key.max(value) > 1_000_000 {
        let allowed = "at most 10000, and no more than queries and values are wide";
        return Err(fields.bad("num_heads", allowed));
    }
    let (h, wide_heads) = (of.h(), wide(heads));
    let matrices = h * (2 * wide(key) + 2 * wide(value)) + wide(value) * h;
    let gates = 2 * (h * wide_heads + wide_heads);
    of.part("matrix memory", matrices + gates + wide(value), number)?;
    of.part("norms", 2 * h, number)?;
    let block = fields.size("ffn_round_up_to_multiple_of", Some(64))?;
    let stated = fields.factor("ffn_proj_factor", 2.667)? * hidden as f64;
    of.model.ffn = ((stated + (block - 1) as f64) / block as f64).floor() as u64 * block;
    of.model.anatomy.with_state = number;
    (of.model.heads, of.model.kv_heads) = (heads, heads);
    of.model.head_dim = value / heads;
    of.model.linear = Some(Linear {
        mixer: Mixer::Lightning,
        key_heads: heads,
        value_heads: heads,
        key_dim: key / heads,
        value_dim: value / heads,
        // There is no convolution.
        kernel: 1,
        state_bytes: 4,
    });
    of.plain(number)
}
