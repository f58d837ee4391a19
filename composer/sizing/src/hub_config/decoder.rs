//! The usual parts of a decoder, by the row of its kind.
//!
//! A part has the parameters that the model's class in transformers registers; buffers, such as biases that balance
//! experts, are none.

use super::fields::Fields;
use super::kinds::{Kind, Width};
use super::{CONTEXT, COUNTS, ConfigError, HEADS, HIDDEN, MLP, VOCAB, layers, states};
use crate::anatomy::Counted;
pub(super) use crate::features::wide;
use crate::features::{Biases, Features, Gate, HeadNorms, Mlp, Norms};
use crate::model::{Experts, Latent, Model};

/// A model while it is read.
pub(super) struct Reader<'a> {
    pub fields: &'a Fields,
    pub kind: &'a Kind,
    pub model: Model,
}

/// Attention or a state in each layer, and an MLP or experts.
pub(super) fn read(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let number = of.model.layers;
    if !of.kind.single {
        of.heads()?;
    }
    let [full, windowed, mut with_state] = of.mixers()?;
    if let Some(state) = of.kind.state {
        let (linear, params) = states::read(state, of)?;
        if of.kind.parallel {
            with_state = number;
        }
        of.part(state.name(), params, with_state)?;
        of.model.anatomy.with_state = with_state;
        of.model.linear = (with_state > 0).then_some(linear);
    }
    if of.kind.single {
        of.part("norms", of.model.norm_params(), number)?;
        // There is no MLP: the mixer has its width.
        of.model.ffn = of.model.linear.map_or(1, |linear| linear.value());
        return Ok(());
    }
    of.attention(full + windowed)?;
    of.model.anatomy.full = full;
    of.model.anatomy.windowed = windowed;
    of.part("norms", of.model.norms_params(), number)?;
    of.feed()
}

impl<'a> Reader<'a> {
    /// With embedding, positions, last norm and head.
    pub fn new(name: &str, fields: &'a Fields, kind: &'a Kind) -> Result<Self, ConfigError> {
        let mut of = Reader {
            fields,
            kind,
            model: Model {
                layers: layers::number(fields)?,
                hidden: fields.size(HIDDEN, None)?,
                vocab: fields.size(fields.named(VOCAB).unwrap_or("vocab_size"), None)?,
                tied: fields
                    .flag("tie_word_embeddings")?
                    .or(fields.flag("tie_embedding")?)
                    .unwrap_or(kind.tied),
                features: features(fields, kind)?,
                context: fields.whole(CONTEXT)?,
                ..Model::blank(name)
            },
        };
        let h = of.h();
        let matrix = wide(of.model.vocab) * h;
        of.part("embedding", matrix, 1)?;
        if !of.model.tied {
            of.part("head", matrix, 1)?;
        }
        if let Some(more) = kind.positions {
            let positions = fields.size(CONTEXT, None)?;
            of.part("positions", wide(positions + more) * h, 1)?;
        }
        let norm = of.model.norm_params();
        if kind.embedding_norm {
            of.part("norm of the embedding", norm, 1)?;
        }
        if !kind.no_last_norm {
            of.part("last norm", norm, 1)?;
        }
        if of.model.features.head_bias {
            of.part("bias of the head", wide(of.model.vocab), 1)?;
        }
        Ok(of)
    }

    pub fn h(&self) -> u128 {
        wide(self.model.hidden)
    }

    pub fn part(&mut self, name: &str, params: u128, times: u64) -> Result<(), ConfigError> {
        let params = u64::try_from(params).map_err(|_| ConfigError::BadValue {
            key: name.into(),
            found: format!("{params} parameters"),
            allowed: "less than 2^64, as its widths make them".into(),
        })?;
        let parts = &mut self.model.anatomy.parts;
        match parts.last_mut() {
            Some(last) if last.name == name && last.params == params => last.times += times,
            _ if params == 0 || times == 0 => {}
            _ => parts.push(Counted {
                name: name.into(),
                params,
                times,
            }),
        }
        Ok(())
    }

