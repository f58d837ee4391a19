//! Models whose layers are not all alike, or have parts that the families lack: each counted part by part.
//!
//! A part has the parameters that the model's class in transformers registers; buffers, such as biases that balance
//! experts, are none. A layer with a mixer, attention, an MLP or experts has a norm for each of them unless said
//! otherwise.

use super::ConfigError;
use super::fields::Fields;
use crate::anatomy::{Anatomy, Counted};
use crate::linear::Linear;
use crate::model::{Experts, Family, Latent, Mlp, Model, Window};

mod decoders;
mod experts;
mod gemma;
mod layers;
mod linear_attention;
mod recurrent;
mod routed;
mod rwkv;
mod short_convolution;
mod sparse;
mod state_space;

type Read = fn(&Fields) -> Result<Draft, ConfigError>;

pub(super) const KINDS: &[(&str, Read)] = &[
    ("mamba", state_space::mamba),
    ("falcon_mamba", state_space::falcon_mamba),
    ("mamba2", state_space::mamba2),
    ("jamba", state_space::hybrids::jamba),
    ("bamba", state_space::hybrids::bamba),
    ("nemotron_h", state_space::hybrids::nemotron_h),
    ("falcon_h1", state_space::hybrids::falcon_h1),
    ("granitemoehybrid", state_space::hybrids::granite),
    ("lfm2", short_convolution::lfm2),
    ("lfm2_moe", short_convolution::lfm2_moe),
    ("kimi_linear", linear_attention::kimi),
    ("minimax", linear_attention::minimax),
    ("minimax_text_01", linear_attention::minimax),
    ("minimax_m1", linear_attention::minimax),
    ("olmo_hybrid", linear_attention::olmo),
    ("zamba", state_space::shared::zamba),
    ("zamba2", state_space::shared::zamba2),
    ("rwkv", rwkv::fourth),
    ("rwkv6", rwkv::sixth),
    ("rwkv7", rwkv::seventh),
    ("xlstm", recurrent::xlstm),
    ("recurrent_gemma", recurrent::gemma),
    ("bailing_hybrid", linear_attention::bailing),
    ("deepseek_v4", sparse::deepseek_v4),
    ("minimax_m3_vl_text", sparse::minimax_m3),
    ("gemma3n_text", gemma::gemma3n),
    ("gemma4_text", gemma::gemma4),
    ("ernie4_5_moe", experts::ernie),
    ("hunyuan_v1_moe", experts::hunyuan),
    ("granitemoeshared", experts::granite_shared),
    ("glm4v_moe_text", experts::glm4v),
    ("afmoe", experts::afmoe),
    ("cohere2_moe", experts::cohere),
    ("mimo_v2_flash", experts::mimo),
    ("longcat_flash", experts::longcat),
    ("jetmoe", routed::jetmoe),
    ("laguna", routed::laguna),
    ("AXK1", routed::axk1),
    ("axk1", routed::axk1),
    ("bitnet", decoders::bitnet),
    ("diffllama", decoders::diffllama),
    ("doge", decoders::doge),
    ("granite_swa", decoders::granite_windowed),
    ("mllama_text_model", decoders::mllama),
    ("qwen", decoders::qwen),
    ("ctrl", decoders::ctrl),
    ("openai-gpt", decoders::first_gpt),
    ("persimmon", decoders::persimmon),
];

/// How a file of this kind is read; None where it is none of these.
pub(super) fn of(fields: &Fields) -> Option<Read> {
    let found = fields.model_type();
    let known = KINDS.iter().find(|(model_type, _)| *model_type == found);
    known.map(|(_, read)| *read)
}

/// A model while it is read.
pub(super) struct Draft {
    layers: u64,
    hidden: u64,
    vocab: u64,
    tied: bool,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    ffn: u64,
    mlp: Mlp,
    latent: Option<Latent>,
    window: Option<Window>,
    linear: Option<Linear>,
    experts: Option<Experts>,
    anatomy: Anatomy,
    context: Option<u64>,
}

/// A model of latent attention, which has one entry of the cache for all heads.
fn with_latent(fields: &Fields, layers: u64) -> Result<(Draft, Latent), ConfigError> {
    let mut draft = Draft::of_layers(fields, layers, false)?;
    draft.heads = fields.size(&super::HEADS, None)?;
    draft.kv_heads = draft.heads;
    let latent = latent(fields)?;
    draft.head_dim = latent.value_dim;
    draft.latent = Some(latent);
    Ok((draft, latent))
}

/// Latent attention of widths of which products have a count.
fn latent(fields: &Fields) -> Result<Latent, ConfigError> {
    let widths = [
        "kv_lora_rank",
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "v_head_dim",
    ];
    for key in widths {
        fields.size(&[key], None)?;
    }
    let latent = super::latent(fields)?;
    if latent.q_lora_rank > 1_000_000 || latent.index_dim > 0 {
        let key = fields
            .named(&["index_head_dim", "q_lora_rank"])
            .unwrap_or("q_lora_rank");
        return Err(fields.bad(key, "none, where parameters are counted, or at most 1000000"));
    }
    Ok(latent)
}

/// So many layers with a plain MLP first, then experts, as wide as the file says.
fn experts_after(
    fields: &Fields,
    mut draft: Draft,
    dense: u64,
    experts: Experts,
) -> Result<Draft, ConfigError> {
    draft.ffn = fields.size(&super::MLP, None)?;
    let dense = dense.min(draft.layers);
    with_experts(draft, dense, experts)
}

