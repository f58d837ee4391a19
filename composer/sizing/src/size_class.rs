//! A shape for a bare size: what "13B" looks like when nothing else is said.
//!
//! The Llama 3 family is dense, well measured and spans three orders of magnitude, so a size takes its
//! dimensions from the line through Llama 3.2 1B and 3B and Llama 3.1 8B, 70B and 405B: layers, hidden size
//! and MLP width are interpolated in the logarithm of the parameters (extended beyond the ends), the hidden
//! size to a multiple of 1,024 so that heads of 128 divide evenly over GPUs, the MLP to one of 256. Eight key
//! and value heads, the vocabulary of 128,256 and untied embeddings stay; the parameters are the size as
//! asked. Every dimension grows with the size, so a bigger size never needs less.

use crate::model::Model;

/// Parameters, layers, hidden size, MLP width.
const ANCHORS: [(f64, f64, f64, f64); 5] = [
    (1.2358e9, 16.0, 2048.0, 8192.0),
    (3.2127e9, 28.0, 3072.0, 8192.0),
    (8.0303e9, 32.0, 4096.0, 14336.0),
    (70.5537e9, 80.0, 8192.0, 28672.0),
    (405.8534e9, 126.0, 16384.0, 53248.0),
];

const LEAST: u64 = 1_000_000_000;
const MOST: u64 = 5_000_000_000_000;

/// A size that the reference shape does not cover.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sizes go from 1B to 5T; for other models give a name or a config.json")]
pub struct OutOfRange;

/// `8B`, `1.5b`, `500M`, `1T`, `70 billion` is not one: parameters, or None if it is no size.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "M" | "m" => 1e6,
        "B" | "b" => 1e9,
        "T" | "t" => 1e12,
        _ => return None,
    };
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let params = number.parse::<f64>().ok()? * unit;
    (1.0..1e18).contains(&params).then_some(params.round() as u64)
}

/// Is it written as a size, whether or not there is such a model: `0B`, `-8B` or `1e30B`?
pub fn looks_like_size(text: &str) -> bool {
    let text = text.trim();
    let number = text.strip_suffix(['M', 'm', 'B', 'b', 'T', 't']);
    number.is_some_and(|number| number.parse::<f64>().is_ok_and(f64::is_finite))
}

/// The reference shape of a dense model of this many parameters.
pub fn shape(params: u64) -> Result<Model, OutOfRange> {
    if !(LEAST..=MOST).contains(&params) {
        return Err(OutOfRange);
    }
    let at = |pick: fn(&(f64, f64, f64, f64)) -> f64| interpolate(params as f64, pick);
    let hidden = multiple(at(|a| a.2), 1024);
    let heads = hidden / 128;
    let model = Model {
        params,
        layers: multiple(at(|a| a.1), 1),
        hidden,
        heads,
        kv_heads: 8,
        head_dim: 128,
        ffn: multiple(at(|a| a.3), 256),
        vocab: 128_256,
        context: Some(131_072),
        source: "reference shape: the Llama 3 family, interpolated to the size".into(),
        ..Model::blank(&size_name(params))
    };
    Ok(model.of_regular_layers(0))
}

fn interpolate(params: f64, pick: fn(&(f64, f64, f64, f64)) -> f64) -> f64 {
    let after = ANCHORS.iter().position(|a| params < a.0).unwrap_or(ANCHORS.len());
    let segment = after.clamp(1, ANCHORS.len() - 1);
    let (low, high) = (&ANCHORS[segment - 1], &ANCHORS[segment]);
    let share = (params / low.0).ln() / (high.0 / low.0).ln();
    pick(low) * (pick(high) / pick(low)).powf(share)
}

fn multiple(value: f64, of: u64) -> u64 {
    ((value / of as f64).round() as u64).max(1) * of
}

fn size_name(params: u64) -> String {
    match params {
        p if p >= 1_000_000_000_000 && p % 100_000_000_000 == 0 => format!("{}T", p as f64 / 1e12),
        p => format!("{}B", p as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, params) in [
            ("8B", 8_000_000_000),
            ("1.5b", 1_500_000_000),
            ("500M", 500_000_000),
            ("1T", 1_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Some(params), "{text}");
        }
        for text in ["0B", "-8B", "1e30B", "8B"] {
            assert!(looks_like_size(text), "{text}");
        }
        for text in ["B", "infB", "8x7B", "mistral-7b"] {
            assert!(!looks_like_size(text), "{text}");
        }
        for text in ["", "B", "8", "eightB", "-8B", "1e3B", "8x7B", "8 B", "é"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn the_classes_have_the_shape_of_their_models() {
        let dims = |p: u64| {
            let m = shape(p).unwrap();
            m.check().unwrap();
            (m.layers, m.hidden, m.heads, m.ffn)
        };
        assert_eq!(dims(8_000_000_000), (32, 4096, 32, 14336));
        assert_eq!(dims(70_000_000_000), (80, 8192, 64, 28672));
        assert_eq!(dims(405_000_000_000), (126, 16384, 128, 53248));
        assert_eq!(dims(400_000_000_000).1, 16384);
        assert_eq!(shape(400_000_000_000).unwrap().name, "400B");
        assert_eq!(shape(1_500_000_000).unwrap().name, "1.5B");
        assert!(shape(1_000_000).is_err());
    }

    #[test]
    fn dimensions_grow_and_stay_near_the_size() {
        let mut last = shape(LEAST).unwrap();
        let mut params = LEAST;
        while params < MOST {
            params += params / 50;
            let Ok(model) = shape(params) else { break };
            model.check().unwrap();
            assert!(model.layers >= last.layers && model.hidden >= last.hidden && model.ffn >= last.ffn);
            let counted = model.anatomy.params().unwrap();
            let ratio = counted as f64 / params as f64;
            assert!((0.6..=1.6).contains(&ratio), "{}: {ratio}", model.name);
            last = model;
        }
    }
}
