//! `audit`: who asked a manager for what, and whether that record is whole.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Cell, Output, Table, column, say};
use poolwright_service::audit::{Entry, Mark, Record};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    #[command(subcommand)]
    verify: Option<AuditCommand>,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Check that no entry was changed, removed or moved since it was written
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct ReadArgs {
    /// So many of the latest entries, or of those after --after; 1000 at most
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    most: u32,
    /// Those after the entry of this number
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY)]
struct VerifyArgs {
    /// What an earlier `audit verify` printed: the log must still have that entry, and all up to it
    #[arg(long, value_name = "NUMBER:HASH")]
    anchor: Option<Mark>,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright audit
  poolwright audit --after 1200 --most 1000 -o json
  poolwright audit verify

Each change has two entries: that it was asked for, before it is begun, and what came of it. So has what runs by itself,
with who set it up. Denials have one; those that are alike within a minute are counted. No entry has a password, a token
or a body.";

const VERIFY: &str = "\
Examples:
  poolwright audit verify
  poolwright audit verify --anchor 1204:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

Every entry has the digest of the one before it. The last digest is printed: keep it somewhere else, and give it with
--anchor the next time. Without that nobody can tell a log that was cut off or written anew as a whole.
Exit code 1: it is not what was written; the first entry that is not is named.";

/// Entries that are asked for at once.
const PART: &str = "1000";

#[derive(Deserialize)]
struct Part {
    before: Mark,
    last: Mark,
    entries: Vec<Entry>,
}

pub async fn run(args: AuditArgs, output: Output) -> Outcome {
    match args.verify {
        Some(AuditCommand::Verify(args)) => verify(args, output).await,
        None => read(args.read, output).await,
    }
}

async fn read(args: ReadArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let most = args.most.to_string();
    let after = args.after.map(|seq| seq.to_string());
    let mut query = vec![("most", most.as_str())];
    query.extend(after.iter().map(|seq| ("after", seq.as_str())));
    let part: Part = api.get_where(&["audit"], &query).await?;
    output.show(&part.entries, &table(&part.entries))?;
    Ok(ExitCode::Ok)
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new([
        column("ENTRY").named("seq"),
        column("AT"),
        column("BY"),
        column("FROM").goes(1),
        column("ENTRY SAYS").named("kind").goes(3),
        column("WHAT"),
        column("ON").key(),
        column("SET UP BY").named("set_up_by").if_any().goes(2),
        column("STATUS").if_any(),
        column("MADE").if_any().goes(1),
        column("TIMES").goes(1),
    ]);
    for entry in entries {
        let record = &entry.record;
        table.row([
            Cell::text(entry.seq),
            Cell::at(entry.at),
            Cell::maybe(record.by.as_ref()),
            Cell::text(&record.from),
            crate::tables::word(&record.kind),
            Cell::text(&record.what),
            match record.paths {
                1 => Cell::text(&record.on),
                _ => Cell::text(record.addresses()),
            },
            Cell::maybe(said(record, "set_up_by")),
            match record.status {
                Some(status) => Cell::text(status),
                None => Cell::maybe(said(record, "state")),
            },
            Cell::maybe(record.made.as_ref()),
            Cell::text(record.times),
        ]);
    }
    table
}

fn said<'r>(record: &'r Record, name: &str) -> Option<&'r str> {
    record.said.get(name)?.as_str()
}

async fn verify(args: VerifyArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let after = async |seq: u64| -> Result<Part, Failure> {
        let after = seq.to_string();
        let query = [("after", after.as_str()), ("most", PART)];
        api.get_where(&["audit"], &query).await
    };
    let mut part = after(0).await?;
    let mut chain = Chain::beginning(&part, args.anchor);
    // What is written meanwhile is left to the next time.
    while !part.entries.is_empty() {
        part.entries.iter().try_for_each(|entry| chain.follow(entry))?;
        if chain.at.seq >= chain.last.seq {
            break;
        }
        part = after(chain.at.seq).await?;
    }
    chain.ended()?;
    let count = usize::try_from(chain.at.seq - chain.first.seq).unwrap_or(usize::MAX);
    let table = crate::tables::pairs(&json!({ "entries": count, "last": chain.at.to_string() }));
    let told = json!({ "verified": true, "entries": count, "before": chain.first, "last": chain.at });
    output.show(&told, &table)?;
    say(&format!(
        "{} as written; the next time: poolwright audit verify --anchor {}",
        counted(count, "entry"),
        chain.at
    ));
    Ok(ExitCode::Ok)
}

/// What was gone through so far.
struct Chain {
    first: Mark,
    at: Mark,
    /// The last entry that there was when we began.
    last: Mark,
    /// What is not found yet.
    anchor: Option<Mark>,
}

impl Chain {
    fn beginning(part: &Part, anchor: Option<Mark>) -> Self {
        Self {
            first: part.before.clone(),
            at: part.before.clone(),
            last: part.last.clone(),
            anchor: anchor.filter(|anchor| *anchor != part.before),
        }
    }

    fn follow(&mut self, entry: &Entry) -> Result<(), Failure> {
        self.at
            .follow(entry)
            .map_err(|broken| untrue(format!("the audit log is not what was written: {broken}")))?;
        match &self.anchor {
            Some(anchor) if anchor.seq == self.at.seq && *anchor != self.at => Err(untrue(format!(
                "the audit log is another one: entry {} had the digest {}",
                anchor.seq, anchor.hash
            ))),
            Some(anchor) if *anchor == self.at => {
                self.anchor = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ended(&self) -> Result<(), Failure> {
        if self.at.seq < self.last.seq {
            let (at, last) = (self.at.seq, self.last.seq);
            return Err(untrue(format!(
                "the audit log is cut off: it ends with entry {at}, and {last} were written"
            )));
        }
        match &self.anchor {
            Some(anchor) if anchor.seq < self.first.seq => Err(Failure::new(
                ExitCode::NotFound,
                format!(
                    "entry {} is forgotten already: the log begins after {}",
                    anchor.seq, self.first.seq
                ),
            )
            .with_hint("verify more often, with the digest of the time before")),
            Some(anchor) => Err(untrue(format!(
                "the audit log is cut off: it ends with entry {}, and had {}",
                self.at.seq, anchor.seq
            ))),
            None => Ok(()),
        }
    }
}

fn untrue(why: String) -> Failure {
    Failure::new(ExitCode::Generic, why)
        .with_hint("somebody wrote to the store past the manager, or it was restored: compare it with a backup of that time")
}
