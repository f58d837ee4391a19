//! The models that come with Poolwright, and finding one by the name that people type.

use crate::error::{DataError, UnknownModel, data};
use crate::hub_config;
use crate::model::Model;
use crate::size_class;
use poolwright_model::nearest::{is_like, unlikeness};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, OnceLock};

const BUILTIN: [(&str, &str); 7] = [
    data!("models/llama.toml"),
    data!("models/qwen.toml"),
    data!("models/mistral.toml"),
    data!("models/others.toml"),
    data!("models/recent.toml"),
    data!("models/research.toml"),
    data!("models/mixed.toml"),
];

/// Known models, each read when it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    entries: Vec<Entry>,
    models: Vec<OnceLock<Model>>,
    /// Their places by names and aliases, each as [`normal`] has it.
    places: HashMap<String, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    sources: BTreeMap<String, String>,
    model: Vec<Entry>,
}

/// A model by its config.json, which has to come to the parameters that are stated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    params: u64,
    config: String,
    source: String,
    #[serde(skip)]
    file: String,
}

impl Entry {
    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.aliases)
    }

    fn read(&self) -> Result<Model, DataError> {
        let refuse = |message| DataError::new(&self.file, format!("model {}: {message}", self.name));
        let model = hub_config::parse(&self.name, &self.config).map_err(|error| refuse(error.to_string()))?;
        if model.params != self.params {
            return Err(refuse(format!(
                "params is {}; allowed: {}, as its config comes to",
                self.params, model.params
            )));
        }
        Ok(Model {
            aliases: self.aliases.clone(),
            source: self.source.clone(),
            ..model
        })
    }
}