    /// Heads of attention, or latent attention, which has one entry of the cache for all heads.
    pub fn heads(&mut self) -> Result<(), ConfigError> {
        let fields = self.fields;
        let heads = fields.size(HEADS, None)?;
        self.model.heads = heads;
        self.model.kv_heads = self.kv_heads(heads)?;
        if self.kind.latent {
            let latent = latent(fields)?;
            self.model.latent = Some(latent);
            self.model.head_dim = latent.value_dim;
            return Ok(());
        }
        let names = "attention_head_dim head_dim kv_channels";
        self.model.head_dim = match fields.named(names) {
            Some(_) => fields.size(names, None)?,
            None if self.model.hidden.is_multiple_of(heads) => self.model.hidden / heads,
            None => {
                let key = fields.named(HEADS).unwrap_or("num_attention_heads");
                let hidden = self.model.hidden;
                let allowed = format!("a divisor of the width, {hidden}, where head_dim is not given");
                return Err(fields.bad(key, &allowed));
            }
        };
        self.within_heads("num_attention_heads")
    }

    /// Refuses numbers and widths of heads that no model has.
    pub fn within_heads(&self, key: &str) -> Result<(), ConfigError> {
        let model = &self.model;
        if model.heads.max(model.kv_heads).max(model.head_dim) <= 10_000 {
            return Ok(());
        }
        let allowed = "at most 10000 heads of a width of at most 10000";
        Err(self.fields.bad(key, allowed))
    }

    /// As stated; one where the model has a single key and value head for all queries.
    fn kv_heads(&self, heads: u64) -> Result<u64, ConfigError> {
        let fields = self.fields;
        if !self.kind.multi_query {
            let names = "num_key_value_heads kv_n_heads multi_query_group_num";
            return fields.size(names, Some(heads));
        }
        match (
            fields.flag("new_decoder_architecture")?,
            fields.flag("multi_query")?,
        ) {
            (Some(true), _) => fields.size("num_kv_heads n_head_kv", Some(heads)),
            (_, Some(false)) => Ok(heads),
            _ => Ok(1),
        }
    }

    /// How many layers look at all tokens, at a window, and keep a state.
    fn mixers(&mut self) -> Result<[u64; 3], ConfigError> {
        let (fields, number) = (self.fields, self.model.layers);
        let window = match fields.flag("use_sliding_window")? {
            Some(false) => None,
            _ => fields.whole(layers::WINDOW)?,
        };
        let kinds = [layers::FULL, layers::WINDOWED, layers::STATE];
        let listed = layers::listed_of(fields, layers::LISTS, &kinds, number)?;
        let [full, windowed, state] = match (self.kind.state, listed) {
            (Some(_), _) if self.kind.single => [0, 0, number],
            (Some(_), _) if self.kind.parallel => [number, 0, 0],
            (None, Some(of)) if of[2] > 0 => {
                let key = fields.named(layers::LISTS).unwrap_or("layer_types");
                return Err(fields.bad(key, "layers with attention, of this kind of model"));
            }
            (_, Some(of)) => [of[0], of[1], of[2]],
            (Some(state), None) => {
                let full = states::full_layers(state, fields, number)?;
                [full, 0, number.saturating_sub(full)]
            }
            (None, None) => [number, 0, 0],
        };
        let Some(window) = window else {
            return Ok([full + windowed, 0, state]);
        };
        let listed = fields.named(layers::LISTS).is_some();
        let (full, windowed) = match listed && (self.kind.state.is_none() || windowed > 0) {
            true => (full, windowed),
            false => {
                let whole = self.without_window(full)?.min(full);
                (whole, full - whole)
            }
        };
        if windowed > 0 {
            self.model.window = Some(window);
        }
        Ok([full, windowed, state])
    }

