//! The constants of the estimates, from `hw-profiles/sizing/*.toml`: each with the evidence for it.

use crate::error::{SizingError, builtin, data};
use crate::job::{Optimizer, Precision, WeightFormat};
use crate::overhead::Overheads;
use crate::version::Version;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A number and why it is that.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub value: f64,
    pub evidence: String,
}

/// Something that holds, and how that is known.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub evidence: String,
}

/// A middle estimate and a safe bound in GiB, and why.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub point: f64,
    pub safe: f64,
    pub evidence: String,
}

/// A middle factor and a safe one, and why.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    pub value: f64,
    pub safe: f64,
    pub evidence: String,
}

/// How weights are stored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Format {
    pub bits: f64,
    /// Bytes per parameter for scales and zero points.
    pub scale_bytes: f64,
    pub scope: Scope,
    pub evidence: String,
}

impl Format {
    /// Bytes per parameter in the scope.
    pub fn bytes(&self) -> f64 {
        self.bits / 8.0 + self.scale_bytes
    }
}

/// Which parameters are stored in the format; the others take 2 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    All,
    Linears,
    Experts,
}

/// Bytes per trained parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct States {
    pub weights: f64,
    pub gradients: f64,
    /// A copy of the weights in higher precision, kept with the optimizer.
    pub master: f64,
    /// One element of an optimizer's state, where the optimizer does not fix it itself.
    pub state: f64,
    pub evidence: String,
}

/// The type of factored states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Factored {
    Fp32,
    /// As the gradients.
    Gradient,
}

/// What an optimizer keeps for each trained parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerStates {
    /// So many elements of the precision's state type.
    #[serde(default)]
    pub elements: f64,
    /// And so many bytes of its own.
    #[serde(default)]
    pub bytes: f64,
    /// And a row and a column of each matrix, in place of an element for each parameter.
    pub factored: Option<Factored>,
    /// Copies of the largest parameter while it is updated, in the type of its gradient after conversion.
    #[serde(default)]
    pub temporaries: f64,
    /// Copies of one element of each state, of all parameters at once.
    #[serde(default)]
    pub copies: f64,
    /// fp32 copies of it and its gradient, where those are in 16 bits.
    #[serde(default)]
    pub converted: f64,
    pub evidence: String,
}

/// Reserved memory by the operations of a step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// Workspaces of the matrix library.
    pub workspace_gib: f64,
    /// The bound over the middle.
    pub safe: f64,
    pub evidence: String,
}

/// Memory reserved by a library's allocator beside tensors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedBeside {
    /// On one GPU: the bound over the result for its operations.
    pub replayed_safe: f64,
    /// On several: a share of the tensors without weights, and its bound; the same bound holds on one.
    pub share: f64,
    pub share_safe: f64,
    pub evidence: String,
}

/// How a training framework allocates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Framework {
    pub name: String,
    /// The words by which a text about a run names it; all of them are in it.
    pub words: Vec<String>,
    /// Reserved by the caching allocator over live tensors: one GPU, and with sharded weights.
    pub reserved_alone: Figure,
    pub reserved_sharded: Figure,
    pub reserved_safe: Figure,
    /// The same where GPUs share matrices or layers, if that is known to differ.
    pub reserved_mixed: Option<Factor>,
    /// Reserved memory on one GPU by the operations of a step, for frameworks whose steps are PyTorch's own.
    pub replayed: Option<Replayed>,
    /// fp32 copies of the logits at the start of the backward pass, beside what all frameworks hold.
    pub logits_extra: Figure,
    /// Layers whose weights are gathered at the start of the backward pass.
    pub gathered_at_loss: Figure,
    /// 1: the gathered inputs of tensor-parallel matrices are kept under sequence parallelism; 0: gathered again.
    pub gathered_inputs: Figure,
    /// 1: frozen 4-bit matrices keep their inputs for the backward pass.
    pub frozen_inputs: Figure,
    /// Keys and values are copied for every head of queries.
    pub repeats_keys: Option<Figure>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frameworks {
    pub default: String,
    framework: Vec<Framework>,
}

