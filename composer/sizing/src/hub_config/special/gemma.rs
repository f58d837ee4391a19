//! Gemma 3n and 4: layers that take the keys and values of earlier ones, embeddings of their own for each layer, wider
//! heads in layers that look at all tokens.

use crate::anatomy::CacheHeads;
use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::fields::Fields;
use crate::hub_config::{ConfigError, layers};
use crate::model::Experts;

/// Layers with a window, and the number of layers at the end with the cache of earlier ones.
struct Plan {
    windowed: Vec<bool>,
    shared: usize,
}

impl Plan {
    /// Without a list, each layer of this number is full.
    fn read(fields: &Fields, number: u64, every: u64) -> Result<Plan, ConfigError> {
        let kinds = [layers::FULL, layers::WINDOWED];
        let windowed: Vec<bool> = match layers::listed(fields, layers::LISTS, &kinds)? {
            Some(found) if found.len() as u64 != number => {
                return Err(fields.bad("layer_types", &format!("a list of {number}, one for each layer")));
            }
            Some(found) => found.into_iter().map(|kind| kind == 1).collect(),
            None => (1..=number).map(|layer| !layer.is_multiple_of(every)).collect(),
        };
        let shared = fields.whole("num_kv_shared_layers")?.unwrap_or(0);
        if shared >= number {
            return Err(fields.bad("num_kv_shared_layers", &format!("0 to {}", number - 1)));
        }
        let shared = usize::try_from(shared).unwrap_or(0);
        Ok(Plan { windowed, shared })
    }

    /// Layers of the kind that make keys and values, and that take those of others.
    fn of(&self, windowed: bool) -> (u64, u64) {
        let own = self.windowed.len() - self.shared;
        let count = |part: &[bool]| part.iter().filter(|found| **found == windowed).count() as u64;
        let (first, last) = self.windowed.split_at(own);
        (count(first), count(last))
    }
}

/// Heads of a kind of layer.
#[derive(Clone, Copy)]
struct Heads {
    queries: u64,
    keys: u64,
    width: u64,
    /// Keys are values too.
    alike: bool,
}

impl Heads {
    fn cache(self) -> Option<CacheHeads> {
        Some(CacheHeads {
            count: self.keys,
            width: 2 * self.width,
        })
    }

    /// Attention of layers of its own, and of those that take the cache of others.
    fn parts(self, of: &mut Reader<'_>, name: &str, (own, taking): (u64, u64)) -> Result<(), ConfigError> {
        let [q, kv, d] = [self.queries * self.width, self.keys * self.width, self.width].map(wide);
        let h = of.h();
        let queries = 2 * h * q + d;
        let made = h * kv * if self.alike { 1 } else { 2 } + d;
        of.part(name, queries + made, own)?;
        of.part(&format!("{name}, cache of others"), queries, taking)
    }
}

fn attention(of: &mut Reader<'_>, plan: &Plan, full: Heads, windowed: Heads) -> Result<(), ConfigError> {
    full.parts(of, "attention", plan.of(false))?;
    windowed.parts(of, "windowed attention", plan.of(true))?;
    let anatomy = &mut of.model.anatomy;
    anatomy.attending = of.model.layers;
    (anatomy.full, anatomy.windowed) = (plan.of(false).0, plan.of(true).0);
    (anatomy.full_cache, anatomy.window_cache) = (full.cache(), windowed.cache());
    of.model.window = of.fields.whole(layers::WINDOW)?;
    Ok(())
}

/// Embeddings of each layer: the table, the matrices that make an input of it, and the matrix that adds it.
fn of_each_layer(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let fields = of.fields;
    let key = "hidden_size_per_layer_input";
    let width = fields.whole(key)?.unwrap_or(256);
    if width == 0 {
        return Ok(());
    }
    if width > 1_000_000 {
        return Err(fields.bad(key, "0 to 1000000"));
    }
    let rows = fields.size("vocab_size_per_layer_input", Some(262_144))?;
    let (h, p, layers) = (of.h(), wide(width), of.model.layers);
    of.part("embedding of a layer", wide(rows) * p, layers)?;
    of.part("input of a layer", h * p + 2 * h * p + h, layers)?;
    of.part("norm of the layers' inputs", p, 1)?;
    of.model.anatomy.looked_up = rows.saturating_mul(width).saturating_mul(layers);
    Ok(())
}

