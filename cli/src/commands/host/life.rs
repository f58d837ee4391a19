//! Hosts over their life: out of service for good, replaced by others, carried elsewhere, back again; and what each has gone through.

use super::OneArgs;
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::failure::Failure;
use crate::names;
use crate::output::{Output, say};
use crate::tables;
use poolwright_model::id::HostId;
use poolwright_service::host::{HostLife, Retirement};
use serde::Serialize;
use serde_json::json;

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List the hosts that are retired
    #[command(after_help = "Example:\n  poolwright host retired")]
    Retired(ManagerArgs),
    /// Say what a host has gone through: retired, replaced, back in service
    #[command(after_help = "Example:\n  poolwright host history host-3")]
    History(OneArgs),
    /// Take a host out of service for good: it is given no GPU any more, and its agent is asked no more
    #[command(after_help = RETIRE)]
    Retire(RetireArgs),
    /// Take a retired host back into service
    #[command(after_help = REINSTATE)]
    Reinstate(OneArgs),
    /// Say that another host came in the place of one: that one is retired, and each history names the other
    #[command(after_help = REPLACE)]
    Replace(ReplaceArgs),
    /// Carry a host to other ports or another place: it is given nothing until it is seen there
    #[command(after_help = MOVE)]
    Move(MoveArgs),
}

const MOVE: &str = "\
Examples:
  poolwright host move host-3 --to \"rack 7, unit 12\"
  poolwright host move host-3 --done
  poolwright host move host-3 --cancel

It must hold nothing. It is known by its UUID: once it is seen at other ports than before, and at none where it was, its history \
notes from where to where, and it is opened. Where its ports stay the same, --done says that it stands there.";

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["to", "done", "cancel"])))]
pub struct MoveArgs {
    #[arg(value_name = "HOST")]
    host: HostId,
    /// Where to, as people call it
    #[arg(long, value_name = "TEXT")]
    to: Option<String>,
    /// It stands there, as you see; without this the manager sees it by its ports
    #[arg(long)]
    done: bool,
    /// It stays where it is
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

const RETIRE: &str = "\
Examples:
  poolwright host retire host-3 --yes
  poolwright host retire host-3 --reason \"its lease ends\"

It must hold nothing: poolwright get gpus shows what it has. Its history stays, also when it is gone.";

const REINSTATE: &str = "\
Example:
  poolwright host reinstate host-3

Its agent stays revoked, and is enrolled anew by a token: poolwright host token --uuid UUID";

const REPLACE: &str = "\
Example:
  poolwright host replace host-3 host-9 --yes

The first is retired, as poolwright host retire does it, and must hold nothing.";

#[derive(Debug, clap::Args)]
pub struct RetireArgs {
    #[arg(value_name = "HOST")]
    host: HostId,
    /// Why, in words
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

#[derive(Debug, clap::Args)]
pub struct ReplaceArgs {
    #[arg(value_name = "OLD")]
    old: HostId,
    #[arg(value_name = "NEW")]
    new: HostId,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub async fn run(action: Action, output: Output) -> Result<(), Failure> {
    match action {
        Action::Retired(manager) => {
            let all: Vec<Retirement> = Api::new(&manager)?.get(&["retired-hosts"]).await?;
            output.show(&all, &tables::retired_hosts(&all))
        }
        Action::History(OneArgs { host, manager }) => {
            let api = Api::new(&manager)?;
            let life = api.get(&["hosts", host.as_str(), "history"]).await;
            show(&known(&api, &[&host], life).await?, output)
        }
        Action::Retire(args) => {
            let RetireArgs {
                host,
                reason,
                manager,
                confirm,
            } = args;
            confirm.confirm(&format!("retire {host}"))?;
            let life = asked(&manager, &host, "retire", &json!({ "why": reason }), &[&host]).await?;
            show(&life, output)
        }
        Action::Reinstate(OneArgs { host, manager }) => {
            let life = asked(&manager, &host, "reinstate", &json!({}), &[&host]).await?;
            show(&life, output)?;
            say("it may be given GPUs again; an agent of it has to be enrolled anew: poolwright host token");
            Ok(())
        }
        Action::Move(MoveArgs {
            host,
            to,
            done,
            cancel: _,
            manager,
        }) => {
            let (what, body) = match (to, done) {
                (Some(to), _) => ("move", json!({ "to": to })),
                (None, true) => ("moved", json!({})),
                (None, false) => ("stays", json!({})),
            };
            show(&asked(&manager, &host, what, &body, &[&host]).await?, output)
        }
        Action::Replace(ReplaceArgs {
            old,
            new,
            manager,
            confirm,
        }) => {
            confirm.confirm(&format!("retire {old}, replaced by {new}"))?;
            let life = asked(&manager, &old, "replaced", &json!({ "by": new }), &[&old, &new]).await?;
            show(&life, output)
        }
    }
}

/// Asks for something to be done with a host; `named` are all that somebody named.
async fn asked(
    manager: &ManagerArgs,
    host: &HostId,
    what: &str,
    body: &impl Serialize,
    named: &[&HostId],
) -> Result<HostLife, Failure> {
    let api = Api::new(manager)?;
    let answer = api.post(&["hosts", host.as_str(), what], body).await;
    known(&api, named, answer).await
}

/// The answer, or which names there are where one of these is wrong.
async fn known<T>(api: &Api, named: &[&HostId], answer: Result<T, Failure>) -> Result<T, Failure> {
    let named: Vec<(&str, &str)> = named.iter().map(|host| ("hosts", host.as_str())).collect();
    match answer {
        Ok(answer) => Ok(answer),
        Err(failure) => Err(names::suggest(api, failure, &named).await),
    }
}

fn show(life: &HostLife, output: Output) -> Result<(), Failure> {
    output.show_as(life, &tables::host_events(life), |width| {
        tables::host_history(life, width)
    })
}
