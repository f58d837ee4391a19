//! Where a manager keeps everything: a file in its data directory, or a PostgreSQL database.

mod instances;

use crate::access::read_password;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::service_failure;
use poolwright_service::leases::Sharing;
use poolwright_service::{ClusterKey, ExecuteOptions};
use poolwright_store::{Copied, OpenError, PostgresOptions, PostgresStore, SqliteStore, Store};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// Options of commands that open a store.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct StoreArgs {
    /// PostgreSQL database to keep everything in, instead of a file in the data directory:
    /// postgres://USER@HOST[:PORT]/DATABASE, without a password
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// File with the password of the database's account, and nothing else
    #[arg(long, value_name = "FILE", requires = "store")]
    store_password_file: Option<PathBuf>,
    /// Certificate authority of the database's server, a PEM file; needed unless it is on this machine
    #[arg(long, value_name = "FILE", requires = "store")]
    store_ca: Option<PathBuf>,
    /// File with a secret that all managers of the database are given: then clients trust one authority for all, and
    /// each can log in at every endpoint
    #[arg(long, value_name = "FILE", requires = "store")]
    cluster_key_file: Option<PathBuf>,
}

impl StoreArgs {
    /// What managers of one store know beside it.
    pub fn cluster_key(&self) -> Result<Option<ClusterKey>, Failure> {
        let Some(file) = &self.cluster_key_file else {
            return Ok(None);
        };
        let secret = read_password(file)?;
        Ok(Some(ClusterKey::new(&secret).map_err(service_failure::refused)?))
    }

    /// The files with secrets that these arguments name.
    pub fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.store_password_file, &self.cluster_key_file];
        files.into_iter().flatten().cloned()
    }

    /// How this manager shares the store with others; `None` where it is its own.
    pub fn sharing(
        &self,
        data_dir: &Path,
        listen: SocketAddr,
        execute: &ExecuteOptions,
    ) -> Result<Option<Sharing>, Failure> {
        if self.store.is_none() {
            return Ok(None);
        }
        let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = format!("{}, {listen}", machine.trim());
        let mut sharing = Sharing::new(home(data_dir)?, name, execute.longest_write());
        sharing.earlier = instances::add(data_dir, &sharing.id)?;
        Ok(Some(sharing))
    }
}

/// In the data directory.
pub const SECRET_KEY: &str = "secret-key";

/// With what this manager seals secrets where it was given no cluster's key. Made at the first start, and in no backup:
/// what is sealed there can't be read by whoever has the backup alone.
pub fn own_key(data_dir: &Path) -> Result<ClusterKey, Failure> {
    let file = data_dir.join(SECRET_KEY);
    let secret = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let drawn = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
            let secret: String = drawn.iter().map(|drawn| drawn.simple().to_string()).collect();
            write_whole(&file, &secret).map_err(|error| Failure::file(&file, "written", &error))?;
            secret
        }
        Err(error) => return Err(Failure::file(&file, "read", &error)),
    };
    ClusterKey::new(secret.trim()).map_err(|error| {
        Failure::new(ExitCode::Generic, format!("{} is damaged: {error}", file.display())).with_hint(
            "put back the copy that you have of it; without one remove it, and give the passwords of endpoints again",
        )
    })
}

/// All of it or nothing, also after a power cut: what is sealed with a key that is lost is lost, too.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let draft = file.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    writeln!(written, "{text}")?;
    written.sync_all()?;
    fs::rename(&draft, file)?;
    match file.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// The id of the data directory, which stays when the directory is moved. A copy has it, too.
fn home(data_dir: &Path) -> Result<String, Failure> {
    let file = data_dir.join("manager-id");
    let id = match fs::read_to_string(&file) {
        Ok(id) => id,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = uuid::Uuid::new_v4().to_string();
            fs::write(&file, &id).map_err(|error| Failure::file(&file, "written", &error))?;
            id
        }
        Err(error) => return Err(Failure::file(&file, "read", &error)),
    };
    Ok(id.trim().to_owned())
}

