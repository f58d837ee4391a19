//! Names of modules that a quantisation covers or leaves out: whole names, parts of them, names with a `*`, and regular
//! expressions, which begin with `re:`.

use super::super::ConfigError;
use super::super::fields::Fields;
use regex::bytes::{Regex, RegexBuilder};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// What stands before a layer's name in files of models with text alone, and with more kinds of input.
const BEFORE: [&str; 4] = ["model.", "model.language_model.", "language_model.model.", ""];

/// Parts of names that are no language model's.
const OTHERS: [&str; 4] = ["visual", "vision", "audio", "mtp"];

/// The most bytes of a compiled expression, and the most expressions.
const MOST_COMPILED: usize = 1 << 18;
const MOST: usize = 1000;

#[derive(Default)]
pub(super) struct Patterns {
    names: HashSet<String>,
    /// Names with a `*` of one layer, without it.
    of_layers: HashMap<u64, Vec<Regex>>,
    /// Expressions that tell layers apart, and those that don't.
    numbered: Vec<Expression>,
    alike: Vec<Expression>,
    /// What those say of a module, whatever its layer.
    known: RefCell<HashMap<String, bool>>,
}

struct Expression {
    compiled: Regex,
    /// It may say what stands before a layer.
    anchored: bool,
}

impl Expression {
    fn matches(&self, name: &str) -> bool {
        let found = |name: &str| self.compiled.is_match(name.as_bytes());
        match self.anchored {
            false => found(name),
            true => BEFORE.iter().any(|before| found(&format!("{before}{name}"))),
        }
    }
}

impl Patterns {
    /// From lists under these keys, and from objects by module that leave it in 16 bits or more.
    pub fn of(fields: &Fields, lists: &[&str], objects: &[&str]) -> Result<Patterns, ConfigError> {
        let mut patterns = Patterns::default();
        for key in lists {
            let Some(listed) = fields.get(key) else { continue };
            let allowed = "a list of names of modules";
            let listed = listed.as_array().ok_or_else(|| fields.bad(key, allowed))?;
            for name in listed {
                let name = name.as_str().ok_or_else(|| fields.bad(key, allowed))?;
                patterns.add(name).ok_or_else(|| ConfigError::BadValue {
                    key: (*key).to_owned(),
                    found: format!("{name:?}"),
                    allowed: "names of modules, with * for anything, or re: and a regular expression".into(),
                })?;
                if patterns.numbered.len() + patterns.alike.len() > MOST {
                    let allowed =
                        format!("at most {MOST} regular expressions and names with a * of all layers");
                    return Err(fields.bad(key, &allowed));
                }
            }
        }
        for key in objects {
            let Some(modules) = fields.inner(key)? else {
                continue;
            };
            for name in modules.names() {
                let wide = modules.inner(name)?.map(|module| module.whole(&["bits"]));
                if wide.transpose()?.flatten().is_some_and(|bits| bits >= 16) {
                    patterns.add(name);
                }
            }
        }
        Ok(patterns)
    }

    /// None where it is no pattern.
    fn add(&mut self, name: &str) -> Option<()> {
        if let Some(expression) = name.strip_prefix("re:") {
            let numbered = expression.chars().any(|c| c.is_ascii_digit());
            let of = if numbered {
                &mut self.numbered
            } else {
                &mut self.alike
            };
            of.push(Expression {
                // As Python's re.match, from the start of a name to anywhere.
                compiled: compiled(&format!("^(?:{expression})"))?,
                anchored: !expression.starts_with(".*"),
            });
            return Some(());
        }
        let name = name.trim_matches('.');
        if name.is_empty() || OTHERS.iter().any(|other| name.contains(other)) {
            return Some(());
        }
        let parts: Vec<&str> = name.split('.').collect();
        let layers = parts.iter().position(|part| *part == "layers").unwrap_or(0);
        let parts = &parts[layers..];
        if !name.contains('*') {
            self.names.insert(parts.join("."));
            return Some(());
        }
        let glob = |name: String| {
            let parts: Vec<String> = name.split('*').map(regex::escape).collect();
            compiled(&format!("^{}$", parts.join(".*")))
        };
        match parts.get(1).map(|layer| layer.parse::<u64>()) {
            Some(Ok(layer)) if parts[0] == "layers" => {
                let of_layer = self.of_layers.entry(layer).or_default();
                of_layer.push(glob(parts[2..].join("."))?);
            }
            _ => self.alike.push(Expression {
                compiled: glob(parts.join("."))?,
                anchored: false,
            }),
        }
        Some(())
    }

    /// Expressions that each layer is searched with.
    pub fn numbered(&self) -> u64 {
        self.numbered.len() as u64
    }

    /// Whether one of them means this module of a layer, such as `mlp.up_proj`: all of its name, or parts of it in a row.
    pub fn matches(&self, layer: u64, module: &str) -> bool {
        let name = format!("layers.{layer}.{module}");
        let of_layer = self.of_layers.get(&layer).into_iter().flatten();
        self.names_it(&name)
            || of_layer.into_iter().any(|glob| glob.is_match(module.as_bytes()))
            || self.numbered.iter().any(|of| of.matches(&name))
            || self.is_alike(&name, module)
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

fn compiled(expression: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(expression);
    builder.unicode(false).size_limit(MOST_COMPILED).build().ok()
}
