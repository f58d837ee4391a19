//! `account`: who may ask the manager for what, and where.

use super::{Outcome, removed};
use crate::access::read_password;
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::service_failure::refused;
use crate::tables;
use crate::wire_up::{self, StoreArgs};
use poolwright_service::ErrorCode;
use poolwright_service::accounts::{self, AccountShown, Binding, Role, Scope};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct AccountArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List accounts with their roles
    #[command(after_help = "Example:\n  poolwright account list")]
    List(ManagerArgs),
    /// Make an account
    #[command(after_help = ADD)]
    Add(AddArgs),
    /// Give an account another role everywhere, or let nobody log in to it
    #[command(after_help = SET)]
    Set(SetArgs),
    /// Give an account a role in a scope, beside the one that it has everywhere
    #[command(after_help = BIND)]
    Bind(BindArgs),
    /// Take a role in a scope back
    #[command(after_help = "Example:\n  poolwright account unbind kim Operator tenant/lab")]
    Unbind(BindArgs),
    /// Unlock an account after wrong passwords, on the manager's machine, also while the manager runs
    #[command(after_help = UNLOCK)]
    Unlock(UnlockArgs),
    /// Delete an account; its sessions are over
    #[command(after_help = "Example:\n  poolwright account remove kim --yes")]
    Remove(RemoveArgs),
}

const ADD: &str = "\
Examples:
  poolwright account add kim --role ReadOnly --new-password-file kims-password
  poolwright account add kim --role Operator --new-password-file kims-password --must-change

Roles: Administrator, Operator, ReadOnly, Planner, Auditor. The role holds everywhere; see `poolwright account bind` for
one that holds in a scope.";

const SET: &str = "\
Examples:
  poolwright account set kim --role ReadOnly
  poolwright account set kim --enabled false";

const BIND: &str = "\
Examples:
  poolwright account bind kim Operator tenant/lab   what the tenant lab wants and holds
  poolwright account bind kim Operator fabric/rack-1   what is bound in that fabric, whoever has it
  poolwright account bind kim Planner pool   plans of the whole pool

Operator and Planner can be bound. An account with the role ReadOnly and such a role reads everything, and changes what
lies in the scope.";

const UNLOCK: &str = "\
Example:
  poolwright account unlock admin --data-dir /var/lib/poolwright

It needs write access to the manager's data, and no login. Give the same --store options as to poolwright serve.
Another administrator can unlock the account by Redfish: PATCH of Locked.";

#[derive(Debug, clap::Args)]
struct UnlockArgs {
    #[arg(value_name = "ACCOUNT")]
    name: String,
    /// Data directory of the manager
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    #[arg(value_name = "ACCOUNT")]
    name: String,
    /// What it may do everywhere
    #[arg(long)]
    role: Role,
    /// File with the new account's password, 12 to 256 characters, and nothing else
    #[arg(long, value_name = "FILE")]
    new_password_file: PathBuf,
    /// It can do nothing before it gets another password
    #[arg(long)]
    must_change: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[arg(value_name = "ACCOUNT")]
    name: String,
    #[command(flatten)]
    new: NewArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct NewArgs {
    /// What it may do everywhere
    #[arg(long)]
    role: Option<Role>,
    /// Whether anybody may log in to it
    #[arg(long, value_name = "true|false")]
    enabled: Option<bool>,
}

#[derive(Debug, clap::Args)]
struct BindArgs {
    #[arg(value_name = "ACCOUNT")]
    name: String,
    role: Role,
    /// pool, tenant/NAME or fabric/NAME
    scope: Scope,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[arg(value_name = "ACCOUNT")]
    name: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: AccountArgs, output: Output) -> Outcome {
    match args.action {
        Action::List(manager) => {
            let accounts: Vec<AccountShown> = Api::new(&manager)?.get(&["accounts"]).await?;
            output.show(&accounts, &tables::accounts(&accounts))?;
        }
        Action::Add(AddArgs {
            name,
            role,
            new_password_file,
            must_change,
            manager,
        }) => {
            let password = read_password(&new_password_file)?;
            let new = json!({
                "name": name, "role": role, "password": password, "must_change_password": must_change,
            });
            let account: AccountShown = Api::new(&manager)?.post(&["accounts"], &new).await?;
            show(&account, output)?;
        }
        Action::Set(SetArgs { name, new, manager }) => {
            let change = json!({ "role": new.role, "enabled": new.enabled });
            change_and_show(&Api::new(&manager)?, &name, &change, output).await?;
        }
        Action::Bind(args) => bind(args, output, |bindings, binding| bindings.push(binding)).await?,
        Action::Unbind(args) => {
            bind(args, output, |bindings, binding| {
                bindings.retain(|bound| *bound != binding);
            })
            .await?;
        }
        Action::Unlock(UnlockArgs {
            name,
            data_dir,
            store,
        }) => {
            let store = wire_up::open_store_beside(&data_dir, &store).await?;
            let unlocked = accounts::unlock(store.clone(), &name).await;
            store.close().await;
            unlocked.map_err(|error| match error.code {
                // The usual hint, `account list`, needs a login.
                ErrorCode::NotFound => refused(error).with_hint("check the name, and --data-dir"),
                _ => refused(error),
            })?;
            say(&format!("{name} is unlocked: its failed logins were deleted"));
        }
        Action::Remove(RemoveArgs {
            name,
            confirm,
            manager,
        }) => {
            let api = Api::new(&manager)?;
            confirm.confirm(&format!("delete the account {name}"))?;
            api.delete(&["accounts", &name]).await?;
            removed::show("account", &name, output)?;
        }
    }
    Ok(ExitCode::Ok)
}

/// Changes the roles in scopes as they were read; whoever changed the account meanwhile is not overruled.
async fn bind(
    args: BindArgs,
    output: Output,
    change: impl FnOnce(&mut Vec<Binding>, Binding),
) -> Result<(), Failure> {
    let api = Api::new(&args.manager)?;
    let account: AccountShown = api.get(&["accounts", &args.name]).await?;
    let mut bindings = account.bindings;
    let (role, scope) = (args.role, args.scope);
    change(&mut bindings, Binding { role, scope });
    let change = json!({ "bindings": bindings, "seen": account.revision });
    change_and_show(&api, &args.name, &change, output).await
}

async fn change_and_show(api: &Api, name: &str, change: &Value, output: Output) -> Result<(), Failure> {
    let account: AccountShown = api.post(&["accounts", name], change).await?;
    show(&account, output)
}

fn show(account: &AccountShown, output: Output) -> Result<(), Failure> {
    output.show(account, &tables::accounts(std::slice::from_ref(account)))
}
