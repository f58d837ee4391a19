//! Certificates as a manager's authority makes them, good ones and others.

use poolwright_agent::folder::{self, Folder, Record};
use poolwright_agent::wire;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

pub const UUID: &str = "4c4c4544-0042-3510-8058-b4c04f4d5a32";

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// An authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "manager CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub fn sign(&self, name: &str) -> Pair {
        self.sign_until(name, 4000)
    }

    pub fn sign_until(&self, name: &str, year: i32) -> Pair {
        self.sign_key(name, KeyPair::generate().unwrap(), year)
    }

    /// For a key that there is.
    pub fn sign_for(&self, name: &str, key: KeyPair) -> Pair {
        self.sign_key(name, key, 4000)
    }

    fn sign_key(&self, name: &str, key: KeyPair, year: i32) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub fn manager(&self) -> Pair {
        self.sign(wire::MANAGER)
    }

    pub fn agent(&self) -> Pair {
        self.sign(&wire::agent_name(UUID))
    }

    /// The folder of an agent that shows a certificate and believes this authority.
    pub fn folder(&self, shows: &Pair) -> (TempDir, Folder) {
        let place = TempDir::new().unwrap();
        let folder = Folder::at(place.path().join("agent"));
        folder.make().unwrap();
        folder.write(folder::CA, &self.pem).unwrap();
        show(&folder, shows);
        let record = Record {
            manager: "https://manager:8443".to_owned(),
            uuid: UUID.to_owned(),
            epoch: None,
        };
        folder.keep(&record).unwrap();
        (place, folder)
    }
}

/// Puts a certificate and its key into an agent's folder.
pub fn show(folder: &Folder, pair: &Pair) {
    folder.write(folder::KEY, &pair.key).unwrap();
    folder.write(folder::CERTIFICATE, &pair.certificate).unwrap();
}
