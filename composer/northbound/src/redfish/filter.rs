//! `$filter` (DSP0266, "$filter"): comparisons of properties, joined by `and`, `or` and `not`. Pure.
//!
//! ```text
//! any  := all ("or" all)*
//! all  := one ("and" one)*
//! one  := "not" one | "(" any ")" | property compared literal
//! ```
//!
//! A property is a path of names, `Status/State`. Where it leads through a list, the comparison holds where it does for any
//! entry; a number names one of them, `BootOrder/0`.

use super::message::Refusal;
use axum::http::StatusCode;
use poolwright_redfish_model::schema::{Kind, Type};
use serde_json::Value;
use std::cmp::Ordering;

/// Which members are shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filter {
    Any(Vec<Filter>),
    All(Vec<Filter>),
    Not(Box<Filter>),
    Is {
        property: Vec<String>,
        compared: Compared,
        literal: Value,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// Longer expressions, and deeper ones, are refused.
const LONGEST: usize = 2048;
const DEEPEST: usize = 16;

impl Filter {
    pub fn read(text: &str) -> Result<Self, Refusal> {
        let wanted = "Write comparisons such as Name eq 'host-1', joined by and, or and not.";
        let bad = || Refusal::bad_query("$filter", text, wanted);
        let tokens = match text.len() <= LONGEST {
            true => tokens(text).ok_or_else(bad)?,
            false => return Err(bad()),
        };
        let mut reader = Reader { rest: &tokens };
        let filter = reader.any(0).ok_or_else(bad)?;
        match reader.rest {
            [] => Ok(filter),
            _ => Err(bad()),
        }
    }

    /// All comparisons: property path, operator and literal.
    pub fn comparisons(&self) -> Vec<(&[String], Compared, &Value)> {
        match self {
            Self::Any(parts) | Self::All(parts) => parts.iter().flat_map(Self::comparisons).collect(),
            Self::Not(part) => part.comparisons(),
            Self::Is {
                property,
                compared,
                literal,
            } => vec![(property.as_slice(), *compared, literal)],
        }
    }

    /// Refuses what resources of a schema can't have: nothing would ever be found by it.
    pub fn fits(&self, schema: &Type) -> Result<(), Refusal> {
        let kind = schema.name.split_once('.').map_or(schema.name, |(_, kind)| kind);
        self.knows(kind, |path| leads(schema, path))
    }

    /// The same without a schema: at least one of the resources, if there are any, must have each property.
    pub fn fits_some(&self, resources: &[Value]) -> Result<(), Refusal> {
        let somewhere = |path: &[String]| {
            let has = |resource: &Value| any_at(resource, path, &|_| true);
            resources.is_empty() || resources.iter().any(has)
        };
        self.knows("This collection", somewhere)
    }

    fn knows(&self, what: &str, has: impl Fn(&[String]) -> bool) -> Result<(), Refusal> {
        let mut compared = self.comparisons().into_iter().map(|(path, ..)| path);
        let Some(path) = compared.find(|path| !has(path)) else {
            return Ok(());
        };
        let path = path.join("/");
        let text = format!("{what} has no property {path} to choose by.");
        let (args, next) = (
            [path.as_str(), "$filter", "(the properties of the members)"],
            "Use the property's name in the schema; separate nested names by a slash: Status/State.",
        );
        let status = StatusCode::BAD_REQUEST;
        Err(Refusal::new(
            status,
            "QueryParameterOutOfRange",
            &args,
            text,
            next,
        ))
    }

    /// Whether a resource is one of those that are shown. What has no such property is none.
    pub fn takes(&self, resource: &Value) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.takes(resource)),
            Self::All(parts) => parts.iter().all(|part| part.takes(resource)),
            Self::Not(part) => !part.takes(resource),
            Self::Is {
                property,
                compared,
                literal,
            } => {
                let holds = |found: &Value| compared.holds(found, literal);
                match any_at(resource, property, &|_| true) {
                    true => any_at(resource, property, &holds),
                    false => holds(&Value::Null),
                }
            }
        }
    }
}

/// Whether what a path leads to is so, or in a list any of it.
fn any_at(value: &Value, path: &[String], is: &dyn Fn(&Value) -> bool) -> bool {
    match (value, path) {
        (Value::Array(values), [at, rest @ ..]) if at.parse::<usize>().is_ok() => {
            let one = at.parse().ok().and_then(|at: usize| values.get(at));
            one.is_some_and(|one| any_at(one, rest, is))
        }
        (Value::Array(values), _) => values.iter().any(|value| any_at(value, path, is)),
        (value, []) => is(value),
        (value, [name, rest @ ..]) => value
            .get(name.as_str())
            .is_some_and(|value| any_at(value, rest, is)),
    }
}