impl Frameworks {
    pub fn named(&self, name: &str) -> Option<&Framework> {
        self.framework.iter().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    pub fn names(&self) -> Vec<&str> {
        self.framework.iter().map(|f| f.name.as_str()).collect()
    }

    /// The one that a text is about: that with the most of its words in it; the default where none is.
    pub fn about(&self, text: &str) -> &str {
        let text = text.to_ascii_lowercase();
        let named = |f: &&Framework| !f.words.is_empty() && f.words.iter().all(|word| text.contains(word));
        let found = self.framework.iter().filter(named).max_by_key(|f| f.words.len());
        found.map_or(&self.default, |f| &f.name)
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logits {
    pub full_fp32: Figure,
    pub vocab_parallel: Figure,
    pub chunked: Figure,
    pub bf16: Figure,
    pub fp32_extra: Figure,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConstants {
    pub states: BTreeMap<Precision, States>,
    pub optimizers: BTreeMap<Optimizer, OptimizerStates>,
    pub logits: Logits,
    /// The safe bound of live tensors over their estimate, by how well the method is confirmed.
    pub live_safe: Figure,
    pub live_safe_lora: Figure,
    pub live_safe_other: Figure,
    /// Reserved over live tensors with expandable segments, and with batches of varying length.
    pub reserved_expandable: Factor,
    pub reserved_varying: Factor,
    /// Elements of one of the two communication buckets of ZeRO 1 and 2.
    pub bucket_elements: Figure,
}

/// Widths of experts that are rounded up to multiples, as kernels ask for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Padding {
    pub formats: Vec<WeightFormat>,
    /// The model's width.
    pub hidden: u64,
    /// The width of an expert on each GPU.
    pub width: u64,
    pub evidence: String,
}

/// The batch that a server computes at its start, to find out how much memory it needs beside weights and cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiled {
    /// Bytes for each request and entry of the vocabulary while tokens are chosen.
    pub sampler: Factor,
    /// Elements of 16 bits for each token, in units of the model's width, beside the widest part of a layer.
    pub stream: Factor,
    /// Defaults for GPUs of at least 70 GiB except A100, and for others.
    pub large: Batch,
    pub small: Batch,
    pub evidence: String,
}

/// `max_num_seqs` and `max_num_batched_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    pub requests: u64,
    pub tokens: u64,
}

/// A version of a serving engine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    pub name: String,
    /// The first version that it is for; None: for no other than its own.
    pub from: Option<Version>,
    pub activations_dense: Option<Range>,
    pub activations_experts: Option<Range>,
    /// Activations by the batch of the profile run, in place of constants.
    pub profiled: Option<Profiled>,
    pub non_torch: Option<Range>,
    /// How often it opens each communicator; once unless said.
    pub communicators: Option<Figure>,
    pub graphs: Option<Range>,
    /// Graphs are taken off its share before the cache is.
    pub shares_graphs: Option<Claim>,
    /// What the matrix library keeps from the caching allocator.
    pub workspace: Option<Range>,
    /// Formats in which a tied embedding is held once more, as the head.
    #[serde(default)]
    pub unties: Vec<WeightFormat>,
    /// Formats of weights that it computes with as they are.
    pub formats: Formats,
    /// It computes the logits of the whole prompt in fp32.
    #[serde(default)]
    pub prompt_logits: bool,
    /// It reads a prompt all at once. 1: what that takes is in the middle estimate; 0: in the bound alone.
    pub prompt_activations: Option<Figure>,
    /// Experts take their tokens all at once, sorted by expert.
    pub groups_experts: Option<Claim>,
    /// Layers with a window keep all of the prompt until it is read.
    pub keeps_windows: Option<Claim>,
    /// Memory reserved beside tensors.
    pub reserved: Option<ReservedBeside>,
    /// Each layer keeps cosines and sines of all places of the model's context: of so many where that is not known.
    pub rotary_tables: Option<Figure>,
    /// Formats in which the head of a tied model is loaded apart, and given back after.
    pub loads_head: Option<Formats>,
    /// Formats of which the largest matrix is expanded into a buffer of 16 bits.
    pub expands: Option<Formats>,
    /// Its figures are estimates: few logs of it were found, or none.
    #[serde(default)]
    pub estimate: bool,
    /// The cache of a sequence is a multiple of so many tokens.
    pub block_tokens: Figure,
    /// Of models with linear attention the engine keeps states and cache in pages of one size: its blocks are as many
    /// tokens as a state takes, in multiples of so many.
    pub page_tokens: Option<Figure>,
    /// It takes the format of its cache from the model's file.
    pub reads_cache_scheme: Option<Claim>,
    /// Widths of experts in some formats are padded.
    pub pads: Option<Padding>,
    /// The GPUs of a group share what a model has to see with.
    pub divides_vision: Option<Claim>,
    /// The share of a GPU that the engine takes at most unless told otherwise.
    pub utilization: Option<Figure>,
    /// The option by which it is told another share of the whole; None where its share is one of what is left.
    pub share_option: Option<String>,
    pub weights_safe: Figure,
    pub cache_safe: Figure,
}

