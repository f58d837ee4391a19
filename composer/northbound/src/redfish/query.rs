//! Query parameters (DSP0266, "Query parameters"). Unknown ones with a `$` are refused, others left alone.

use super::filter::Filter;
use super::message::Refusal;
use super::root::MOST_LEVELS;
use axum::http::StatusCode;
use std::collections::BTreeSet;

/// What a client wants to see of a resource.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Query {
    /// The one member instead of a collection of one.
    pub only: bool,
    pub expand: Option<Expand>,
    /// Properties by their paths; empty: all.
    pub select: Vec<Vec<String>>,
    pub filter: Option<Filter>,
    pub skip: usize,
    pub top: Option<usize>,
    /// What goes on to the next page as it was asked: names and values of all but `$skip` and `$top`.
    carried: Vec<(String, String)>,
}

/// Which links are replaced by what they lead to, and how deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expand {
    /// Those outside `Links`.
    pub subordinate: bool,
    /// Those in `Links`.
    pub links: bool,
    pub levels: u32,
}

/// Properties that `$select` may name.
const MOST_SELECTED: usize = 64;

impl Query {
    /// Reads what stands behind the `?`.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        let mut query = Self::default();
        let mut known = BTreeSet::new();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "only" => query.only = only(&value)?,
                "excerpt" => return Err(unsupported("excerpt")),
                "$expand" => query.expand = Some(expand(&value)?),
                "$select" => query.select = select(&value)?,
                "$filter" => query.filter = Some(Filter::read(&value)?),
                "$skip" => query.skip = number("$skip", &value)?,
                "$top" => query.top = Some(number("$top", &value)?),
                other if other.starts_with('$') => return Err(unsupported(other)),
                // Whatever it is for, it is not for us.
                _ => continue,
            }
            if !known.insert(name.clone()) {
                return Err(Refusal::bad_query(&name, &value, "Write it once."));
            }
            if matches!(&*name, "$expand" | "$select" | "$filter") {
                query.carried.push((name.into_owned(), value.into_owned()));
            }
        }
        let rest = Self {
            only: false,
            ..Self::default()
        };
        let others = query.expand.is_some() || query.has_paging() || query.filter.is_some();
        if query.only && (others || query.select != rest.select) {
            let text = "\"only\" can't be combined with other query parameters.";
            let next = "Ask with \"only\" alone.";
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(status, "QueryCombinationInvalid", &[], text, next));
        }
        Ok(query)
    }

    pub fn has_paging(&self) -> bool {
        self.skip > 0 || self.top.is_some()
    }

    /// Whether each member of a collection stands in place of its link, as it is by itself, and nothing else is asked for but
    /// which of them.
    pub fn expands_members_alone(&self) -> bool {
        let once = |expand: Expand| expand.subordinate && expand.levels == 1;
        self.expand.is_some_and(once) && self.filter.is_none() && self.select.is_empty() && !self.only
    }

    /// Where the page is that follows this many members of a collection.
    pub fn next_page(&self, path: &str, shown: usize) -> String {
        let mut link = format!("{path}?$skip={}", self.skip.saturating_add(shown));
        if let Some(top) = self.top {
            link += &format!("&$top={}", top.saturating_sub(shown));
        }
        for (name, value) in &self.carried {
            link += &format!("&{name}=");
            link.extend(url::form_urlencoded::byte_serialize(value.as_bytes()));
        }
        link
    }

    /// Whether it is the whole resource that is asked for.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

fn unsupported(parameter: &str) -> Refusal {
    let text = format!("The query parameter {parameter} is not supported.");
    let next = "Supported are only, $expand, $select, $filter, $top and $skip.";
    let status = StatusCode::NOT_IMPLEMENTED;
    Refusal::new(status, "QueryParameterUnsupported", &[parameter], text, next)
}

fn only(value: &str) -> Result<bool, Refusal> {
    match value {
        "" => Ok(true),
        other => Err(Refusal::bad_query("only", other, "Write only, without a value.")),
    }
}

fn number(parameter: &str, value: &str) -> Result<usize, Refusal> {
    let wanted = "Write a whole number from 0.";
    let number: u32 = value
        .parse()
        .map_err(|_| Refusal::bad_query(parameter, value, wanted))?;
    usize::try_from(number).map_err(|_| Refusal::bad_query(parameter, value, wanted))
}