/// Whether a path leads to something in resources of a schema. What a vendor adds is open.
fn leads(schema: &Type, path: &[String]) -> bool {
    let [name, rest @ ..] = path else { return true };
    if let Some((of, note)) = name.split_once('@') {
        let known = ["odata.", "Redfish.", "Message."];
        let is_known = known.iter().any(|prefix| note.starts_with(prefix));
        return is_known && (of.is_empty() || schema.property(of).is_some());
    }
    let Some(property) = schema.property(name) else {
        return schema.open;
    };
    let rest = match rest {
        [at, rest @ ..] if property.many && at.parse::<usize>().is_ok() => rest,
        rest => rest,
    };
    match &property.kind {
        Kind::Object(within) => leads(within, rest),
        Kind::Link(_) => matches!(rest, [] | [_] if rest.iter().all(|name| name == "@odata.id")),
        _ => rest.is_empty(),
    }
}

impl Compared {
    fn holds(self, found: &Value, literal: &Value) -> bool {
        let ordering = match (found, literal) {
            (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            _ => None,
        };
        match (self, ordering) {
            (Self::NotEqual, ordering) => ordering != Some(Ordering::Equal),
            (_, None) => false,
            (Self::Equal, Some(ordering)) => ordering.is_eq(),
            (Self::Greater, Some(ordering)) => ordering.is_gt(),
            (Self::GreaterOrEqual, Some(ordering)) => ordering.is_ge(),
            (Self::Less, Some(ordering)) => ordering.is_lt(),
            (Self::LessOrEqual, Some(ordering)) => ordering.is_le(),
        }
    }

    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Open,
    Close,
    Word(String),
    Text(String),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '(' => {
                tokens.push(Token::Open);
                1
            }
            ')' => {
                tokens.push(Token::Close);
                1
            }
            '\'' => {
                let (text, taken) = quoted(rest)?;
                tokens.push(Token::Text(text));
                taken
            }
            _ => {
                let end = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '\'');
                let word = &rest[..rest.find(end).unwrap_or(rest.len())];
                tokens.push(Token::Word(word.to_owned()));
                word.len()
            }
        };
        rest = rest.get(taken..)?.trim_start();
    }
    Some(tokens)
}

/// A text in single quotes, in which two stand for one; and how many bytes it takes.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut read = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        match (c, characters.peek()) {
            ('\'', Some((_, '\''))) => {
                read.push('\'');
                characters.next();
            }
            ('\'', _) => return Some((read, at + 1)),
            _ => read.push(c),
        }
    }
    None
}

struct Reader<'t> {
    rest: &'t [Token],
}

