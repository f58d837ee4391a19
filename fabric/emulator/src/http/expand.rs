//! `$expand`: links replaced by what they lead to, some levels deep.

use crate::resources::document::etag;
use crate::resources::root::MAX_EXPAND_LEVELS;
use crate::resources::{self, Content, Problem, View};
use http::StatusCode;
use serde_json::Value;

/// An answer does not grow beyond so many resources.
const MOST: usize = 4_000;

/// Which links are followed, and how deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    links: bool,
    others: bool,
    levels: u8,
}

/// What a query asks for. Parameters that begin with `$` and are not offered are refused, others are ignored.
pub(super) fn wanted(query: &str, offered: bool) -> Result<Option<Wanted>, Problem> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = name.replace("%24", "$");
        match name.as_str() {
            "$expand" if offered => found = Some(parse(&decoded(value))?),
            name if name.starts_with('$') => {
                let status = StatusCode::NOT_IMPLEMENTED;
                return Err(Problem::new(status, "QueryParameterUnsupported", &[name]));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The few characters that clients encode in a value of `$expand`.
fn decoded(value: &str) -> String {
    [
        ("%24", "$"),
        ("%28", "("),
        ("%29", ")"),
        ("%3D", "="),
        ("%3d", "="),
        ("%2A", "*"),
        ("%2a", "*"),
        ("%7E", "~"),
        ("%7e", "~"),
    ]
    .iter()
    .fold(value.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn parse(value: &str) -> Result<Wanted, Problem> {
    let bad = || Problem::bad("QueryParameterValueFormatError", &[value, "$expand"]);
    let (kind, levels) = match value.split_once('(') {
        None => (value, 1),
        Some((kind, rest)) => {
            let number = rest
                .strip_prefix("$levels=")
                .and_then(|rest| rest.strip_suffix(')'));
            (
                kind,
                number.and_then(|number| number.parse().ok()).ok_or_else(bad)?,
            )
        }
    };
    let (links, others) = match kind {
        "*" => (true, true),
        "." => (false, true),
        "~" => (true, false),
        _ => return Err(bad()),
    };
    if !(1..=MAX_EXPAND_LEVELS).contains(&levels) {
        let range = format!("1 to {MAX_EXPAND_LEVELS}");
        return Err(Problem::bad(
            "QueryParameterOutOfRange",
            &[value, "$expand", &range],
        ));
    }
    Ok(Wanted {
        links,
        others,
        levels,
    })
}

/// Puts in the place of links what they lead to.
pub(super) fn expand(view: &View<'_>, mut body: Value, wanted: Wanted) -> Value {
    let mut left = MOST;
    inside(view, &mut body, wanted, wanted.levels, false, &mut left);
    body
}

fn inside(view: &View<'_>, value: &mut Value, wanted: Wanted, levels: u8, in_links: bool, left: &mut usize) {
    match value {
        Value::Array(elements) => {
            for element in elements {
                inside(view, element, wanted, levels, in_links, left);
            }
        }
        Value::Object(members) if members.len() == 1 => {
            if let Some(Value::String(uri)) = members.get("@odata.id") {
                let follow = if in_links { wanted.links } else { wanted.others };
                if let Some(mut body) = follow.then(|| resource(view, uri, left)).flatten() {
                    if levels > 1 {
                        inside(view, &mut body, wanted, levels - 1, false, left);
                    }
                    *value = body;
                }
                return;
            }
            each_member(view, members, wanted, levels, in_links, left);
        }
        Value::Object(members) => each_member(view, members, wanted, levels, in_links, left),
        _ => {}
    }
}

fn each_member(
    view: &View<'_>,
    members: &mut serde_json::Map<String, Value>,
    wanted: Wanted,
    levels: u8,
    in_links: bool,
    left: &mut usize,
) {
    for (name, value) in members {
        inside(view, value, wanted, levels, in_links || name == "Links", left);
    }
}

/// What a link leads to, with its entity tag.
fn resource(view: &View<'_>, uri: &str, left: &mut usize) -> Option<Value> {
    *left = left.checked_sub(1)?;
    match resources::find_uri(view, uri)?.content {
        Content::Json(mut body) => {
            body["@odata.etag"] = Value::from(etag(body.to_string().as_bytes()));
            Some(body)
        }
        Content::Xml(_) | Content::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_and_how_deep() {
        let of = |links, others, levels| {
            Ok(Some(Wanted {
                links,
                others,
                levels,
            }))
        };
        assert_eq!(wanted("$expand=*", true), of(true, true, 1));
        assert_eq!(wanted("$expand=.($levels=2)", true), of(false, true, 2));
        assert_eq!(wanted("%24expand=~%28%24levels%3D4%29", true), of(true, false, 4));
        assert_eq!(wanted("rest=1&only", true), Ok(None));
        for (query, status) in
            [("$expand=*", 501), ("$filter=x", 501), ("$select=Name", 501)].map(|(q, s)| (q, s))
        {
            assert_eq!(
                wanted(query, false).unwrap_err().status.as_u16(),
                status,
                "{query}"
            );
        }
        for query in [
            "$expand=",
            "$expand=x",
            "$expand=*($levels=0)",
            "$expand=*($levels=9)",
            "$expand=*($levels=a)",
        ] {
            assert_eq!(wanted(query, true).unwrap_err().status.as_u16(), 400, "{query}");
        }
    }
}
