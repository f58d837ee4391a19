//! How a model's weights and cache are stored, by its file.

mod matrices;
mod patterns;

use super::ConfigError;
use super::fields::Fields;
use crate::constants::{Constants, Scope};
use crate::job::WeightFormat;
use crate::model::{Model, Stored};
use matrices::Found;
use patterns::{Patterns, TARGETS};
use std::collections::BTreeMap;

/// By `quantization_config`, or else by the type of its tensors; None where the file says neither. The places are a
/// text part, which may leave it to the next, and the whole file.
pub(super) fn format<'a>(
    model: &Model,
    places: impl Iterator<Item = &'a Fields> + Clone,
) -> Result<Option<Stored>, ConfigError> {
    for fields in places.clone() {
        if let Some(quantised) = fields.inner("quantization_config")? {
            let experts = fields.text("expert_dtype");
            return quantisation(model, &quantised, experts.as_deref()).map(Some);
        }
    }
    for fields in places {
        for key in ["dtype", "torch_dtype"] {
            let Some(stated) = fields.text(key) else { continue };
            return match stated.trim_start_matches("torch.") {
                "bfloat16" | "float16" | "half" => Ok(Some(WeightFormat::Bf16.into())),
                "float32" | "float" => Ok(Some(WeightFormat::Fp32.into())),
                "auto" => Ok(None),
                name if name.starts_with("float8") => Ok(Some(WeightFormat::Fp8.into())),
                _ => Err(fields.bad(key, "bfloat16, float16, float32, float8_e4m3fn")),
            };
        }
    }
    Ok(None)
}

/// A format of matrices: of those with these names, or of all others.
struct Rule {
    targets: Option<Patterns>,
    bytes: f64,
}

fn quantisation(model: &Model, fields: &Fields, experts: Option<&str>) -> Result<Stored, ConfigError> {
    let format = method(fields)?;
    let groups = fields.inner("config_groups")?;
    let rules = match &groups {
        Some(groups) if fields.text("quant_method").as_deref() == Some("compressed-tensors") => {
            let objects = with_weights(groups);
            if objects.len() > MOST_GROUPS {
                return Err(fields.bad("config_groups", &format!("at most {MOST_GROUPS} groups")));
            }
            let rules: Result<Vec<Rule>, ConfigError> =
                objects.iter().map(|of_group| group(fields, of_group)).collect();
            let mut rules = rules?;
            if rules.iter().filter(|rule| rule.targets.is_none()).count() > 1 {
                return Err(fields.bad("config_groups", "one group at most for all linear layers"));
            }
            // Groups with names take precedence over the class.
            rules.sort_by_key(|rule| rule.targets.is_none());
            rules
        }
        _ if fields.get(LAYERS).is_some() => by_layer(fields)?.into_values().collect(),
        _ => vec![Rule {
            targets: None,
            bytes: bytes(fields, format)?,
        }],
    };
    let kept = kept(fields)?;
    let experts_alone = Constants::builtin().format(format).scope == Scope::Experts;
    let of_experts = match experts {
        Some("fp4") => Some(Constants::builtin().format(WeightFormat::Mxfp4).bytes()),
        _ => None,
    };
    let stored = |layer: u64, names: &str, routed: bool| {
        let rule = rules.iter().find(|rule| rule.covers(layer, names));
        let kept = names.split_whitespace().any(|name| kept.matches(layer, name));
        Found {
            bytes: match (rule, of_experts) {
                _ if kept || (experts_alone && !routed) => 2.0,
                (Some(_), Some(bytes)) if routed => bytes,
                (Some(rule), _) => rule.bytes,
                (None, _) => 2.0,
            },
            named: kept || rule.is_some_and(|rule| rule.targets.is_some()),
        }
    };
    let searched = kept.numbered() + rules.iter().map(Rule::searched).sum::<u64>();
    if model.layers * searched > MOST_STEPS {
        let allowed = format!(
            "at most {MOST_STEPS} groups with names and regular expressions with a number, times layers"
        );
        let key = fields.named(KEPT).filter(|_| kept.numbered() > 0);
        return Err(fields.bad(key.unwrap_or("config_groups"), &allowed));
    }
    let parts = matrices::parts(model, stored);
    let of_rules = rules.iter().filter_map(|rule| rule.targets.as_ref());
    for patterns in of_rules.chain([&kept]) {
        patterns.refuse_unfound()?;
    }
    if parts.is_some_and(|parts| parts.beside == 2.0 && (parts.routed == 2.0 || model.routed() == 0)) {
        let key = fields.named(KEPT).or(fields.named("config_groups"));
        let allowed = "modules that leave a matrix of the model in fewer bits";
        return Err(fields.bad(key.unwrap_or("quant_method"), allowed));
    }
    Ok(Stored {
        format,
        parts,
        cache_bytes: cache(fields)?,
    })
}