impl Reader<'_> {
    fn word(&mut self, wanted: &str) -> bool {
        match self.rest {
            [Token::Word(word), rest @ ..] if word == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn any(&mut self, depth: usize) -> Option<Filter> {
        let mut parts = vec![self.all(depth)?];
        while self.word("or") {
            parts.push(self.all(depth)?);
        }
        Some(match parts.len() {
            1 => parts.remove(0),
            _ => Filter::Any(parts),
        })
    }

    fn all(&mut self, depth: usize) -> Option<Filter> {
        let mut parts = vec![self.one(depth)?];
        while self.word("and") {
            parts.push(self.one(depth)?);
        }
        Some(match parts.len() {
            1 => parts.remove(0),
            _ => Filter::All(parts),
        })
    }

    fn one(&mut self, depth: usize) -> Option<Filter> {
        if depth > DEEPEST {
            return None;
        }
        if self.word("not") {
            return Some(Filter::Not(Box::new(self.one(depth + 1)?)));
        }
        if let [Token::Open, rest @ ..] = self.rest {
            self.rest = rest;
            let inner = self.any(depth + 1)?;
            let [Token::Close, rest @ ..] = self.rest else {
                return None;
            };
            self.rest = rest;
            return Some(inner);
        }
        let [Token::Word(property), Token::Word(compared), literal, rest @ ..] = self.rest else {
            return None;
        };
        let property = path(property)?;
        let literal = match literal {
            Token::Text(text) => Value::String(text.clone()),
            Token::Word(word) => match serde_json::from_str(word).ok()? {
                literal @ (Value::Null | Value::Bool(_) | Value::Number(_)) => literal,
                _ => return None,
            },
            _ => return None,
        };
        self.rest = rest;
        Some(Filter::Is {
            property,
            compared: Compared::of(compared)?,
            literal,
        })
    }
}

/// The names of a path. A number can't come first: it counts the entries of a list.
fn path(text: &str) -> Option<Vec<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '_' | '#');
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '@' | '#'));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(plain);
    let names: Vec<&str> = text.split('/').collect();
    (begins && names.iter().all(|name| is_name(name))).then(|| names.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_redfish_model::ResourceBlock;
    use serde_json::json;

    #[test]
    fn members_are_chosen_by_what_they_are() {
        let gpu = json!({
            "Name": "O'Neil", "Status": {"State": "Enabled", "Health": "OK"},
            "MemorySummary": {"TotalMemorySizeMiB": 81559}, "Enabled": true, "AssetTag": null,
        });
        for (filter, expected) in [
            ("Name eq 'O''Neil'", true),
            (
                "Status/State eq 'Enabled' and MemorySummary/TotalMemorySizeMiB gt 40000",
                true,
            ),
            ("Status/State eq 'Disabled' or not (Status/Health ne 'OK')", true),
            ("MemorySummary/TotalMemorySizeMiB le 40000.5", false),
            ("Nothing eq 'x'", false),
            ("Nothing ne 'x'", true),
            ("AssetTag eq null", true),
            ("Enabled eq true", true),
            ("not Enabled eq true or Name lt 'P' and Name ge 'O'", true),
            ("Status gt 1", false),
        ] {
            assert_eq!(Filter::read(filter).unwrap().takes(&gpu), expected, "{filter}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let deep = format!("{}Name eq 'x'{}", "(".repeat(100), ")".repeat(100));
        let long = format!("Name eq '{}'", "x".repeat(5000));
        for filter in [
            "",
            "Name",
            "Name eq",
            "Name is 'x'",
            "Name eq 'x",
            "(Name eq 'x'",
            "Name eq 'x')",
            "Name eq {}",
            "and Name eq 'x'",
            "Name eq 'x' or",
            "1 eq 1",
            "/Name eq 'x'",
            "Status//State eq 'x'",
            "Status/ eq 'x'",
            &deep,
            &long,
        ] {
            assert!(Filter::read(filter).is_err(), "{filter}");
        }
    }

    #[test]
    fn what_is_in_a_list_is_found_by_any_of_it_or_by_its_number() {
        let block = json!({
            "ResourceBlockType": ["Processor", "Memory"], "Empty": [],
            "Links": {"Zones": [{"@odata.id": "/z/1"}, {"@odata.id": "/z/2"}]},
        });
        for (filter, expected) in [
            ("ResourceBlockType eq 'Processor'", true),
            ("ResourceBlockType eq 'Memory'", true),
            ("ResourceBlockType eq 'Network'", false),
            ("ResourceBlockType ne 'Memory'", true),
            ("not (ResourceBlockType eq 'Memory')", false),
            ("ResourceBlockType/0 eq 'Processor'", true),
            ("ResourceBlockType/0 eq 'Memory'", false),
            ("ResourceBlockType/2 eq 'Memory'", false),
            ("Links/Zones/@odata.id eq '/z/2'", true),
            ("Links/Zones/0/@odata.id eq '/z/2'", false),
            ("Empty eq 'x'", false),
            ("Empty eq null", true),
        ] {
            assert_eq!(Filter::read(filter).unwrap().takes(&block), expected, "{filter}");
        }
    }

    #[test]
    fn a_property_that_no_resource_can_have_is_refused() {
        let refused = |filter: &str| {
            let refused = Filter::read(filter).unwrap().fits(ResourceBlock::SCHEMA);
            refused.err().map(|refusal| refusal.status.as_u16())
        };
        for filter in [
            "ResourceBlockType eq 'Processor'",
            "ResourceBlockType/0 eq 'Processor'",
            "CompositionStatus/CompositionState eq 'Unused' and Pool eq 'Free'",
            "Links/Zones/0/@odata.id eq '/z'",
            "Processors/@odata.id ne null",
            "Processors@odata.count gt 1",
            "@odata.id eq '/b'",
            "Oem/Poolwright/Whatever eq 1",
        ] {
            assert_eq!(refused(filter), None, "{filter}");
        }
        for filter in [
            "Nope eq 'x'",
            "Name eq 'x' or not (Status/Nope eq 'x')",
            "Name/0 eq 'x'",
            "ResourceBlockType/0/1 eq 'x'",
            "resourceblocktype eq 'x'",
            "Processors/Name eq 'x'",
            "@nope eq 'x'",
            "Nope@odata.count eq 1",
        ] {
            assert_eq!(refused(filter), Some(400), "{filter}");
        }
        // Without a schema, the resources decide.
        let certificates = [
            json!({"Name": "a"}),
            json!({"Name": "b", "Subject": {"City": "x"}}),
        ];
        let fits = |filter: &str, all: &[Value]| Filter::read(filter).unwrap().fits_some(all).is_ok();
        assert!(fits("Subject/City eq 'y'", &certificates));
        assert!(!fits("Subject/Town eq 'y'", &certificates));
        assert!(fits("Subject/Town eq 'y'", &[]));
    }
}
