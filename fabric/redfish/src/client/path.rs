//! Links, resolved: only places at the same endpoint come out.
//!
//! A service's answers are untrusted. A link that leads to another origin would carry our credentials there, and
//! one that climbs with `..` names something else than it shows. Both are refused before anything is sent.

use std::fmt;

use url::Url;

use super::error::LinkFault;

/// Longer links than this are not addresses.
const MAX_LINK_BYTES: usize = 4096;

/// A place at one endpoint: an absolute path with an optional query, without fragment.
///
/// Nearly every link is a path that a URL parser would leave as it is. Such a one is kept as text, because a walk
/// looks at more links than it follows, and parsing each took a tenth of its CPU.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A path of [plain](is_plain_path) characters, below this base.
    Plain { base: Url, path: String },
    /// Whatever else the parser took.
    Parsed(Url),
}

impl Place {
    /// Resolves a link found in a document or header (`@odata.id`, `Location`, `Members@odata.nextLink`, an
    /// action's `target`): an absolute path, or an absolute URL of the same origin. A fragment (a JSON pointer
    /// into the document) is dropped.
    pub(crate) fn resolve(base: &Url, link: &str) -> Result<Self, LinkFault> {
        if link.is_empty() || link.len() > MAX_LINK_BYTES {
            return Err(LinkFault::Malformed);
        }
        if is_plain_path(link) {
            return Ok(Self::Plain {
                base: base.clone(),
                path: link.to_owned(),
            });
        }
        // The URL parser drops tabs and newlines and takes a backslash for a slash: what it would read is not
        // what a human sees.
        if link.bytes().any(|b| b <= b' ' || b == 0x7f || b == b'\\') {
            return Err(LinkFault::Malformed);
        }
        let absolute_url = link.split('/').next().is_some_and(|head| head.ends_with(':'));
        if !link.starts_with('/') && !absolute_url {
            return Err(LinkFault::Relative);
        }
        let path_end = link.find(['?', '#']).unwrap_or(link.len());
        if climbs(&link[..path_end]) {
            return Err(LinkFault::Climbs);
        }
        let mut url = base.join(link).map_err(|_| LinkFault::Malformed)?;
        if url.origin() != base.origin() || !url.username().is_empty() || url.password().is_some() {
            return Err(LinkFault::OtherOrigin);
        }
        url.set_fragment(None);
        Ok(Self::Parsed(url))
    }

    /// The same place with a query such as `$expand=.`, added to one that is there.
    pub(crate) fn with_query(&self, query: &str) -> Self {
        let mut url = self.url();
        match url.query().filter(|present| !present.is_empty()) {
            Some(present) => url.set_query(Some(&format!("{present}&{query}"))),
            None => url.set_query(Some(query)),
        }
        Self::Parsed(url)
    }

    /// A member of the collection at `collection`. Its link may be the last part of its path alone: some services leave
    /// the rest to the client.
    pub(crate) fn resolve_member(base: &Url, collection: &Self, link: &str) -> Result<Self, LinkFault> {
        match Self::resolve(base, link) {
            Err(LinkFault::Relative) if !link.contains(['/', '?', '#', ':']) => {
                let (path, _) = collection.parts();
                Self::resolve(base, &format!("{}/{link}", path.trim_end_matches('/')))
            }
            resolved => resolved,
        }
    }

    /// Path, and query without its question mark.
    fn parts(&self) -> (&str, Option<&str>) {
        match self.as_str().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.as_str(), None),
        }
    }

    /// Whether both differ only by a trailing slash of the path.
    pub(crate) fn differs_by_a_slash(&self, other: &Self) -> bool {
        let ((one, query), (two, other_query)) = (self.parts(), other.parts());
        query == other_query && (one.strip_suffix('/') == Some(two) || two.strip_suffix('/') == Some(one))
    }

    /// A key to compare places: some services list one member with and without a trailing slash, or in upper and lower
    /// case.
    pub(crate) fn folded(&self) -> String {
        self.as_str().trim_end_matches('/').to_ascii_lowercase()
    }

    pub(crate) fn url(&self) -> Url {
        match self {
            Self::Plain { base, path } => {
                let mut url = base.clone();
                url.set_path(path);
                url
            }
            Self::Parsed(url) => url.clone(),
        }
    }

    /// Path and query.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Plain { path, .. } => path,
            Self::Parsed(url) => &url[url::Position::BeforePath..],
        }
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Place {}

