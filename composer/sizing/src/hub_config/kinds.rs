//! The known values of `model_type`: the rows of `hw-profiles/models/kinds.toml`.

use super::decoder::{self, Reader, wide};
use super::fields::Fields;
use super::states::State;
use super::{ConfigError, special};
use crate::error::{builtin, data};
use crate::features::{Biases, Features, HeadNorms};
use crate::model::Model;
use poolwright_model::nearest::nearest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How files of some values of `model_type` are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Kind {
    types: Vec<String>,
    pub has: Features,
    /// Biases of attention where the file says that there are.
    pub biased: Option<Biases>,
    /// Norms of queries and keys where the file says that there are.
    pub head_normed: Option<HeadNorms>,
    /// Unless the file says otherwise.
    pub tied: bool,
    /// One key and value head for all queries, unless the file says otherwise.
    pub multi_query: bool,
    pub latent: bool,
    pub experts: bool,
    /// The mixer of some layers in place of attention.
    pub state: Option<State>,
    /// Each layer has both.
    pub parallel: bool,
    /// Each layer has nothing else.
    pub single: bool,
    /// Every how many layers one has no window; 0: none.
    pub windows: Option<u64>,
    /// Learned positions: their number beyond the length of the context.
    pub positions: Option<u64>,
    /// How many times as wide as the rest the MLP is where its width is not stated.
    pub ffn_times: u64,
    pub ffn: Width,
    pub embedding_norm: bool,
    pub no_last_norm: bool,
    /// Further parameters of a layer, and of a layer with experts.
    pub beside: Option<Formula>,
    pub beside_experts: Option<Formula>,
    /// Its class takes these where the file does not say.
    usual: BTreeMap<String, u64>,
    /// Flags that have to be so where they are stated, and fields that must not be stated.
    fixed: BTreeMap<String, bool>,
    refuses: Vec<String>,
    /// Objects whose fields count as if they stood outside.
    flattened: Vec<String>,
    /// The reader of layers beyond the words of this row.
    reader: Option<special::Layers>,
}

/// The meaning of the stated width of the MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Width {
    #[default]
    Stated,
    /// The width of two matrices together.
    Half,
    /// A figure that the width is computed from.
    Adjusted,
}

/// A sum of products of numbers and dimensions: h, the width; d, of a head; k, the heads of keys; f, the width of the MLP.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Formula(Vec<Vec<Factor>>);

#[derive(Clone, Copy, Debug)]
enum Factor {
    Number(u128),
    Dimension(fn(&Model) -> u64),
}

impl TryFrom<String> for Formula {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let factor = |name: &str| {
            Ok(Factor::Dimension(match name.trim() {
                "h" => |model| model.hidden,
                "d" => |model| model.head_dim,
                "k" => |model| model.kv_heads,
                "f" => |model| model.ffn,
                other => {
                    let number = other.parse().map(Factor::Number);
                    return number.map_err(|_| format!("{other:?} is no number, nor h, d, k or f"));
                }
            }))
        };
        let product = |text: &str| text.split('*').map(factor).collect();
        let sum: Result<Vec<Vec<Factor>>, String> = text.split('+').map(product).collect();
        sum.map(Formula)
    }
}

impl Formula {
    pub fn of(&self, model: &Model) -> u128 {
        let value = |factor: &Factor| match factor {
            Factor::Number(number) => *number,
            Factor::Dimension(of) => wide(of(model)),
        };
        self.0
            .iter()
            .map(|product| product.iter().map(value).product::<u128>())
            .sum()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kinds: Vec<Kind>,
}

static ALL: LazyLock<Vec<Kind>> = LazyLock::new(|| builtin::<File>(data!("models/kinds.toml")).kinds);

/// A plain decoder, which may have biases, and windows.
pub(super) fn plain() -> &'static Kind {
    static PLAIN: LazyLock<Kind> = LazyLock::new(|| Kind {
        biased: Some(Biases::All),
        windows: Some(0),
        ..Kind::default()
    });
    &PLAIN
}

