//! The values of `model_type` that are known, and what each stands for.

use super::fields::Fields;
use super::{ConfigError, mixed};
use crate::model::{Family, Mlp};
use poolwright_model::nearest::nearest;

mod known;

/// Under which names a mixture states its experts.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    pub count: &'static str,
    pub ffn: &'static str,
}

#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub family: Family,
    pub mlp: Mlp,
    /// Unless the file says otherwise.
    pub tied: bool,
    /// Learned positions, so that the context must be known.
    pub positions: bool,
    /// The MLP is four times as wide as the rest where its width is not stated.
    pub four_times: bool,
    /// Every how many layers one has no window; 0: none.
    pub full_every: Option<u64>,
    pub mixture: Option<Mixture>,
    /// What `attention_bias` must be where it is stated, unless both are known.
    bias: bool,
    /// The family with biases on queries, keys and values, where the file may say so.
    biased: Option<Family>,
    /// What its class takes where the file does not say.
    usual: &'static [(&'static str, u64)],
}

/// What the file is about; None where it is no language model that is known.
pub(super) fn of(fields: &Fields) -> Option<Kind> {
    let found = fields.model_type();
    let known = known::all().find(|(model_type, _)| *model_type == found);
    known.map(|(_, kind)| kind)
}

/// Names of models have no underscores.
fn begins_with(name: &str, model_type: &str) -> bool {
    let mut letters = name.bytes();
    let mut wanted = model_type.bytes().filter(|letter| *letter != b'_');
    wanted.all(|letter| letters.next() == Some(letter))
}

/// The family of a model whose name begins as a kind of models is called, if it has such an MLP and experts as they do.
pub(crate) fn family_named(name: &str, mlp: Mlp, has_experts: bool) -> Option<Family> {
    let name = name.to_ascii_lowercase();
    let begins = known::all().filter(|(model_type, kind)| {
        (kind.mlp, kind.mixture.is_some()) == (mlp, has_experts) && begins_with(&name, model_type)
    });
    begins
        .max_by_key(|(model_type, _)| model_type.len())
        .map(|(_, kind)| kind.family)
}

/// All values that are known, in the order of the alphabet.
pub(super) fn names() -> Vec<&'static str> {
    let plain = known::all().map(|(model_type, _)| model_type);
    let mixed = mixed::KINDS.iter().map(|(model_type, _)| *model_type);
    let mut names: Vec<&str> = plain.chain(mixed).collect();
    names.sort_unstable();
    names
}

/// What is said of any other: the few that are most like it, and where all are found.
pub(super) fn unknown(fields: &Fields) -> ConfigError {
    let near = nearest(&fields.model_type(), names());
    let near = match near.is_empty() {
        true => String::new(),
        false => format!(", the nearest being {}", near.join(", ")),
    };
    let allowed = format!(
        "a language model, one of {} kinds{near} (`poolwright size --list model-types` has all); a model of the \
         catalogue or a size such as 8B that is like it works too",
        names().len()
    );
    fields.bad("model_type", &allowed)
}

/// A plain decoder, which may have biases, and windows.
pub(super) const PLAIN: Kind = Kind {
    biased: Some(Family::LlamaBias),
    ..known::WINDOWED
};

/// Under which names a file says that queries, keys and values have biases.
const BIASES: [&str; 4] = ["attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias"];

impl Kind {
    /// The file's fields with those that its class takes from elsewhere.
    pub fn complete(self, fields: &Fields) -> Result<Fields, ConfigError> {
        let fields = match fields.model_type().as_str() {
            "dbrx" => fields.flattened(&["attn_config", "ffn_config"])?,
            _ => fields.or(&[]),
        };
        Ok(fields.or(self.usual))
    }

    /// Where the file decides between two families.
    pub fn family(self, fields: &Fields) -> Result<Family, ConfigError> {
        if let Some(biased) = self.biased {
            for key in BIASES {
                if fields.flag(key)? == Some(true) {
                    return Ok(biased);
                }
            }
        }
        match self.family {
            Family::Cohere if fields.flag("use_qk_norm")? == Some(true) => Ok(Family::CohereQkNorm),
            Family::Mixtral if fields.flag("use_qk_norm")? == Some(true) => Ok(Family::Qwen3Moe),
            // HyperCLOVA X, whose class has them unless it is said.
            Family::Llama
                if fields.model_type() == "hyperclovax" && fields.flag("use_post_norm")? != Some(false) =>
            {
                Ok(Family::Glm4)
            }
            family => Ok(family),
        }
    }

    pub fn kv_heads(self, fields: &Fields, heads: u64) -> Result<u64, ConfigError> {
        if self.family == Family::Falcon {
            // One for all before Falcon's second architecture.
            let second = fields.flag("new_decoder_architecture")? == Some(true);
            let stated = fields.whole(&["num_kv_heads", "n_head_kv"])?;
            return Ok(match stated {
                Some(stated) if second => stated,
                _ if fields.flag("multi_query")? == Some(false) => heads,
                _ => 1,
            });
        }
        if fields.model_type() == "gpt_bigcode" && fields.flag("multi_query")? != Some(false) {
            return Ok(1);
        }
        let stated = fields.whole(&["num_key_value_heads", "kv_n_heads", "multi_query_group_num"])?;
        Ok(stated.unwrap_or(heads))
    }

    /// Settings that would change the count.
    pub fn refuse_unsupported(self, fields: &Fields) -> Result<(), ConfigError> {
        let mut fixed = vec![
            ("attention_out_bias", false),
            ("no_bias", true),
            ("lm_head_bias", self.family == Family::Phimoe),
            ("mlp_bias", self.bias && self.mlp != Mlp::Gated),
            ("qk_layernorm", false),
            ("bias", self.bias),
            ("use_bias", self.mlp != Mlp::Gated),
            ("add_bias_linear", false),
        ];
        if self.family == Family::Stablelm {
            fixed.push(("use_parallel_residual", false));
        }
        if self.biased.is_none() {
            fixed.extend(BIASES.map(|key| (key, self.bias)));
        }
        if self.family == Family::Glm4Moe {
            fixed.push(("use_qk_norm", true));
        }
        for (key, supported) in fixed {
            if fields.flag(key)?.is_some_and(|found| found != supported) {
                return Err(fields.bad(key, &format!("{supported}, where parameters are counted")));
            }
        }
        for (key, supported) in [("decoder_sparse_step", 1), ("moe_layer_freq", 1)] {
            if fields.whole(&[key])?.is_some_and(|found| found != supported) {
                return Err(fields.bad(key, &format!("{supported}, where parameters are counted")));
            }
        }
        if fields
            .get("mlp_only_layers")
            .is_some_and(|layers| layers.as_array().is_none_or(|layers| !layers.is_empty()))
        {
            return Err(fields.bad("mlp_only_layers", "[], where parameters are counted"));
        }
        // Layers that take over which tokens are looked at have no indexer.
        let full = |kind: &serde_json::Value| kind.as_str() == Some("full");
        if let Some(kinds) = fields.get("indexer_types")
            && !kinds.as_array().is_some_and(|kinds| kinds.iter().all(full))
        {
            return Err(fields.bad(
                "indexer_types",
                "full for each layer, where parameters are counted",
            ));
        }
        // OPT can project its embedding to another width.
        let hidden = fields.whole(&["hidden_size"])?;
        if fields
            .whole(&["word_embed_proj_dim"])?
            .is_some_and(|width| Some(width) != hidden)
        {
            return Err(fields.bad("word_embed_proj_dim", "the hidden_size"));
        }
        Ok(())
    }
}