/// Under which name Model Optimizer lists modules with a format each.
const LAYERS: &str = "quantized_layers";

/// A rule for the modules of each format that are listed.
fn by_layer(fields: &Fields) -> Result<BTreeMap<&'static str, Rule>, ConfigError> {
    let mut rules = BTreeMap::new();
    let Some(layers) = fields.inner(LAYERS)? else {
        return Ok(rules);
    };
    for name in layers.names() {
        let Some(layer) = layers.inner(name)? else {
            return Err(layers.bad(name, "an object with quant_algo"));
        };
        let (known, format) = match layer.text("quant_algo").as_deref() {
            Some("FP8") => ("FP8", WeightFormat::Fp8),
            Some("NVFP4" | "W4A16_NVFP4") => ("NVFP4", WeightFormat::Nvfp4),
            _ => {
                return Err(layer.bad(
                    "quant_algo",
                    "FP8, NVFP4, W4A16_NVFP4, for each of quantized_layers",
                ));
            }
        };
        let rule = rules.entry(known).or_insert_with(|| Rule {
            targets: Some(Patterns::default()),
            bytes: Constants::builtin().format(format).bytes(),
        });
        if let Some(targets) = &mut rule.targets {
            targets.add(LAYERS, name)?;
        }
    }
    Ok(rules)
}

const KEPT: &str = "modules_to_not_convert ignored_layers ignore exclude_modules llm_int8_skip_modules";

/// Modules without quantisation: by lists, by settings of single ones (AutoRound), by expressions (GPTQModel).
fn kept(fields: &Fields) -> Result<Patterns, ConfigError> {
    let mut kept = Patterns::of(fields, KEPT)?;
    if kept.names("Linear") {
        let key = fields.named(KEPT).unwrap_or("ignore");
        return Err(fields.bad(key, "names of modules: Linear is the class of all of them"));
    }
    let key = "extra_config";
    if let Some(modules) = fields.inner(key)? {
        for name in modules.names() {
            let bits = modules.inner(name)?.map(|module| module.whole("bits"));
            if bits.transpose()?.flatten().is_some_and(|bits| bits >= 16) {
                kept.add(key, name)?;
            }
        }
    }
    let key = "dynamic";
    if let Some(modules) = fields.inner(key)? {
        for name in modules.names() {
            let allowed = "-: and an expression, for modules without quantisation";
            let expression = name.strip_prefix("-:").ok_or_else(|| fields.bad(key, allowed))?;
            kept.add(key, &format!("re:{expression}"))?;
        }
    }
    Ok(kept)
}

/// Groups, and comparisons of one matrix in all layers, so that a long list cannot keep the reader busy.
const MOST_GROUPS: usize = 1_000;
const MOST_STEPS: u64 = 4_000;

impl Rule {
    fn covers(&self, layer: u64, names: &str) -> bool {
        let meant = |targets: &Patterns| names.split_whitespace().any(|name| targets.matches(layer, name));
        self.targets.as_ref().is_none_or(meant)
    }

    /// Steps for each layer.
    fn searched(&self) -> u64 {
        self.targets.as_ref().map_or(0, |targets| 1 + targets.numbered())
    }
}

/// Other groups are of activations, or of the cache.
fn with_weights(groups: &Fields) -> Vec<Fields> {
    let groups = groups.objects().into_iter();
    groups.filter(|group| group.get("weights").is_some()).collect()
}

