//! What a recording must not hold, found by the names of properties and by patterns.
//!
//! In two passes, because services build addresses from serial numbers and host names: first everything that
//! identifies is [met](Redactor::meet), then it is [replaced](Redactor::redact) wherever it occurs, in links
//! and in the names of folders too. Secrets are not renamed but taken out.

use super::pseudonyms::{Kind, Pseudonyms, find_uuid, is_ip, is_mac};
use serde_json::Value;

/// In place of a secret or a place where people are.
const GONE: &str = "redacted";

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

/// Shorter names, and plain words without a digit or a dot, are replaced only where their property says what
/// they are: a serial number "1" must not change every "1".
const SHORTEST_EVERYWHERE: usize = 6;

#[derive(Debug, Default)]
pub(super) struct Redactor {
    pseudonyms: Pseudonyms,
    taken_out: usize,
}

impl Redactor {
    /// First pass: gives other names to all that identifies.
    pub(super) fn meet(&mut self, document: &Value) {
        self.meet_value(None, document);
    }

    fn meet_value(&mut self, property: Option<&str>, value: &Value) {
        match value {
            Value::Object(members) => {
                members
                    .iter()
                    .filter(|(name, _)| !is_secret(name))
                    .for_each(|(name, value)| self.meet_value(Some(name), value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.meet_value(property, item)),
            Value::String(text) => self.meet_text(property.unwrap_or_default(), text),
            Value::Number(number) => {
                if let Some(kind) = property.and_then(kind_of) {
                    self.pseudonyms.give(kind, &number.to_string());
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn meet_text(&mut self, property: &str, text: &str) {
        self.meet_patterns(property, text);
        if let Some(kind) = kind_of(property)
            && says_something(text)
            && self.by_pattern(text).is_none()
        {
            self.pseudonyms.give(kind, text.trim());
        }
    }

    fn meet_patterns(&mut self, property: &str, text: &str) {
        if let Some(at) = find_uuid(text) {
            self.pseudonyms.give(Kind::Uuid, &text[at..at + 36]);
            self.meet_patterns(property, &text[at + 36..]);
            return;
        }
        if let Some(host) = host_of_url(text) {
            self.pseudonyms.give(Kind::HostName, host);
        }
        for word in words(text) {
            if is_mac(word) {
                self.pseudonyms.give(Kind::Mac, word);
            } else if is_ip(word) && !is_version(property) {
                self.pseudonyms.give(Kind::Ip, word);
            }
        }
    }

    /// Whether patterns alone take care of a whole text.
    fn by_pattern(&self, text: &str) -> Option<()> {
        let text = text.trim();
        (find_uuid(text).is_some() || is_mac(text) || is_ip(text)).then_some(())
    }

    /// Second pass: the document as it may be shown.
    pub(super) fn redact(&mut self, document: &mut Value) {
        self.redact_value(None, document);
    }

    /// A path as it may be shown.
    pub(super) fn path(&self, path: &str) -> String {
        self.replaced(path)
    }

    fn redact_value(&mut self, property: Option<&str>, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter_mut() {
                    if is_secret(name) && !value.is_null() {
                        *value = Value::String(GONE.into());
                        self.taken_out += 1;
                    } else {
                        self.redact_value(Some(name), value);
                    }
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.redact_value(property, item)),
            Value::String(text) => {
                *text = match self.named(property, text.trim()) {
                    Some(other) => other.to_owned(),
                    None => self.replaced(text),
                };
            }
            Value::Number(number) => {
                if let Some(other) = self.named(property, &number.to_string()) {
                    *value = Value::String(other.to_owned());
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    /// The other name of a value whose property says that it is a name.
    fn named(&self, property: Option<&str>, text: &str) -> Option<&str> {
        property.and_then(kind_of)?;
        self.pseudonyms.known(text)
    }

    /// All known names in a text, replaced.
    fn replaced(&self, text: &str) -> String {
        if let Some(at) = find_uuid(text) {
            let (before, rest) = text.split_at(at);
            let (uuid, after) = rest.split_at(36);
            let other = self.pseudonyms.known(uuid).unwrap_or(GONE);
            return format!("{}{other}{}", self.replaced(before), self.replaced(after));
        }
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(is_between).unwrap_or(rest.len());
            result.push_str(&self.word(&rest[..end]));
            let next = rest[end..]
                .chars()
                .next()
                .map_or(rest.len(), |c| end + c.len_utf8());
            result.push_str(&rest[end..next]);
            rest = &rest[next..];
        }
        result
    }

    /// A word, or the parts of it that are known: `host.local` of `host.local:9900`, a serial number of
    /// `Sled-4711081`.
    fn word(&self, word: &str) -> String {
        const SEPARATORS: [&[char]; 2] = [&[':'], &['-', '_', '.']];
        self.parts(word, &SEPARATORS)
    }

    fn parts(&self, word: &str, separators: &[&[char]]) -> String {
        let telling = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let everywhere = word.len() >= SHORTEST_EVERYWHERE && word.bytes().any(telling);
        if let Some(other) = self.pseudonyms.known(word).filter(|_| everywhere) {
            return other.to_owned();
        }
        let Some((first, rest)) = separators.split_first() else {
            return word.to_owned();
        };
        let mut result = String::with_capacity(word.len());
        for part in word.split_inclusive(*first) {
            let name = part.trim_end_matches(*first);
            result.push_str(&self.parts(name, rest));
            result.push_str(&part[name.len()..]);
        }
        result
    }

    /// How many names were replaced, and how many values taken out.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.pseudonyms.len(), self.taken_out)
    }
}

fn is_secret(property: &str) -> bool {
    // Annotations such as `Password@Redfish.AllowableValues` say nothing secret, but nothing needed either.
    let name = property.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

fn kind_of(property: &str) -> Option<Kind> {
    let name = property.to_ascii_lowercase();
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind)
}

/// Four numbers with dots are a version here, not an address.
fn is_version(property: &str) -> bool {
    let name = property.to_ascii_lowercase();
    ["version", "revision", "odata.type", "odata.context"]
        .iter()
        .any(|part| name.contains(part))
}

fn says_something(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "n/a" | "na" | "none" | "unknown" | "null"
        )
}

/// The host in a URL, if it has a name of its own. The schemas' publisher is nobody's machine.
fn host_of_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(is_between).next()?;
    let host = authority
        .split(':')
        .next()
        .filter(|host| !is_ip(host) && host.contains('.'))?;
    (!host.ends_with("dmtf.org")).then_some(host)
}

/// What stands between words, as far as a name may not hold it.
fn is_between(c: char) -> bool {
    !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_between).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redacted(documents: Vec<Value>) -> (Vec<Value>, Redactor) {
        let mut redactor = Redactor::default();
        documents.iter().for_each(|document| redactor.meet(document));
        let mut shown = documents;
        shown.iter_mut().for_each(|document| redactor.redact(document));
        (shown, redactor)
    }

    #[test]
    fn what_identifies_is_gone_and_what_it_is_is_kept() {
        let (shown, _) = redacted(vec![json!({
            "@odata.id": "/redfish/v1/Systems/437XR1138R2", "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem",
            "Model": "DGXH100", "SerialNumber": "437XR1138R2", "UUID": "9dad5bfd-a732-23fe-40ad-465d0cbe5f95",
            "HostName": "render7.corp.local", "AssetTag": "Memphis-45Z", "PowerState": "On",
            "FirmwareVersion": "1.2.3.4", "Description": "render7.corp.local at 10.7.8.9, MAC b8:3f:d2:00:11:22",
            "Boot": {"Password": "hunter2", "UserName": "alice"},
            "Location": {"PostalAddress": {"Street": "1001 SW 5th Avenue"}},
            "Proxy": "https://proxy.intranet.local:9900/x", "@Redfish.Copyright": "see http://www.dmtf.org/about",
        })]);
        let text = shown[0].to_string();
        for gone in [
            "437XR1138R2",
            "9dad5bfd",
            "render7",
            "Memphis",
            "10.7.8.9",
            "b8:3f",
            "hunter2",
            "alice",
            "Avenue",
            "proxy.intranet",
        ] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        for kept in [
            "DGXH100",
            "1.2.3.4",
            "www.dmtf.org",
            "\"On\"",
            "#ComputerSystem.v1_17_0.ComputerSystem",
        ] {
            assert!(text.contains(kept), "{kept} not in {text}");
        }
    }

    #[test]
    fn links_and_joins_survive() {
        let system = json!({"@odata.id": "/redfish/v1/Systems/437XR1138R2", "SerialNumber": "437XR1138R2",
            "Processors": {"@odata.id": "/redfish/v1/Systems/437XR1138R2/Processors"}});
        let gpu = json!({"@odata.id": "/redfish/v1/Systems/437XR1138R2/Processors/GPU-9DAD5BFD-a732-23fe-40ad-465d0cbe5f95",
            "UUID": "9dad5bfd-a732-23fe-40ad-465d0cbe5f95", "SerialNumber": "1652923003067"});
        let device = json!({"UUID": "9DAD5BFD-A732-23FE-40AD-465D0CBE5F95", "SerialNumber": "1652923003067"});
        let (shown, redactor) = redacted(vec![system, gpu, device]);
        let at = shown[0]["@odata.id"].as_str().unwrap();
        assert_eq!(at, redactor.path("/redfish/v1/Systems/437XR1138R2"));
        assert_eq!(shown[0]["Processors"]["@odata.id"], format!("{at}/Processors"));
        assert!(
            shown[1]["@odata.id"]
                .as_str()
                .unwrap()
                .starts_with(&format!("{at}/Processors/GPU-"))
        );
        assert_eq!(shown[1]["UUID"], shown[2]["UUID"]);
        assert_eq!(shown[1]["SerialNumber"], shown[2]["SerialNumber"]);
        assert_ne!(shown[1]["SerialNumber"], shown[0]["SerialNumber"]);
    }

    #[test]
    fn a_short_name_changes_nothing_but_its_own_property() {
        let (shown, _) = redacted(vec![
            json!({"@odata.id": "/redfish/v1/Systems/1", "SerialNumber": "1", "Id": "1"}),
        ]);
        assert_eq!(shown[0]["@odata.id"], "/redfish/v1/Systems/1");
        assert_eq!(shown[0]["Id"], "1");
        assert_ne!(shown[0]["SerialNumber"], "1");
    }

    #[test]
    fn names_are_found_in_whatever_form_they_come() {
        let (shown, _) = redacted(vec![
            json!({"SerialNumber": 4711, "MACAddress": "B83FD2001122", "PartNumber": 4711}),
        ]);
        assert_ne!(shown[0]["SerialNumber"], 4711);
        assert_ne!(shown[0]["MACAddress"], "B83FD2001122");
        assert_eq!(shown[0]["PartNumber"], 4711);
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        let before = json!({"SerialNumber": null, "UUID": "00000000-0000-0000-0000-000000000000", "HostName": "",
            "Password": null, "IPv4Addresses": [{"Address": "0.0.0.0", "SubnetMask": "255.255.255.0"}]});
        let (shown, _) = redacted(vec![before.clone()]);
        assert_eq!(shown[0], before);
    }
}