    /// How many of the layers with attention look at all tokens, where no list says it.
    fn without_window(&self, attending: u64) -> Result<u64, ConfigError> {
        let (fields, pattern) = (self.fields, "sliding_window_pattern");
        // Of Qwen 2 and 3, whose other layers come first.
        if fields.flag("use_sliding_window")? == Some(true) {
            return Ok(fields.whole("max_window_layers")?.unwrap_or(0));
        }
        let Some(usual) = self.kind.windows else {
            return Ok(attending);
        };
        if let Some(letters) = fields.text(pattern) {
            if letters.is_empty()
                || letters.len() > 1000
                || !letters.chars().all(|letter| "LG".contains(letter))
            {
                return Err(fields.bad(
                    pattern,
                    "a number, or L and G for layers with a window and without",
                ));
            }
            let turn = (0..attending).zip(letters.chars().cycle());
            return Ok(turn.filter(|(_, letter)| *letter == 'G').count() as u64);
        }
        let every = fields.whole("sliding_window_pattern global_attn_every_n_layers")?;
        Ok(attending.checked_div(every.unwrap_or(usual)).unwrap_or(0))
    }

    pub fn attention(&mut self, layers: u64) -> Result<(), ConfigError> {
        self.model.anatomy.attending = layers;
        self.model.anatomy.full = layers;
        if let Some(heads) = self.heads_by_layer()? {
            let usual = self.model.heads;
            for heads in heads {
                self.model.heads = heads;
                self.part("attention", self.model.attention_matrices(), 1)?;
                self.part("norms and biases of attention", self.model.beside_attention(), 1)?;
            }
            self.model.heads = usual;
            return Ok(());
        }
        let name = match self.model.latent {
            Some(_) => "latent attention",
            None => "attention",
        };
        self.part(name, self.model.attention_matrices(), layers)?;
        if let Some(latent) = self.model.latent.filter(|latent| latent.index_dim > 0) {
            // Layers that take over which tokens are looked at have no indexer.
            let own = layers::listed_of(
                self.fields,
                "indexer_types",
                &[&["full"], &["shared"]],
                self.model.layers,
            )?;
            let own = own.map_or(layers, |of| of[0]);
            self.part("indexer", latent.indexer_params(self.model.hidden), own)?;
        }
        self.part(
            "norms and biases of attention",
            self.model.beside_attention(),
            layers,
        )
    }

    /// Where layers differ in their heads.
    fn heads_by_layer(&self) -> Result<Option<Vec<u64>>, ConfigError> {
        let key = "num_attention_heads_per_layer";
        if self.fields.get(key).is_none() {
            return Ok(None);
        }
        let heads = layers::widths(self.fields, key, self.model.layers, self.model.heads)?;
        let kv_heads = self.model.kv_heads;
        let wrong = |of: &u64| *of > 10_000 || !of.is_multiple_of(kv_heads);
        if heads.iter().any(wrong) {
            let allowed = format!("multiples of num_key_value_heads, {kv_heads}");
            return Err(self.fields.bad(key, &allowed));
        }
        Ok(Some(heads))
    }

    /// An MLP or experts in each layer, and the parts beside them.
    pub fn feed(&mut self) -> Result<(), ConfigError> {
        let number = self.model.layers;
        let experts = match self.kind.experts {
            true => self.experts()?,
            false => None,
        };
        let sparse = match experts {
            Some(_) => layers::sparse(self.fields, number)?,
            None => 0,
        };
        self.model.ffn = self.plain_width(experts, number - sparse)?;
        if let Some(formula) = &self.kind.beside {
            self.part("other norms and biases", formula.of(&self.model), number)?;
        }
        self.plain(number - sparse)?;
        match experts {
            Some(experts) if sparse > 0 => self.mixture(experts, self.model.expert_matrices(experts), sparse),
            _ => Ok(()),
        }
    }

    pub fn plain(&mut self, layers: u64) -> Result<(), ConfigError> {
        self.model.anatomy.plain = layers;
        self.part("MLP", self.model.mlp_params(self.model.ffn), layers)
    }

