//! The manager's certificate authority and server certificate, made at the first start, and renewed before they end.
//!
//! `tls/ca.pem` is what clients are given; `tls/server.pem` holds the server's certificate and its key, and only the
//! manager can read it. The authority's key is kept beside them, as closed as the server's, so that a manager that is
//! to be known by another name needs no other authority; or it is one that managers share, and is not kept here.
//!
//! Invariant: a new authority is made only if neither a certificate nor a key of one exists. Its renewed certificate has
//! the same name and key, so that clients that trust the old one go on.

use crate::{holder, validity};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) const DAY: SignedDuration = SignedDuration::from_hours(24);
const AUTHORITY: &str = "Poolwright manager CA";

/// Validity of a certificate, and when it is renewed.
struct Lifetime {
    /// The longest validity; a certificate with a longer one is renewed at once.
    longest: SignedDuration,
    /// From now to the end. With the day before now that is less than `longest`.
    ahead: SignedDuration,
    renewed_before: SignedDuration,
}

/// Clients refuse a server's certificate that is good for longer.
const SERVER: Lifetime = Lifetime {
    longest: SignedDuration::from_hours(398 * 24),
    ahead: SignedDuration::from_hours(396 * 24),
    renewed_before: SignedDuration::from_hours(60 * 24),
};
const TEN_YEARS: Lifetime = Lifetime {
    longest: SignedDuration::from_hours(3652 * 24),
    ahead: SignedDuration::from_hours(3650 * 24),
    renewed_before: SignedDuration::from_hours(365 * 24),
};

impl Lifetime {
    fn is_due(&self, (begin, end): (Timestamp, Timestamp), now: Timestamp) -> bool {
        let is_long = end.duration_since(begin) > self.longest;
        // A certificate that begins later was made under a wrong clock.
        is_long || now < begin || end.duration_since(now) <= self.renewed_before
    }

    fn apply(&self, params: &mut CertificateParams, now: Timestamp) {
        set_validity(params, now - DAY, now + self.ahead);
    }
}