/// The store of the manager that this data directory belongs to.
pub async fn open_store(data_dir: &Path, args: &StoreArgs) -> Result<Arc<dyn Store>, Failure> {
    let store: Arc<dyn Store> = match postgres_options(args)? {
        None => Arc::new(SqliteStore::open(data_dir).map_err(refused)?),
        Some(options) => Arc::new(PostgresStore::open(data_dir, options).await.map_err(refused)?),
    };
    Ok(store)
}

/// The same for one command, also while the manager runs.
pub async fn open_store_beside(data_dir: &Path, args: &StoreArgs) -> Result<Arc<dyn Store>, Failure> {
    let store: Arc<dyn Store> = match postgres_options(args)? {
        None => Arc::new(SqliteStore::beside(data_dir).map_err(refused)?),
        Some(options) => Arc::new(PostgresStore::beside(data_dir, options).await.map_err(refused)?),
    };
    Ok(store)
}

/// `None` if the store is a file in the data directory.
fn postgres_options(args: &StoreArgs) -> Result<Option<PostgresOptions>, Failure> {
    let Some(url) = &args.store else {
        return Ok(None);
    };
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        // It may hold a password: it is not repeated.
        return Err(
            Failure::usage("--store: the address does not begin with postgres://").with_hint(
                "write it as postgres://USER@HOST/DATABASE; without --store everything is kept in a file in --data-dir",
            ),
        );
    }
    let password = args
        .store_password_file
        .as_deref()
        .map(read_password)
        .transpose()?;
    Ok(Some(PostgresOptions {
        url: url.clone(),
        password,
        ca: args.store_ca.clone(),
    }))
}

/// Copies the store of this data directory into a file.
pub fn backup(data_dir: &Path, out: &Path) -> Result<Copied, Failure> {
    poolwright_store::backup(data_dir, out).map_err(refused)
}

/// Makes a data directory of such a file.
pub fn restore(file: &Path, data_dir: &Path) -> Result<Copied, Failure> {
    let why = format!("it was restored from {}", file.display());
    poolwright_store::restore(file, data_dir, &why).map_err(|error| match error {
        OpenError::Foreign { place, reason } if Path::new(&place) == file => {
            Failure::usage(format!("{place} is no backup of Poolwright: {reason}"))
                .with_hint("give a file that poolwright backup made")
        }
        other => refused(other),
    })
}

fn refused(error: OpenError) -> Failure {
    let (code, hint) = match &error {
        OpenError::Locked { .. } => (
            ExitCode::Conflict,
            "one data directory serves one manager: stop the other one, or choose another --data-dir",
        ),
        OpenError::Foreign { .. } => (
            ExitCode::Usage,
            "choose a folder of its own for --data-dir, or a database of its own for --store; or move it away",
        ),
        OpenError::OtherCluster { .. } => (
            ExitCode::Conflict,
            "nothing was changed; all managers of a cluster share one database, each with a --data-dir of its own",
        ),
        OpenError::Newer { .. } | OpenError::Damaged { .. } | OpenError::Lost { .. } => {
            (ExitCode::Generic, "nothing was changed")
        }
        OpenError::Older { .. } => (
            ExitCode::Conflict,
            "start the manager of this version once: it converts them",
        ),
        OpenError::Options { .. } => (
            ExitCode::Usage,
            "see --store, --store-password-file and --store-ca of poolwright serve --help",
        ),
        OpenError::Unreachable { .. } => (
            ExitCode::Unavailable,
            "check the address, that the database runs, and what is in between",
        ),
        OpenError::Denied { .. } => (
            ExitCode::Authentication,
            "check the account in --store and the password in --store-password-file",
        ),
        OpenError::Missing { place, .. } => (
            ExitCode::NotFound,
            match place.starts_with("PostgreSQL") {
                true => {
                    "check the name at the end of --store, or make the database: createdb --owner USER DATABASE"
                }
                false => "check the path; what a manager with --store keeps is copied with pg_dump",
            },
        ),
        OpenError::Occupied { .. } => (ExitCode::Conflict, "choose another name, or move it away"),
        OpenError::Io { .. } => (ExitCode::Generic, "check the path, who owns it, and the disk"),
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}