impl Catalogue {
    pub fn builtin() -> &'static Catalogue {
        static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
            Catalogue::named(&BUILTIN)
                .unwrap_or_else(|error| panic!("the built-in models are tested to parse: {error}"))
        });
        &CATALOGUE
    }

    /// Of model files: pairs of a name for messages and TOML text.
    fn named(files: &[(&str, &str)]) -> Result<Catalogue, DataError> {
        let mut catalogue = Catalogue::default();
        for (file, text) in files {
            let parsed: File = toml::from_str(text).map_err(|e| DataError::toml(file, &e))?;
            for mut entry in parsed.model {
                let refuse = |message: &str| DataError::new(file, format!("model {}: {message}", entry.name));
                if entry.source.is_empty() {
                    return Err(refuse(
                        "source is missing; allowed: a text, or a key of [sources]",
                    ));
                }
                entry.file = (*file).to_owned();
                let place = catalogue.entries.len();
                for name in entry.names() {
                    let before = catalogue.places.insert(normal(name), place);
                    if before.is_some_and(|before| before != place) {
                        return Err(refuse(&format!("{name:?} names another model too")));
                    }
                }
                if let Some(source) = parsed.sources.get(&entry.source) {
                    entry.source.clone_from(source);
                }
                catalogue.entries.push(entry);
                catalogue.models.push(OnceLock::new());
            }
        }
        Ok(catalogue)
    }

    pub fn all(&self) -> Vec<&Model> {
        (0..self.entries.len()).map(|place| self.at(place)).collect()
    }

    fn at(&self, place: usize) -> &Model {
        self.models[place].get_or_init(|| {
            let read = self.entries[place].read();
            read.unwrap_or_else(|error| panic!("models are tested to be read: {error}"))
        })
    }

    /// By name or alias, as people and model hubs write it; no sizes.
    pub fn by_name(&self, name: &str) -> Option<&Model> {
        self.places.get(&normal(name)).map(|place| self.at(*place))
    }

    /// A model by name or alias, or a size such as `8B`, `70b` or `1.5B` in the shape of
    /// [`size_class::shape`].
    pub fn resolve(&self, text: &str) -> Result<Model, UnknownModel> {
        if let Some(model) = self.by_name(text) {
            return Ok(model.clone());
        }
        let unknown = |why: String, suggestions| UnknownModel {
            name: text.to_owned(),
            why,
            suggestions,
        };
        let out_of_range = || unknown(size_class::OutOfRange.to_string(), Vec::new());
        match size_class::parse_size(text) {
            Some(params) => size_class::shape(params).map_err(|_| out_of_range()),
            None if size_class::looks_like_size(text) => Err(out_of_range()),
            None => Err(unknown(
                "not in the catalogue, and no size such as 8B".into(),
                self.suggest(text),
            )),
        }
    }

    fn suggest(&self, text: &str) -> Vec<String> {
        let wanted = normal(text);
        let mut near: Vec<(usize, &str)> = Vec::new();
        for model in &self.entries {
            let distance = model.names().map(|name| unlikeness(&wanted, &normal(name))).min();
            if let Some(distance) = distance.filter(|distance| is_like(&wanted, *distance)) {
                near.push((distance, &model.name));
            }
        }
        near.sort();
        near.into_iter()
            .take(3)
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

/// `meta-llama/Meta-Llama-3.1-8B-Instruct` and `llama 3.1 8b` are one name: no organisation, no variant,
/// lower case, letters, digits and points only.
fn normal(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let words: Vec<&str> = name
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .filter(|w| !w.is_empty())
        .collect();
    let variant = |word: &&str| matches!(*word, "instruct" | "chat" | "it" | "base" | "hf" | "meta");
    words.into_iter().filter(|w| !variant(w)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::WeightFormat;
    use crate::model::Vision;

    #[test]
    fn models_that_see_say_so() {
        let vision = |name: &str| Catalogue::builtin().by_name(name).unwrap().vision;
        // The tower of Gemma 3, and a matrix with a norm to the width of each.
        let tower = 416_866_032;
        assert_eq!(
            vision("Gemma-3-27B"),
            Some(Vision::Counted(tower + 1152 * 5376 + 1152))
        );
        assert_eq!(
            vision("Gemma-3-12B"),
            Some(Vision::Counted(tower + 1152 * 3840 + 1152))
        );
        assert!(matches!(vision("Llama-4-Scout"), Some(Vision::Counted(_))));
        assert_eq!(vision("Gemma-3n-E4B"), Some(Vision::NotCounted));
        assert_eq!(vision("Gemma-3-1B"), None);
    }

    #[test]
    fn names_are_matched_as_people_write_them() {
        let catalogue = Catalogue::builtin();
        assert!(catalogue.all().len() >= 50, "{}", catalogue.all().len());
        for (text, name) in [
            ("llama-3.1-8b", "Llama-3.1-8B"),
            ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
            ("meta-llama/Meta-Llama-3-8B", "Llama-3.1-8B"),
            ("Llama 3.3 70B", "Llama-3.1-70B"),
            ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
            ("openai/gpt-oss-120b", "gpt-oss-120b"),
            ("qwen2.5-72b-instruct", "Qwen2.5-72B"),
        ] {
            assert_eq!(catalogue.resolve(text).unwrap().name, name, "{text}");
        }
    }

    #[test]
    fn models_published_in_fewer_bits_say_so() {
        let stored = |name: &str| {
            Catalogue::builtin()
                .resolve(name)
                .unwrap()
                .stored
                .map(|stored| stored.format)
        };
        for name in ["DeepSeek-V3", "DeepSeek-V3.2", "Kimi-K2"] {
            assert_eq!(stored(name), Some(WeightFormat::Fp8), "{name}");
        }
        assert_eq!(stored("gpt-oss-120b"), Some(WeightFormat::Mxfp4));
        assert_eq!(stored("Llama-3.1-8B"), None);
    }

    #[test]
    fn an_unknown_model_gets_suggestions() {
        let suggest = |text: &str| Catalogue::builtin().resolve(text).unwrap_err().suggestions;
        assert_eq!(suggest("Lama-3.1-8B")[0], "Llama-3.1-8B");
        assert_eq!(suggest("mixtral")[..2], ["Mixtral-8x22B", "Mixtral-8x7B"]);
        assert!(
            suggest("mixtral-8x7").contains(&"Mixtral-8x7B".to_owned()),
            "{:?}",
            suggest("mixtral-8x7")
        );
        assert_eq!(suggest("qwen3-23B-A22B")[0], "Qwen3-235B-A22B");
        let error = Catalogue::builtin()
            .resolve("Lama-3.1-8B")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Lama-3.1-8B") && error.contains("did you mean Llama-3.1-8B"),
            "{error}"
        );
        for size in ["0B", "1e30B", "-8B", "6T"] {
            let error = Catalogue::builtin().resolve(size).unwrap_err().to_string();
            assert!(error.contains("sizes go from 1B to 5T"), "{error}");
        }
        assert!(suggest("a quite different thing").is_empty());
        assert!(suggest("").is_empty() && suggest("!").is_empty());
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_key() {
        let good = include_str!("../../../hw-profiles/models/mistral.toml");
        let read = |text: &str| {
            let catalogue = Catalogue::named(&[("m.toml", text)])?;
            catalogue
                .entries
                .iter()
                .try_for_each(|entry| entry.read().map(drop))
        };
        let parse = |text: &str| read(text).unwrap_err().to_string();
        assert!(parse(&good.replacen("params", "param", 1)).contains("unknown field `param`"));
        let error = parse(&good.replacen("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 0", 1));
        assert!(
            error.starts_with("m.toml: model Mistral-7B: config.json: num_hidden_layers is 0; allowed: 1 to"),
            "{error}"
        );
        let other = parse(&good.replacen("params = 7241732096", "params = 7241732097", 1));
        assert!(
            other.contains("model Mistral-7B: params is 7241732097; allowed: 7241732096"),
            "{other}"
        );
        let twice = parse(&good.replacen("Mistral-Nemo", "mistral 7B", 1));
        assert!(twice.contains("names another model too"), "{twice}");
    }
}