impl Engine {
    /// It computes a prompt at once, and its cache grows.
    pub fn is_library(&self) -> bool {
        self.prompt_activations.is_some()
    }

    /// Refuses weights in a format that it does not read.
    pub fn check(&self, weights: WeightFormat) -> Result<(), SizingError> {
        let known = &self.formats.value;
        if known.contains(&weights) {
            return Ok(());
        }
        let names: Vec<&str> = known.iter().map(|format| format.name()).collect();
        let allowed = format!("with engine {}: {}", self.name, names.join(", "));
        Err(SizingError::bad("weights", weights, &allowed))
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Formats {
    pub value: Vec<WeightFormat>,
    pub evidence: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    pub default: String,
    engine: Vec<Engine>,
}

impl Serving {
    /// By its name. Other versions belong to the last row that begins at or before them; vLLM without a version is the default.
    pub fn engine(&self, name: &str) -> Option<&Engine> {
        let own = self.engine.iter().find(|e| e.name.eq_ignore_ascii_case(name));
        own.or_else(|| match name.to_ascii_lowercase().as_str() {
            "vllm" => self.engine(&self.default),
            "transformers" => self.engine("pytorch"),
            other => {
                let (software, version) = other.split_once('-')?;
                let version: Version = version.parse().ok()?;
                let same = |e: &&Engine| {
                    e.name.split('-').next() == Some(software) && e.from.is_some_and(|from| from <= version)
                };
                self.engine.iter().filter(same).max_by_key(|e| e.from)
            }
        })
    }

    pub fn names(&self) -> Vec<&str> {
        self.engine.iter().map(|e| e.name.as_str()).collect()
    }

    pub fn all(&self) -> &[Engine] {
        &self.engine
    }
}

/// All constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    pub formats: BTreeMap<WeightFormat, Format>,
    pub training: TrainingConstants,
    pub frameworks: Frameworks,
    pub serving: Serving,
    pub overhead: Overheads,
}

impl Constants {
    /// Those that come with Poolwright, parsed at the first call.
    pub fn builtin() -> &'static Constants {
        static CONSTANTS: LazyLock<Constants> = LazyLock::new(|| Constants {
            formats: builtin(data!("sizing/formats.toml")),
            training: builtin(data!("sizing/training.toml")),
            frameworks: builtin(data!("sizing/frameworks.toml")),
            serving: builtin(data!("sizing/serving.toml")),
            overhead: builtin(data!("sizing/overhead.toml")),
        });
        &CONSTANTS
    }

    pub fn format(&self, format: WeightFormat) -> &Format {
        &self.formats[&format]
    }

    pub fn states(&self, precision: Precision) -> &States {
        &self.training.states[&precision]
    }

    pub fn optimizer(&self, optimizer: Optimizer) -> &OptimizerStates {
        &self.training.optimizers[&optimizer]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_constants_parse_and_bounds_are_bounds() {
        let constants = Constants::builtin();
        for engine in &constants.serving.engine {
            for range in [
                &engine.activations_dense,
                &engine.activations_experts,
                &engine.non_torch,
                &engine.graphs,
            ]
            .into_iter()
            .flatten()
            {
                assert!(
                    range.safe >= range.point && !range.evidence.is_empty(),
                    "{}: {range:?}",
                    engine.name
                );
            }
            assert!(
                engine.weights_safe.value >= 1.0 && engine.cache_safe.value >= 1.0,
                "{}",
                engine.name
            );
        }
        assert!((constants.format(WeightFormat::Nf4).bytes() - 0.5625).abs() < 1e-12);
    }

    #[test]
    fn every_word_has_its_constants() {
        let constants = Constants::builtin();
        let has = |format: &WeightFormat| constants.formats.contains_key(format);
        assert!(WeightFormat::ALL.iter().all(has));
        let has = |precision: &Precision| constants.training.states.contains_key(precision);
        assert!(Precision::ALL.iter().all(has));
        let has = |optimizer: &Optimizer| constants.training.optimizers.contains_key(optimizer);
        assert!(Optimizer::ALL.iter().all(has));
        assert!(
            constants
                .frameworks
                .named(&constants.frameworks.default)
                .is_some()
        );
        assert!(constants.serving.engine(&constants.serving.default).is_some());
    }
}