fn all() -> impl Iterator<Item = (&'static str, &'static Kind)> {
    let rows = ALL.iter();
    rows.flat_map(|kind| {
        kind.types
            .iter()
            .map(move |model_type| (model_type.as_str(), kind))
    })
}

/// The kind of this name; None where it is no language model that is known.
pub(super) fn named(model_type: &str) -> Option<&'static Kind> {
    all().find(|(name, _)| *name == model_type).map(|(_, kind)| kind)
}

/// Names of models have no underscores.
fn begins_with(name: &str, model_type: &str) -> bool {
    let mut letters = name.bytes();
    let mut wanted = model_type.bytes().filter(|letter| *letter != b'_');
    wanted.all(|letter| letters.next() == Some(letter))
}

/// The features of a model whose name begins as a kind of models is called, if it has such an MLP and experts as they do.
pub(crate) fn features_named(name: &str, gated: bool, has_experts: bool) -> Option<Features> {
    let name = name.to_ascii_lowercase();
    let begins = all().filter(|(model_type, kind)| {
        let same = (kind.has.mlp.matrices() == 3, kind.experts) == (gated, has_experts);
        same && kind.reader.is_none() && kind.state.is_none() && begins_with(&name, model_type)
    });
    begins
        .max_by_key(|(model_type, _)| model_type.len())
        .map(|(_, kind)| kind.has)
}

pub(crate) fn features_of(model_type: &str) -> Option<Features> {
    named(model_type).map(|kind| kind.has)
}

/// All values that are known, in the order of the alphabet.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = all().map(|(model_type, _)| model_type).collect();
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

impl Kind {
    /// The file's fields with those that its class takes from elsewhere.
    pub fn complete(&self, fields: &Fields) -> Result<Fields, ConfigError> {
        let fields = fields.flattened(&self.flattened)?;
        let usual: Vec<(&str, u64)> = self
            .usual
            .iter()
            .map(|(key, value)| (key.as_str(), *value))
            .collect();
        let fields = fields.or(&usual);
        match self.reader {
            Some(reader) => reader.complete(fields),
            None => Ok(fields),
        }
    }

    /// All parts of a model whose fields are complete.
    pub fn read(&self, name: &str, fields: &Fields) -> Result<Model, ConfigError> {
        self.refuse_unsupported(fields)?;
        let mut of = Reader::new(name, fields, self)?;
        of.model.anatomy.unmeasured =
            self.reader.is_some() || self.state.is_some_and(|state| state != State::Delta);
        match self.reader {
            Some(reader) => reader.read(&mut of)?,
            None => decoder::read(&mut of)?,
        }
        Ok(of.model)
    }

    /// Settings that would change the count.
    fn refuse_unsupported(&self, fields: &Fields) -> Result<(), ConfigError> {
        let own = self
            .fixed
            .iter()
            .map(|(key, supported)| (key.as_str(), *supported));
        // State spaces have biases of their own.
        let general: &[(&str, bool)] = match (self.state, self.reader) {
            (None, None) => &[
                ("attention_out_bias", false),
                ("no_bias", true),
                ("bias", self.has.biases != Biases::None),
                ("use_bias", self.has.mlp_biases),
                ("add_bias_linear", false),
            ],
            _ => &[],
        };
        for (key, supported) in own.chain(general.iter().copied()) {
            // Falcon's is counted.
            if key == "bias" && self.multi_query {
                continue;
            }
            if fields.flag(key)?.is_some_and(|found| found != supported) {
                return Err(fields.bad(key, &format!("{supported}, where parameters are counted")));
            }
        }
        for key in &self.refuses {
            let off = |value: &serde_json::Value| value.as_bool() == Some(false);
            if fields.get(key).is_some_and(|value| !off(value)) {
                return Err(fields.bad(key, "not stated, where parameters are counted"));
            }
        }
        // OPT can project its embedding to another width.
        let width = "word_embed_proj_dim";
        if fields
            .whole(width)?
            .is_some_and(|width| fields.whole("hidden_size").ok().flatten() != Some(width))
        {
            return Err(fields.bad(width, "the hidden_size"));
        }
        Ok(())
    }
}
