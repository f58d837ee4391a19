//! `$filter` (DSP0266, "$filter"): comparisons of properties, joined by `and`, `or` and `not`. Pure.
//!
//! ```text
//! any  := all ("or" all)*
//! all  := one ("and" one)*
//! one  := "not" one | "(" any ")" | property compared literal
//! ```

use super::message::Refusal;
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

    /// The properties that it looks at, each with its path.
    pub fn properties(&self) -> Vec<String> {
        match self {
            Self::Any(parts) | Self::All(parts) => parts.iter().flat_map(Self::properties).collect(),
            Self::Not(part) => part.properties(),
            Self::Is { property, .. } => vec![property.join("/")],
        }
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
            } => compared.holds(found(resource, property), literal),
        }
    }
}

fn found<'a>(resource: &'a Value, property: &[String]) -> &'a Value {
    property
        .iter()
        .fold(resource, |value, name| &value[name.as_str()])
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
            property: property.split('/').map(str::to_owned).collect(),
            compared: Compared::of(compared)?,
            literal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            &deep,
            &long,
        ] {
            assert!(Filter::read(filter).is_err(), "{filter}");
        }
    }
}
