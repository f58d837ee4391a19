//! `host`: hosts that are closed for a time; and agents on hosts, at the manager: tokens by which they are enrolled, those
//! that there are, and their end. And hosts over their life: [`life`].

mod closing;

mod life;

use super::{Outcome, removed};
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::output::human::counted;
use crate::output::{Output, say};
use crate::tables;
use poolwright_model::id::HostId;
use poolwright_service::agent::{Agent, OpenToken, TokenMade, name_of_token};
use poolwright_terminal::some_time;
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct HostArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Give a host nothing new, now or for a time that is to come, as for maintenance; what it has stays
    #[command(after_help = closing::CLOSE)]
    Close(closing::CloseArgs),
    /// Give it GPUs again
    #[command(after_help = closing::OPEN)]
    Open(OneArgs),
    /// Make a token by which agents are enrolled; it is shown once
    #[command(after_help = TOKEN)]
    Token(TokenArgs),
    /// List the tokens that still enrol somebody, without what opens them
    #[command(after_help = TOKENS)]
    Tokens(ManagerArgs),
    /// Withdraw a token: from now on it enrols nobody, and whoever was enrolled by it stays
    #[command(after_help = "Example:\n  poolwright host withdraw-token 7c9e6679f7d44e0c8a1f3b5d2e6a9c04")]
    WithdrawToken(WithdrawArgs),
    /// List the agents that were enrolled, and until when their certificates are good
    #[command(after_help = AGENTS)]
    Agents(ManagerArgs),
    /// Ask a host's agent no more: its BMC speaks for it again
    #[command(after_help = "Example:\n  poolwright host revoke-agent host-3 --yes")]
    RevokeAgent(RevokeArgs),
    /// Give an agent another certificate now; the manager does it by itself 10 days before the end
    #[command(after_help = "Example:\n  poolwright host renew-agent host-3")]
    RenewAgent(OneArgs),
    #[command(flatten)]
    Life(life::Action),
}

const TOKEN: &str = "\
Examples:
  poolwright host token > token   for one host that has no agent yet
  poolwright host token --uuid 4c4c4544-0042-3510-8052-b4c04f4d3732 --for 15m > token
  poolwright host token --uuid 4c4c4544-0042-3510-8052-b4c04f4d3732 --uuid 4c4c4544-0042-3510-8052-b5c04f4d3732 --for 2d

Then, on the host: sudo poolwright-agent enrol --manager https://pool:8443 --ca ca.pem --token-file token --address \
10.0.3.17:8444
A token that names hosts is good once for each of them, and is the only one that replaces an agent, as after a reimage.
JSON: {token, id, uuids, uses, ends}.";

const TOKENS: &str = "\
Examples:
  poolwright host tokens
  poolwright host tokens -o json

One that nobody should have any more is withdrawn: poolwright host withdraw-token TOKEN
JSON: [{id, uuids, used, uses_left, made, by, ends}].";

const AGENTS: &str = "\
Examples:
  poolwright host agents
  poolwright host agents -o json

JSON: [{host, uuid, address, enrolment, key, enrolled, by, ends, renewed, revoked}].";

#[derive(Debug, clap::Args)]
struct TokenArgs {
    /// SMBIOS UUID of a host that it is for, as its BMC has it; may be repeated
    #[arg(long = "uuid", value_name = "UUID")]
    uuids: Vec<String>,
    /// For how long it is good, 7d at most
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = some_time)]
    length: Duration,
    /// For how many of these hosts; all of them, if it is left out
    #[arg(long, value_name = "N")]
    uses: Option<u32>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct WithdrawArgs {
    /// What `host tokens` calls it
    #[arg(value_name = "TOKEN")]
    token: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    host: HostId,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub async fn run(args: HostArgs, output: Output) -> Outcome {
    match args.action {
        Action::Close(args) => closing::close(&args, output).await?,
        Action::Open(OneArgs { host, manager }) => closing::open(&host, &manager, output).await?,
        Action::Token(args) => token(&args, output).await?,
        Action::Tokens(manager) => {
            let open: Vec<OpenToken> = Api::new(&manager)?.get(&["agent-tokens"]).await?;
            output.show(&open, &tables::open_tokens(&open))?;
        }
        Action::WithdrawToken(WithdrawArgs { token, manager }) => {
            let name = name_of_token(&token);
            Api::new(&manager)?.delete(&["agent-tokens", name]).await?;
            removed::show("token", name, output)?;
        }
        Action::Agents(manager) => {
            let agents: Vec<Agent> = Api::new(&manager)?.get(&["agents"]).await?;
            output.show(&agents, &tables::agents(&agents))?;
        }
        Action::RevokeAgent(RevokeArgs { one, confirm }) => {
            confirm.confirm(&format!("revoke the agent of {}", one.host))?;
            changed(&one, "revoke", output).await?;
        }
        Action::Life(action) => life::run(action, output).await?,
        Action::RenewAgent(one) => changed(&one, "renew", output).await?,
    }
    Ok(ExitCode::Ok)
}

async fn token(args: &TokenArgs, output: Output) -> Result<(), crate::failure::Failure> {
    let seconds = u32::try_from(args.length.as_secs().max(1)).unwrap_or(u32::MAX);
    let wanted = json!({ "uuids": args.uuids, "seconds": seconds, "uses": args.uses });
    let made: TokenMade = Api::new(&args.manager)?.post(&["agent-tokens"], &wanted).await?;
    output.show_as(&made, &tables::pairs(&made), |_| made.token.clone())?;
    let whom = match made.uuids.is_empty() {
        true => "one host that has no agent yet".to_owned(),
        false => format!("{}, each once", counted(made.uses as usize, "host")),
    };
    say(&format!(
        "good until {} for {whom}; it is shown this once",
        made.ends
    ));
    Ok(())
}

async fn changed(one: &OneArgs, how: &str, output: Output) -> Result<(), crate::failure::Failure> {
    let path = ["agents", one.host.as_str(), how];
    let agent: Agent = Api::new(&one.manager)?.post(&path, &json!({})).await?;
    output.show(&agent, &tables::agents(std::slice::from_ref(&agent)))
}
