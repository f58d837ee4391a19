//! `agent enrol`: a host's agent becomes known to a manager, by a token that was made there.

use crate::folder::{self, Folder, FolderError, Record};
use crate::key_and_request;
use jiff::Timestamp;
use poolwright_model::enrolment::{Enrolled, Enrolment};
use poolwright_model::id::HostId;
use poolwright_terminal::manager::{manager_address, manager_client, unreached};
use poolwright_terminal::output::{Output, pairs, say};
use poolwright_terminal::{ExitCode, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For the manager to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing that it says is larger.
const LARGEST: usize = 64 << 10;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EnrolArgs {
    /// The manager's address
    #[arg(long, value_name = "URL")]
    manager: String,
    #[command(flatten)]
    trust: TrustArgs,
    /// File with the token, as `poolwright host token` shows it
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Where the manager reaches this agent
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Folder for the agent's key and certificates
    #[arg(long, value_name = "DIR", default_value = "/var/lib/poolwright-agent")]
    dir: PathBuf,
    /// UUID of this host's SMBIOS; what the kernel shows to root, if it is left out
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct TrustArgs {
    /// The manager's certificate authority, a PEM file: DATA_DIR/tls/ca.pem of poolwright serve, or the site's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Believe exactly the certificate with this SHA-256 fingerprint
    #[arg(long, value_name = "SHA256")]
    pin: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent enrol --manager https://pool.example.com:8443 --ca ca.pem --token-file token \
--address 10.0.3.17:8444
  sudo poolwright-agent enrol --manager https://10.0.0.9:8443 --token-file token --address 10.0.3.17:8444 \
--pin 5f1c9f0e3c1d8a67b2f44a9e0c7d6b5a4f3e2d1c0b9a8f7e6d5c4b3a29181706

The token is made at the manager: poolwright host token. The key is made here and goes nowhere. On a host that was enrolled
before, it takes the place of what was there.
JSON: {host, uuid, manager, ends}.";

/// What came of it.
#[derive(Serialize)]
struct Shown<'a> {
    host: &'a HostId,
    uuid: &'a str,
    manager: &'a str,
    ends: Timestamp,
}

pub(super) async fn run(args: &EnrolArgs, output: Output) -> Outcome {
    let uuid = match &args.uuid {
        Some(uuid) => uuid.clone(),
        None => own_uuid()?,
    };
    let token = std::fs::read_to_string(&args.token_file)
        .map_err(|error| Failure::file(&args.token_file, "read", &error))?;
    let folder = Folder::at(&args.dir);
    // Before the token is used up.
    folder.make().map_err(unkept)?;
    let (key, csr) = key_and_request().map_err(|why| Failure::new(ExitCode::Generic, why))?;
    let asked = Enrolment {
        token: token.trim().to_owned(),
        uuid,
        address: args.address.clone(),
        csr,
    };
    let enrolled = ask(args, &asked).await?;
    keep(&folder, &args.manager, &key, &enrolled).map_err(unkept)?;
    let shown = Shown {
        host: &enrolled.host,
        uuid: &enrolled.uuid,
        manager: &args.manager,
        ends: enrolled.ends,
    };
    output.show(&shown, &pairs(&shown))?;
    say(&format!(
        "enrolled; start it: poolwright-agent serve --dir {:?} --listen {}",
        args.dir, args.address
    ));
    Ok(ExitCode::Ok)
}

/// The certificate last: an agent without one does not serve.
fn keep(folder: &Folder, manager: &str, key: &str, enrolled: &Enrolled) -> Result<(), FolderError> {
    folder.remove(folder::CERTIFICATE)?;
    folder.write(folder::KEY, key)?;
    folder.write(folder::CA, &enrolled.authority)?;
    // Another manager counts from the beginning; so does the same one for a host that was made anew.
    folder.keep(&Record {
        manager: manager.to_owned(),
        uuid: enrolled.uuid.clone(),
        ..Record::default()
    })?;
    folder.write(folder::CERTIFICATE, &enrolled.certificate)
}

fn own_uuid() -> Result<String, Failure> {
    let found = crate::identity(Path::new("/")).smbios_uuid;
    found.ok_or_else(|| no_uuid(std::fs::metadata(UUID_FILE).is_ok()))
}

const UUID_FILE: &str = "/sys/class/dmi/id/product_uuid";

/// Only root may read it; where the machine has none, root can't either.
fn no_uuid(is_there: bool) -> Failure {
    let (why, hint) = match is_there {
        true => (
            format!("{UUID_FILE} can't be read"),
            "root may read it: sudo; or give it as its BMC has it: --uuid UUID",
        ),
        false => (
            format!("{UUID_FILE} is not there, as in containers and where a machine has no SMBIOS"),
            "give it as its BMC has it: --uuid UUID",
        ),
    };
    Failure::new(
        ExitCode::NotFound,
        format!("the UUID of this host is not known: {why}"),
    )
    .with_hint(hint)
}

async fn ask(args: &EnrolArgs, asked: &Enrolment) -> Result<Enrolled, Failure> {
    let base = manager_address(&args.manager)?;
    let http = manager_client(args.trust.ca.as_deref(), args.trust.pin.as_deref())?;
    let url = base
        .join("api/v1/agents")
        .map_err(|error| Failure::usage(error.to_string()))?;
    let sent = http.post(url).timeout(PATIENCE).json(asked).send().await;
    let mut answer = sent.map_err(|error| lost(args, &error))?;
    let status = answer.status();
    let mut text = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| lost(args, &error))? {
        text.extend_from_slice(&chunk);
        if text.len() > LARGEST {
            return Err(strange(args, "its answer is too long"));
        }
    }
    match status.is_success() {
        true => serde_json::from_slice(&text).map_err(|error| strange(args, &error.to_string())),
        false => Err(refused(args, status.as_u16(), &text)),
    }
}

fn lost(args: &EnrolArgs, error: &reqwest::Error) -> Failure {
    unreached(args.manager.trim_end_matches('/'), error).unwrap_or_else(|| {
        let message = format!("the answer of {} was lost: {error}", args.manager);
        Failure::new(ExitCode::Indeterminate, message).with_hint(
            "the token may be used up; look (poolwright host agents), and make another one for this host's UUID",
        )
    })
}

fn refused(args: &EnrolArgs, status: u16, text: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        error: Said,
    }
    #[derive(Deserialize)]
    struct Said {
        message: String,
        #[serde(default)]
        hint: Option<String>,
    }
    let Ok(Problem { error }) = serde_json::from_slice(text) else {
        return strange(args, &format!("it answers {status} with what no manager says"));
    };
    let code = match status {
        401 | 403 => ExitCode::Authentication,
        404 => ExitCode::NotFound,
        409 => ExitCode::Conflict,
        503 => ExitCode::Unavailable,
        _ => ExitCode::Generic,
    };
    let message = format!("{} does not enrol this host: {}", args.manager, error.message);
    let hint = error
        .hint
        .unwrap_or_else(|| "make another token there: poolwright host token".to_owned());
    Failure::new(code, message).with_hint(hint)
}

fn strange(args: &EnrolArgs, why: &str) -> Failure {
    let message = format!(
        "{} is not a Poolwright manager of this version: {why}",
        args.manager
    );
    Failure::new(ExitCode::Unavailable, message).with_hint("check --manager")
}

fn unkept(error: FolderError) -> Failure {
    Failure::new(ExitCode::Generic, error.to_string())
        .with_hint("check the folder, who owns it, and the disk; agents run as root, so use sudo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_for_a_uuid_that_is_not_there_is_not_told_to_be_root() {
        let (denied, absent) = (no_uuid(true).to_string(), no_uuid(false).to_string());
        assert!(
            denied.contains("can't be read") && denied.contains("sudo"),
            "{denied}"
        );
        assert!(
            absent.contains("is not there") && !absent.contains("sudo"),
            "{absent}"
        );
        assert!(absent.contains("--uuid UUID"), "{absent}");
    }
}