/// Sets the validity: from the beginning of the first day to the beginning of the last.
pub(crate) fn set_validity(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let day = |at: Timestamp| {
        let day = at.to_zoned(TimeZone::UTC).date();
        rcgen::date_time_ymd(
            day.year().into(),
            day.month().unsigned_abs(),
            day.day().unsigned_abs(),
        )
    };
    params.not_before = day(from);
    params.not_after = day(until);
}

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
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} is missing, the key of the certificate authority in {}", .key.display(), .certificate.display())]
    KeyMissing { key: PathBuf, certificate: PathBuf },
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl TlsError {
    /// The next step. Clients and agents trust the authority, so only a lost key makes its removal the last resort.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { path, .. } => format!(
                "check the owner and mode of {} and of its directory, which the manager's account must read and write, and \
                 the disk",
                path.display()
            ),
            Self::Damaged { path, .. } if !path.ends_with(CA_KEY) => format!(
                "put back a copy of {}, or remove this one file: the next start makes it anew. Keep {CA_KEY} beside it, the \
                 key of the authority that clients and agents trust",
                path.display()
            ),
            Self::Damaged { path, .. } | Self::KeyMissing { key: path, .. } => format!(
                "put back a copy of {}, or start with the --cluster-key-file of the managers that share the authority. Only \
                 where there is no copy: move {CA} and {CA_KEY} away, and give clients and agents the new authority that \
                 the next start makes",
                path.display()
            ),
            Self::Make(_) => "report this as a bug of Poolwright, with the log".to_owned(),
        }
    }

    fn damaged(path: &Path, reason: impl Display) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Who signs the servers' certificates: a certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    /// The authority of this data directory; made, and not yet written, where there is none.
    pub fn own(data_dir: &Path, now: Timestamp) -> Result<Self, TlsError> {
        let dir = data_dir.join("tls");
        let (ca, ca_key) = (dir.join(CA), dir.join(CA_KEY));
        match (read(&ca)?, read(&ca_key)?) {
            (Some(certificate), Some(key)) => {
                let kept = Self { certificate, key };
                kept.check(&ca, &ca_key)?;
                kept.renewed(now)
            }
            (None, Some(key)) => {
                let pair = KeyPair::from_pem(&key).map_err(|error| TlsError::damaged(&ca_key, error))?;
                Self::of(&pair, key, now)
            }
            (Some(_), None) => Err(TlsError::KeyMissing {
                key: ca_key,
                certificate: ca,
            }),
            (None, None) => {
                let pair = KeyPair::generate()?;
                Self::of(&pair, pair.serialize_pem(), now)
            }
        }
    }

    fn of(pair: &KeyPair, key: String, now: Timestamp) -> Result<Self, TlsError> {
        let mut params = authority();
        TEN_YEARS.apply(&mut params, now);
        Ok(Self {
            certificate: params.self_signed(pair)?.pem(),
            key,
        })
    }

    /// Fails unless both files can be parsed and belong together.
    fn check(&self, ca: &Path, ca_key: &Path) -> Result<(), TlsError> {
        let pair = KeyPair::from_pem(&self.key).map_err(|error| TlsError::damaged(ca_key, error))?;
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let certificate = certificate.map_err(|error| TlsError::damaged(ca, error))?;
        let key = pair.subject_public_key_info();
        match certificate.windows(key.len()).any(|part| part == key) {
            true => Ok(()),
            false => Err(TlsError::damaged(
                ca_key,
                "it is not the key of the authority's certificate beside it",
            )),
        }
    }

    fn span(&self) -> Option<(Timestamp, Timestamp)> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        validity::span(&certificate)
    }

    /// Whether its certificate is to be renewed.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.span().is_some_and(|span| TEN_YEARS.is_due(span, now))
    }

    /// The same name and key, with a new certificate if it is due.
    pub fn renewed(self, now: Timestamp) -> Result<Self, TlsError> {
        match self.is_due(now) {
            true => Self::of(&KeyPair::from_pem(&self.key)?, self.key, now),
            false => Ok(self),
        }
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
const SERVER_FILE: &str = "server.pem";

/// The certificates of a data directory.
pub(crate) struct Certificates {
    dir: PathBuf,
    names: BTreeSet<String>,
    /// The authority is this manager's own, and its key is kept here.
    keeps_key: bool,
}

impl Certificates {
    /// `address` is listened at, `more` are names that clients use beside it.
    pub fn of(data_dir: &Path, address: IpAddr, more: &[String], keeps_key: bool) -> Self {
        Self {
            dir: data_dir.join("tls"),
            names: names(address, more),
            keeps_key,
        }
    }

    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            ca: self.dir.join(CA),
            server: self.dir.join(SERVER_FILE),
            replaced: self.dir.join("replaced.pem"),
        }
    }

    /// Writes missing files. Renews the server's certificate if its names or its authority changed, or it ends soon.
    pub fn ensure(&self, authority: &Authority, now: Timestamp) -> Result<(), TlsError> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir);
        made.map_err(|source| TlsError::Io {
            path: self.dir.clone(),
            what: "made",
            source,
        })?;
        let (files, key, names_file) = (self.files(), self.dir.join(CA_KEY), self.dir.join("names"));
        // The key first: its certificate can be made again, and not the other way round.
        if self.keeps_key && read(&key)?.as_ref() != Some(&authority.key) {
            write(&key, &authority.key, 0o600)?;
        }
        let known = read(&files.ca)?.as_ref() == Some(&authority.certificate);
        let names: String = self.names.iter().map(|name| format!("{name}\n")).collect();
        let is_good = match read(&files.server)? {
            Some(text) => !is_due(&files.server, &text, now)?,
            None => false,
        };
        if known && is_good && read(&names_file)?.as_ref() == Some(&names) {
            return Ok(());
        }
        write(&files.server, &server(&self.names, authority, now)?, 0o600)?;
        // Last, so that after a crash in between the next start makes the server's certificate again.
        write(&files.ca, &authority.certificate, 0o644)?;
        write(&names_file, &names, 0o644)
    }

    /// Whether to renew the certificate of a running server.
    pub fn is_due(&self, now: Timestamp) -> Result<bool, TlsError> {
        let server = self.files().server;
        match read(&server)? {
            Some(text) => is_due(&server, &text, now),
            // Removed by an administrator: the next start makes one.
            None => Ok(false),
        }
    }
}

/// Whether to renew a server's certificate. One that another authority signed is the administrator's, and is left alone.
fn is_due(path: &Path, text: &str, now: Timestamp) -> Result<bool, TlsError> {
    let damaged = |error| TlsError::damaged(path, error);
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(damaged)?;
    let certificate = CertificateDer::from_pem_slice(text.as_bytes()).map_err(damaged)?;
    let span = validity::span(&certificate);
    let span = span.ok_or_else(|| TlsError::damaged(path, "its certificate can't be read"))?;
    let is_ours = holder::of(&certificate).is_some_and(|certificate| {
        let mut issuer = certificate.issuer.iter();
        issuer.any(|(part, name)| *part == "CommonName" && name == AUTHORITY)
    });
    Ok(is_ours && SERVER.is_due(span, now))
}

