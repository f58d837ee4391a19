//! The vision tower of a model that sees: what it has of parameters beside the language part, by its `vision_config`.
//!
//! Counted are the towers and projectors whose classes in transformers are known; each formula was held against the
//! class itself. Any other is told as not counted.

use super::ConfigError;
use super::fields::Fields;
use crate::model::Vision;

/// None where the file has no vision part.
pub(super) fn of(whole: &Fields, text_width: u64) -> Result<Option<Vision>, ConfigError> {
    let Some(fields) = whole.inner("vision_config")? else {
        // Phi 4 has what it sees and hears with there.
        return Ok(whole.get("embd_layer").map(|_| Vision::NotCounted));
    };
    let (model, tower) = (whole.model_type(), fields.model_type());
    let text = u128::from(text_width);
    let counted = match (model.trim_end_matches("_text"), tower.as_str()) {
        ("gemma3", "siglip_vision_model") if fields.flag("vision_use_head")? == Some(false) => {
            let tower = Tower::read(&fields, [1152, 4304, 27, 896, 14])?;
            // A matrix and a norm.
            tower.siglip() + tower.hidden * text + tower.hidden
        }
        ("llava", "clip_vision_model") => {
            let tower = Tower::read(&fields, [1024, 4096, 24, 336, 14])?;
            tower.clip() + two_matrices(whole, tower.hidden, text, true)?
        }
        ("llava", "pixtral") => {
            let tower = Tower::read(&fields, [1024, 4096, 24, 1024, 16])?;
            tower.pixtral() + two_matrices(whole, tower.hidden, text, true)?
        }
        ("mistral3", "pixtral") => {
            let tower = Tower::read(&fields, [1024, 4096, 24, 1540, 14])?;
            let merged = dimension(whole, "spatial_merge_size", 2, 1_000)?.pow(2);
            let merger = tower.hidden + tower.hidden * tower.hidden * merged;
            tower.pixtral() + merger + two_matrices(whole, tower.hidden, text, false)?
        }
        ("llama4", "llama4_vision_model") => {
            let tower = Tower::read(&fields, [1408, 5632, 34, 336, 14])?;
            let input = dimension(&fields, "projector_input_dim", 4096, WIDEST)?;
            let output = dimension(&fields, "projector_output_dim", 4096, WIDEST)?;
            let adapter = tower.ffn * input + output * output;
            tower.llama4() + adapter + dimension(&fields, "vision_output_dim", 4096, WIDEST)? * text
        }
        _ => return Ok(Some(Vision::NotCounted)),
    };
    Ok(Some(
        u64::try_from(counted).map_or(Vision::NotCounted, Vision::Counted),
    ))
}

/// No matrix of a tower is wider.
const WIDEST: u64 = 1_000_000;

/// The dimensions of a tower, in elements and pixels.
struct Tower {
    hidden: u128,
    ffn: u128,
    layers: u128,
    patches: u128,
    /// Values of a patch: three colours for each of its pixels.
    patch: u128,
}

impl Tower {
    /// With what its class takes where the file does not say: width, width of the MLP, layers, pixels of a side of the
    /// image and of a patch.
    fn read(fields: &Fields, usual: [u64; 5]) -> Result<Tower, ConfigError> {
        let [hidden, ffn, layers, image, patch] = usual;
        let image = dimension(fields, "image_size", image, 100_000)?;
        let side = dimension(fields, "patch_size", patch, 10_000)?;
        if side > image {
            return Err(fields.bad("patch_size", &format!("1 to image_size, {image}")));
        }
        Ok(Tower {
            hidden: dimension(fields, "hidden_size", hidden, WIDEST)?,
            ffn: dimension(fields, "intermediate_size", ffn, WIDEST)?,
            layers: dimension(fields, "num_hidden_layers", layers, 10_000)?,
            patches: (image / side).pow(2),
            patch: 3 * side * side,
        })
    }

    /// Four matrices of attention, two of the MLP, two norms, all with biases.
    fn layer(&self) -> u128 {
        let (h, f) = (self.hidden, self.ffn);
        4 * (h * h + h) + 2 * h * f + f + h + 4 * h
    }

    /// Patches with a bias, positions, a norm at the end.
    fn siglip(&self) -> u128 {
        let h = self.hidden;
        self.patch * h + h + self.patches * h + self.layers * self.layer() + 2 * h
    }

    /// Patches, one more for the class, norms before and after.
    fn clip(&self) -> u128 {
        let h = self.hidden;
        self.patch * h + h + (self.patches + 1) * h + self.layers * self.layer() + 4 * h
    }

    /// As CLIP's.
    fn llama4(&self) -> u128 {
        self.clip()
    }

    /// Gated MLP, no biases, norms without them, rotary positions.
    fn pixtral(&self) -> u128 {
        let (h, f) = (self.hidden, self.ffn);
        self.patch * h + h + self.layers * (4 * h * h + 3 * h * f + 2 * h)
    }
}

/// From the tower's width to the text's, and on: a matrix each.
fn two_matrices(whole: &Fields, tower: u128, text: u128, biased: bool) -> Result<u128, ConfigError> {
    let biased = whole.flag("multimodal_projector_bias")?.unwrap_or(biased);
    let biases = if biased { 2 * text } else { 0 };
    Ok(tower * text + text * text + biases)
}

fn dimension(fields: &Fields, key: &str, usual: u64, most: u64) -> Result<u128, ConfigError> {
    let found = fields.whole(key)?.unwrap_or(usual);
    if !(1..=most).contains(&found) {
        return Err(fields.bad(key, &format!("1 to {most}")));
    }
    Ok(u128::from(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(model: &str, vision: &str) -> Option<Vision> {
        let text = format!(r#"{{"model_type": "{model}", "vision_config": {{{vision}}}}}"#);
        of(&Fields::parse(&text).unwrap(), 64).unwrap()
    }

    /// The counts of the classes of transformers 5.23 themselves, with a text part of width 64.
    #[test]
    fn towers_and_projectors_are_counted_to_the_parameter() {
        let siglip = r#""model_type": "siglip_vision_model", "vision_use_head": false"#;
        for (model, vision, params) in [
            ("gemma3", siglip, 416_940_912),
            ("llava", r#""model_type": "clip_vision_model""#, 303_577_216),
            ("mistral3", r#""model_type": "pixtral""#, 407_570_432),
            ("llama4", r#""model_type": "llama4_vision_model""#, 851_223_040),
        ] {
            assert_eq!(counted(model, vision), Some(Vision::Counted(params)), "{model}");
        }
        let other = r#""model_type": "somebody_elses""#;
        assert_eq!(counted("gemma3", other), Some(Vision::NotCounted));
    }

    #[test]
    fn dimensions_that_cannot_be_are_refused_by_their_names() {
        for (field, says) in [
            (r#""hidden_size": 0"#, "hidden_size is 0; allowed: 1 to 1000000"),
            (r#""num_hidden_layers": 99999999999"#, "allowed: 1 to 10000"),
            (r#""patch_size": 5000"#, "allowed: 1 to image_size, 1540"),
        ] {
            let text = format!(
                r#"{{"model_type": "mistral3", "vision_config": {{"model_type": "pixtral", {field}}}}}"#
            );
            let refused = of(&Fields::parse(&text).unwrap(), 64).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
