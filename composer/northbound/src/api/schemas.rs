//! The schemas of what is taken and of what is answered, under one roof. Of one type they may differ: what may be left out
//! of a body is in each answer.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Where all of them are in the document.
const ALL: &str = "/components/schemas";
/// Where those of answers seem to be, until they get their names.
const OF_ANSWERS: &str = "/components/schemas-of-answers";

pub(super) struct Schemas {
    taken: SchemaGenerator,
    answered: SchemaGenerator,
}

fn generator(path: &str, contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = path.to_owned().into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

impl Schemas {
    pub fn new() -> Self {
        Self {
            taken: generator(ALL, Contract::Deserialize),
            answered: generator(OF_ANSWERS, Contract::Serialize),
        }
    }

    /// Of what is taken.
    pub fn taken<T: JsonSchema>(&mut self) -> Value {
        self.taken.subschema_for::<T>().into()
    }

    /// Of what is taken, in full.
    pub fn taken_whole<T: JsonSchema>(&mut self) -> Value {
        T::json_schema(&mut self.taken).into()
    }

    /// Of what is answered.
    pub fn answered<T: JsonSchema>(&mut self) -> Value {
        self.answered.subschema_for::<T>().into()
    }

    /// Puts all of them into the document. What an answer has, and a body has otherwise, is called `NAME-Output`.
    pub fn put_into(mut self, document: &mut Value) {
        let mut all = self.taken.take_definitions(true);
        let mut names = Map::new();
        for (name, schema) in self.answered.take_definitions(true) {
            let is_other = all.get(&name).is_some_and(|taken| *taken != schema);
            let given = if is_other {
                format!("{name}-Output")
            } else {
                name.clone()
            };
            all.insert(given.clone(), schema);
            names.insert(format!("#{OF_ANSWERS}/{name}"), format!("#{ALL}/{given}").into());
        }
        document["components"]["schemas"] = all.into();
        rename(document, &names);
    }
}

/// Gives what is referred to its name.
fn rename(value: &mut Value, names: &Map<String, Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str().and_then(|at| names.get(at)) {
                    Some(given) if name == "$ref" => *member = given.clone(),
                    _ => rename(member, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        _ => (),
    }
}
