//! The manager's own certificate authority and server certificate, made at the first start.
//!
//! `tls/ca.pem` is what clients are given; `tls/server.pem` holds the server's certificate and its key, and
//! only the manager can read it. The CA's key is not kept: a new server certificate means a new CA.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
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

/// The certificates of `data_dir`; made there where there are none.
pub fn ensure(data_dir: &Path, address: IpAddr) -> Result<TlsFiles, TlsError> {
    let dir = data_dir.join("tls");
    let files = TlsFiles {
        ca: dir.join("ca.pem"),
        server: dir.join("server.pem"),
    };
    if files.ca.is_file() && files.server.is_file() {
        return Ok(files);
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|source| TlsError::Io {
        path: dir,
        what: "made",
        source,
    })?;
    let (ca, server) = make(address)?;
    // The server's file last: both are there, or they are made again.
    write(&files.ca, &ca, 0o644)?;
    write(&files.server, &server, 0o600)?;
    Ok(files)
}

fn make(address: IpAddr) -> Result<(String, String), TlsError> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright manager CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    names.extend(host_name());
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright manager");
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((
        issuer.pem(),
        format!("{}{}", certificate.pem(), key.serialize_pem()),
    ))
}

fn host_name() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
}

/// Writes a file that is whole or not there.
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
    fs::rename(&partial, path).map_err(error)
}