/// The text of a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<String>, TlsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Not UTF-8.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(TlsError::damaged(path, error)),
        Err(source) => Err(TlsError::Io {
            path: path.to_owned(),
            what: "read",
            source,
        }),
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server(names: &BTreeSet<String>, authority: &Authority, now: Timestamp) -> Result<String, TlsError> {
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright manager");
    params.use_authority_key_identifier_extension = true;
    SERVER.apply(&mut params, now);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority.issuer()?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn noon() -> Timestamp {
        "2026-03-02T12:00:00Z".parse().unwrap()
    }

    fn days(count: i64) -> SignedDuration {
        SignedDuration::from_hours(24 * count)
    }

    fn start(data_dir: &Path, now: Timestamp) -> Result<TlsFiles, TlsError> {
        let authority = Authority::own(data_dir, now)?;
        let certificates = Certificates::of(data_dir, [127, 0, 0, 1].into(), &[], true);
        certificates.ensure(&authority, now)?;
        Ok(certificates.files())
    }

    fn span(path: &Path) -> (Timestamp, Timestamp) {
        let text = fs::read(path).unwrap();
        validity::span(&CertificateDer::from_pem_slice(&text).unwrap()).unwrap()
    }

    fn key_of(path: &Path) -> Vec<u8> {
        let text = fs::read(path.with_file_name(CA_KEY)).unwrap();
        PrivateKeyDer::from_pem_slice(&text)
            .unwrap()
            .secret_der()
            .to_vec()
    }

    /// Fault 88: a certificate of the manager's own authority ends.
    #[test]
    fn a_servers_certificate_is_good_for_398_days_and_the_authority_for_ten_years() {
        for hour in 0..24 {
            let dir = tempfile::tempdir().unwrap();
            let now = noon() + SignedDuration::from_hours(hour);
            let files = start(dir.path(), now).unwrap();
            for (file, least, most) in [(&files.server, 395, 398), (&files.ca, 3649, 3652)] {
                let (begin, end) = span(file);
                assert!(begin < now && end >= now + days(least), "{begin} to {end}");
                assert!(end.duration_since(begin) <= days(most), "{begin} to {end}");
            }
        }
    }

    /// Fault 88: the next start comes near the end.
    #[test]
    fn a_start_renews_what_ends_soon_and_the_authority_keeps_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let files = start(dir.path(), noon()).unwrap();
        let all = || (fs::read(&files.ca).unwrap(), fs::read(&files.server).unwrap());
        let (first, key) = (all(), key_of(&files.ca));
        start(dir.path(), noon() + days(335)).unwrap();
        assert_eq!(all(), first, "60 days are left");
        start(dir.path(), noon() + days(337)).unwrap();
        let renewed = all();
        assert_eq!(renewed.0, first.0);
        assert_ne!(renewed.1, first.1);

        let late = noon() + days(3651 - 365);
        start(dir.path(), late).unwrap();
        assert_ne!(all().0, first.0);
        assert!(span(&files.ca).1 > late + days(3600));
        assert_eq!(key_of(&files.ca), key, "clients with the old certificate go on");
    }

    /// Fault 88: an earlier version made certificates until the year 4096.
    #[test]
    fn certificates_that_are_good_for_too_long_are_renewed_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let pair = KeyPair::generate().unwrap();
        let old = Authority {
            certificate: authority().self_signed(&pair).unwrap().pem(),
            key: pair.serialize_pem(),
        };
        let certificates = Certificates::of(dir.path(), [127, 0, 0, 1].into(), &[], true);
        certificates.ensure(&old, noon()).unwrap();
        let files = start(dir.path(), noon()).unwrap();
        for (file, most) in [(&files.server, 398), (&files.ca, 3652)] {
            let (begin, end) = span(file);
            assert!(end.duration_since(begin) <= days(most), "{begin} to {end}");
        }
        assert_eq!(key_of(&files.ca), pair.serialize_der());
    }

    /// Fault 87: the authority's key or the server's certificate is lost, damaged or replaced.
    #[test]
    fn an_error_names_the_unusable_file_and_the_authority_stays() {
        let dir = tempfile::tempdir().unwrap();
        let files = start(dir.path(), noon()).unwrap();
        let key_file = files.ca.with_file_name(CA_KEY);
        let (ca, key) = (fs::read(&files.ca).unwrap(), fs::read(&key_file).unwrap());
        let refused = |why: &str| {
            let error = start(dir.path(), noon()).map(drop).unwrap_err();
            let told = format!("{error}; {}", error.hint());
            assert!(told.contains(why), "{why}: {told}");
            assert_eq!(fs::read(&files.ca).unwrap(), ca, "{why}");
            told
        };

        fs::write(&files.server, [0xff_u8; 9]).unwrap();
        let told = refused("remove this one file");
        assert!(told.contains("server.pem is damaged"), "{told}");
        fs::remove_file(&files.server).unwrap();
        // As one that the manager's account may not read.
        fs::create_dir(&files.server).unwrap();
        let told = refused("server.pem can't be read");
        assert!(!told.contains("remove"), "{told}");
        fs::remove_dir(&files.server).unwrap();
        start(dir.path(), noon()).unwrap();

        fs::remove_file(&key_file).unwrap();
        refused("ca-key.pem is missing");
        fs::write(&key_file, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        refused("it is not the key of the authority's certificate");
        fs::write(&key_file, "nothing").unwrap();
        refused("ca-key.pem is damaged");
        fs::remove_file(&key_file).unwrap();
        fs::create_dir(&key_file).unwrap();
        refused("ca-key.pem can't be read");
        fs::remove_dir(&key_file).unwrap();

        fs::write(&key_file, &key).unwrap();
        fs::write(&files.ca, "nothing").unwrap();
        let error = start(dir.path(), noon()).map(drop).unwrap_err();
        let hint = error.hint();
        assert!(
            hint.contains("ca.pem, or remove this one file"),
            "{error}; {hint}"
        );
        fs::remove_file(&files.ca).unwrap();
        start(dir.path(), noon()).unwrap();
        assert_eq!(fs::read(&key_file).unwrap(), key, "its certificate is made again");
    }
}
