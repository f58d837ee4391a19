//! Gemma 3n and 4: layers that take the keys and values of earlier ones, embeddings of their own for each layer, wider
//! heads in layers that look at all tokens.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::anatomy::CacheHeads;
use crate::model::{Experts, Window};

const WINDOWED: usize = 1;

/// Which layers have a window; of which the last so many take the cache of earlier ones.
struct Plan {
    windowed: Vec<bool>,
    shared: usize,
}

impl Plan {
    /// One in so many is full where no list says it.
    fn read(fields: &Fields, every: u64) -> Result<Plan, ConfigError> {
        let number = layers::number(fields)?;
        let kinds: [&[&str]; 2] = [&["full_attention"], &["sliding_attention"]];
        let windowed: Vec<bool> = match layers::listed(fields, &["layer_types"], &kinds)? {
            Some(found) if found.len() as u64 != number => {
                return Err(fields.bad("layer_types", &format!("a list of {number}, one for each layer")));
            }
            Some(found) => found.into_iter().map(|kind| kind == WINDOWED).collect(),
            None => (1..=number).map(|layer| !layer.is_multiple_of(every)).collect(),
        };
        let shared = fields.whole(&["num_kv_shared_layers"])?.unwrap_or(0);
        if shared >= number {
            return Err(fields.bad("num_kv_shared_layers", &format!("0 to {}", number - 1)));
        }
        let shared = usize::try_from(shared).unwrap_or(0);
        Ok(Plan { windowed, shared })
    }

    fn layers(&self) -> u64 {
        self.windowed.len() as u64
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
    fn cache(self) -> CacheHeads {
        CacheHeads {
            count: self.keys,
            width: 2 * self.width,
        }
    }

    /// Attention of layers of its own, and of those that take the cache of others.
    fn parts(self, draft: &mut Draft, name: &str, (own, taking): (u64, u64)) -> Result<(), ConfigError> {
        let [q, kv, d] = [self.queries * self.width, self.keys * self.width, self.width].map(wide);
        let h = draft.h();
        let queries = 2 * h * q + d;
        let made = h * kv * if self.alike { 1 } else { 2 } + d;
        draft.part(name, queries + made, own)?;
        draft.part(&format!("{name}, cache of others"), queries, taking)
    }
}

fn cached(draft: &mut Draft, plan: &Plan, window: u64, full: Heads, windowed: Heads) {
    let anatomy = &mut draft.anatomy;
    anatomy.attending = plan.layers();
    (anatomy.full, anatomy.windowed) = (plan.of(false).0, plan.of(true).0);
    (anatomy.full_cache, anatomy.window_cache) = (Some(full.cache()), Some(windowed.cache()));
    draft.window = Some(Window {
        tokens: window,
        full_every: 1,
    });
}

/// Embeddings of each layer: the table, what makes of it and the tokens one input for each layer, and what adds it.
fn of_each_layer(fields: &Fields, draft: &mut Draft) -> Result<(), ConfigError> {
    let Some(width) = fields
        .whole(&["hidden_size_per_layer_input"])?
        .or(Some(256))
        .filter(|w| *w > 0)
    else {
        return Ok(());
    };
    if width > 1_000_000 {
        return Err(fields.bad("hidden_size_per_layer_input", "0 to 1000000"));
    }
    let rows = fields.size(&["vocab_size_per_layer_input"], Some(262_144))?;
    let (h, p, layers) = (draft.h(), wide(width), draft.layers);
    draft.part("embedding of a layer", wide(rows) * p, layers)?;
    draft.part("input of a layer", h * p + 2 * h * p + h, layers)?;
    draft.part("norm of the layers' inputs", p, 1)?;
    draft.anatomy.looked_up = rows.saturating_mul(width).saturating_mul(layers);
    Ok(())
}

pub(super) fn gemma3n(fields: &Fields) -> Result<Draft, ConfigError> {
    let plan = Plan::read(fields, 5)?;
    let usual = [
        ("vocab_size", 262_400),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 2),
        ("head_dim", 256),
    ];
    let fields = &fields.or(&usual);
    let mut draft = Draft::with_attention(fields, plan.layers(), true)?;
    let heads = Heads {
        queries: draft.heads,
        keys: draft.kv_heads,
        width: draft.head_dim,
        alike: false,
    };
    heads.parts(&mut draft, "attention", plan.of(false))?;
    heads.parts(&mut draft, "windowed attention", plan.of(true))?;
    let window = fields.whole(&["sliding_window"])?.unwrap_or(512);
    cached(&mut draft, &plan, window, heads, heads);

