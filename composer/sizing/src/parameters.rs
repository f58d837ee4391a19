//! How many parameters a model's dimensions come to, to the parameter.
//!
//! Every family has the same anatomy: embedding, layers of attention and MLP (or experts), a last norm, a head.
//! They differ in what stands beside the big matrices: norms, biases, routers, positions. The counts are those
//! of the parameters that the model's class in transformers registers; buffers are not parameters.

use crate::model::{Experts, Family, Latent, Mlp, Model};

/// Parameters of the model; None where its family is not counted, or where they are more than 2^64.
pub(crate) fn count(model: &Model) -> Option<u64> {
    if let Some(anatomy) = &model.anatomy {
        return anatomy.params();
    }
    let wide = |n: u64| u128::from(n);
    let (layers, h) = (wide(model.layers), wide(model.hidden));
    let with_experts = wide(model.expert_layers());
    let mut total = wide(model.embedding());
    total += mixers(model) + layers * beside_a_layer(model)?;
    total += (layers - with_experts) * plain_mlp(model);
    total += with_experts * model.experts.map_or(0, |experts| mixture(model, experts));
    total += beside_the_layers(model, h)?;
    u64::try_from(total).ok()
}

/// Parameters of the matrices alone, whatever the family.
pub(crate) fn matrices(model: &Model) -> u128 {
    if let Some(anatomy) = &model.anatomy {
        return anatomy.params().map_or(0, u128::from);
    }
    let with_experts = model.expert_layers();
    let (dense, with_experts) = (u128::from(model.layers - with_experts), u128::from(with_experts));
    u128::from(model.embedding())
        + mixers(model)
        + dense * plain_mlp(model)
        + with_experts * model.experts.map_or(0, |experts| mixture(model, experts))
}

/// Attention of all layers, linear or not.
fn mixers(model: &Model) -> u128 {
    let linear = u128::from(model.linear_layers());
    let each = model.linear.map_or(0, |linear| linear.params(model.hidden));
    (u128::from(model.layers) - linear) * attention(model) + linear * each
}

/// The four matrices, or those of latent attention with the norms between them; with a gate, queries are made with
/// as many elements more, and both queries and keys have a norm.
pub(crate) fn attention(model: &Model) -> u128 {
    let (h, heads) = (u128::from(model.hidden), u128::from(model.heads));
    match model.latent {
        Some(latent) => latent_attention(latent, h, heads),
        None if model.family == Family::Qwen3Next => {
            let [q, kv, d] = [model.query(), model.key(), model.head_dim].map(u128::from);
            h * (3 * q + 2 * kv) + 2 * d
        }
        None => 2 * h * (u128::from(model.query()) + u128::from(model.key())),
    }
}

pub(crate) fn latent_attention(latent: Latent, h: u128, heads: u128) -> u128 {
    let [index_heads, index_dim] = [latent.index_heads, latent.index_dim].map(u128::from);
    let [kv_rank, q_rank, rope, nope, value] = [
        latent.kv_lora_rank,
        latent.q_lora_rank,
        latent.rope_dim,
        latent.nope_dim,
        latent.value_dim,
    ]
    .map(u128::from);
    let whole_query = heads * (nope + rope);
    let query = match q_rank {
        0 => h * whole_query,
        rank => h * rank + rank + rank * whole_query,
    };
    let key_and_value = h * (kv_rank + rope) + kv_rank + kv_rank * heads * (nope + value);
    // Of the indexer: queries from the compressed ones, a key with its norm, and a weight for each head.
    let indexer = index_dim * (index_heads * q_rank + h + 2) + index_heads * h;
    query + key_and_value + heads * value * h + indexer
}

