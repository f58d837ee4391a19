//! The manager's certificate authority and server certificate, made at the first start.
//!
//! `tls/ca.pem` is what clients are given; `tls/server.pem` holds the server's certificate and its key, and only the
//! manager can read it. The authority's key is kept beside them, as closed as the server's, so that a manager that is
//! to be known by another name needs no other authority; or it is one that managers share, and is not kept here.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the certificates lie.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub server: PathBuf,
    /// What an administrator has put in place of it, if anything: certificates and their key, too.
    pub replaced: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} can't be {what}: {source}", .path.display())]
    Io {
        path: PathBuf,
        what: &'static str,
        source: io::Error,
    },
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Who signs the servers' certificates: a certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    /// The one of this data directory; made, and not yet kept, where there is none.
    pub fn own(data_dir: &Path) -> Result<Self, TlsError> {
        let dir = data_dir.join("tls");
        let read = |name| fs::read_to_string(dir.join(name)).ok();
        if let (Some(certificate), Some(key)) = (read(CA), read(CA_KEY)) {
            return Ok(Self { certificate, key });
        }
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: authority().self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// To sign with.
    pub fn issuer(&self) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
        Ok(Issuer::new(authority(), KeyPair::from_pem(&self.key)?))
    }

    /// In one text.
    pub fn to_pem(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }

    /// Of such a text.
    pub fn from_pem(text: &str) -> Option<Self> {
        const KEY: &str = "-----BEGIN PRIVATE KEY-----";
        let (certificate, key) = text.split_at(text.find(KEY)?);
        Some(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }
}

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca-key.pem";

/// The certificates of `data_dir`, made where there are none, signed by its own authority or by one that is `shared`.
/// `address` is listened at, `more` are names that clients use beside it; where these or the authority are others than
/// before, the server's certificate is made anew.
pub(crate) fn ensure(
    data_dir: &Path,
    shared: Option<&Authority>,
    address: IpAddr,
    more: &[String],
) -> Result<TlsFiles, TlsError> {
    let dir = data_dir.join("tls");
    let files = TlsFiles {
        ca: dir.join(CA),
        server: dir.join("server.pem"),
        replaced: dir.join("replaced.pem"),
    };
    let names_file = dir.join("names");
    let names = names(address, more);
    let names_text = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    let known = fs::read_to_string(&files.ca).ok();
    let same_authority = shared.is_none_or(|shared| known.as_ref() == Some(&shared.certificate));
    if known.is_some() && same_authority && files.server.is_file() {
        let unchanged = match fs::read_to_string(&names_file) {
            Ok(kept) => kept == names_text,
            // Made before names were kept.
            Err(_) => more.is_empty(),
        };
        if unchanged {
            return Ok(files);
        }
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|source| TlsError::Io {
        path: dir.clone(),
        what: "made",
        source,
    })?;
    let authority = match shared {
        Some(shared) => shared.clone(),
        None => Authority::own(data_dir)?,
    };
    write(&files.ca, &authority.certificate, 0o644)?;
    if shared.is_none() {
        write(&dir.join(CA_KEY), &authority.key, 0o600)?;
    }
    let key = KeyPair::from_pem(&authority.key)?;
    write(&files.server, &server(&names, key)?, 0o600)?;
    // Last: whatever was cut off before is made again.
    write(&names_file, &names_text, 0o644)?;
    Ok(files)
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright manager CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server(names: &BTreeSet<String>, key_of_authority: KeyPair) -> Result<String, TlsError> {
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright manager");
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &Issuer::new(authority(), key_of_authority))?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}

/// By which names the server is known: this machine's own, the address that it listens at, and those that were given.
fn names(address: IpAddr, more: &[String]) -> BTreeSet<String> {
    let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let listened = (!address.is_unspecified()).then(|| address.to_string());
    let all = here.into_iter().chain(listened).chain(host_name());
    all.chain(more.iter().cloned()).collect()
}

fn host_name() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
}

/// Writes a file that is whole or not there, and is there when this returns, whatever happens to the machine.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let error = |source| TlsError::Io {
        path: path.to_owned(),
        what: "written",
        source,
    };
    let partial = path.with_extension("partial");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&partial)
        .map_err(error)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(error)?;
    fs::rename(&partial, path).map_err(error)?;
    // Its name is on the disk, too, before anything is that rests on it.
    let folder = path.parent().unwrap_or(path);
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(error)
}
