//! Secrets that managers share through their store: sealed with the cluster's key, which is in no store.
//!
//! Whoever reads the store, or a backup of it, learns nothing of them; whoever changes one there is noticed. What is
//! sealed is bound to its name, so that one secret can't be put in another's place.

use crate::composer::Composer;
use crate::error::{ErrorCode, ServiceError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use poolwright_store::{Batch, StoreError, Stored, read};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What all managers of one store know beside it.
#[derive(Clone)]
pub struct ClusterKey(Prk);

impl ClusterKey {
    /// As much chance as a key has: shorter ones can be guessed.
    pub const SHORTEST: usize = 32;

    /// Of a secret text of at least [`ClusterKey::SHORTEST`] bytes, such as 32 random ones in base64.
    pub fn new(secret: &str) -> Result<Self, ServiceError> {
        if secret.len() < Self::SHORTEST {
            let message = format!(
                "the cluster key has {} bytes, and at least {} are wanted",
                secret.len(),
                Self::SHORTEST
            );
            return Err(ServiceError::new(ErrorCode::BadRequest, message).with_hint(
                "make one: head -c 32 /dev/urandom | base64 > cluster-key; chmod 600 cluster-key",
            ));
        }
        Ok(Self(
            Salt::new(HKDF_SHA256, b"poolwright cluster key").extract(secret.as_bytes()),
        ))
    }

    /// The key for one name.
    fn of(&self, name: &str) -> Result<LessSafeKey, ServiceError> {
        let info = [name.as_bytes()];
        let derived = self.0.expand(&info, &CHACHA20_POLY1305).map_err(internal)?;
        Ok(LessSafeKey::new(UnboundKey::from(derived)))
    }

    pub(crate) fn seal(&self, name: &str, secret: &str) -> Result<Sealed, ServiceError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(internal)?;
        let mut text = secret.as_bytes().to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        let key = self.of(name)?;
        key.seal_in_place_append_tag(nonce_used, Aad::from(name), &mut text)
            .map_err(internal)?;
        Ok(Sealed {
            name: name.to_owned(),
            nonce: STANDARD.encode(nonce),
            text: STANDARD.encode(text),
        })
    }

    fn open(&self, sealed: &Sealed) -> Result<String, ServiceError> {
        self.opened(sealed).ok_or_else(|| {
            let message = format!(
                "the {} that managers share in this store can't be opened with this cluster key",
                sealed.name
            );
            ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("give the key file that the other managers of this store are given")
        })
    }

    /// `None` where it was sealed with another key, or changed.
    pub(crate) fn opened(&self, sealed: &Sealed) -> Option<String> {
        let nonce: [u8; NONCE_LEN] = STANDARD.decode(&sealed.nonce).ok()?.try_into().ok()?;
        let mut text = STANDARD.decode(&sealed.text).ok()?;
        let key = self.of(&sealed.name).ok()?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = key
            .open_in_place(nonce, Aad::from(&sealed.name), &mut text)
            .ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

/// With what a manager seals and opens.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Of this manager's data directory: it shares it with nobody.
    pub own: Option<ClusterKey>,
    /// Of all managers of the store. Where there is one, it seals.
    pub cluster: Option<ClusterKey>,
}

impl Keys {
    /// The key that seals, if there is one.
    pub(crate) fn sealing(&self) -> Option<&ClusterKey> {
        self.cluster.as_ref().or(self.own.as_ref())
    }

    /// `None` where it was sealed with another key, or changed. What was sealed before there was a cluster's key is
    /// opened, too.
    pub(crate) fn opened(&self, sealed: &Sealed) -> Option<String> {
        let mut keys = self.cluster.iter().chain(&self.own);
        keys.find_map(|key| key.opened(sealed))
    }

    /// Sealed with the cluster's key, where only this manager's own opens it: then all can open it.
    pub(crate) fn shared(&self, sealed: &Sealed) -> Result<Option<Sealed>, ServiceError> {
        let (Some(own), Some(cluster)) = (&self.own, &self.cluster) else {
            return Ok(None);
        };
        match (cluster.opened(sealed), own.opened(sealed)) {
            (None, Some(secret)) => cluster.seal(&sealed.name, &secret).map(Some),
            _ => Ok(None),
        }
    }
}

/// One secret, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    name: String,
    /// Base64, drawn anew each time.
    nonce: String,
    /// Base64 of ChaCha20-Poly1305.
    text: String,
}

impl Stored for Sealed {
    const KIND: &'static str = "sealed";
    fn id(&self) -> &str {
        &self.name
    }
}

