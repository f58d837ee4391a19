//! Passwords: how they are kept, compared and made.

use crate::error::{ErrorCode, ServiceError};
use argon2::password_hash::{
    self,
    phc::{Output, ParamsString, PasswordHash, Salt},
};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq;

/// Shorter ones are not taken.
pub const SHORTEST: usize = 12;
/// Longer ones are refused before any work is done.
pub const LONGEST: usize = 256;
/// Bytes of salt.
const SALT: usize = 16;

/// Whether it may be somebody's password.
pub(super) fn check(password: &str, name: &str) -> Result<(), ServiceError> {
    let length = password.chars().count();
    let why = match length {
        0..SHORTEST => format!("it has {length} characters"),
        _ if password.len() > LONGEST => format!("it has {} bytes", password.len()),
        _ if password == name => "it is the account's name".to_owned(),
        _ => return Ok(()),
    };
    let hint = format!("a password has {SHORTEST} to {LONGEST} characters, and is not the account's name");
    Err(ServiceError::bad_request(format!("that can't be a password: {why}")).with_hint(hint))
}

/// Memory that passwords are hashed in, 19 MiB for each that is hashed at a time. It is kept from one to the next: taken
/// anew each time, by whichever thread is free, each thread's allocator would hold on to as much.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Vec<Vec<Block>>>>);

impl Memory {
    fn hash(&self, argon2: &Argon2<'_>, password: &[u8], salt: &[u8], out: &mut [u8]) -> argon2::Result<()> {
        let mut blocks = self.lock().pop().unwrap_or_default();
        blocks.resize(argon2.params().block_count(), Block::default());
        let hashed = argon2.hash_password_into_with_memory(password, salt, out, &mut blocks);
        self.lock().push(blocks);
        hashed
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Block>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn hash(password: String, memory: &Memory) -> Result<String, ServiceError> {
    let mut salt = [0; SALT];
    getrandom::fill(&mut salt).map_err(no_randomness)?;
    let memory = memory.clone();
    let hashed = tokio::task::spawn_blocking(move || {
        let (argon2, mut out) = (Argon2::default(), [0; Params::DEFAULT_OUTPUT_LEN]);
        memory.hash(&argon2, password.as_bytes(), &salt, &mut out)?;
        let hash = PasswordHash {
            algorithm: Algorithm::default().ident(),
            version: Some(Version::default().into()),
            params: ParamsString::try_from(argon2.params())?,
            salt: Some(Salt::new(&salt)?),
            hash: Some(Output::new(&out)?),
        };
        Ok::<_, password_hash::Error>(hash.to_string())
    });
    hashed.await.map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}

pub(super) async fn matches(hash: String, password: String, memory: &Memory) -> Result<bool, ServiceError> {
    let memory = memory.clone();
    let verified = tokio::task::spawn_blocking(move || {
        let hash = PasswordHash::new(&hash)?;
        let (Some(salt), Some(right)) = (hash.salt, hash.hash) else {
            return Err(password_hash::Error::PasswordInvalid);
        };
        let version = hash.version.map_or(Ok(Version::default()), Version::try_from)?;
        let argon2 = Argon2::new(
            Algorithm::try_from(hash.algorithm.as_str())?,
            version,
            Params::try_from(&hash)?,
        );
        let mut found = vec![0; right.len()];
        memory.hash(&argon2, password.as_bytes(), &salt, &mut found)?;
        Ok(found.ct_eq(right.as_bytes()).into())
    });
    verified
        .await
        .map_err(|e| internal(&e))?
        .map_err(|e| internal(&e))
}

/// 24 characters of 32, without those that are mistaken for each other: 120 bits.
pub(super) fn random() -> Result<String, ServiceError> {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

pub(super) fn no_randomness(error: getrandom::Error) -> ServiceError {
    ServiceError::new(
        ErrorCode::Internal,
        format!("the machine gives no random bytes: {error}"),
    )
}

pub(super) fn internal(error: &dyn std::fmt::Display) -> ServiceError {
    ServiceError::new(
        ErrorCode::Internal,
        format!("the password can't be checked: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::password_hash::{PasswordHasher, PasswordVerifier};

    /// As any implementation of argon2id writes and reads them.
    #[tokio::test]
    async fn passwords_are_kept_in_the_common_form() {
        let memory = Memory::default();
        let ours = hash("correct horse".to_owned(), &memory).await.unwrap();
        assert!(ours.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{ours}");
        let theirs = PasswordHash::new(&ours).unwrap();
        assert!(
            Argon2::default()
                .verify_password(b"correct horse", &theirs)
                .is_ok()
        );
        let dear = Params::new(1 << 10, 3, 1, Some(24)).unwrap();
        let other: PasswordHash = Argon2::from(dear).hash_password(b"correct horse").unwrap();
        for kept in [ours, other.to_string()] {
            assert!(
                matches(kept.clone(), "correct horse".to_owned(), &memory)
                    .await
                    .unwrap()
            );
            assert!(!matches(kept, "correct house".to_owned(), &memory).await.unwrap());
        }
        assert!(
            matches("no hash".to_owned(), String::new(), &memory)
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn one_password_after_the_other_is_hashed_in_the_same_memory() {
        let memory = Memory::default();
        for _ in 0..4 {
            hash("correct horse".to_owned(), &memory).await.unwrap();
        }
        assert_eq!(memory.lock().len(), 1);
    }
}
