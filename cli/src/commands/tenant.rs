//! `tenant`: what tenants are promised in the queue.

use super::{Outcome, queue, removed};
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::exit_code::ExitCode;
use crate::output::Output;
use crate::tables;
use poolwright_model::id::TenantId;
use poolwright_service::tenant::{NewTenant, TenantStatus};

#[derive(Debug, clap::Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List tenants that are promised something, hold something, or wait
    #[command(after_help = "Example:\n  poolwright tenant list")]
    List(ManagerArgs),
    /// Promise a tenant something; what is not said stays
    #[command(after_help = SET)]
    Set(SetArgs),
    /// Take back all that a tenant is promised; what it holds stays
    #[command(after_help = "Example:\n  poolwright tenant remove lab --yes")]
    Remove(RemoveArgs),
}

const SET: &str = "\
Examples:
  poolwright tenant set lab --guaranteed 8 --most 16
  poolwright tenant set lab --guaranteed 16 --yes --max-detach 8     where that may stop running jobs of others
  poolwright tenant set web --weight 2

What is within a tenant's guarantee goes first, and others beyond theirs get nothing of it while it is wanted. It binds jobs,
what is composed, and what demands and schedules want; not what is attached by name.";

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[arg(value_name = "TENANT")]
    name: TenantId,
    #[command(flatten)]
    new: NewArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct NewArgs {
    /// GPUs that it gets before others get more than is guaranteed to them
    #[arg(long, value_name = "GPUS")]
    guaranteed: Option<u32>,
    /// GPUs that it may hold at most; 0: as many as there are
    #[arg(long, value_name = "GPUS")]
    most: Option<u32>,
    /// Its share of what several want, against that of others, which is 1 where nothing is said
    #[arg(long, value_name = "WEIGHT")]
    weight: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[arg(value_name = "TENANT")]
    name: TenantId,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: TenantArgs, output: Output) -> Outcome {
    match args.action {
        Action::List(manager) => {
            let tenants: Vec<TenantStatus> = Api::new(&manager)?.get(&["tenants"]).await?;
            output.show(&tenants, &tables::tenants(&tenants))?;
        }
        Action::Set(SetArgs {
            name,
            new,
            detach,
            manager,
        }) => {
            let api = Api::new(&manager)?;
            let tenants: Vec<TenantStatus> = api.get(&["tenants"]).await?;
            let before = tenants.iter().find(|status| status.tenant.id == name);
            let before = before.map_or(0, |status| status.tenant.guaranteed);
            if new.guaranteed.is_some_and(|guaranteed| guaranteed > before) {
                let demands = queue::may_be_reclaimed(&api, &name).await?;
                let what = format!("set tenant {name}, whose waiting jobs may stop these then");
                detach
                    .check_demands(&api, &demands, &what, Ask::IfDetached)
                    .await?;
            }
            let new = NewTenant {
                guaranteed: new.guaranteed,
                most: new.most,
                weight: new.weight,
            };
            let path = ["tenants", name.as_str()];
            let status: TenantStatus = api.post(&path, &new).await?;
            output.show(&status, &tables::tenants(std::slice::from_ref(&status)))?;
        }
        Action::Remove(RemoveArgs {
            name,
            confirm,
            manager,
        }) => {
            let api = Api::new(&manager)?;
            confirm.confirm(&format!("take back all that tenant {name} is promised"))?;
            api.delete(&["tenants", name.as_str()]).await?;
            removed::show("tenant", &name, output)?;
        }
    }
    Ok(ExitCode::Ok)
}