/// A path from the root of the endpoint that means what it shows: no query, no fragment, nothing encoded, no
/// segment that begins with a dot, no host (`//host`).
fn is_plain_path(link: &str) -> bool {
    let mut before = b' ';
    link.starts_with('/')
        && link.bytes().all(|byte| {
            let segment_begins = std::mem::replace(&mut before, byte) == b'/';
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => true,
                b':' | b'(' | b')' | b'+' | b',' | b'~' | b'@' => true,
                b'.' | b'/' => !segment_begins,
                _ => false,
            }
        })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a segment is `.` or `..`, written plainly or percent-encoded, or hides a slash that would make one.
fn climbs(path: &str) -> bool {
    if !path.contains("..") && !path.contains("/.") && !path.contains('%') {
        return false;
    }
    let plain = path
        .replace("%2e", ".")
        .replace("%2E", ".")
        .replace("%2f", "/")
        .replace("%2F", "/")
        .replace("%5c", "/")
        .replace("%5C", "/");
    plain.split('/').any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(link: &str) -> Result<String, LinkFault> {
        let base = Url::parse("https://bmc.example:8443/").unwrap();
        Place::resolve(&base, link).map(|place| place.as_str().to_owned())
    }

    #[test]
    fn accepts_paths_and_urls_of_the_same_origin() {
        for (link, place) in [
            ("/redfish/v1/Systems", "/redfish/v1/Systems"),
            ("/redfish/v1/", "/redfish/v1/"),
            (
                "/redfish/v1/Chassis/DGX/Sensors?$skip=75",
                "/redfish/v1/Chassis/DGX/Sensors?$skip=75",
            ),
            (
                "/redfish/v1/Chassis/1/Power#/PowerControl/0",
                "/redfish/v1/Chassis/1/Power",
            ),
            (
                "https://bmc.example:8443/redfish/v1/Tasks/7",
                "/redfish/v1/Tasks/7",
            ),
            (
                "HTTPS://BMC.example:8443/redfish/v1/Tasks/7",
                "/redfish/v1/Tasks/7",
            ),
            (
                "/redfish/v1/Chassis/GPU..1/a...b",
                "/redfish/v1/Chassis/GPU..1/a...b",
            ),
            ("/redfish/v1/Systems/a%20b", "/redfish/v1/Systems/a%20b"),
            ("/redfish/v1/X?filter=a/../b", "/redfish/v1/X?filter=a/../b"),
        ] {
            assert_eq!(resolve(link).as_deref(), Ok(place), "{link}");
        }
    }

    #[test]
    fn refuses_other_origins() {
        for link in [
            "https://evil.example/redfish/v1",
            "http://bmc.example:8443/redfish/v1",
            "https://bmc.example/redfish/v1",
            "https://bmc.example:8444/redfish/v1",
            "//evil.example/redfish/v1",
            "https://bmc.example:8443@evil.example/",
            "https://admin@bmc.example:8443/redfish/v1",
            "file:///etc/passwd",
            "javascript:/alert",
        ] {
            assert_eq!(resolve(link), Err(LinkFault::OtherOrigin), "{link}");
        }
    }

    #[test]
    fn refuses_climbing() {
        for link in [
            "/redfish/v1/../../etc",
            "/redfish/v1/..",
            "/redfish/./v1",
            "/redfish/v1/%2e%2e/x",
            "/redfish/v1/.%2E/x",
            "/redfish/v1/..%2fx",
            "/redfish/v1/a%2f..%2Fx",
            "/redfish/v1/..%5cx",
            "https://bmc.example:8443/a/../b",
        ] {
            assert_eq!(resolve(link), Err(LinkFault::Climbs), "{link}");
        }
    }

    #[test]
    fn refuses_what_is_no_link() {
        for link in ["", "/redfish/v1/\n/Systems", "/redfish\\v1", "/a b", "/\u{7f}"] {
            assert_eq!(resolve(link), Err(LinkFault::Malformed), "{link:?}");
        }
        assert_eq!(
            resolve(&format!("/{}", "a".repeat(5000))),
            Err(LinkFault::Malformed)
        );
        for link in ["redfish/v1/Systems", "Systems", "?x", "#/Members/0"] {
            assert_eq!(resolve(link), Err(LinkFault::Relative), "{link}");
        }
    }

    #[test]
    fn a_member_may_be_named_by_the_last_part_of_its_path() {
        let base = Url::parse("https://bmc.example:8443/").unwrap();
        let member = |collection: &str, link: &str| {
            let collection = Place::resolve(&base, collection).unwrap();
            Place::resolve_member(&base, &collection, link).map(|place| place.as_str().to_owned())
        };
        for collection in [
            "/redfish/v1/Chassis",
            "/redfish/v1/Chassis/",
            "/redfish/v1/Chassis?$skip=5",
        ] {
            let found = member(collection, "GPU1");
            assert_eq!(found.as_deref(), Ok("/redfish/v1/Chassis/GPU1"), "{collection}");
            let found = member(collection, "/redfish/v1/Chassis/2");
            assert_eq!(found.as_deref(), Ok("/redfish/v1/Chassis/2"), "{collection}");
        }
        assert_eq!(member("/redfish/v1/Chassis", ".."), Err(LinkFault::Climbs));
        for link in ["Chassis/1", "?x", "#/Members/0"] {
            assert_eq!(
                member("/redfish/v1/Chassis", link),
                Err(LinkFault::Relative),
                "{link}"
            );
        }
    }

    #[test]
    fn two_places_differ_by_a_slash_and_by_nothing_else() {
        let base = Url::parse("https://bmc.example:8443/").unwrap();
        let place = |link: &str| Place::resolve(&base, link).unwrap();
        for (one, two, expected) in [
            ("/redfish/v1/A", "/redfish/v1/A/", true),
            ("/redfish/v1/A?b=c", "/redfish/v1/A/?b=c", true),
            ("/redfish/v1/A", "/redfish/v1/A", false),
            ("/redfish/v1/A?b=c", "/redfish/v1/A/", false),
            ("/redfish/v1/A", "/redfish/v1/a/", false),
        ] {
            assert_eq!(
                place(one).differs_by_a_slash(&place(two)),
                expected,
                "{one} {two}"
            );
            assert_eq!(
                place(two).differs_by_a_slash(&place(one)),
                expected,
                "{two} {one}"
            );
        }
    }

    #[test]
    fn a_plain_path_is_what_the_parser_makes_of_it() {
        let base = Url::parse("https://bmc.example:8443/").unwrap();
        for link in [
            "/redfish/v1/Systems",
            "/redfish/v1/",
            "/redfish/v1/Chassis/GPU..1/a...b:(2)+3,4~5@6",
        ] {
            let place = Place::resolve(&base, link).unwrap();
            assert!(matches!(place, Place::Plain { .. }), "{link}");
            assert_eq!(place.url(), base.join(link).unwrap());
            assert_eq!(place, Place::Parsed(base.join(link).unwrap()));
        }
        for link in [
            "//evil.example/x",
            "/a//b",
            "/a/.b",
            "/a/%2e%2e",
            "/a?b",
            "/a#b",
            "/ä",
            "/a\\b",
            "/a;b",
        ] {
            assert!(!is_plain_path(link), "{link}");
        }
    }

    #[test]
    fn queries_add_up() {
        let base = Url::parse("https://bmc.example:8443/").unwrap();
        let plain = Place::resolve(&base, "/redfish/v1/Systems").unwrap();
        assert_eq!(
            plain.with_query("$expand=.($levels=1)").as_str(),
            "/redfish/v1/Systems?$expand=.($levels=1)"
        );
        let paged = Place::resolve(&base, "/redfish/v1/Systems?$skip=5").unwrap();
        assert_eq!(
            paged.with_query("$expand=.").as_str(),
            "/redfish/v1/Systems?$skip=5&$expand=."
        );
    }
}