fn expand(value: &str) -> Result<Expand, Refusal> {
    let wanted = "Write ., ~ or *, and $levels from 1 to 2 in brackets behind it: .($levels=1).";
    let bad = || Refusal::bad_query("$expand", value, wanted);
    let mut rest = value.chars();
    let (subordinate, links) = match rest.next() {
        Some('.') => (true, false),
        Some('~') => (false, true),
        Some('*') => (true, true),
        _ => return Err(bad()),
    };
    let rest = rest.as_str();
    let levels = match rest {
        "" => 1,
        _ => {
            let inner = rest
                .strip_prefix("($levels=")
                .and_then(|rest| rest.strip_suffix(')'));
            let levels: u32 = inner.ok_or_else(bad)?.parse().map_err(|_| bad())?;
            if levels == 0 {
                return Err(bad());
            }
            // More than there are is not wrong (DSP0266): it goes as deep as it can.
            levels.min(MOST_LEVELS)
        }
    };
    Ok(Expand {
        subordinate,
        links,
        levels,
    })
}

fn select(value: &str) -> Result<Vec<Vec<String>>, Refusal> {
    let bad = || {
        Refusal::bad_query(
            "$select",
            value,
            "Write names of properties, with commas: Name,Status/Health.",
        )
    };
    let name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '_' | '#');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '@');
        match begins && name.chars().all(plain) {
            true => Ok(name.to_owned()),
            false => Err(bad()),
        }
    };
    let path = |path: &str| path.trim().split('/').map(name).collect::<Result<Vec<_>, _>>();
    let paths: Vec<Vec<String>> = value.split(',').map(path).collect::<Result<_, _>>()?;
    if paths.len() > MOST_SELECTED {
        return Err(bad());
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::encoded::{choices, encoded};
    use proptest::prelude::*;

    const ASKED: [&str; 5] = [
        "$expand=.($levels=2)&$select=Name,Status/Health&$top=5&$skip=2",
        "$filter=Name eq 'it''s' and not (Size ge -2.5)&$top=1",
        "only",
        "$orderby=Name",
        "$top=1&$skip=2&$top=1",
    ];

    proptest! {
        /// However a query is encoded, the same is asked for, or refused.
        #[test]
        fn every_encoding_of_a_query_is_one_query(which in 0..ASKED.len(), choices in choices()) {
            let written = encoded(ASKED[which], "&=", &choices);
            match (Query::read(ASKED[which]), Query::read(&written)) {
                (Ok(plain), Ok(read)) => prop_assert_eq!(read, plain, "{}", written),
                (plain, read) => prop_assert_eq!(read.err().map(|no| no.status), plain.err().map(|no| no.status), "{}", written),
            }
        }
    }

    fn status(text: &str) -> u16 {
        Query::read(text).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn what_is_asked_for_is_understood_however_it_is_encoded() {
        let plain = Query::read("$expand=.($levels=2)&$select=Name,Status/Health&$top=5&$skip=2").unwrap();
        let encoded =
            Query::read("%24expand=%2E(%24levels%3D2)&%24select=Name%2CStatus%2FHealth&%24top=5&%24skip=2");
        assert_eq!(plain, encoded.unwrap());
        assert_eq!(plain.select, [vec!["Name"], vec!["Status", "Health"]]);
        assert_eq!((plain.top, plain.skip), (Some(5), 2));
        let levels = plain.expand.unwrap();
        assert_eq!(
            (levels.subordinate, levels.links, levels.levels),
            (true, false, 2)
        );
    }

    #[test]
    fn the_next_page_is_of_what_was_asked_for() {
        let asked =
            "$expand=.($levels=1)&color=red&$top=12&$filter=Name eq 'a b'&$skip=2&$select=Name,Status/State";
        let first = Query::read(asked).unwrap();
        let next = first.next_page("/redfish/v1/Systems", 5);
        let (place, text) = next.split_once('?').unwrap();
        assert_eq!(place, "/redfish/v1/Systems");
        let second = Query::read(text).unwrap();
        assert_eq!((second.skip, second.top), (7, Some(7)));
        let at_the_first = Query {
            skip: first.skip,
            top: first.top,
            ..second
        };
        assert_eq!(at_the_first, first);
        assert_eq!(Query::default().next_page("/x", 5000), "/x?$skip=5000");
    }

    #[test]
    fn what_is_wrong_is_refused_and_what_is_unknown_left_alone() {
        for (text, expected) in [
            ("", 200),
            ("only", 200),
            ("color=red", 200),
            ("$expand=*", 200),
            ("$orderby=Name", 501),
            ("excerpt", 501),
            ("$expand=everything", 400),
            ("$expand=.($levels=0)", 400),
            ("$expand=.($levels=-1)", 400),
            ("$top=-1", 400),
            ("$top=99999999999999999999", 400),
            ("$skip=x", 400),
            ("$select=", 400),
            ("$select=../etc", 400),
            ("only=yes", 400),
            ("only&$top=1", 400),
            ("$top=1&$top=2", 400),
            ("only&%6fnly", 400),
            ("color=red&color=blue", 200),
            ("$filter=", 400),
        ] {
            assert_eq!(status(text), expected, "{text}");
        }
    }
}
