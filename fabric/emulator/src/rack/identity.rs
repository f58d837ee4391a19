//! UUIDs and serial numbers made from the rack's name and seed: the same file gives the same rack.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Makes identities of one rack.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    rack: String,
    seed: u64,
}

impl Identity {
    pub fn new(rack: &str, seed: u64) -> Self {
        Self {
            rack: rack.to_owned(),
            seed,
        }
    }

    /// In the form of a random (version 4) UUID. `what` says whose, such as `gpu box-1/gpu-3`.
    pub fn uuid(&self, what: &str) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.digest("uuid", what)[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// 13 digits, as on NVIDIA's boards.
    pub fn serial(&self, what: &str) -> String {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.digest("serial", what)[..8]);
        format!("1{:012}", u64::from_be_bytes(bytes) % 1_000_000_000_000)
    }

    fn digest(&self, purpose: &str, what: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Lengths keep ("a", "bc") and ("ab", "c") apart.
        for part in [purpose, &self.rack, what] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(self.seed.to_be_bytes());
        hash.finalize().into()
    }
}