    let widths = layers::widths(fields, "intermediate_size", plan.layers(), 16_384)?;
    for width in &widths {
        draft.part("MLP", draft.gated(*width), 1)?;
    }
    draft.ffn = widths.iter().copied().max().unwrap_or(1);
    draft.anatomy.plain = plan.layers();
    let inputs = wide(fields.size(&["altup_num_inputs"], Some(4))?);
    let rank = wide(fields.size(&["laurel_rank"], Some(64))?);
    let h = draft.h();
    let scale = if fields.flag("altup_correct_scale")? == Some(false) {
        0
    } else {
        h
    };
    let several = scale + inputs * inputs + inputs * inputs * inputs + inputs * h + h;
    draft.part("streams of a layer", several, plan.layers())?;
    draft.part("low-rank way past", 2 * h * rank + h, plan.layers())?;
    draft.part("norms", 4 * h, plan.layers())?;
    draft.part("streams", 2 * (inputs - 1) * h * h, 1)?;
    of_each_layer(fields, &mut draft)?;
    Ok(draft)
}

pub(super) fn gemma4(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut plan = Plan::read(fields, 6)?;
    if let Some(last) = plan.windowed.last_mut() {
        // The last one is full, whatever the list says.
        *last = false;
    }
    let usual = [("vocab_size", 262_144), ("head_dim", 256)];
    let fields = &fields.or(&usual);
    let mut draft = Draft::with_attention(fields, plan.layers(), true)?;
    let windowed = Heads {
        queries: draft.heads,
        keys: draft.kv_heads,
        width: draft.head_dim,
        alike: false,
    };
    let full = wider(fields, windowed)?;
    full.parts(&mut draft, "attention", plan.of(false))?;
    windowed.parts(&mut draft, "windowed attention", plan.of(true))?;
    let window = fields.whole(&["sliding_window"])?.unwrap_or(512);
    cached(&mut draft, &plan, window, full, windowed);

    let number = plan.layers();
    draft.ffn = fields.size(&["intermediate_size"], Some(9216))?;
    draft.anatomy.plain = number;
    let double = fields.flag("use_double_wide_mlp")? == Some(true);
    let taking = if double { plan.shared as u64 } else { 0 };
    draft.part("MLP", draft.gated(draft.ffn), number - taking)?;
    draft.part("MLP, double width", 2 * draft.gated(draft.ffn), taking)?;
    let h = draft.h();
    draft.part("norms", 4 * h, number)?;
    of_each_layer(fields, &mut draft)?;
    if fields.flag("enable_moe_block")? == Some(true) {
        let experts = Experts {
            count: fields.size(&["num_experts"], None)?,
            per_token: fields.need(&["top_k_experts"])?,
            ffn: fields.size(&["moe_intermediate_size", "expert_intermediate_size"], None)?,
            shared: 0,
            first_dense_layers: 0,
            every: 1,
        };
        let count = wide(experts.count);
        draft.part(
            "router and norms of experts",
            h * count + h + count + 3 * h,
            number,
        )?;
        draft.experts_of(experts, number)?;
    }
    Ok(draft)
}

/// Heads of layers that look at all tokens: stated for all of them, or for each, and then alike.
fn wider(fields: &Fields, windowed: Heads) -> Result<Heads, ConfigError> {
    let alike = fields.flag("attention_k_eq_v")? == Some(true);
    let heads = |fields: &Fields, width: &'static str, keys: &'static str| {
        let keys = fields.size(&[keys], Some(windowed.keys))?;
        let width = fields.size(&[width], Some(512))?;
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
    let Some(first) = all
        .first()
        .filter(|first| all.iter().all(|other| other.same(first)))
    else {
        return Err(fields.bad(
            "per_layer_config",
            "the same for each layer that looks at all tokens",
        ));
    };
    heads(first, "head_dim", "num_key_value_heads")
}
