//! In what format a model's weights are stored, by its file.

use super::ConfigError;
use super::fields::Fields;
use crate::job::WeightFormat;

/// By `quantization_config`, or else by the type of its tensors; None where the file says neither. The places are a
/// text part, which may leave it to the next, and the whole file.
pub(super) fn format<'a>(
    places: impl Iterator<Item = &'a Fields> + Clone,
) -> Result<Option<WeightFormat>, ConfigError> {
    for fields in places.clone() {
        if let Some(quantised) = fields.inner("quantization_config")? {
            return quantisation(&quantised).map(Some);
        }
    }
    for fields in places {
        for key in ["dtype", "torch_dtype"] {
            let Some(stated) = fields.text(key) else { continue };
            return match stated.trim_start_matches("torch.") {
                "bfloat16" | "float16" | "half" => Ok(Some(WeightFormat::Bf16)),
                "float32" | "float" => Ok(Some(WeightFormat::Fp32)),
                "auto" => Ok(None),
                name if name.starts_with("float8") => Ok(Some(WeightFormat::Fp8)),
                _ => Err(fields.bad(key, "bfloat16, float16, float32, float8_e4m3fn")),
            };
        }
    }
    Ok(None)
}

fn quantisation(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    let bits = || fields.whole(&["bits", "w_bit", "num_bits"]);
    match fields.text("quant_method").as_deref() {
        Some("gptq" | "auto-round" | "autoround" | "gptqmodel") => match bits()?.unwrap_or(4) {
            4 => Ok(WeightFormat::GptqInt4),
            8 => Ok(WeightFormat::GptqInt8),
            _ => Err(fields.bad("bits", "4, 8")),
        },
        Some("awq") => match bits()?.unwrap_or(4) {
            4 => Ok(WeightFormat::AwqInt4),
            _ => Err(fields.bad(fields.named(&["bits", "w_bit"]).unwrap_or("bits"), "4")),
        },
        Some("fp8" | "fbgemm_fp8") => Ok(WeightFormat::Fp8),
        Some("mxfp4") => Ok(WeightFormat::Mxfp4),
        Some("modelopt") => match fields.text("quant_algo").as_deref() {
            Some("FP8") => Ok(WeightFormat::Fp8),
            Some("NVFP4") => Ok(WeightFormat::Nvfp4),
            _ => Err(fields.bad("quant_algo", "FP8, NVFP4")),
        },
        Some("bitsandbytes") => bitsandbytes(fields),
        // Earlier files of bitsandbytes state no method.
        None if fields.named(&["load_in_4bit", "load_in_8bit"]).is_some() => bitsandbytes(fields),
        Some("compressed-tensors") => compressed(fields),
        _ => Err(fields.bad(
            "quant_method",
            "gptq, awq, fp8, fbgemm_fp8, mxfp4, modelopt, bitsandbytes, compressed-tensors; without quantization_config the \
             weights are sized in 16 bits, or as --weights says",
        )),
    }
}

fn bitsandbytes(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    if fields.flag("load_in_4bit")? != Some(true) {
        return Ok(WeightFormat::Int8);
    }
    if fields.flag("bnb_4bit_use_double_quant")? == Some(true) {
        Ok(WeightFormat::Nf4Dq)
    } else {
        Ok(WeightFormat::Nf4)
    }
}

/// All of its groups in one format of weights; other linear layers stay as they are, which are few.
fn compressed(fields: &Fields) -> Result<WeightFormat, ConfigError> {
    let allowed = "groups whose weights have num_bits 4 or 8";
    let groups = fields.inner("config_groups")?;
    let first = groups.as_ref().and_then(|groups| groups.first());
    let Some(weights) = first.and_then(|group| group.inner("weights").ok().flatten()) else {
        return Err(fields.bad("config_groups", allowed));
    };
    match (weights.whole(&["num_bits"])?, weights.text("type").as_deref()) {
        (Some(8), Some("float")) => Ok(WeightFormat::Fp8),
        (Some(8), _) => Ok(WeightFormat::Int8),
        (Some(4), Some("int")) => Ok(WeightFormat::GptqInt4),
        (Some(4), Some("float")) => Ok(WeightFormat::Nvfp4),
        _ => Err(fields.bad("config_groups", allowed)),
    }
}
