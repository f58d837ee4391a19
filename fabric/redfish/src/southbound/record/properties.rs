//! What the names of properties say of their values.

use super::pseudonyms::Kind;

/// Parts of property names, in lower case, whose values are secrets, or tell of people and places.
const SECRET: [&str; 25] = [
    "password",
    "apikey",
    "keystring",
    "accesskey",
    "sshkey",
    "passphrase",
    "secret",
    "token",
    "privatekey",
    "community",
    "credential",
    "authenticationkey",
    "encryptionkey",
    "licensestring",
    "certificatestring",
    "signaturestring",
    "httpheaders",
    "contacts",
    "postaladdress",
    "physicaladdress",
    "latitude",
    "longitude",
    "email",
    "phone",
    "assettag",
];

/// Whole property names, in lower case, with the kind of name that their values are.
const NAMES: [(&str, Kind); 25] = [
    ("serialnumber", Kind::Serial),
    ("chassisserialnumber", Kind::Serial),
    ("boardserialnumber", Kind::Serial),
    ("systemserialnumber", Kind::Serial),
    ("servicetag", Kind::Serial),
    ("expressservicecode", Kind::Serial),
    ("guid", Kind::Serial),
    ("nodeguid", Kind::Serial),
    ("durablename", Kind::Serial),
    ("macaddress", Kind::Mac),
    ("permanentmacaddress", Kind::Mac),
    ("hostname", Kind::HostName),
    ("fqdn", Kind::HostName),
    ("domainname", Kind::HostName),
    ("dnsname", Kind::HostName),
    ("domainnames", Kind::HostName),
    ("ntpservers", Kind::HostName),
    ("nameservers", Kind::HostName),
    ("staticnameservers", Kind::HostName),
    ("username", Kind::Person),
    ("user", Kind::Person),
    ("accountname", Kind::Person),
    ("createdby", Kind::Person),
    ("client", Kind::Person),
    ("serviceidentification", Kind::HostName),
];

/// Parts of property names, in lower case, whose values are words of the trade: what kind of thing it is, who
/// makes it, how it fares. A host that is called like that is named in its own properties only.
const VOCABULARY: [&str; 9] = [
    "manufacturer",
    "vendor",
    "product",
    "model",
    "partnumber",
    "type",
    "state",
    "status",
    "health",
];

/// Annotations such as `Password@Redfish.AllowableValues` say nothing secret, but nothing needed either.
pub(super) fn is_secret(property: &str) -> bool {
    contains_any(property, &SECRET)
}

pub(super) fn is_vocabulary(property: &str) -> bool {
    contains_any(property, &VOCABULARY)
}

/// Four numbers with dots are a version here, not an address.
pub(super) fn is_version(property: &str) -> bool {
    contains_any(property, &["version", "revision", "odata.type", "odata.context"])
}

/// What the values of a property identify, if they do.
pub(super) fn kind_of(property: &str) -> Option<Kind> {
    let name = property.to_ascii_lowercase();
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind)
}

fn contains_any(property: &str, parts: &[&str]) -> bool {
    let name = property.to_ascii_lowercase();
    parts.iter().any(|part| name.contains(part))
}