impl Composer {
    /// The secret of this name that all managers share. The first of them makes it.
    pub async fn shared_secret<E: From<ServiceError>>(
        &self,
        key: &ClusterKey,
        name: &str,
        make: impl FnOnce() -> Result<String, E>,
    ) -> Result<String, E> {
        if let Some(found) = self.sealed(name).await? {
            return Ok(key.open(&found)?);
        }
        let made = make()?;
        let sealed = key.seal(name, &made)?;
        let mut batch = Batch::new();
        batch.expect(Sealed::KIND, name, None);
        batch.put(&sealed).map_err(ServiceError::from)?;
        match self.store().commit(batch).await {
            Ok(_) => Ok(made),
            Err(error) => match (error, self.sealed(name).await?) {
                // Another manager was faster; or it was our own, and only its answer was lost.
                (StoreError::Conflict { .. } | StoreError::Unavailable { .. }, Some(found)) => {
                    Ok(key.open(&found)?)
                }
                (error, _) => Err(ServiceError::from(error).into()),
            },
        }
    }

    /// Replaces a shared secret that is still `old`. Returns the stored text: another manager may have replaced it first.
    #[crate::boxed]
    pub async fn replace_shared_secret(
        &self,
        key: &ClusterKey,
        name: &str,
        old: &str,
        new: &str,
    ) -> Result<String, ServiceError> {
        let found = read::<Sealed>(self.store().as_ref(), name).await?;
        let found = found.ok_or_else(|| ServiceError::not_found("secret", name))?;
        let stored = key.open(&found.value)?;
        if stored != old {
            return Ok(stored);
        }
        let mut batch = Batch::new();
        batch
            .expect(Sealed::KIND, name, Some(found.revision))
            .put(&key.seal(name, new)?)?;
        let Err(error) = self.store().commit(batch).await else {
            return Ok(new.to_owned());
        };
        // Another manager was first, or this commit succeeded and only its answer was lost.
        match self.sealed(name).await? {
            Some(found) => match key.open(&found)? {
                stored if stored != old => Ok(stored),
                _ => Err(error.into()),
            },
            None => Err(error.into()),
        }
    }

    async fn sealed(&self, name: &str) -> Result<Option<Sealed>, ServiceError> {
        let found = read::<Sealed>(self.store().as_ref(), name).await?;
        Ok(found.map(|found| found.value))
    }
}

fn internal(error: impl fmt::Display) -> ServiceError {
    ServiceError::new(ErrorCode::Internal, format!("a secret can't be sealed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: char) -> ClusterKey {
        ClusterKey::new(&secret.to_string().repeat(ClusterKey::SHORTEST)).unwrap()
    }

    #[test]
    fn what_is_sealed_is_opened_with_the_same_key_alone() {
        let sealed = key('a').seal("authority", "very secret").unwrap();
        assert_eq!(key('a').open(&sealed).unwrap(), "very secret");
        assert!(!serde_json::to_string(&sealed).unwrap().contains("secret"));
        assert_ne!(sealed, key('a').seal("authority", "very secret").unwrap());
        let refused = key('b').open(&sealed).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("authority"), "{refused}");
    }

    #[test]
    fn what_was_sealed_before_there_was_a_cluster_is_sealed_for_all_of_it() {
        let alone = Keys {
            own: Some(key('a')),
            cluster: None,
        };
        let joined = Keys {
            cluster: Some(key('c')),
            ..alone.clone()
        };
        let other = Keys {
            own: Some(key('b')),
            cluster: Some(key('c')),
        };
        let sealed = alone.sealing().unwrap().seal("password", "very secret").unwrap();
        assert_eq!(joined.opened(&sealed).unwrap(), "very secret");
        assert_eq!(other.opened(&sealed), None);
        assert_eq!(other.shared(&sealed), Ok(None));
        let shared = joined.shared(&sealed).unwrap().unwrap();
        assert_eq!(other.opened(&shared).unwrap(), "very secret");
        assert_eq!(joined.shared(&shared), Ok(None), "it is done once");
    }

    #[test]
    fn what_was_changed_or_put_elsewhere_is_noticed() {
        let sealed = key('a').seal("authority", "very secret").unwrap();
        let elsewhere = Sealed {
            name: "password".to_owned(),
            ..sealed.clone()
        };
        assert!(key('a').open(&elsewhere).is_err());
        for wrong in ["", "?", "AAAA"] {
            let changed = Sealed {
                text: wrong.to_owned(),
                ..sealed.clone()
            };
            assert!(key('a').open(&changed).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_that_could_be_guessed_is_refused() {
        let refused = ClusterKey::new("short").unwrap_err();
        assert!(
            refused.message.contains("5 bytes") && refused.hint.is_some(),
            "{refused}"
        );
    }
}
