//! Attention or experts of shapes of their own: JetMoE, LongCat, MiMo, and the text part of Llama 3.2 Vision.

use crate::anatomy::CacheHeads;
use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::{ConfigError, layers};
use crate::model::Experts;

/// JetMoE: queries and the matrix behind attention are those of experts too, chosen apart from those of the MLP; as many
/// heads as key and value heads for each that a token passes.
pub(super) fn jetmoe(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let experts = Experts {
        count: fields.size("num_local_experts", Some(8))?,
        per_token: fields.size("num_experts_per_tok", Some(2))?,
        ffn: fields.size("intermediate_size", None)?,
        shared_ffn: 0,
    };
    of.model.kv_heads = fields.size("num_key_value_heads", Some(16))?;
    of.model.head_dim = fields.size("kv_channels", Some(128))?;
    of.model.heads = of.model.kv_heads.saturating_mul(experts.per_token);
    of.within_heads("kv_channels")?;
    let (h, kv) = (of.h(), wide(of.model.key()));
    of.part("keys and values", 2 * h * kv, number)?;
    // A router and a bias each, of attention and of the MLP.
    of.part("routers", 2 * (h * wide(experts.count) + h), number)?;
    of.part("norms", 2 * h, number)?;
    (of.model.anatomy.attending, of.model.anatomy.full) = (number, number);
    of.model.ffn = experts.ffn;
    let each = of.model.expert_matrices(experts) + 2 * h * kv;
    of.routed(experts, each, number)
}

/// LongCat: each layer has two latent attentions, two MLPs and experts, some of which do nothing.
pub(super) fn longcat(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    of.heads()?;
    of.attention(2 * number)?;
    of.part("norms", 4 * of.h(), number)?;
    of.model.ffn = fields.size("ffn_hidden_size intermediate_size", None)?;
    of.plain(2 * number)?;
    let idle = fields.whole("zero_expert_num")?.unwrap_or(0).min(1_000_000);
    let experts = Experts {
        count: fields.size("n_routed_experts", None)?,
        per_token: fields.need("moe_topk")?,
        ffn: fields.size("expert_ffn_hidden_size moe_intermediate_size", None)?,
        shared_ffn: 0,
    };
    of.model.features.router_biases = fields.flag("router_bias")? == Some(true);
    let routed = Experts {
        count: experts.count + idle,
        ..experts
    };
    of.part("router", of.model.router_params(routed), number)?;
    of.routed(experts, of.model.expert_matrices(experts), number)
}

/// MiMo V2: keys and values of other widths, more heads of them where there is a window, and sinks there.
pub(super) fn mimo(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    of.heads()?;
    let kinds = [layers::FULL, layers::WINDOWED];
    let full = match layers::listed_of(fields, layers::LISTS, &kinds, number)? {
        Some(numbers) => numbers[0],
        None => match layers::numbered(fields, "hybrid_layer_pattern", number)? {
            // There, layers with a window are numbered 1.
            Some(windowed) => number - windowed,
            None => 1 + number / 6,
        },
    };
    let value = fields.size("v_head_dim", Some(128))?;
    let swa = fields.size("swa_num_key_value_heads", Some(8))?;
    if value > 10_000 || swa > 10_000 {
        return Err(fields.bad("v_head_dim", "at most 10000 heads of a width of at most 10000"));
    }
    for (key, same) in [
        ("swa_num_attention_heads", of.model.heads),
        ("swa_head_dim", of.model.head_dim),
        ("swa_v_head_dim", value),
    ] {
        if fields.whole(key)?.is_some_and(|found| found != same) {
            return Err(fields.bad(key, &format!("{same}, as in layers without a window")));
        }
    }
    let (h, heads, key) = (of.h(), wide(of.model.heads), wide(of.model.head_dim));
    let params = |kv: u64| h * (heads + wide(kv)) * (key + wide(value));
    let kv_heads = of.model.kv_heads;
    of.part("attention", params(kv_heads), full)?;
    of.part("windowed attention", params(swa) + heads, number - full)?;
    of.part("norms", 2 * h, number)?;
    let width = of.model.head_dim + value;
    let cache = |count| Some(CacheHeads { count, width });
    let anatomy = &mut of.model.anatomy;
    (anatomy.attending, anatomy.full, anatomy.windowed) = (number, full, number - full);
    (anatomy.full_cache, anatomy.window_cache) = (cache(kv_heads), cache(swa));
    of.model.window = Some(fields.whole(layers::WINDOW)?.unwrap_or(128));
    of.feed()
}

/// The text part of Llama 3.2 Vision: in some layers attention looks at the image alone, whose cache is not counted;
/// the embedding has eight entries more than the head.
pub(super) fn mllama(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let number = of.model.layers;
    of.heads()?;
    let crossing = layers::indexed(of.fields, "cross_attention_layers", number)?.unwrap_or(0);
    let own = number.saturating_sub(crossing);
    of.part("entries for images", 8 * of.h(), 1)?;
    of.attention(own)?;
    // Norms on query and key, and two gates.
    let across = of.model.attention_matrices() + 2 * wide(of.model.head_dim) + 2;
    of.part("attention to the image", across, number - own)?;
    of.part("norms", 2 * of.h(), number)?;
    of.model.anatomy.attending = number;
    of.feed()
}
