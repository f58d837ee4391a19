//! `attach`, `detach` and `move`: GPUs by name.

use super::Outcome;
use super::change::{ChangeArgs, ForceArgs, Guarded, PartialArgs, StaleArgs};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::failure::Failure;
use crate::names::{self, Asked};
use crate::output::Output;
use poolwright_model::id::{GpuId, HostId, TenantId};
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH)]
pub struct AttachArgs {
    /// GPUs to attach, by their names in `poolwright get gpus`, by UUID or by serial number; to have some by number, use `compose --gpus N`
    #[arg(value_name = "GPU", required = true)]
    gpus: Vec<GpuId>,
    /// Host to attach them to
    #[arg(long, value_name = "HOST")]
    host: HostId,
    /// Tenant that holds them from then on, within what it may hold; left out: nobody
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    partial: PartialArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const ATTACH: &str = "\
Examples:
  poolwright attach gpu-7f3a… gpu-91bc… --host host-2
  poolwright attach gpu-7f3a… --host host-2 --tenant lab
  poolwright attach gpu-7f3a… --host host-2 --dry-run

`poolwright get gpus` and `poolwright get hosts` show the names.";

#[derive(Debug, clap::Args)]
#[command(after_help = DETACH)]
pub struct DetachArgs {
    /// GPUs to detach, by their names in `poolwright get gpus`, by UUID or by serial number
    #[arg(value_name = "GPU", required = true)]
    gpus: Vec<GpuId>,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    partial: PartialArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const DETACH: &str = "\
Examples:
  poolwright detach gpu-7f3a… --yes
  poolwright detach gpu-7f3a… gpu-91bc… --yes --max-detach 2
  poolwright detach gpu-7f3a… --yes --force --reason \"the host hangs\"";

#[derive(Debug, clap::Args)]
#[command(after_help = MOVE)]
pub struct MoveArgs {
    /// GPUs to move, by their names in `poolwright get gpus`, by UUID or by serial number
    #[arg(value_name = "GPU", required = true)]
    gpus: Vec<GpuId>,
    /// Host to move them to
    #[arg(long, value_name = "HOST")]
    host: HostId,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    partial: PartialArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const MOVE: &str = "\
Examples:
  poolwright move gpu-7f3a… --host host-3 --dry-run
  poolwright move gpu-7f3a… gpu-91bc… --host host-3 --yes

They are detached and attached in one operation: if one can't be, all are back where they were (with --partial-ok that
one). What a demand holds follows its demand, and is not moved by name.";

#[derive(Serialize)]
struct Attach {
    gpus: Vec<GpuId>,
    host: HostId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
}

#[derive(Serialize)]
struct Detach {
    gpus: Vec<GpuId>,
}

pub async fn attach(args: AttachArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let what = Attach {
        gpus: args.gpus,
        host: args.host,
        tenant: args.tenant,
    };
    let allowed = (args.stale, args.partial);
    let made = args.change.make(&api, &["attach"], &what, allowed, output);
    match made.await {
        Ok(code) => Ok(code),
        Err(failure) => Err(suggest(&api, failure, &what).await),
    }
}

async fn suggest(api: &Api, failure: Failure, what: &Attach) -> Failure {
    let mut asked = gpus(&what.gpus);
    asked.push(("hosts", what.host.as_str()));
    names::suggest(api, failure, &asked).await
}

pub async fn move_to(args: MoveArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let guarded = Guarded {
        detach: args.detach,
        what: format!("move {} to {}", named(&args.gpus), args.host),
        ask: Ask::Always,
        plan: None,
    };
    let what = Attach {
        gpus: args.gpus,
        host: args.host,
        tenant: None,
    };
    let allowed = (args.force, args.partial);
    let made = args
        .change
        .make_guarded(&api, &["move"], &what, allowed, &guarded, output);
    match made.await {
        Ok(code) => Ok(code),
        Err(failure) => Err(suggest(&api, failure, &what).await),
    }
}

fn named(gpus: &[GpuId]) -> String {
    let names: Vec<&str> = gpus.iter().map(GpuId::as_str).collect();
    names.join(", ")
}

fn gpus(named: &[GpuId]) -> Vec<Asked<'_>> {
    named.iter().map(|gpu| ("gpus", gpu.as_str())).collect()
}

pub async fn detach(args: DetachArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let guarded = Guarded {
        detach: args.detach,
        what: format!("detach {}", named(&args.gpus)),
        ask: Ask::Always,
        plan: None,
    };
    let what = Detach { gpus: args.gpus };
    let allowed = (args.force, args.partial);
    let made = args
        .change
        .make_guarded(&api, &["detach"], &what, allowed, &guarded, output);
    match made.await {
        Ok(code) => Ok(code),
        Err(failure) => Err(names::suggest(&api, failure, &gpus(&what.gpus)).await),
    }
}
