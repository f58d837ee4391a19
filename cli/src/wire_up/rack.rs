//! Emulated racks and recorded machines, as Redfish services of this process.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_emulator::{EndpointsFile, ServeError, ServeOptions, Served};
use poolwright_model::id::ControlEndpointId;
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_service::endpoint::{EndpointSpec, Trust};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A service of a rack.
pub use poolwright_emulator::EndpointInfo;
/// A rack, read and found to be right.
pub use poolwright_emulator::Rack;
/// A rack that is being served.
pub use poolwright_emulator::Running as ServedRack;

/// Files in the directory of a rack.
const PASSWORD: &str = "password";
const CA: &str = "ca.pem";

/// A rack file, or the name of a rack that comes with Poolwright.
pub fn read_rack(named: &str) -> Result<Rack, Failure> {
    read_rack_at(Path::new(named), named)
}

fn read_rack_at(path: &Path, named: &str) -> Result<Rack, Failure> {
    // A folder that happens to have the name of a rack is none.
    if !path.exists() || path.is_dir() {
        if let Ok(rack) = Rack::builtin(named) {
            return Ok(rack);
        }
        let known: Vec<&str> = Rack::builtin_names().collect();
        let question = did_you_mean(&nearest(named, known.iter().copied()));
        let question = question.map_or_else(String::new, |question| format!("{question} "));
        let what = match path.is_dir() {
            true => format!("{named} is a folder, and no rack file; nor is there a rack of that name"),
            false => format!("there is no rack file {named}, and no rack of that name"),
        };
        return Err(Failure::new(ExitCode::NotFound, what).with_hint(format!(
            "{question}give a file, or one of these: {}",
            known.join(", ")
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, "read", &error))?;
    Rack::from_toml(named, &text).map_err(|error| {
        Failure::usage(error.to_string()).with_hint("see hw-profiles/racks for racks to start from")
    })
}

/// Where and how an emulated rack is served.
pub struct RackServing {
    pub listen: SocketAddr,
    pub data_dir: Option<PathBuf>,
    pub fault_control: bool,
}

/// Serves a rack as Redfish services.
pub async fn serve_rack(rack: Rack, serving: RackServing) -> Result<ServedRack, Failure> {
    let options = ServeOptions {
        listen: serving.listen,
        data_dir: serving.data_dir,
        fault_control: serving.fault_control,
        ..ServeOptions::default()
    };
    poolwright_emulator::serve(rack, options).await.map_err(unserved)
}

/// Serves a recorded machine, read-only.
pub async fn serve_recording(tree: &Path, listen: SocketAddr, data_dir: &Path) -> Result<Served, Failure> {
    let options = ServeOptions {
        listen,
        data_dir: Some(data_dir.to_owned()),
        ..ServeOptions::default()
    };
    poolwright_emulator::serve_recording(tree, options)
        .await
        .map_err(unserved)
}

fn unserved(error: ServeError) -> Failure {
    let (code, hint) = match &error {
        ServeError::Listen { .. } | ServeError::NoRoom { .. } => (
            ExitCode::Unavailable,
            "choose another address with --listen; port 0 takes a free one",
        ),
        ServeError::Content { .. } | ServeError::State { .. } => {
            (ExitCode::Usage, "check the path and what is in it")
        }
        _ => (ExitCode::Generic, "check the folder, who owns it, and the disk"),
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}

/// The address that the rack of this data directory was served at last.
pub fn last_address(data_dir: &Path) -> Option<SocketAddr> {
    let text = fs::read(data_dir.join("endpoints.json")).ok()?;
    let listed: EndpointsFile = serde_json::from_slice(&text).ok()?;
    listed
        .endpoints
        .first()?
        .url
        .strip_prefix("https://")?
        .parse()
        .ok()
}

/// The files that the endpoints of a rack name.
pub fn files_of_rack(data_dir: &Path) -> Vec<PathBuf> {
    [PASSWORD, CA].map(|name| data_dir.join(name)).into()
}

/// The endpoints of a rack, as a manager on this machine reaches them.
pub fn endpoints_of(rack: &ServedRack, data_dir: &Path) -> Vec<EndpointSpec> {
    let file = |name: &str| data_dir.join(name).display().to_string();
    let spec = |endpoint: &EndpointInfo| EndpointSpec {
        id: ControlEndpointId::from_lossy(&endpoint.name),
        url: endpoint.url.clone(),
        username: Some(rack.username().to_owned()),
        password: None,
        sealed: None,
        password_file: Some(file(PASSWORD)),
        trust: Trust::CaFile(file(CA)),
        insecure_http: false,
    };
    // BMCs first: they know what their hosts are called.
    let (bmcs, others): (Vec<_>, Vec<_>) = rack
        .endpoints()
        .iter()
        .partition(|endpoint| endpoint.kind == "bmc");
    bmcs.into_iter().chain(others).map(spec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_its_name_does_not_hide_a_rack() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("demo");
        fs::create_dir(&named).unwrap();
        assert_eq!(read_rack_at(&named, "demo").unwrap().name, "demo");
        let failure = read_rack_at(&named, "mine").unwrap_err();
        assert_eq!(failure.code, ExitCode::NotFound);
        assert!(
            failure.message.contains("mine is a folder, and no rack file"),
            "{failure}"
        );
    }
}
