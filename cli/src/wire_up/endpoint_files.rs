//! Files that endpoints may name: passwords, certificate authorities, and lab files of QEMU.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Files that endpoints may name.
///
/// A client of the API chooses both the path and the address that the password is sent to. So a manager reads no file but
/// those that its own command line allows.
#[derive(Debug, Clone, Default)]
pub enum EndpointFiles {
    /// Any file: the paths are arguments of this command, typed by the account that runs it.
    #[default]
    OfCaller,
    OfManager(ManagerFiles),
}

/// Files that a manager reads for endpoints.
#[derive(Debug, Clone)]
pub struct ManagerFiles {
    /// The directory of `serve --endpoint-files`.
    directory: Option<PathBuf>,
    /// The files of the manager's own emulated rack.
    rack: Vec<PathBuf>,
    /// Files and directories with the manager's own secrets, never read for an endpoint.
    own: Vec<PathBuf>,
}

impl ManagerFiles {
    pub fn new(
        directory: Option<&Path>,
        rack: Vec<PathBuf>,
        own: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, Failure> {
        let in_full =
            |path: &Path| std::path::absolute(path).map_err(|error| Failure::file(path, "found", &error));
        if let Some(directory) = directory {
            let found = fs::read_dir(directory);
            found.map_err(|error| Failure::file(directory, "read", &error))?;
        }
        let files = Self {
            directory: directory.map(in_full).transpose()?,
            rack: rack.iter().map(|path| in_full(path)).collect::<Result<_, _>>()?,
            own: own
                .into_iter()
                .map(|path| in_full(&path))
                .collect::<Result<_, _>>()?,
        };
        match &files.directory {
            Some(directory) if files.is_own(&real(directory)) => {
                let message = format!(
                    "--endpoint-files: {} is in the data directory, whose files are not read for endpoints",
                    directory.display()
                );
                Err(Failure::usage(message).with_hint("choose a directory with files for endpoints alone"))
            }
            _ => Ok(files),
        }
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| path.starts_with(real(own)))
    }

    fn allows(&self, path: &Path) -> bool {
        let is_rack = self.rack.iter().any(|file| path == real(file));
        let directory = self.directory.as_deref();
        let is_in_directory = directory.is_some_and(|directory| path.starts_with(real(directory)));
        is_rack || (is_in_directory && !self.is_own(path))
    }

    fn refusal(&self, path: &Path) -> Failure {
        let rule = match &self.directory {
            Some(directory) => format!("files for endpoints are read from {} alone", directory.display()),
            None => "it was started without --endpoint-files, so it reads no files for endpoints".to_owned(),
        };
        Failure::usage(format!("the manager does not read {}: {rule}", path.display())).with_hint(
            "let the manager store the secret: poolwright endpoint set NAME --endpoint-password-file FILE; give the CA \
             when you add the endpoint (--endpoint-ca FILE); or start it with --endpoint-files DIR, a directory with the \
             password, CA and lab files of endpoints and nothing else",
        )
    }
}

impl EndpointFiles {
    /// The file to read. A refusal does not disclose whether the file exists.
    pub fn permitted(&self, path: &Path) -> Result<PathBuf, Failure> {
        let Self::OfManager(files) = self else {
            return Ok(path.to_owned());
        };
        let found = match fs::canonicalize(path) {
            Ok(found) => found,
            // The read reports that the file is missing.
            Err(error) => missing(path, &error).ok_or_else(|| files.refusal(path))?,
        };
        match files.allows(&found) {
            true => Ok(found),
            false => Err(files.refusal(path)),
        }
    }
}

/// The path of a missing file in an existing directory; `None` for a link without a target.
fn missing(path: &Path, error: &io::Error) -> Option<PathBuf> {
    let name = path.file_name()?;
    let folder = fs::canonicalize(path.parent()?).ok()?;
    let place = folder.join(name);
    let is_link = fs::symlink_metadata(&place).is_ok();
    (error.kind() == io::ErrorKind::NotFound && !is_link).then_some(place)
}

/// The path with all links followed; unchanged where it does not exist.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit_code::ExitCode;
    use std::os::unix::fs::symlink;

    /// Fault 85: a client of the API names a file of the manager's machine as the password of an endpoint.
    #[test]
    fn a_manager_reads_files_of_its_directory_alone_and_none_of_its_own_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["allowed/deep", "data/rack"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let files = [
            "allowed/box-1.pw",
            "allowed/deep/ca.pem",
            "allowed/cluster-key",
            "data/secret-key",
            "data/rack/password",
            "data/rack/ca.key",
            "elsewhere",
        ];
        for name in files {
            fs::write(at(name), "secret").unwrap();
        }
        symlink(at("data/secret-key"), at("allowed/link-out")).unwrap();
        symlink(at("allowed/box-1.pw"), at("link-in")).unwrap();
        symlink(at("data/not-there"), at("allowed/dangling")).unwrap();
        let own = [at("data"), at("allowed/cluster-key")];
        let rack = vec![at("data/rack/password")];
        let manager = |directory: Option<&str>| {
            let directory = directory.map(at);
            let files = ManagerFiles::new(directory.as_deref(), rack.clone(), own.clone());
            EndpointFiles::OfManager(files.unwrap())
        };
        let strict = manager(Some("allowed"));
        for name in [
            "allowed/box-1.pw",
            "allowed/deep/ca.pem",
            "link-in",
            "allowed/not-there",
            "data/rack/password",
        ] {
            assert!(strict.permitted(&at(name)).is_ok(), "{name}");
        }
        for name in [
            "allowed/../data/secret-key",
            "allowed/../data/not-there",
            "allowed/cluster-key",
            "allowed/link-out",
            "allowed/dangling",
            "data/secret-key",
            "data/rack/ca.key",
            "elsewhere",
            "not-there",
            "no-folder/not-there",
        ] {
            let refused = strict.permitted(&at(name)).unwrap_err();
            assert_eq!(refused.code, ExitCode::Usage, "{name}");
            assert!(refused.message.contains("allowed alone"), "{refused}");
        }
        // A directory around the data directory opens nothing of it, and one inside it is refused.
        let around = manager(Some("."));
        assert!(around.permitted(&at("elsewhere")).is_ok());
        assert!(around.permitted(&at("data/secret-key")).is_err());
        let inside = ManagerFiles::new(Some(&at("data/rack")), Vec::new(), own.clone());
        assert!(inside.is_err());

        let none = manager(None);
        let refused = none.permitted(&at("allowed/box-1.pw")).unwrap_err();
        assert!(refused.to_string().contains("--endpoint-files"), "{refused}");
        assert!(none.permitted(&at("data/rack/password")).is_ok());
        assert!(EndpointFiles::OfCaller.permitted(&at("data/secret-key")).is_ok());
    }
}
