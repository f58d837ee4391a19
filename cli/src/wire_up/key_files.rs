//! Checks of the manager's own secrets at the start: modes of their files, and whether `secret-key` opens the stored
//! secrets.

use crate::failure::Failure;
use crate::service_failure::refused;
use poolwright_service::Composer;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Mode bits that let every account of the machine read or write.
const OTHERS: u32 = 0o006;

/// Warns of each secret whose file every account of the machine may read or change.
pub fn warn_of_exposed(files: &[PathBuf]) {
    for file in files {
        if let Some(mode) = exposed(file) {
            tracing::warn!(
                file = %file.display(),
                mode = %format!("{mode:o}"),
                "the mode of this secret's file lets every account of this machine read or change it: chmod 600 the \
                 file, and replace the secret if others had access"
            );
        }
    }
}

/// The mode of a file that is open to every account. A missing file is reported by the code that reads it.
fn exposed(file: &Path) -> Option<u32> {
    let mode = fs::metadata(file).ok()?.permissions().mode() & 0o777;
    (mode & OTHERS != 0).then_some(mode)
}

/// Warns of stored secrets that this manager can't open. `existed`: whether `secret-key` was there before this start.
pub async fn check_secret_key(composer: &Composer, file: &Path, existed: bool) -> Result<(), Failure> {
    let unopened = composer.unopened_secrets().await.map_err(refused)?;
    let Some(first) = unopened.first() else {
        return Ok(());
    };
    let (file, secrets) = (file.display(), unopened.len());
    match existed {
        true => tracing::warn!(
            %file, secrets, first,
            "stored secrets were sealed with another key than secret-key or --cluster-key-file: stop the manager and put \
             back the right copy of the key file, or give each password again: poolwright endpoint set NAME \
             --endpoint-password-file FILE"
        ),
        false => tracing::warn!(
            %file, secrets, first,
            "the secret key was missing and a new one was made, which does not open stored secrets: stop the manager \
             and put back the copy of the file, or give each password again: poolwright endpoint set NAME \
             --endpoint-password-file FILE"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 87: a key file is readable by every account.
    #[test]
    fn a_secret_that_every_account_can_read_or_change_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret-key");
        assert_eq!(exposed(&file), None);
        fs::write(&file, "secret").unwrap();
        for (mode, found) in [
            (0o600, None),
            (0o640, None),
            (0o601, None),
            (0o604, Some(0o604)),
            (0o644, Some(0o644)),
            (0o602, Some(0o602)),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposed(&file), found, "{mode:o}");
        }
    }
}
