//! Accounts and passwords at services: sent to the manager to be kept, or where it finds them.

use crate::access::read_password;
use crate::failure::Failure;
use poolwright_service::endpoint::{EndpointSpec, Password, Trust};
use poolwright_terminal::manager::read_authority;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct CredentialArgs {
    /// Account at the service
    #[arg(long, value_name = "NAME", requires = "endpoint_password_file")]
    pub endpoint_username: Option<String>,
    /// File with its password, and nothing else
    #[arg(long, value_name = "FILE")]
    pub endpoint_password_file: Option<PathBuf>,
    /// Keep neither password nor authority: the manager reads the files each time, in its directory of serve
    /// --endpoint-files
    #[arg(long)]
    pub by_reference: bool,
}

impl CredentialArgs {
    /// Reads files here, so that the manager is told what they hold; or names them in full, for it may run in another
    /// folder.
    pub fn settle(&self, spec: &mut EndpointSpec) -> Result<(), Failure> {
        if self.by_reference {
            if let Some(file) = &mut spec.password_file {
                *file = in_full(Path::new(file))?;
            }
            if let Trust::CaFile(file) = &mut spec.trust {
                *file = in_full(Path::new(file))?;
            }
            return Ok(());
        }
        if let Some(file) = spec.password_file.take() {
            spec.password = Some(Password::new(read_password(Path::new(&file))?));
        }
        if let Trust::CaFile(file) = &spec.trust {
            spec.trust = Trust::CaPem(read_authority(Path::new(file))?);
        }
        Ok(())
    }

    /// What the manager is told of another account or password; `None` where there is nothing to tell.
    pub fn body(&self) -> Result<Option<Value>, Failure> {
        let Some(file) = &self.endpoint_password_file else {
            return Ok(None);
        };
        let username = &self.endpoint_username;
        Ok(Some(match self.by_reference {
            true => json!({ "username": username, "password_file": in_full(file)? }),
            false => json!({ "username": username, "password": read_password(file)? }),
        }))
    }
}

/// For the manager alone: anywhere else a password is not written.
pub fn with_password(spec: &EndpointSpec) -> Value {
    let mut body = json!(spec);
    if let Some(password) = &spec.password {
        body["password"] = password.reveal().into();
    }
    body
}

fn in_full(path: &Path) -> Result<String, Failure> {
    let full = std::path::absolute(path).map_err(|error| Failure::file(path, "found", &error))?;
    Ok(full.display().to_string())
}