    /// A router, shared experts and routed experts in this number of layers.
    pub fn mixture(&mut self, experts: Experts, each: u128, layers: u64) -> Result<(), ConfigError> {
        self.part("router", self.model.router_params(experts), layers)?;
        if let Some(formula) = &self.kind.beside_experts {
            self.part("norm of the experts", formula.of(&self.model), layers)?;
        }
        if experts.shared_ffn > 0 {
            let shared = self.model.mlp_params(experts.shared_ffn);
            self.part("shared experts", shared, layers)?;
        }
        let biases = self.model.expert_biases(experts);
        self.part("biases of experts", biases, layers.saturating_mul(experts.count))?;
        self.routed(experts, each, layers)
    }

    pub fn routed(&mut self, experts: Experts, each: u128, layers: u64) -> Result<(), ConfigError> {
        self.part("expert", each, layers.saturating_mul(experts.count))?;
        self.model.anatomy.expert = u64::try_from(each).unwrap_or(u64::MAX);
        self.model.anatomy.with_experts = layers;
        self.model.experts = Some(experts);
        Ok(())
    }

    /// None where the file has one expert or none, which is a plain MLP.
    fn experts(&self) -> Result<Option<Experts>, ConfigError> {
        let fields = self.fields;
        let one = |names: &str| layers::same(fields, names, self.model.layers);
        let need = |names: &str| {
            one(names)?.ok_or_else(|| ConfigError::Missing {
                model_type: fields.model_type(),
                key: names.replace(' ', " or "),
                allowed: "a whole number",
            })
        };
        let count = need(COUNTS)?;
        if count < 2 {
            return Ok(None);
        }
        let ffn = need(EXPERT_WIDTHS)?;
        let shared_ffn = match one(SHARED_WIDTHS)? {
            Some(width) => width,
            None => one(SHARED_COUNTS)?.unwrap_or(0).saturating_mul(ffn),
        };
        Ok(Some(Experts {
            count,
            per_token: need(PER_TOKEN)?,
            ffn,
            shared_ffn,
        }))
    }

    fn plain_width(&self, experts: Option<Experts>, plain: u64) -> Result<u64, ConfigError> {
        let (fields, hidden) = (self.fields, self.model.hidden);
        let stated = match (fields.named(MLP), experts) {
            (None, Some(experts)) if plain == 0 => return Ok(experts.ffn),
            // Without routed experts, the shared ones are the MLP.
            (_, None) if self.kind.experts && fields.named(SHARED_WIDTHS).is_some() => {
                return fields.size(SHARED_WIDTHS, None);
            }
            (None, _) if self.kind.ffn_times > 0 => {
                hidden * fields.size("expansion_ratio", Some(self.kind.ffn_times))?
            }
            _ => fields.size(MLP, None)?,
        };
        match self.kind.ffn {
            Width::Stated => Ok(stated),
            Width::Half if stated.is_multiple_of(2) => Ok(stated / 2),
            Width::Half => {
                let key = fields.named(MLP).unwrap_or("intermediate_size");
                Err(fields.bad(key, "an even number, of which each matrix has half"))
            }
            Width::Adjusted => adjusted(fields, stated),
        }
    }
}

pub(super) const EXPERT_WIDTHS: &str =
    "moe_intermediate_size expert_ffn_hidden_size expert_intermediate_size intermediate_size ffn_hidden_size";
const SHARED_WIDTHS: &str =
    "shared_expert_intermediate_size moe_shared_expert_intermediate_size shared_intermediate_size";
const SHARED_COUNTS: &str = "n_shared_experts num_shared_experts moe_num_shared_experts num_shared_expert";
pub(super) const PER_TOKEN: &str =
    "num_experts_per_tok num_experts_per_token moe_top_k moe_topk moe_k top_k_experts";

/// Under which names a file says that queries, keys and values have biases.
const BIASES: [&str; 4] = ["attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias"];
const HEAD_NORMS: [&str; 2] = ["use_qk_norm", "qk_layernorm"];

