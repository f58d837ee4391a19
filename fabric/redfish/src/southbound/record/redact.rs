//! The second pass over a tree: what was met is replaced wherever it occurs, in links, in the names of
//! properties and in those of folders too. Secrets are not renamed but taken out.

use super::meet::Met;
use super::patterns::user_info;
use super::properties::{is_secret, kind_of};
use super::pseudonyms::Pseudonyms;
use serde_json::{Map, Value};

/// In place of a secret or a place where people are.
const GONE: &str = "redacted";

#[derive(Debug)]
pub(super) struct Redactor {
    pseudonyms: Pseudonyms,
    taken_out: usize,
}

impl Redactor {
    pub(super) fn new(met: Met) -> Self {
        Self {
            pseudonyms: met.pseudonyms(),
            taken_out: 0,
        }
    }

    /// The document as it may be shown.
    pub(super) fn redact(&mut self, document: &mut Value) {
        self.value(None, document);
    }

    /// A path or a message as it may be shown.
    pub(super) fn text(&self, text: &str) -> String {
        self.pseudonyms.replaced(text)
    }

    /// How many names were replaced, and how many values taken out.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.pseudonyms.len(), self.taken_out)
    }

    fn value(&mut self, property: Option<&str>, value: &mut Value) {
        match value {
            Value::Object(members) => self.members(members),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(property, item)),
            Value::String(text) => *text = self.string(property, text),
            Value::Number(number) => {
                if let Some(other) = self.named(property, &number.to_string()) {
                    *value = Value::String(other.to_owned());
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>) {
        for (name, value) in members.iter_mut() {
            if is_secret(name) && !value.is_null() {
                *value = Value::String(GONE.into());
                self.taken_out += 1;
            } else {
                self.value(Some(name), value);
            }
        }
        if members.keys().any(|name| self.text(name) != *name) {
            let renamed = std::mem::take(members).into_iter();
            *members = renamed.map(|(name, value)| (self.text(&name), value)).collect();
        }
    }

    fn string(&mut self, property: Option<&str>, text: &str) -> String {
        if text.contains("-----BEGIN ") {
            self.taken_out += 1;
            return GONE.to_owned();
        }
        if let Some(whose) = user_info(text) {
            self.taken_out += 1;
            let without = format!("{}{GONE}{}", &text[..whose.start], &text[whose.end..]);
            return self.text(&without);
        }
        match self.named(property, text.trim()) {
            Some(other) => other.to_owned(),
            None => self.text(text),
        }
    }

    /// The other name of a value whose property says that it is a name.
    fn named(&self, property: Option<&str>, text: &str) -> Option<&str> {
        property.and_then(kind_of)?;
        self.pseudonyms.known(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redacted(documents: Vec<Value>) -> (Vec<Value>, Redactor) {
        let mut met = Met::default();
        documents.iter().for_each(|document| met.document(document));
        let mut redactor = Redactor::new(met);
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
    fn a_name_goes_wherever_it_stands() {
        let (shown, _) = redacted(vec![json!({
            "@odata.id": "/redfish/v1/Chassis/web-01_fan", "Id": "web-01_fan", "HostName": "web-01",
            "FQDN": "db-7.corp.local", "Description": "PSU of web-01-bmc, next to db-7; ask ops@corp.local",
            "SerialNumber": "1652923003067", "Name": "SN1652923003067", "MACAddress": "b8:3f:d2:00:11:22",
            "Oem": {"web-01": {"Port": "eth-B83FD2001122", "Wire": "b83f.d200.1122"}},
            "IPv4Addresses": [{"Address": "10.7.8.9"}], "Alias": "ip-10-7-8-9", "At": "10.7.8.9:443",
            "Image": "https://boot:hunter2pw@files.corp.local/x.iso", "Token": "t0ps3cret",
            "Status": {"Conditions": [{"Message": "login with t0ps3cret failed"}]},
            "Pem": "-----BEGIN CERTIFICATE-----\nMIIB", "Manufacturer": "NVIDIA",
        })]);
        let text = shown[0].to_string().to_lowercase();
        for gone in [
            "web-01",
            "db-7",
            "corp.local",
            "ops@",
            "1652923003067",
            "b83fd2",
            "b83f.",
            "b8:3f",
            "10.7.8.9",
            "10-7-8-9",
            "hunter2pw",
            "t0ps3cret",
            "miib",
        ] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert_eq!(shown[0]["@odata.id"], "/redfish/v1/Chassis/host-1_fan");
        assert_eq!(shown[0]["Id"], "host-1_fan");
        assert_eq!(shown[0]["Manufacturer"], "NVIDIA");
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
        assert_eq!(at, redactor.text("/redfish/v1/Systems/437XR1138R2"));
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