/// So many layers with a plain MLP, and experts in all others: a router, what every token passes, and what is routed.
fn with_experts(mut draft: Draft, dense: u64, experts: Experts) -> Result<Draft, ConfigError> {
    let sparse = draft.layers.saturating_sub(dense);
    let shared = experts.shared.min(10_000) * experts.ffn;
    draft.part("MLP", draft.gated(draft.ffn), dense)?;
    draft.anatomy.plain = dense;
    draft.part("router", draft.h() * wide(experts.count), sparse)?;
    if shared > 0 {
        draft.part("shared experts", draft.gated(shared), sparse)?;
    }
    draft.experts_of(experts, sparse)?;
    Ok(draft)
}

fn wide(number: u64) -> u128 {
    u128::from(number)
}

impl Draft {
    /// With embedding, last norm and head, and so many layers.
    fn of_layers(fields: &Fields, layers: u64, tied: bool) -> Result<Draft, ConfigError> {
        let hidden = fields.size(&super::HIDDEN, None)?;
        let vocab = fields.size(&super::VOCAB, None)?;
        let mut draft = Draft {
            layers,
            hidden,
            vocab,
            tied: fields
                .flag("tie_word_embeddings")?
                .or(fields.flag("tie_embedding")?)
                .unwrap_or(tied),
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            ffn: 1,
            mlp: Mlp::Gated,
            latent: None,
            window: None,
            linear: None,
            experts: None,
            anatomy: Anatomy::default(),
            context: fields.whole(&super::CONTEXT)?,
        };
        draft.part("embedding", wide(vocab) * wide(hidden), 1)?;
        if !draft.tied {
            draft.part("head", wide(vocab) * wide(hidden), 1)?;
        }
        draft.part("last norm", wide(hidden), 1)?;
        Ok(draft)
    }

    /// The same, with as many layers as the file says, and attention as most have it.
    fn with_attention(fields: &Fields, layers: u64, tied: bool) -> Result<Draft, ConfigError> {
        let mut draft = Draft::of_layers(fields, layers, tied)?;
        draft.heads = fields.size(&super::HEADS, None)?;
        draft.kv_heads = fields.size(&["num_key_value_heads"], Some(draft.heads))?;
        draft.head_dim = match fields.whole(&["attention_head_dim"])? {
            Some(_) => fields.size(&["attention_head_dim"], None)?,
            None => super::head_dim(fields, draft.hidden, draft.heads)?,
        };
        if !(1..=10_000).contains(&draft.head_dim) || draft.heads > 10_000 || draft.kv_heads > 10_000 {
            return Err(fields.bad(
                "num_attention_heads",
                "at most 10000 heads of a width of at most 10000",
            ));
        }
        Ok(draft)
    }

    fn part(&mut self, name: &str, params: u128, times: u64) -> Result<(), ConfigError> {
        let params = u64::try_from(params).map_err(|_| ConfigError::BadValue {
            key: name.into(),
            found: format!("{params} parameters"),
            allowed: "less than 2^64, as its widths make them".into(),
        })?;
        match self.anatomy.parts.last_mut() {
            Some(last) if last.name == name && last.params == params => last.times += times,
            _ if params == 0 || times == 0 => {}
            _ => self.anatomy.parts.push(Counted {
                name: name.into(),
                params,
                times,
            }),
        }
        Ok(())
    }

    fn h(&self) -> u128 {
        wide(self.hidden)
    }

    /// The four matrices of attention.
    fn attention(&self) -> u128 {
        let [q, kv] = [self.heads * self.head_dim, self.kv_heads * self.head_dim].map(wide);
        2 * self.h() * (q + kv)
    }

    /// Their biases.
    fn attention_biases(&self) -> u128 {
        let [q, kv] = [self.heads * self.head_dim, self.kv_heads * self.head_dim].map(wide);
        q + 2 * kv + self.h()
    }

    /// Gate, up and down.
    fn gated(&self, width: u64) -> u128 {
        3 * self.h() * wide(width)
    }

    /// So many experts of three matrices each.
    fn experts_of(&mut self, experts: Experts, layers: u64) -> Result<(), ConfigError> {
        let each = self.gated(experts.ffn);
        self.routed_experts(experts, each, layers)
    }

    fn routed_experts(&mut self, experts: Experts, each: u128, layers: u64) -> Result<(), ConfigError> {
        self.part("expert", each, layers.saturating_mul(experts.count))?;
        self.anatomy.expert = u64::try_from(each).unwrap_or(u64::MAX);
        self.anatomy.with_experts = layers;
        self.experts = Some(experts);
        Ok(())
    }

    /// Layers whose attention keeps keys and values of all tokens.
    fn attends(&mut self, layers: u64) {
        (self.anatomy.attending, self.anatomy.full) = (layers, layers);
    }

    pub fn model(self, name: &str) -> Model {
        Model {
            name: name.to_owned(),
            aliases: Vec::new(),
            family: Family::Mixed,
            // Counted by the caller.
            params: 100_000_000_000_000,
            params_active: None,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ffn: self.ffn,
            vocab: self.vocab,
            tied: self.tied,
            mlp: self.mlp,
            context: self.context,
            latent: self.latent,
            window: self.window,
            linear: self.linear,
            experts: self.experts,
            anatomy: Some(self.anatomy),
            assumed: None,
            stored: None,
            stored_unread: None,
            vision: None,
            source: String::new(),
        }
    }
}
