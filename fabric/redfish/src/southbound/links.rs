//! Links as addresses that can be compared.

use poolwright_redfish_model::Ref;

/// The address in a link, without what makes two ways of writing one address differ: scheme and host, a
/// fragment, a slash at the end.
pub(crate) fn address(link: &str) -> &str {
    let path = match link.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
        None => link,
    };
    let path = path.split('#').next().unwrap_or_default();
    path.trim_end_matches('/')
}

/// Where a link leads; `None` for an empty one.
pub(crate) fn to(link: Option<&Ref>) -> Option<&str> {
    link.and_then(Ref::uri)
        .map(address)
        .filter(|path| !path.is_empty())
}

/// Where several links lead.
pub(crate) fn all(links: Option<&Vec<Ref>>) -> Vec<String> {
    links
        .into_iter()
        .flatten()
        .filter_map(|link| to(Some(link)))
        .map(str::to_owned)
        .collect()
}

/// The last part of an address, for things that give themselves no id.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether an address lies below another.
pub(crate) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_written_in_several_ways_is_one() {
        for link in [
            "/redfish/v1/Systems/1",
            "/redfish/v1/Systems/1/",
            "/redfish/v1/Systems/1#/Links",
            "https://bmc:8443/redfish/v1/Systems/1",
        ] {
            assert_eq!(address(link), "/redfish/v1/Systems/1", "{link}");
        }
        assert_eq!(address("https://bmc"), "");
        assert_eq!(to(Some(&Ref::to("/"))), None);
    }

    #[test]
    fn below_means_a_whole_part_further() {
        assert!(is_below(
            "/redfish/v1/Systems/1/Processors/2",
            "/redfish/v1/Systems/1"
        ));
        assert!(!is_below("/redfish/v1/Systems/10", "/redfish/v1/Systems/1"));
        assert!(!is_below("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"));
    }
}
