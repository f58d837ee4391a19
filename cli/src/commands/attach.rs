//! `attach` and `detach`: GPUs by name.

use super::Outcome;
use super::change::{ChangeArgs, ForceArgs};
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::output::Output;
use poolwright_model::id::{GpuId, HostId};
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH)]
pub struct AttachArgs {
    /// GPUs to attach
    #[arg(value_name = "GPU", required = true)]
    gpus: Vec<GpuId>,
    /// Host to attach them to
    #[arg(long, value_name = "HOST")]
    host: HostId,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const ATTACH: &str = "\
Examples:
  poolwright attach gpu-7f3a… gpu-91bc… --host host-2
  poolwright attach gpu-7f3a… --host host-2 --dry-run
`poolwright get gpus` and `poolwright get hosts` show the names.";

#[derive(Debug, clap::Args)]
#[command(after_help = DETACH)]
pub struct DetachArgs {
    /// GPUs to detach
    #[arg(value_name = "GPU", required = true)]
    gpus: Vec<GpuId>,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const DETACH: &str = "\
Examples:
  poolwright detach gpu-7f3a… --yes
  poolwright detach gpu-7f3a… --yes --force --reason \"the host hangs\"";

#[derive(Serialize)]
struct Attach {
    gpus: Vec<GpuId>,
    host: HostId,
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
    };
    args.change
        .make(&api, &["attach"], &what, ForceArgs::default(), output)
        .await
}

pub async fn detach(args: DetachArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    if !args.change.is_dry_run() {
        let names: Vec<&str> = args.gpus.iter().map(GpuId::as_str).collect();
        args.confirm.confirm(&format!("detach {}", names.join(", ")))?;
    }
    args.change
        .make(&api, &["detach"], &Detach { gpus: args.gpus }, args.force, output)
        .await
}
