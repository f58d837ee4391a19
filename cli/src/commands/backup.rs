//! `backup` and `restore`: copies of what a manager keeps in its data directory.

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::output::say;
use crate::wire_up::{self, Copied, Damaged};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP)]
pub struct BackupArgs {
    /// Data directory of the manager, which may run meanwhile
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// File to make; one that is there is never overwritten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

const BACKUP: &str = "\
Examples:
  poolwright backup --data-dir /var/lib/poolwright --out monday.backup

The file is one moment of everything that is kept, read back before it has its name. It holds the accounts, and is for
its owner alone. Certificates (DIR/tls) and the first password (DIR/initial-admin-password) are files of their own: keep
them with it, or a restored manager has a new authority, and wants serve --new-admin-password. Passwords of endpoints are
sealed in it with DIR/secret-key, or with the cluster's key, which are not in it: keep them apart. A manager with --store
keeps everything in PostgreSQL: copy that with pg_dump.";

#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE)]
pub struct RestoreArgs {
    /// File that `poolwright backup` made
    file: PathBuf,
    /// Data directory to make of it: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

const RESTORE: &str = "\
Examples:
  poolwright restore monday.backup --data-dir /var/lib/poolwright
  install --mode 600 kept/secret-key /var/lib/poolwright/secret-key
  poolwright serve --data-dir /var/lib/poolwright
  poolwright diff
  poolwright resume --restored

The accounts are those of the backup. Copy tls and initial-admin-password of the earlier data directory into the new one
before the start; where they are lost, serve --new-admin-password makes a password, and clients need the new
DIR/tls/ca.pem (POOLWRIGHT_CA).

The manager that is started there looks, and changes nothing, until the difference between what the backup says and what
the hardware shows is accepted.";

pub fn backup(args: &BackupArgs) -> Outcome {
    let copied = wire_up::backup(&args.data_dir, &args.out)?;
    say(&format!(
        "{}: cluster {} as of commit {}, {} bytes",
        args.out.display(),
        copied.cluster,
        copied.revision,
        copied.bytes
    ));
    say_damaged(&copied);
    say(&format!(
        "hint: keep {} too, and apart from it: what is sealed in the copy, such as the passwords of endpoints, can't be opened without",
        args.data_dir.join(wire_up::SECRET_KEY).display()
    ));
    Ok(ExitCode::Ok)
}

pub fn restore(args: &RestoreArgs) -> Outcome {
    let copied = wire_up::restore(&args.file, &args.data_dir)?;
    say(&format!(
        "{}: cluster {} as of commit {}",
        args.data_dir.display(),
        copied.cluster,
        copied.revision
    ));
    say_damaged(&copied);
    if !copied.has_checksum {
        say("it has no checksum, as backups of earlier versions: what was changed in it since can't be told");
    }
    say(
        "hint: copy tls and initial-admin-password of the earlier data directory there; without them clients need the new tls/ca.pem, and poolwright serve --new-admin-password makes a password",
    );
    say(
        "hint: start its manager with poolwright serve; it changes nothing until poolwright resume --restored accepts what poolwright diff shows",
    );
    Ok(ExitCode::Ok)
}

/// A copy has damaged documents as they are.
fn say_damaged(copied: &Copied) {
    for Damaged { kind, id, reason } in &copied.damaged {
        say(&format!(
            "damaged document {kind}/{id}: {reason}; look for it in an earlier backup"
        ));
    }
}
