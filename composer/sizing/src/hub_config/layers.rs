//! Which layer is of which kind: by a list, by a pattern of letters, by indices, or by a period.

use super::fields::Fields;
use super::{ConfigError, LAYERS};
use std::collections::BTreeSet;

/// No model has more.
const MOST: u64 = 10_000;

/// Under which names a file lists its layers, and how it calls them.
pub(super) const LISTS: &str = "layer_types layers_block_type";
pub(super) const FULL: &[&str] = &["full_attention", "attention"];
pub(super) const WINDOWED: &[&str] = &["sliding_attention", "chunked_attention"];
pub(super) const STATE: &[&str] = &["linear_attention", "mamba", "mamba2", "conv", "recurrent"];

/// Under which names a file has the tokens of a window.
pub(super) const WINDOW: &str =
    "sliding_window_size sliding_window attention_chunk_size attention_window_size";

/// As many as the file says.
pub(super) fn number(fields: &Fields) -> Result<u64, ConfigError> {
    let found = fields.need(LAYERS)?;
    if (1..=MOST).contains(&found) {
        return Ok(found);
    }
    let key = fields.named(LAYERS).unwrap_or("num_hidden_layers");
    Err(fields.bad(key, &format!("1 to {MOST}")))
}

/// For each layer of the list under the first of these names that is there, which of the kinds it is; a kind may have
/// several names. None where there is no such list.
pub(super) fn listed(
    fields: &Fields,
    names: &str,
    kinds: &[&[&str]],
) -> Result<Option<Vec<usize>>, ConfigError> {
    let Some(key) = fields.named(names) else {
        return Ok(None);
    };
    let refuse = || {
        let kinds: Vec<&str> = kinds.iter().flat_map(|names| names.iter().copied()).collect();
        fields.bad(
            key,
            &format!("a list of {}, one for each layer", kinds.join(", ")),
        )
    };
    let listed = fields
        .get(key)
        .and_then(|list| list.as_array())
        .ok_or_else(refuse)?;
    let kind = |layer: &serde_json::Value| {
        let named = layer.as_str().ok_or_else(refuse)?;
        let of = |names: &&[&str]| names.contains(&named);
        kinds.iter().position(of).ok_or_else(refuse)
    };
    let found: Result<Vec<usize>, ConfigError> = listed.iter().map(kind).collect();
    let found = found?;
    if found.is_empty() || found.len() as u64 > MOST {
        return Err(refuse());
    }
    Ok(Some(found))
}

/// How many layers of the kind there are in a list that must have one entry for each layer.
pub(super) fn listed_of(
    fields: &Fields,
    names: &str,
    kinds: &[&[&str]],
    layers: u64,
) -> Result<Option<Vec<u64>>, ConfigError> {
    let Some(found) = listed(fields, names, kinds)? else {
        return Ok(None);
    };
    if found.len() as u64 != layers {
        let key = fields.named(names).unwrap_or("layer_types");
        return Err(fields.bad(key, &format!("a list of {layers}, one for each layer")));
    }
    Ok(Some(tally(&found, kinds.len())))
}

pub(super) fn tally(found: &[usize], kinds: usize) -> Vec<u64> {
    let mut numbers = vec![0; kinds];
    for kind in found {
        if let Some(number) = numbers.get_mut(*kind) {
            *number += 1;
        }
    }
    numbers
}

/// How many layers there are in a list of their indices; None without one.
pub(super) fn indexed(fields: &Fields, key: &str, layers: u64) -> Result<Option<u64>, ConfigError> {
    let Some(value) = fields.get(key) else {
        return Ok(None);
    };
    let indices: Option<Vec<u64>> = value
        .as_array()
        .and_then(|list| list.iter().map(|index| index.as_u64()).collect());
    let mut indices = indices.unwrap_or_default();
    indices.sort_unstable();
    indices.dedup();
    let sound = value.as_array().is_some_and(|list| list.len() == indices.len());
    if !sound || indices.last().is_some_and(|last| *last > layers) {
        return Err(fields.bad(key, &format!("a list of different layers, of {layers}")));
    }
    Ok(Some(indices.len() as u64))
}

/// How many of the layers have `index % period == offset`.
pub(super) fn periodic(
    fields: &Fields,
    (period, usual_period): (&str, u64),
    (offset, usual_offset): (&str, u64),
    layers: u64,
) -> Result<u64, ConfigError> {
    let every = fields.size(period, Some(usual_period))?;
    let first = fields.whole(offset)?.unwrap_or(usual_offset);
    if first >= every {
        return Err(fields.bad(offset, &format!("less than {period}, {every}")));
    }
    Ok(layers.saturating_sub(first).div_ceil(every))
}