/// Those of the kind, where the file doesn't say otherwise.
fn features(fields: &Fields, kind: &Kind) -> Result<Features, ConfigError> {
    let mut has = kind.has;
    let refuse = |key: &str, supported: bool| {
        Err(fields.bad(key, &format!("{supported}, where parameters are counted")))
    };
    for key in BIASES {
        match (fields.flag(key)?, kind.biased) {
            (Some(true), Some(biased)) => has.biases = biased,
            (Some(false), Some(_)) if has.biases != Biases::Output => has.biases = Biases::None,
            (Some(true), None) if has.biases == Biases::None => return refuse(key, false),
            _ => {}
        }
    }
    for key in HEAD_NORMS {
        match (fields.flag(key)?, kind.head_normed) {
            (Some(false), Some(_)) => has.head_norms = HeadNorms::None,
            (Some(true), Some(normed)) => has.head_norms = normed,
            // Classes without such a field.
            _ => {}
        }
    }
    has.mlp_biases = fields.flag("mlp_bias")?.unwrap_or(has.mlp_biases);
    has.head_bias = fields.flag("lm_head_bias")?.unwrap_or(has.head_bias);
    if has.norms == Norms::Four && fields.flag("use_post_norm")? == Some(false) {
        has.norms = Norms::Two;
    }
    if kind.multi_query && has.norms == Norms::Shared {
        falcon(fields, &mut has)?;
    }
    if let Some(gating) = fields.get("gating").filter(|_| has.gate == Gate::Head) {
        has.gate = match (gating.as_bool(), gating.as_str()) {
            (Some(true), _) | (_, Some("per-head")) => Gate::Head,
            (_, Some("per-element")) => Gate::Element,
            _ => return Err(fields.bad("gating", "true, \"per-head\" or \"per-element\"")),
        };
    }
    if has.mlp != Mlp::Gated {
        let activation = fields.text("activation_function").or(fields.text("hidden_act"));
        has.mlp = match activation.as_deref() {
            None => has.mlp,
            Some("gelu_new") => Mlp::GeluNew,
            Some("relu") => Mlp::Relu,
            Some(_) => Mlp::Gelu,
        };
    }
    Ok(has)
}

/// Falcon: a norm for each part where they come one after the other, or where the second architecture has no single one.
fn falcon(fields: &Fields, has: &mut Features) -> Result<(), ConfigError> {
    let second = fields.flag("new_decoder_architecture")? == Some(true);
    let single = fields.whole("num_ln_in_parallel_attn")? == Some(1);
    if fields.flag("parallel_attn")? == Some(false) || (second && !single) {
        has.norms = Norms::Two;
    }
    if fields.flag("bias")? == Some(true) {
        (has.biases, has.mlp_biases) = (Biases::All, true);
    }
    Ok(())
}

fn latent(fields: &Fields) -> Result<Latent, ConfigError> {
    let or_none = |key: &'static str| match fields.whole(key)? {
        None | Some(0) => Ok(0),
        Some(_) => fields.size(key, None),
    };
    Ok(Latent {
        kv_lora_rank: fields.size("kv_lora_rank", None)?,
        rope_dim: fields.size("qk_rope_head_dim", None)?,
        q_lora_rank: or_none("q_lora_rank")?,
        nope_dim: fields.size("qk_nope_head_dim", None)?,
        value_dim: fields.size("v_head_dim", None)?,
        index_heads: or_none("index_n_heads")?,
        index_dim: or_none("index_head_dim")?,
    })
}

/// LFM 2: two thirds of the stated width, times a factor, in whole blocks.
fn adjusted(fields: &Fields, stated: u64) -> Result<u64, ConfigError> {
    if fields.flag("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(stated);
    }
    let factor = fields.factor("block_ffn_dim_multiplier", 1.0)?;
    let block = fields.size("block_multiple_of", Some(256))?;
    let width = (factor * (2 * stated / 3) as f64) as u64;
    Ok(width.div_ceil(block).max(1) * block)
}
