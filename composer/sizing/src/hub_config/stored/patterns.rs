//! Names of modules that a quantisation covers or leaves out: whole names, parts of them, names with a `*`, and regular
//! expressions, which begin with `re:`.

use super::super::ConfigError;
use super::super::fields::Fields;
use regex::bytes::{Regex, RegexBuilder};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// Prefixes of a layer of the language model. Others belong to towers, and to layers for speculative decoding.
const BEFORE: [&str; 6] = [
    "model.",
    "model.language_model.",
    "language_model.model.",
    "backbone.",
    "transformer.",
    "",
];

/// The list of modules that a group is for; other lists often name modules that not every model has.
pub(super) const TARGETS: &str = "targets";

/// Parts of names of modules of a layer.
const OWN: [&str; 5] = ["layers", "proj", "attn", "mlp", "expert"];

/// Parts of names of modules that are beside a model's quantised matrices.
const BESIDE: [&str; 18] = [
    "head",
    "embed",
    "norm",
    "gate",
    "router",
    "vis",
    "mtp",
    "audio",
    "conv",
    "score",
    "rotary",
    "projector",
    "merger",
    "eh_proj",
    "in_proj_a",
    "in_proj_b",
    "a_log",
    "dt_bias",
];

/// Limits: bytes of a compiled expression, expressions for single layers, for all alike, and names with a `*` of one layer.
const MOST_COMPILED: usize = 1 << 16;
const MOST_NUMBERED: usize = 2000;
const MOST_ALIKE: usize = 500;
const MOST_OF_LAYERS: usize = 20_000;

#[derive(Default)]
pub(super) struct Patterns {
    names: HashSet<String>,
    /// Names with a `*` of single layers, without the layer.
    of_layers: HashMap<u64, Vec<Expression>>,
    count_of_layers: usize,
    /// Expressions for single layers, and for all layers alike.
    numbered: Vec<Expression>,
    alike: Vec<Expression>,
    /// Results of the latter by module.
    known: RefCell<HashMap<String, bool>>,
    /// The first name of a module that a layer may have, with the list that has it; and whether any name was found.
    first: Option<(String, String)>,
    is_found: Cell<bool>,
}

enum Expression {
    /// Parts of a name, with anything between them; and behind them, from a `.` on.
    Glob(Vec<String>),
    /// Of the start of a name, as Python's `re.match`.
    Regex(Regex),
}

impl Expression {
    fn matches(&self, name: &str) -> bool {
        match self {
            Expression::Glob(parts) => is_globbed(parts, name),
            Expression::Regex(regex) => {
                let found = |before: &&str| regex.is_match(format!("{before}{name}").as_bytes());
                BEFORE.iter().any(found)
            }
        }
    }
}

