//! Passwords: how they are kept, compared and made.

use crate::error::{ErrorCode, ServiceError};
use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash};

/// Shorter ones are not taken.
pub const SHORTEST: usize = 12;
/// Longer ones are refused before any work is done.
pub const LONGEST: usize = 256;

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

pub(super) async fn hash(password: String) -> Result<String, ServiceError> {
    let hashed = tokio::task::spawn_blocking(move || {
        Argon2::default()
            .hash_password(password.as_bytes())
            .map(|hash| hash.to_string())
    });
    hashed.await.map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}

pub(super) async fn matches(hash: String, password: String) -> Result<bool, ServiceError> {
    let verified = tokio::task::spawn_blocking(move || {
        PasswordHash::new(&hash).map(|hash| {
            Argon2::default()
                .verify_password(password.as_bytes(), &hash)
                .is_ok()
        })
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