fn heads(of: &mut Reader<'_>) -> Result<Heads, ConfigError> {
    of.heads()?;
    Ok(Heads {
        queries: of.model.heads,
        keys: of.model.kv_heads,
        width: of.model.head_dim,
        alike: false,
    })
}

pub(super) fn gemma3n(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let plan = Plan::read(fields, number, 5)?;
    let heads = heads(of)?;
    attention(of, &plan, heads, heads)?;
    let widths = layers::widths(fields, "intermediate_size", number, 16_384)?;
    for width in &widths {
        of.part("MLP", of.model.mlp_params(*width), 1)?;
    }
    of.model.ffn = widths.iter().copied().max().unwrap_or(1);
    of.model.anatomy.plain = number;
    let inputs = wide(fields.size("altup_num_inputs", Some(4))?);
    let rank = wide(fields.size("laurel_rank", Some(64))?);
    let h = of.h();
    let scale = match fields.flag("altup_correct_scale")? {
        Some(false) => 0,
        _ => h,
    };
    let several = scale + inputs * inputs + inputs * inputs * inputs + inputs * h + h;
    of.part("streams of a layer", several, number)?;
    of.part("low-rank way past", 2 * h * rank + h, number)?;
    of.part("norms", 4 * h, number)?;
    of.part("streams", 2 * (inputs - 1) * h * h, 1)?;
    of_each_layer(of)
}

pub(super) fn gemma4(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let mut plan = Plan::read(fields, number, 6)?;
    if let Some(last) = plan.windowed.last_mut() {
        // The class makes the last one full.
        *last = false;
    }
    let windowed = heads(of)?;
    let full = wider(fields, windowed)?;
    attention(of, &plan, full, windowed)?;
    of.model.ffn = fields.size("intermediate_size", Some(9216))?;
    let double = fields.flag("use_double_wide_mlp")? == Some(true);
    let taking = if double { plan.shared as u64 } else { 0 };
    let mlp = of.model.mlp_params(of.model.ffn);
    of.plain(number - taking)?;
    of.part("MLP, double width", 2 * mlp, taking)?;
    of.model.anatomy.plain = number;
    let h = of.h();
    of.part("norms", 4 * h, number)?;
    of_each_layer(of)?;
    if fields.flag("enable_moe_block")? != Some(true) {
        return Ok(());
    }
    let experts = Experts {
        count: fields.size("num_experts", None)?,
        per_token: fields.need("top_k_experts")?,
        ffn: fields.size("moe_intermediate_size expert_intermediate_size", None)?,
        shared_ffn: 0,
    };
    of.part("norms and biases of experts", 4 * h + wide(experts.count), number)?;
    of.mixture(experts, of.model.expert_matrices(experts), number)
}

/// Heads of layers that look at all tokens: stated for all of them, or for each, and then alike.
fn wider(fields: &Fields, windowed: Heads) -> Result<Heads, ConfigError> {
    let alike = fields.flag("attention_k_eq_v")? == Some(true);
    let heads = |fields: &Fields, width: &'static str, keys: &'static str| {
        let keys = fields.size(keys, Some(windowed.keys))?;
        let width = fields.size(width, Some(512))?;
        if keys > 10_000 || width > 10_000 {
            return Err(fields.bad("global_head_dim", "at most 10000"));
        }
        Ok(Heads {
            keys,
            width,
            alike,
            ..windowed
        })
    };
    let Some(each) = fields.inner("per_layer_config")? else {
        let stated = heads(fields, "global_head_dim", "num_global_key_value_heads")?;
        // Fewer keys only where they are values too.
        let keys = if alike { stated.keys } else { windowed.keys };
        return Ok(Heads { keys, ..stated });
    };
    let all = each.objects();
    let alike = |first: &&Fields| all.iter().all(|other| other.same(first));
    let Some(first) = all.first().filter(alike) else {
        let allowed = "the same for each layer that looks at all tokens";
        return Err(fields.bad("per_layer_config", allowed));
    };
    heads(first, "head_dim", "num_key_value_heads")
}