/// How many layers are numbered 1 in a list of 0 and 1, one for each layer; None without it.
pub(super) fn numbered(fields: &Fields, key: &str, layers: u64) -> Result<Option<u64>, ConfigError> {
    let Some(value) = fields.get(key) else {
        return Ok(None);
    };
    let refuse = || {
        fields.bad(
            key,
            &format!("a list of 0 and 1, one for each of {layers} layers"),
        )
    };
    let listed = value.as_array().ok_or_else(refuse)?;
    let kinds = listed.iter().map(|kind| kind.as_u64().filter(|kind| *kind < 2));
    let ones = kinds.sum::<Option<u64>>().ok_or_else(refuse)?;
    if listed.len() as u64 != layers {
        return Err(refuse());
    }
    Ok(Some(ones))
}

/// A dimension of each layer: one for all, or a list.
pub(super) fn widths(fields: &Fields, key: &str, layers: u64, usual: u64) -> Result<Vec<u64>, ConfigError> {
    const WIDEST: u64 = 10_000_000;
    let refuse = || {
        fields.bad(
            key,
            &format!("1 to {WIDEST}, or a list of such, one for each of {layers} layers"),
        )
    };
    let each = match fields.get(key) {
        None => vec![usual],
        Some(serde_json::Value::Array(list)) if list.len() as u64 == layers => {
            let found: Option<Vec<u64>> = list.iter().map(|width| width.as_u64()).collect();
            found.ok_or_else(refuse)?
        }
        Some(one) => vec![one.as_u64().ok_or_else(refuse)?],
    };
    if each.iter().any(|width| !(1..=WIDEST).contains(width)) {
        return Err(refuse());
    }
    let whole = usize::try_from(layers).unwrap_or(1);
    Ok(if each.len() == whole {
        each
    } else {
        vec![each[0]; whole]
    })
}

/// A number that is the same for all layers, whether it is stated once or for each.
pub(super) fn same(fields: &Fields, names: &str, layers: u64) -> Result<Option<u64>, ConfigError> {
    let Some(key) = fields.named(names) else {
        return Ok(None);
    };
    if fields.get(key).is_some_and(|value| !value.is_array()) {
        return fields.whole(key);
    }
    let each = widths(fields, key, layers, 1)?;
    match each.first() {
        Some(first) if each.iter().all(|other| other == first) => Ok(Some(*first)),
        _ => Err(fields.bad(
            key,
            "the same number for each layer, where parameters are counted",
        )),
    }
}

/// Layers with experts: by a list of all, or by a range with a step, without the listed exceptions.
pub(super) fn sparse(fields: &Fields, layers: u64) -> Result<u64, ConfigError> {
    let kinds: [&[&str]; 2] = [&["dense"], &["sparse"]];
    if let Some(of) = listed_of(fields, "mlp_layer_types", &kinds, layers)? {
        return Ok(of[1]);
    }
    let frequency = "moe_layer_freq";
    if fields.get(frequency).is_some_and(|value| value.is_array()) {
        return Ok(numbered(fields, frequency, layers)?.unwrap_or(layers));
    }
    if let Some(listed) = indexed(fields, "moe_layers", layers)? {
        return Ok(listed);
    }
    let first = "first_k_dense_replace num_dense_layers moe_layer_start_index";
    let first = fields.whole(first)?.unwrap_or(0);
    let end = "moe_layer_end_index";
    let end = match fields.get(end).and_then(|end| end.as_i64()) {
        Some(-1) => layers,
        _ => fields.whole(end)?.map_or(layers, |last| last.saturating_add(1)),
    };
    let steps =
        "interleave_moe_layer_step moe_layer_interval decoder_sparse_step expert_layer_period moe_layer_freq";
    let step = fields.size(steps, Some(1))?;
    let usual = match fields.named(steps) {
        Some(key) if key == frequency => 0,
        _ => step - 1,
    };
    let offset = fields.whole("expert_layer_offset")?.unwrap_or(usual);
    if offset >= step {
        return Err(fields.bad("expert_layer_offset", &format!("less than the period, {step}")));
    }
    let dense = "mlp_only_layers";
    indexed(fields, dense, layers)?;
    let dense = fields.get(dense).and_then(|listed| listed.as_array());
    let dense: BTreeSet<u64> = dense.into_iter().flatten().filter_map(|of| of.as_u64()).collect();
    let sparse = (first..end.min(layers)).filter(|layer| layer % step == offset && !dense.contains(layer));
    Ok(sparse.count() as u64)
}