pub(crate) fn plain_mlp(model: &Model) -> u128 {
    let (h, f) = (u128::from(model.hidden), u128::from(model.ffn));
    match model.mlp {
        Mlp::Gated => 3 * h * f,
        // Both matrices have a bias, where anything has.
        Mlp::Gelu | Mlp::GeluNew
            if matches!(
                model.family,
                Family::Falcon
                    | Family::Mpt
                    | Family::Nemotron
                    | Family::Arcee
                    | Family::Apertus
                    | Family::Olmo
            ) =>
        {
            2 * h * f
        }
        Mlp::Gelu | Mlp::GeluNew => 2 * h * f + f + h,
    }
}

fn mixture(model: &Model, experts: Experts) -> u128 {
    let h = u128::from(model.hidden);
    let [count, shared, f] = [experts.count, experts.shared, experts.ffn].map(u128::from);
    let beside = match model.family {
        // Biases of the router and of both matrices of each expert.
        Family::GptOss => count + count * (2 * f + h),
        // A gate decides how much the shared experts count.
        Family::Qwen2Moe | Family::Qwen3Next => h,
        _ => 0,
    };
    h * count + (count + shared) * 3 * h * f + beside
}

/// Norms and biases of one layer.
fn beside_a_layer(model: &Model) -> Option<u128> {
    let [h, q, kv, d, heads] = [
        model.hidden,
        model.query(),
        model.key(),
        model.head_dim,
        model.heads,
    ]
    .map(u128::from);
    Some(match model.family {
        Family::Llama | Family::Mixtral | Family::Llama4 | Family::Deepseek | Family::Qwen3Next => 2 * h,
        Family::Arcee | Family::Phi3 => 2 * h,
        Family::Apertus => 2 * h + 2 * d + 2,
        Family::LlamaBias => 2 * h + q + 2 * kv + h,
        Family::Olmo => 0,
        Family::Stablelm | Family::Nemotron | Family::Glm4 => 4 * h,
        Family::StablelmBias | Family::Glm4Bias => 4 * h + q + 2 * kv,
        Family::Phimoe => 4 * h + q + 2 * kv + h,
        Family::Gptj | Family::Mpt => 2 * h,
        Family::GptNeo => 4 * h + h,
        Family::Qwen2 | Family::Qwen2Moe => 2 * h + q + 2 * kv,
        Family::Qwen3 | Family::Qwen3Moe => 2 * h + 2 * d,
        Family::Gemma2 => 4 * h,
        Family::Gemma3 => 4 * h + 2 * d,
        Family::Olmo2 => 2 * h + q + kv,
        Family::Glm4Moe => 2 * h + q + 2 * kv + 2 * d,
        // Biases of all four matrices, and a sink for each head.
        Family::GptOss => 2 * h + q + 2 * kv + h + heads,
        // One norm, without a bias.
        Family::Cohere => h,
        Family::CohereQkNorm => h + q + kv,
        // One norm for both parts, or one for each where keys and values have several heads.
        Family::Falcon if model.kv_heads == 1 => 2 * h,
        Family::Falcon => 4 * h,
        Family::Phi => 2 * h + q + 2 * kv + h,
        Family::Gpt2 | Family::Opt | Family::Bloom | Family::GptNeox | Family::Starcoder2 => {
            4 * h + q + 2 * kv + h
        }
        Family::Mixed | Family::Other => return None,
    })
}

/// The last norm, positions, and what else is there once.
fn beside_the_layers(model: &Model, h: u128) -> Option<u128> {
    Some(match model.family {
        Family::Gpt2 | Family::GptNeo => u128::from(model.context?) * h + 2 * h,
        Family::Olmo => 0,
        // Two positions more, for padding.
        Family::Opt => (u128::from(model.context?) + 2) * h + 2 * h,
        // The embedding has a norm of its own.
        Family::Bloom => 4 * h,
        // The head has a bias.
        Family::Phi | Family::Gptj | Family::Phimoe => 2 * h + u128::from(model.vocab),
        Family::Falcon
        | Family::GptNeox
        | Family::Starcoder2
        | Family::Nemotron
        | Family::Stablelm
        | Family::StablelmBias => 2 * h,
        Family::Mixed | Family::Other => return None,
        _ => h,
    })
}