/// One group of compressed-tensors, whose targets are a class of modules, all of them, or names.
fn group(whole: &Fields, fields: &Fields) -> Result<Rule, ConfigError> {
    let weights = fields.inner("weights")?;
    let weights = weights.ok_or_else(|| fields.bad("weights", "an object with num_bits"))?;
    let format = of_weights(&weights).ok_or_else(|| weights.bad("num_bits", GROUP_BITS))?;
    refuse_packing(
        if fields.get("format").is_some() {
            fields
        } else {
            whole
        },
        format,
    )?;
    let listed = fields.get(TARGETS).and_then(|targets| targets.as_array());
    let of_class =
        listed.is_none_or(|targets| targets.iter().any(|target| target.as_str() == Some("Linear")));
    Ok(Rule {
        targets: match of_class {
            true => None,
            false => Some(Patterns::of(fields, TARGETS)?),
        },
        bytes: bytes(&weights, format)?,
    })
}

/// Bytes of a parameter with its scales.
fn bytes(fields: &Fields, format: WeightFormat) -> Result<f64, ConfigError> {
    let usual = Constants::builtin().format(format);
    let whole = matches!(
        format,
        WeightFormat::GptqInt4 | WeightFormat::GptqInt8 | WeightFormat::AwqInt4
    );
    // -1 is a scale for a column.
    let stated = fields.get("group_size").and_then(|size| size.as_i64());
    let Some(stated) = stated.filter(|_| whole) else {
        return Ok(usual.bytes());
    };
    let size = match stated {
        -1 => return Ok(usual.bits / 8.0),
        1..=1_000_000 => stated as f64,
        _ => return Err(fields.bad("group_size", "-1, or 1 to 1000000")),
    };
    // A scale in 16 bits, and a zero point unless the file says that there is none.
    let zero = match fields.flag("symmetric")? {
        Some(true) => 0.0,
        _ => usual.bits / 8.0,
    };
    Ok(usual.bits / 8.0 + (2.0 + zero) / size)
}

/// One byte an element where the file has a scheme for the cache.
fn cache(fields: &Fields) -> Result<Option<u64>, ConfigError> {
    let scheme = fields.inner("kv_cache_scheme")?;
    let named = fields.text("kv_cache_quant_algo");
    let bits = match (&scheme, named.as_deref()) {
        (Some(scheme), _) => scheme.whole("num_bits")?,
        (None, Some("FP8" | "INT8")) => Some(8),
        (None, _) => None,
    };
    match (bits, scheme) {
        (Some(8), _) => Ok(Some(1)),
        // Fewer are not sized.
        (None | Some(4 | 16), _) => Ok(None),
        (Some(_), scheme) => Err(scheme
            .as_ref()
            .unwrap_or(fields)
            .bad("num_bits", "4, 8, 16, of kv_cache_scheme")),
    }
}

fn method(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    let names = "bits w_bit num_bits";
    let mut stated = names.split(' ').filter(|name| fields.get(name).is_some());
    let (first, second) = (stated.next(), stated.next());
    let bits = || fields.whole(names);
    if let (Some(first), Some(second)) = (first, second)
        && fields.whole(first)? != fields.whole(second)?
    {
        return Err(fields.bad(second, &format!("the number that {first} is")));
    }
    match fields.text("quant_method").as_deref() {
        Some("gptq" | "auto-round" | "autoround" | "gptqmodel") => match bits()?.unwrap_or(4) {
            4 => Ok(WeightFormat::GptqInt4),
            8 => Ok(WeightFormat::GptqInt8),
            _ => Err(fields.bad("bits", "4, 8")),
        },
        Some("awq") => match bits()?.unwrap_or(4) {
            4 => Ok(WeightFormat::AwqInt4),
            _ => Err(fields.bad(fields.named("bits w_bit").unwrap_or("bits"), "4")),
        },
        Some("fp8" | "fbgemm_fp8") => match bits()?.unwrap_or(8) {
            8 => Ok(WeightFormat::Fp8),
            _ => Err(fields.bad("bits", "8")),
        },
        Some("mxfp4") => Ok(WeightFormat::Mxfp4),
        Some("modelopt") => {
            let allowed = "FP8, NVFP4, MIXED_PRECISION with quantized_layers";
            let format = match fields.text("quant_algo").as_deref() {
                Some("FP8") => WeightFormat::Fp8,
                Some("NVFP4") => WeightFormat::Nvfp4,
                // Called by the smallest.
                Some("MIXED_PRECISION") => match by_layer(fields)?.into_keys().next_back() {
                    Some("NVFP4") => WeightFormat::Nvfp4,
                    Some(_) => WeightFormat::Fp8,
                    None => return Err(fields.bad("quant_algo", allowed)),
                },
                _ => return Err(fields.bad("quant_algo", allowed)),
            };
            // Its groups say it once more.
            match fields.inner("config_groups")? {
                Some(_) if fields.get(LAYERS).is_none() && compressed(fields)? != format => {
                    Err(fields.bad("quant_algo", "the format of config_groups"))
                }
                _ => Ok(format),
            }
        }
        Some("bitsandbytes") => bitsandbytes(fields),
        // Earlier files of bitsandbytes state no method.
        None if fields.named("load_in_4bit load_in_8bit").is_some() => bitsandbytes(fields),
        Some("compressed-tensors") => compressed(fields),
        _ => Err(fields.bad(
            "quant_method",
            "gptq, awq, fp8, fbgemm_fp8, mxfp4, modelopt, bitsandbytes, compressed-tensors; without quantization_config the \
             weights are sized in 16 bits, or as --weights says",
        )),
    }
}