fn is_globbed(parts: &[String], name: &str) -> bool {
    let Some((first, others)) = parts.split_first() else {
        return false;
    };
    let Some(mut rest) = name.strip_prefix(first.as_str()) else {
        return false;
    };
    let ends = |rest: &str| rest.is_empty() || rest.starts_with('.');
    let Some((last, between)) = others.split_last() else {
        return ends(rest);
    };
    for part in between {
        let Some(at) = rest.find(part.as_str()) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    // Any place of the last part counts, with the end of a module's name behind it; after a final star, anything.
    last.is_empty()
        || rest
            .match_indices(last.as_str())
            .any(|(at, part)| ends(&rest[at + part.len()..]))
}

impl Patterns {
    /// From lists under these keys.
    pub fn of(fields: &Fields, lists: &str) -> Result<Patterns, ConfigError> {
        let mut patterns = Patterns::default();
        for key in lists.split(' ') {
            let Some(listed) = fields.get(key) else { continue };
            let allowed = "a list of names of modules";
            let listed = listed.as_array().ok_or_else(|| fields.bad(key, allowed))?;
            for name in listed {
                let name = name.as_str().ok_or_else(|| fields.bad(key, allowed))?;
                patterns.add(key, name)?;
            }
        }
        Ok(patterns)
    }

    pub fn add(&mut self, key: &str, name: &str) -> Result<(), ConfigError> {
        let refuse = |allowed: String| ConfigError::BadValue {
            key: key.to_owned(),
            found: format!("{:?}", name.chars().take(60).collect::<String>()),
            allowed,
        };
        let lower = name.to_ascii_lowercase();
        let is_own = name.starts_with("re:") || of_language(name.trim_matches('.')).is_some();
        // Classes of modules are beside matrices, but for that of all experts.
        let is_class = name.starts_with(|c: char| c.is_ascii_uppercase());
        let name = if name == "FusedMoE" { "experts" } else { name };
        let is_own = (key == TARGETS && !is_class) || (is_own && OWN.iter().any(|part| lower.contains(part)));
        if self.first.is_none() && is_own && !BESIDE.iter().any(|part| lower.contains(part)) {
            self.first = Some((key.to_owned(), name.to_owned()));
        }
        if let Some(expression) = name.strip_prefix("re:") {
            let mut builder = RegexBuilder::new(&format!("^(?:{expression})"));
            let compiled = builder.unicode(false).size_limit(MOST_COMPILED).build();
            let compiled = Expression::Regex(compiled.map_err(|_| refuse(ALLOWED.into()))?);
            match tells_layers_apart(expression) {
                true => self.numbered.push(compiled),
                false => self.alike.push(compiled),
            }
        } else if name.contains(['?', '[']) {
            return Err(refuse(ALLOWED.into()));
        } else if name.contains('*') {
            self.add_glob(name);
        } else if let Some(name) = of_language(name.trim_matches('.')) {
            self.names.insert(name.to_owned());
        }
        let too_many = self.numbered.len() > MOST_NUMBERED
            || self.alike.len() > MOST_ALIKE
            || self.count_of_layers > MOST_OF_LAYERS;
        if too_many {
            let allowed = format!(
                "at most {MOST_ALIKE} regular expressions, {MOST_NUMBERED} with a number, and {MOST_OF_LAYERS} names with a * of single layers"
            );
            return Err(refuse(allowed));
        }
        Ok(())
    }

    fn add_glob(&mut self, name: &str) {
        let Some(name) = of_language(name) else { return };
        let glob = |name: &str| Expression::Glob(name.split('*').map(str::to_owned).collect());
        let behind = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        match behind.map(|(layer, module)| (layer.parse::<u64>(), layer, module)) {
            Some((Ok(layer), _, module)) => {
                self.count_of_layers += 1;
                self.of_layers.entry(layer).or_default().push(glob(module));
            }
            Some((Err(_), "*", _)) => self.alike.push(glob(name)),
            _ if name.starts_with("layers.") || name.chars().any(|c| c.is_ascii_digit()) => {
                self.numbered.push(glob(name));
            }
            _ => self.alike.push(glob(name)),
        }
    }

    pub fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Expressions that each layer is searched with.
    pub fn numbered(&self) -> u64 {
        self.numbered.len() as u64
    }

    /// Whether one of them means this module of a layer, such as `mlp.up_proj`: all of its name, or parts of it in a row.
    pub fn matches(&self, layer: u64, module: &str) -> bool {
        let name = format!("layers.{layer}.{module}");
        let of_layer = self.of_layers.get(&layer).into_iter().flatten();
        let found = self.names_it(&name)
            || of_layer.into_iter().any(|of| of.matches(module))
            || self.numbered.iter().any(|of| of.matches(&name))
            || self.is_alike(&name, module);
        self.is_found.set(found || self.is_found.get());
        found
    }

    /// Refuses names of which none was found in any layer, though they are not all of parts beside the matrices.
    pub fn refuse_unfound(&self) -> Result<(), ConfigError> {
        match &self.first {
            Some((key, name)) if !self.is_found.get() => Err(ConfigError::BadValue {
                key: key.clone(),
                found: format!("{:?}", name.chars().take(60).collect::<String>()),
                allowed: "names of modules that this model has; none of this list is one of a layer".into(),
            }),
            _ => Ok(()),
        }
    }

    fn names_it(&self, name: &str) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let ends = || name.match_indices('.').map(|(at, _)| at);
        let starts = std::iter::once(0).chain(ends().map(|at| at + 1));
        starts.into_iter().any(|start| {
            let ends = ends().chain([name.len()]).filter(|end| *end > start);
            ends.into_iter().any(|end| self.names.contains(&name[start..end]))
        })
    }

    fn is_alike(&self, name: &str, module: &str) -> bool {
        if let Some(known) = self.known.borrow().get(module) {
            return *known;
        }
        let found = self.alike.iter().any(|of| of.matches(name));
        self.known.borrow_mut().insert(module.to_owned(), found);
        found
    }
}

const ALLOWED: &str =
    "names of modules, with * for anything, or re: and a regular expression without look-around";

/// Whether an expression may match in some layers and not in others.
fn tells_layers_apart(expression: &str) -> bool {
    let behind = expression.split("layers").skip(1);
    let any = |behind: &str| behind.starts_with(".*") || behind.starts_with("\\..*");
    let classes = expression.contains("\\d") || expression.contains(['[', '{']);
    classes || expression.contains(|c: char| c.is_ascii_digit()) || !behind.into_iter().all(any)
}

/// A name from `layers` on; as it is without them. None: those of a tower.
fn of_language(name: &str) -> Option<&str> {
    let at = if name.starts_with("layers") {
        0
    } else {
        match name.find(".layers") {
            Some(at) => at + 1,
            None => return (!name.is_empty()).then_some(name),
        }
    };
    let before = &name[..at];
    (BEFORE.contains(&before) || before.contains('*')).then_some(&name[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_names_with_a_star() {
        let globbed = |glob: &str, name: &str| {
            let parts: Vec<String> = glob.split('*').map(str::to_owned).collect();
            is_globbed(&parts, name)
        };
        for (glob, name) in [
            ("*h", "mlp.dense_h_to_4h"),
            ("mlp.up*", "mlp.up_proj"),
            ("layers.*.self_attn", "layers.3.self_attn.q_proj"),
            ("*", "mlp.up_proj"),
        ] {
            assert!(globbed(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("*up", "mlp.up_proj"), ("up*", "mlp.up_proj")] {
            assert!(!globbed(glob, name), "{glob} {name}");
        }
    }
}
