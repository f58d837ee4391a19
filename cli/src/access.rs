//! How to reach a Redfish service, as it is written on the command line and in an endpoints file.
//!
//! Passwords are never arguments, which everybody on the machine can read: they are in files.

use crate::failure::Failure;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{EndpointSpec, Pins, Trust};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of commands that speak to Redfish services themselves.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AccessArgs {
    /// Account at the service; without it nothing but what is open to everybody is read
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub username: Option<String>,
    /// File with its password, and nothing else
    #[arg(long, value_name = "FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
    /// Certificate authority to believe, a PEM file; without it those of this machine. One of --ca, --pin and
    /// --insecure-tls
    #[arg(long, value_name = "FILE", group = "whom")]
    pub ca: Option<PathBuf>,
    /// Believe exactly the certificate with this SHA-256 fingerprint
    #[arg(long, value_name = "SHA256", group = "whom")]
    pub pin: Option<String>,
    /// Believe any certificate: whoever sits in between reads and changes everything
    #[arg(long, group = "whom")]
    pub insecure_tls: bool,
    /// Allow plain http to another machine: the password travels in the clear
    #[arg(long)]
    pub insecure_http: bool,
}

impl AccessArgs {
    /// Whose certificate is believed, if the arguments say so.
    fn trust(&self) -> Option<Trust> {
        match (&self.ca, &self.pin, self.insecure_tls) {
            (Some(file), ..) => Some(Trust::CaFile(file.display().to_string())),
            (_, Some(pin), _) => Some(Trust::Pinned(Pins::One(pin.clone()))),
            (.., true) => Some(Trust::InsecureAnyone),
            _ => None,
        }
    }

    /// The service at `url`, reached in this way. Its id is host and port, unless it is given a name.
    pub fn endpoint(&self, name: Option<&str>, url: &str) -> EndpointSpec {
        EndpointSpec {
            id: name.map_or_else(|| name_of(url), ControlEndpointId::from_lossy),
            url: url.to_owned(),
            username: self.username.clone(),
            password: None,
            sealed: None,
            password_file: self
                .password_file
                .as_deref()
                .map(|file| file.display().to_string()),
            trust: self.trust().unwrap_or_default(),
            insecure_http: self.insecure_http,
        }
    }
}

/// Host and port of an address.
fn name_of(url: &str) -> ControlEndpointId {
    let parsed = url::Url::parse(url).ok();
    let host = parsed
        .as_ref()
        .and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    match host {
        Some((host, port)) => ControlEndpointId::from_lossy(&format!("{host}:{port}")),
        None => ControlEndpointId::from_lossy(url),
    }
}

/// A list of services with one account: what `poolwright emulate` writes as `endpoints.json`. Files are named
/// from where the list lies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password_file: Option<PathBuf>,
    #[serde(default)]
    ca: Option<PathBuf>,
    endpoints: Vec<Listed>,
    /// Where an emulated rack takes faults: for tests.
    #[serde(default, rename = "fault_control")]
    _fault_control: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: String,
    /// For people.
    #[serde(default, rename = "kind")]
    _kind: Option<String>,
    url: String,
}

/// Reads a list of services; what the arguments say goes before what the list says.
pub fn read_listing(file: &Path, access: &AccessArgs) -> Result<Vec<EndpointSpec>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let listing: Listing = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{} is not a list of endpoints: {error}", file.display())).with_hint(
            "write {\"username\": …, \"password_file\": …, \"ca\": …, \"endpoints\": [{\"name\": …, \"url\": …}]}, \
             as poolwright emulate --data-dir does",
        )
    })?;
    let beside = |named: PathBuf| file.parent().map_or(named.clone(), |folder| folder.join(&named));
    let mut access = access.clone();
    if access.username.is_none() {
        access.username = listing.username;
        access.password_file = listing.password_file.map(beside);
    }
    if access.trust().is_none() {
        access.ca = listing.ca.map(beside);
    }
    Ok(listing
        .endpoints
        .iter()
        .map(|entry| access.endpoint(Some(&entry.name), &entry.url))
        .collect())
}

/// A password from its file: the first line, and no other.
pub fn read_password(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(Failure::usage(format!("{} holds no password", file.display()))
            .with_hint("write the password on the first line of the file, and nothing else"));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_called_by_host_and_port() {
        for (url, name) in [
            ("https://10.0.0.7", "10.0.0.7:443"),
            ("http://127.0.0.1:8000/", "127.0.0.1:8000"),
            ("one two", "one-two"),
        ] {
            assert_eq!(AccessArgs::default().endpoint(None, url).id.as_str(), name);
        }
    }

    #[test]
    fn a_list_names_its_files_from_where_it_lies_and_arguments_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("endpoints.json");
        let text = r#"{"username": "admin", "password_file": "password", "ca": "ca.pem",
            "endpoints": [{"name": "box-1", "kind": "fabric-manager", "url": "https://127.0.0.1:8443"}]}"#;
        fs::write(&file, text).unwrap();
        let spec = &read_listing(&file, &AccessArgs::default()).unwrap()[0];
        assert_eq!(
            (spec.id.as_str(), spec.username.as_deref()),
            ("box-1", Some("admin"))
        );
        assert_eq!(
            spec.trust,
            Trust::CaFile(folder.path().join("ca.pem").display().to_string())
        );
        let mine = AccessArgs {
            insecure_tls: true,
            ..AccessArgs::default()
        };
        assert_eq!(
            read_listing(&file, &mine).unwrap()[0].trust,
            Trust::InsecureAnyone
        );

        let written = poolwright_emulator::EndpointsFile {
            username: "admin".into(),
            password_file: "password".into(),
            ca: "ca.pem".into(),
            endpoints: Vec::new(),
            fault_control: Some("http://127.0.0.1:9".into()),
        };
        fs::write(&file, serde_json::to_string(&written).unwrap()).unwrap();
        assert_eq!(read_listing(&file, &AccessArgs::default()), Ok(Vec::new()));

        fs::write(&file, r#"{"endpoint": []}"#).unwrap();
        let failure = read_listing(&file, &mine).unwrap_err();
        assert!(failure.message.contains("unknown field `endpoint`"), "{failure}");
    }

    #[test]
    fn a_password_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3cret with spaces \n").unwrap();
        assert_eq!(read_password(&file).unwrap(), "s3cret with spaces ");
        fs::write(&file, "\n").unwrap();
        assert!(
            read_password(&file)
                .unwrap_err()
                .to_string()
                .contains("holds no password")
        );
        assert!(
            read_password(&folder.path().join("absent"))
                .unwrap_err()
                .message
                .contains("absent")
        );
    }
}