fn bitsandbytes(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    let (four, eight) = (fields.flag("load_in_4bit")?, fields.flag("load_in_8bit")?);
    if (four, eight) == (Some(true), Some(true)) {
        return Err(fields.bad("load_in_8bit", "false with load_in_4bit"));
    }
    let twice = fields.flag("bnb_4bit_use_double_quant")? == Some(true);
    match (four, eight) {
        (Some(true), _) if twice => Ok(WeightFormat::Nf4Dq),
        (Some(true), _) => Ok(WeightFormat::Nf4),
        (_, Some(true)) => Ok(WeightFormat::Int8),
        _ => Err(fields.bad("load_in_4bit", "true, or load_in_8bit true, with bitsandbytes")),
    }
}

const GROUP_BITS: &str = "groups whose weights have num_bits 4 or 8";

/// The format of its first group, by which the model is called.
fn compressed(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    let groups = fields.inner("config_groups")?;
    let first = groups
        .as_ref()
        .and_then(|groups| with_weights(groups).into_iter().next());
    let weights = first.and_then(|group| group.inner("weights").ok().flatten());
    let format = weights.as_ref().and_then(of_weights);
    format.ok_or_else(|| fields.bad("config_groups", GROUP_BITS))
}

/// How groups may be packed, by their format.
const PACKED: [(&str, &[WeightFormat]); 4] = [
    ("float-quantized", &[WeightFormat::Fp8]),
    ("int-quantized", &[WeightFormat::Int8, WeightFormat::GptqInt4]),
    ("pack-quantized", &[WeightFormat::Int8, WeightFormat::GptqInt4]),
    ("nvfp4-pack-quantized", &[WeightFormat::Nvfp4]),
];

/// Refuses a packing, of a group or of all, that is not one of its weights.
fn refuse_packing(fields: &Fields, format: WeightFormat) -> Result<(), ConfigError> {
    let said = fields.text("format").unwrap_or_default();
    let known = PACKED.iter().find(|(name, _)| *name == said);
    if known.is_none_or(|(_, formats)| formats.contains(&format)) {
        return Ok(());
    }
    let fit = PACKED.iter().filter(|(_, formats)| formats.contains(&format));
    let fit: Vec<&str> = fit.map(|(name, _)| *name).collect();
    Err(fields.bad(
        "format",
        &format!("{}, as the weights of config_groups are", fit.join(", ")),
    ))
}

fn of_weights(weights: &Fields) -> Option<WeightFormat> {
    match (weights.whole("num_bits").ok()??, weights.text("type").as_deref()) {
        (8, Some("float")) => Some(WeightFormat::Fp8),
        (8, _) => Some(WeightFormat::Int8),
        (4, Some("int")) => Some(WeightFormat::GptqInt4),
        (4, Some("float")) => Some(WeightFormat::Nvfp4),
        _ => None,
    }
}
