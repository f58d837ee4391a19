//! The first pass over a tree: everything that identifies is met, before anything is replaced, because services
//! build addresses and texts from serial numbers and host names.

use super::patterns::{find_uuid, host_of_url, is_ip, is_mac, macs_in_device_paths, mail_addresses, words};
use super::properties::{is_secret, is_version, is_vocabulary, kind_of};
use super::pseudonyms::{Kind, Names, Pseudonyms};
use serde_json::Value;
use std::collections::HashSet;

/// What was met so far.
#[derive(Debug, Default)]
pub(super) struct Met {
    names: Names,
    /// Words of the trade in lower case: a host that is called `nvidia` must not change who makes the GPUs.
    vocabulary: HashSet<String>,
}

impl Met {
    pub(super) fn document(&mut self, document: &Value) {
        self.value(None, document);
    }

    /// A text from elsewhere, such as an error.
    pub(super) fn text(&mut self, text: &str) {
        self.patterns("", text);
    }

    /// The machine that is recorded, by the host of its address.
    pub(super) fn host(&mut self, host: &str) {
        let bare = host.trim_matches(['[', ']']);
        match bare.parse::<std::net::IpAddr>() {
            Ok(_) if is_ip(bare) => self.names.give(Kind::Ip, bare),
            Ok(_) => {}
            Err(_) => self.host_name(bare),
        }
    }

    pub(super) fn pseudonyms(self) -> Pseudonyms {
        self.names.pseudonyms(&self.vocabulary)
    }

    fn value(&mut self, property: Option<&str>, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.learn_words(name);
                    self.patterns("", name);
                    match is_secret(name) {
                        true => self.secret(value),
                        false => self.value(Some(name), value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.value(property, item)),
            Value::String(text) => self.string(property.unwrap_or_default(), text),
            Value::Number(number) => {
                if let Some(kind) = property.and_then(kind_of) {
                    self.names.give(kind, &number.to_string());
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn string(&mut self, property: &str, text: &str) {
        self.patterns(property, text);
        if is_vocabulary(property) {
            self.learn(text);
        }
        let text = text.trim();
        // Whole names that patterns take care of have their kind by their form.
        let by_pattern = find_uuid(text).is_some() || is_mac(text) || is_ip(text);
        match kind_of(property) {
            Some(_) if by_pattern || !says_something(text) => {}
            Some(Kind::HostName) => self.host_name(text),
            Some(kind) => self.names.give(kind, text),
            None => {}
        }
    }

    /// A host's name; of a name with a domain also its parts, which texts use alone.
    fn host_name(&mut self, name: &str) {
        self.names.give(Kind::HostName, name);
        let Some((first, domain)) = name.trim_end_matches('.').split_once('.') else {
            return;
        };
        if first.len() >= 4 && first.contains(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_')) {
            self.names.give(Kind::HostName, first);
        }
        if domain.contains('.') {
            self.names.give(Kind::HostName, domain);
        }
    }

    /// What a secret holds, in case that it stands elsewhere as well.
    fn secret(&mut self, value: &Value) {
        match value {
            Value::Object(members) => members
                .iter()
                .filter(|(name, _)| !name.contains('@'))
                .for_each(|(_, value)| self.secret(value)),
            Value::Array(items) => items.iter().for_each(|item| self.secret(item)),
            Value::String(text) => {
                self.patterns("", text);
                if says_something(text) && !text.contains("/redfish/") {
                    self.names.give(Kind::Secret, text.trim());
                }
            }
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    fn patterns(&mut self, property: &str, text: &str) {
        if let Some(at) = find_uuid(text) {
            self.names.give(Kind::Uuid, &text[at..at + 36]);
            self.patterns(property, &text[..at]);
            self.patterns(property, &text[at + 36..]);
            return;
        }
        if let Some(host) = host_of_url(text) {
            self.host_name(host);
        }
        for mac in macs_in_device_paths(text) {
            self.names.give(Kind::Mac, mac);
        }
        for address in mail_addresses(text) {
            self.names.give(Kind::Person, address);
        }
        for word in words(text) {
            let word = word.trim_end_matches([':', '.']);
            // With a port.
            let host = word.rsplit_once(':').map_or(word, |(host, _)| host);
            if is_mac(word) {
                self.names.give(Kind::Mac, word);
            } else if is_version(property) {
            } else if let Some(ip) = [word, host].into_iter().find(|part| is_ip(part)) {
                self.names.give(Kind::Ip, ip);
            }
        }
    }

    fn learn(&mut self, text: &str) {
        self.learn_words(text);
        self.vocabulary.insert(text.trim().to_ascii_lowercase());
    }

    fn learn_words(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_alphabetic());
        self.vocabulary.extend(words.map(str::to_ascii_lowercase));
    }
}

fn says_something(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "n/a" | "na" | "none" | "unknown" | "null"
        )
}
